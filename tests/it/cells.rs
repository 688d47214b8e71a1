//! Every runtime in every kind of pool, with and without a worker: broken code never replaces working code, gets an id
//! if it was the first, and is replaced once repaired.

use crate::support::prelude::*;

const OWNER: u32 = 33;

pub(super) struct Runtime {
    pub(super) name: &'static str,
    pub(super) file: &'static str,
    pub(super) good: &'static str,
    pub(super) broken: &'static str,
    keys: &'static str,
    own: &'static str,
    in_pool: Expected,
    in_application_pool: Expected,
}

impl Runtime {
    fn lines(&self, keys: &str, root: &Path) -> String {
        let keys = keys.replace("ROOT", &root.display().to_string());
        format!("runtime = \"{}\"\n{keys}", self.name)
    }

    pub(super) fn application(&self, root: &Path) -> String {
        let more = match self.name {
            "php" => format!("version = {:?}\n", env!("FORKYARD_PHP")),
            _ => format!("root = {:?}\n", root.display().to_string()),
        };
        self.lines(self.keys, root) + &more
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Tried,
    RunsAnew,
    Unknown,
}

const KINDS: [(&str, &str); 4] = [
    ("static", "pm = \"static\"\nmax_children = 1\n"),
    (
        "dynamic",
        "pm = \"dynamic\"\nmax_children = 2\nstart_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 1\n",
    ),
    ("ondemand", "pm = \"ondemand\"\nmax_children = 1\n"),
    ("applications", ""),
];

const NODE: &str = "require('http').createServer((_, response) => response.end('VALUE')).listen(process.env.PORT, '127.0.0.1')\n";
const NODE_BROKEN: &str = "throw new Error('no');\n";
const ASGI: &str = "async def app(scope, receive, send):\n    \
        if scope['type'] == 'lifespan':\n        \
            await receive()\n        \
            await send({'type': 'lifespan.startup.complete'})\n        \
            await receive()\n        \
            await send({'type': 'lifespan.shutdown.complete'})\n        \
            return\n    \
        await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n    \
        await send({'type': 'http.response.body', 'body': b'VALUE'})\n";
const ASGI_BROKEN: &str = "async def app(scope, receive, send):\n    \
        await receive()\n    \
        await send({'type': 'lifespan.startup.failed', 'message': 'no'})\n";
const FASTCGI: &str = concat!(
    include_str!("../support/fastcgi_server.py"),
    "serve(lambda params: b'VALUE')\n"
);

pub(super) const RUNTIMES: [Runtime; 10] = [
    Runtime {
        name: "php",
        file: "index.php",
        good: "<?php echo 'VALUE';",
        broken: "<?php throw new Exception('no');",
        keys: "",
        own: "",
        in_pool: Expected::RunsAnew,
        in_application_pool: Expected::RunsAnew,
    },
    Runtime {
        name: "php",
        file: "worker.php",
        good: "<?php while (forkyard_handle_request(function () { echo 'VALUE'; })) {}\n",
        broken: "<?php throw new Exception('no');\n",
        keys: "worker = \"ROOT/worker.php\"\nworker_mode = \"loop\"\n",
        own: "worker = \"ROOT/worker.php\"\nworker_mode = \"loop\"\n",
        in_pool: Expected::Tried,
        in_application_pool: Expected::Unknown,
    },
    Runtime {
        name: "php",
        file: "worker.php",
        good: "<?php while (forkyard_handle_request(function () { echo 'VALUE'; })) {}\n",
        broken: "<?php throw new Exception('no');\n",
        keys: "worker = \"ROOT/worker.php\"\nworker_mode = \"snapshot\"\n",
        own: "worker = \"ROOT/worker.php\"\nworker_mode = \"snapshot\"\n",
        in_pool: Expected::Tried,
        in_application_pool: Expected::Unknown,
    },
    Runtime {
        name: "wsgi",
        file: "wsgi.py",
        good: "def application(environ, start):\n    start('200 OK', [])\n    return [b'VALUE']\n",
        broken: "import no_such_module\n",
        keys: "",
        own: "",
        in_pool: Expected::Tried,
        in_application_pool: Expected::Tried,
    },
    Runtime {
        name: "asgi",
        file: "main.py",
        good: ASGI,
        broken: ASGI_BROKEN,
        keys: "entry = \"main:app\"\n",
        own: "entry = \"main:app\"\n",
        in_pool: Expected::Tried,
        in_application_pool: Expected::Tried,
    },
    Runtime {
        name: "rack",
        file: "config.ru",
        good: "run ->(env) { [200, {}, ['VALUE']] }\n",
        broken: "raise 'no'\n",
        keys: "",
        own: "",
        in_pool: Expected::Tried,
        in_application_pool: Expected::Tried,
    },
    Runtime {
        name: "node",
        file: "app.js",
        good: NODE,
        broken: NODE_BROKEN,
        keys: "",
        own: "",
        in_pool: Expected::Tried,
        in_application_pool: Expected::Tried,
    },
    Runtime {
        name: "http",
        file: "serve.js",
        good: NODE,
        broken: NODE_BROKEN,
        keys: "start_command = \"node serve.js\"\n",
        own: "start_command = \"node serve.js\"\n",
        in_pool: Expected::Tried,
        in_application_pool: Expected::Tried,
    },
    Runtime {
        name: "fastcgi",
        file: "app.py",
        good: FASTCGI,
        broken: "raise OSError('no')\n",
        keys: "start_command = \"python3 app.py\"\n",
        own: "start_command = \"python3 app.py\"\n",
        in_pool: Expected::Tried,
        in_application_pool: Expected::Tried,
    },
    Runtime {
        name: "cgi",
        file: "run.cgi",
        good: "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\nVALUE'\n",
        broken: "#!/bin/sh\nexit 1\n",
        keys: "",
        own: "entry = \"run.cgi\"\n",
        in_pool: Expected::RunsAnew,
        in_application_pool: Expected::RunsAnew,
    },
];

fn has_a_worker(runtime: usize, kind: usize) -> bool {
    (runtime + kind) % 2 == 0
}

#[test]
fn every_pair_of_values_is_tried() {
    let mut of_runtimes = BTreeSet::new();
    let mut of_kinds = BTreeSet::new();
    for runtime in 0..RUNTIMES.len() {
        for kind in 0..KINDS.len() {
            of_runtimes.insert((runtime, has_a_worker(runtime, kind)));
            of_kinds.insert((kind, has_a_worker(runtime, kind)));
        }
    }
    assert_eq!(of_runtimes.len(), 2 * RUNTIMES.len());
    assert_eq!(of_kinds.len(), 2 * KINDS.len());
}

struct Cell<'a> {
    daemon: &'a Daemon,
    runtime: &'a Runtime,
    kind: &'static str,
    root: PathBuf,
}

impl Cell<'_> {
    fn write(&self, source: &str) {
        let place = self.root.join(self.runtime.file);
        write_program(&place, source);
        give(&place);
    }

    fn ask(&self) -> Answer {
        let mut params = Params::get(&self.root, self.runtime.file, "");
        if self.kind == "applications" {
            params = params.with("FORKYARD_APP_ROOT", &self.root.display().to_string());
        }
        self.daemon.ask(self.kind, &params)
    }

    fn answers(&self, value: &str) {
        let answer = self.ask();
        let whole = answer.text();
        assert_eq!(answer.body(), value, "{self}: {whole}\n{}", self.daemon.log());
    }

    fn refused(&self) -> String {
        let answer = self.ask();
        match answer.body().split_once("Error ID: ") {
            Some((_, id)) => id.trim().to_owned(),
            None => answer.error_id(),
        }
    }

    fn restart(&self, wanted: i32) {
        let root = self.root.display().to_string();
        let name = match self.kind {
            "applications" => &root,
            pool => pool,
        };
        let (code, text) = self.daemon.said(&["restart", name, "--wait"]);
        assert_eq!(code, Some(wanted), "{self}: {text}\n{}", self.daemon.log());
    }

    fn is_tried(&self, serves: bool) {
        if serves {
            self.answers("one");
            self.write(self.runtime.broken);
            self.restart(70);
            self.answers("one");
        } else {
            self.write(self.runtime.broken);
            let id = self.refused();
            let (code, text) = self.daemon.said(&["error", &id]);
            assert_eq!(code, Some(0), "{self}: {text}");
            self.is_event();
            if self.kind != "applications" {
                let (code, text) = self.daemon.said(&["health", "--ready"]);
                let names_it = text.contains(&format!("{}: failing", self.kind));
                assert!(code != Some(0) && names_it, "{self}: {code:?} {text}");
            }
        }
        self.write(&self.runtime.good.replace("VALUE", "two"));
        self.restart(0);
        self.answers("two");
    }

    /// Whether the failed start is among the pool's events.
    fn is_event(&self) {
        let events = parsed(&self.daemon.shown(&["events", self.kind, "--json"]));
        let events = events.as_array().expect("events");
        let id = |event: &Value| {
            event["detail"]
                .as_str()
                .and_then(|it| it.strip_prefix("error "))
                .map(str::len)
        };
        let found = events
            .iter()
            .any(|event| event["kind"] == "start-failed" && id(event) == Some(8));
        assert!(found, "{self}: {events:#?}");
    }

    fn is_unknown(&self) {
        let (_, text) = self.daemon.said(&["error", &self.refused()]);
        assert!(text.contains("worker: unknown key"), "{self}: {text}");
    }

    fn runs_anew(&self, serves: bool) {
        if serves {
            self.answers("one");
        }
        self.write(self.runtime.broken);
        wait_until("the broken code", || !self.ask().body().contains("one"));
        self.restart(0);
        self.write(&self.runtime.good.replace("VALUE", "two"));
        wait_until("the code that is mended", || self.ask().body() == "two");
    }
}

impl std::fmt::Display for Cell<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {:?} {}", self.runtime.name, self.runtime.keys, self.kind)
    }
}

fn give(place: &Path) {
    if is_root() {
        chown(place, Some(OWNER), Some(OWNER)).expect("chown");
    }
}

fn configure(dir: &Path, runtime: &Runtime) -> String {
    let place = dir.display();
    let mut text = format!("[global]\ncontrol = \"{place}/control.sock\"\n");
    for (kind, pm) in KINDS {
        let root = root(dir, kind);
        fs::create_dir_all(&root).expect("mkdir");
        if kind == "applications" {
            fs::write(root.join("forkyard.toml"), runtime.lines(runtime.own, &root)).expect("settings");
            give(&root.join("forkyard.toml"));
            give(&root);
            text += &format!(
                "[pool.{kind}]\nlisten = {{ address = \"{place}/{kind}.sock\", mode = \"0666\" }}\n\
                 routing = \"application\"\n[pool.{kind}.applications]\ndirectories = [\"{place}/apps\"]\n\
                 min_uid = 1\nstat_throttle_rate = 0\n"
            );
            continue;
        }
        make_writable(&root);
        text += &pool(dir, kind, pm, &runtime.application(&root));
    }
    text
}

fn root(dir: &Path, kind: &str) -> PathBuf {
    match kind {
        "applications" => dir.join("apps").join("site"),
        kind => dir.join(kind),
    }
}

fn every_kind_of_pool(at: usize) {
    let runtime = &RUNTIMES[at];
    let daemon = Daemon::start(|dir| {
        let text = configure(dir, runtime);
        for (kind, _) in KINDS.iter().enumerate() {
            let root = root(dir, KINDS[kind].0);
            let source = match has_a_worker(at, kind) {
                true => runtime.good.replace("VALUE", "one"),
                false => runtime.broken.to_owned(),
            };
            let place = root.join(runtime.file);
            write_program(&place, &source);
            give(&place);
        }
        text
    });
    for (place, (kind, _)) in KINDS.into_iter().enumerate() {
        let root = root(&daemon.dir, kind);
        let daemon = &daemon;
        let cell = Cell {
            daemon,
            runtime,
            kind,
            root,
        };
        let serves = has_a_worker(at, place);
        let expected = match kind {
            "applications" => runtime.in_application_pool,
            _ => runtime.in_pool,
        };
        match expected {
            Expected::Tried => cell.is_tried(serves),
            Expected::RunsAnew => cell.runs_anew(serves),
            Expected::Unknown => cell.is_unknown(),
        }
    }
}

tests! {
    fn plain_php() => every_kind_of_pool(0);
    fn a_loop_of_php() => every_kind_of_pool(1);
    fn a_snapshot_of_php() => every_kind_of_pool(2);
    fn wsgi() => every_kind_of_pool(3);
    fn asgi() => every_kind_of_pool(4);
    fn rack() => every_kind_of_pool(5);
    fn node() => every_kind_of_pool(6);
    fn http() => every_kind_of_pool(7);
    fn fastcgi() => every_kind_of_pool(8);
    fn cgi() => every_kind_of_pool(9);
}
