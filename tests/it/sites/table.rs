//! Every runtime in a pool of one and in an application pool: start, answer, error, restart, limits, logs.

use super::{USERS, configuration};
use crate::it::runtimes::fastcgi_programs::compiled;
use crate::it::rust_handler::example;
use crate::support::prelude::*;

/// An application that answers `pid=PID`. On request it writes `a line of it` to standard error, or its pid into the
/// file `slow` and waits for `go`.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) file: &'static str,
    pub(super) text: &'static str,
    pub(super) broken: &'static str,
    pub(super) error: &'static str,
    own: &'static str,
    table: &'static str,
}

const PHP: &str = r#"<?php
if (isset($_GET['log'])) error_log('a line of it');
if (isset($_GET['slow'])) {
    file_put_contents(__DIR__ . '/slow', getmypid() . "\n");
    while (!file_exists(__DIR__ . '/go')) { usleep(2000); clearstatcache(); }
}
echo 'pid=', getmypid();
"#;
const WSGI: &str = r#"
import os, sys, time
def application(environ, start_response):
    if environ["QUERY_STRING"] == "log":
        print("a line of it", file=sys.stderr, flush=True)
    if environ["QUERY_STRING"] == "slow":
        open("slow", "w").write("%d\n" % os.getpid())
        while not os.path.exists("go"):
            time.sleep(0.002)
    start_response("200 OK", [])
    return [b"pid=%d" % os.getpid()]
"#;
const ASGI: &str = r#"
import asyncio, os, sys
async def application(scope, receive, send):
    assert scope["type"] == "http"
    if scope["query_string"] == b"log":
        print("a line of it", file=sys.stderr, flush=True)
    if scope["query_string"] == b"slow":
        open("slow", "w").write("%d\n" % os.getpid())
        while not os.path.exists("go"):
            await asyncio.sleep(0.002)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"pid=%d" % os.getpid()})
"#;
const RACK: &str = r##"
run ->(env) {
  $stderr.puts "a line of it" if env["QUERY_STRING"] == "log"
  if env["QUERY_STRING"] == "slow"
    File.write("slow", "#{Process.pid}\n")
    sleep 0.002 until File.exist?("go")
  end
  [200, {}, ["pid=#{Process.pid}"]]
}
"##;
const NODE: &str = r#"
const fs = require("fs");
require("http").createServer((request, response) => {
  if (request.url.endsWith("?log")) console.error("a line of it");
  const answer = () => response.end("pid=" + process.pid);
  if (!request.url.endsWith("?slow")) return answer();
  fs.writeFileSync("slow", process.pid + "\n");
  const wait = () => fs.existsSync("go") ? answer() : setTimeout(wait, 2);
  wait();
}).listen(process.env.PORT);
"#;
const HTTP: &str = r#"
import os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_):
        pass
    def do_GET(self):
        if self.path.endswith("?log"):
            print("a line of it", file=sys.stderr, flush=True)
        if self.path.endswith("?slow"):
            open("slow", "w").write("%d\n" % os.getpid())
            while not os.path.exists("go"):
                time.sleep(0.002)
        body = b"pid=%d" % os.getpid()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"#;
const CGI: &str = r#"#!/bin/sh
[ "$QUERY_STRING" != log ] || echo 'a line of it' >&2
if [ "$QUERY_STRING" = slow ]; then
    echo $$ >slow
    while ! [ -e go ]; do sleep 0.01; done
fi
printf 'Content-Type: text/plain\r\n\r\npid=%s' $$
"#;
const EXITS: &str = "import sys\nsys.exit('the database is not there')\n";

const ROWS: [Row; 10] = [
    Row {
        name: "php",
        file: "index.php",
        text: PHP,
        broken: "<?php throw new Exception('the database is not there');",
        error: "500",
        own: "",
        table: "runtime = \"php\"\nversion = \"VERSION\"\n",
    },
    Row {
        name: "wsgi",
        file: "passenger_wsgi.py",
        text: WSGI,
        broken: EXITS,
        error: "503",
        own: "",
        table: "runtime = \"wsgi\"\nroot = \"ROOT\"\n",
    },
    Row {
        name: "asgi",
        file: "asgi.py",
        text: ASGI,
        broken: EXITS,
        error: "503",
        own: "",
        table: "runtime = \"asgi\"\nroot = \"ROOT\"\n",
    },
    Row {
        name: "rack",
        file: "config.ru",
        text: RACK,
        broken: "abort 'the database is not there'\n",
        error: "503",
        own: "",
        table: "runtime = \"rack\"\nroot = \"ROOT\"\n",
    },
    Row {
        name: "node",
        file: "app.js",
        text: NODE,
        broken: "throw new Error('the database is not there');\n",
        error: "503",
        own: "",
        table: "runtime = \"node\"\nroot = \"ROOT\"\n",
    },
    Row {
        name: "http",
        file: "serve.py",
        text: HTTP,
        broken: EXITS,
        error: "503",
        own: "runtime = \"http\"\nstart_command = \"python3 serve.py\"\n",
        table: "runtime = \"http\"\nroot = \"ROOT\"\nstart_command = \"python3 serve.py\"\n",
    },
    Row {
        name: "libfcgi",
        file: "run",
        text: "#!/bin/sh\nexec PROGRAM\n",
        broken: "#!/bin/sh\necho 'the database is not there' >&2; exit 1\n",
        error: "503",
        own: "runtime = \"fastcgi\"\nstart_command = \"./run\"\n",
        table: "runtime = \"fastcgi\"\nroot = \"ROOT\"\nstart_command = \"./run\"\n",
    },
    Row {
        name: "php-cgi",
        file: "index.php",
        text: PHP,
        broken: "<?php throw new Exception('the database is not there');",
        error: "500",
        own: concat!(
            "runtime = \"fastcgi\"\nstart_command = \"php-cgi",
            env!("FORKYARD_PHP"),
            " -d log_errors=1 -d display_errors=0\"\n"
        ),
        table: concat!(
            "runtime = \"fastcgi\"\nroot = \"ROOT\"\n\
                start_command = \"php-cgi",
            env!("FORKYARD_PHP"),
            " -d log_errors=1 -d display_errors=0\"\n"
        ),
    },
    Row {
        name: "cgi",
        file: "run.cgi",
        text: CGI,
        broken: "#!/bin/sh\necho 'the database is not there' >&2; exit 1\n",
        error: "500",
        own: "runtime = \"cgi\"\nentry = \"run.cgi\"\n",
        table: "runtime = \"cgi\"\nscript = \"ROOT/run.cgi\"\n",
    },
    Row {
        name: RUST,
        file: "served-by-a-handler",
        text: "",
        broken: "",
        error: "500",
        own: "runtime = \"rust\"\n",
        table: "runtime = \"rust\"\n",
    },
];

const RUST: &str = "rust";

const MAX_REQUESTS: usize = 20;

pub(super) struct Table {
    daemon: Daemon,
    handlers: Daemon,
}

#[derive(Clone, Copy)]
pub(super) struct Cell<'a> {
    daemon: &'a Daemon,
    pub(super) row: &'a Row,
    pub(super) pool: Option<&'a str>,
    pub(super) directory: &'a str,
}

fn directory(row: &Row, is_broken: bool) -> String {
    let manner = if is_broken { "broken" } else { "good" };
    format!("{}-{manner}", row.name)
}

const ALONE: &str = "alone";

fn add(apps: &Path, row: &Row, is_broken: bool) {
    let text = if is_broken { row.broken } else { row.text };
    let program = compiled().display().to_string();
    let place = apps.join(directory(row, is_broken));
    fs::create_dir_all(place.join("tmp")).expect("application");
    let text = text.replace("PROGRAM", &program);
    let files = [(row.file, text.as_str()), ("forkyard.toml", row.own)];
    let files = files.iter().filter(|(_, content)| !content.is_empty());
    for (file, content) in files {
        let path = place.join(file);
        write_program(&path, content);
        own(&path);
    }
    own(&place.join("tmp"));
    own(&place);
}

fn own(path: &Path) {
    if is_root() {
        let (_, uid) = USERS[0];
        chown(path, Some(uid), Some(uid)).expect("chown");
    }
}

impl Table {
    fn start() -> Table {
        let limited = format!("max_requests = {MAX_REQUESTS}\n");
        Table::start_with(&limited, "pm = \"ondemand\"\nmax_children = 1\n", &[false, true])
    }

    pub(super) fn start_with(limits: &str, pm: &str, manners: &[bool]) -> Table {
        let pools = |dir: &Path, is_rust: bool| {
            let (apps, alone) = (dir.join("apps"), dir.join(ALONE));
            let mut text = String::new();
            for row in ROWS.iter().filter(|row| (row.name == RUST) == is_rust) {
                for is_broken in manners {
                    add(&apps, row, *is_broken);
                    add(&alone, row, *is_broken);
                    let name = directory(row, *is_broken);
                    let table = row
                        .table
                        .replace("ROOT", &alone.join(&name).display().to_string());
                    let table = table.replace("VERSION", env!("FORKYARD_PHP"));
                    let settings = format!("{pm}{limits}catch_workers_output = true\n");
                    let _ = writeln!(text, "{}", pool(dir, &name, &settings, &table));
                }
            }
            text
        };
        let applications = format!("max = 30\n{limits}");
        let daemon = Daemon::start(|dir| configuration(dir, &applications, "") + &pools(dir, false));
        let configure = |dir: &Path| with_control(dir) + &pools(dir, true);
        let handlers = Daemon::start_by(configure, |dir| example("handlers", dir));
        Table { daemon, handlers }
    }

    pub(super) fn each(&self, is_broken: bool, step: impl Fn(Cell<'_>)) {
        for row in &ROWS {
            let directory = directory(row, is_broken);
            for pool in [None, Some(directory.as_str())] {
                if row.name != RUST || pool.is_some() {
                    step(self.cell(row, pool, &directory));
                }
            }
        }
    }

    fn cell<'a>(&'a self, row: &'a Row, pool: Option<&'a str>, directory: &'a str) -> Cell<'a> {
        let is_rust = row.name == RUST && pool.is_some();
        Cell {
            daemon: if is_rust { &self.handlers } else { &self.daemon },
            row,
            pool,
            directory,
        }
    }
}

impl Cell<'_> {
    pub(super) fn forkyard(&self, arguments: &[&str]) -> (Option<i32>, String) {
        said_by(&mut self.daemon.at_socket(arguments))
    }

    pub(super) fn name(&self) -> String {
        let kind = self.pool.map_or("an application pool", |_| "a pool of one");
        format!("{} in {kind}", self.row.name)
    }

    pub(super) fn root(&self) -> PathBuf {
        let kind = self.pool.map_or("apps", |_| ALONE);
        self.daemon.dir.join(kind).join(self.directory)
    }

    pub(super) fn send(&self, query: &str) -> Client {
        let root = self.root();
        let params =
            Params::get(&root, self.row.file, query).with("FORKYARD_APP_ROOT", &root.display().to_string());
        self.daemon.send(self.pool.unwrap_or("sites"), &params)
    }

    fn ask(&self, query: &str) -> Answer {
        let answer = self.send(query).answer();
        answer.unwrap_or_else(|error| panic!("{}: {error}", self.name()))
    }

    pub(super) fn pid(&self, query: &str) -> u32 {
        self.pid_in(&self.ask(query))
    }

    pub(super) fn pid_in(&self, answer: &Answer) -> u32 {
        let body = answer.body();
        let number = body.strip_prefix("pid=").and_then(|rest| rest.split(' ').next());
        number
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("{}: {}{}", self.name(), answer.text(), answer.error_text()))
    }
}

#[test]
fn every_runtime_starts_answers_logs_and_is_replaced_in_every_kind_of_pool() {
    let table = Table::start();
    table.each(false, |cell| {
        assert!(cell.pid("") > 0, "{}", cell.name());
    });
    table.each(false, |cell| {
        let (query, wanted) = match cell.row.name {
            "libfcgi" => ("say", "plain words"),
            _ => ("log", "a line of it"),
        };
        let name = match cell.pool {
            Some(pool) => format!("[pool {pool}]"),
            None => format!("[pool sites:{}]", cell.directory),
        };
        let mut to_web_server = String::new();
        wait_until(&format!("the line of {}", cell.name()), || {
            to_web_server += &cell.ask(query).error_text();
            let log = cell.daemon.log();
            let is_logged = log
                .lines()
                .any(|line| line.contains(&name) && line.contains(wanted));
            is_logged || to_web_server.contains(wanted)
        });
    });
    table.each(false, |cell| {
        let first = cell.pid("");
        wait_until(&format!("another process of {}", cell.name()), || {
            cell.pid("") != first
        });
    });
    let before: Vec<u32> = {
        let all = std::cell::RefCell::new(Vec::new());
        table.each(false, |cell| all.borrow_mut().push(cell.pid("")));
        all.into_inner()
    };
    table.each(false, |cell| {
        fs::write(cell.root().join("tmp/restart.txt"), "").expect("touch");
    });
    let index = std::cell::Cell::new(0);
    table.each(false, |cell| {
        let before = before[index.replace(index.get() + 1)];
        if cell.pool.is_some() && !cell.row.table.contains("root") && cell.row.name != "cgi" {
            return assert!(["php", RUST].contains(&cell.row.name));
        }
        wait_until(&format!("another process of {}", cell.name()), || {
            cell.pid("") != before
        });
    });
}

#[test]
fn every_runtime_tells_why_it_can_not_be_started_in_every_kind_of_pool() {
    let table = Table::start();
    table.each(true, |cell| {
        let answer = cell.ask("");
        let (text, name) = (answer.text(), cell.name());
        let status = text.lines().next().unwrap_or_default();
        assert!(
            status.starts_with(&format!("Status: {}", cell.row.error)),
            "{name}: {text}"
        );
        if cell.row.error == "503" {
            let id = text.split_once("Error ID: ").map(|(_, id)| id.trim().to_owned());
            let id = id.unwrap_or_else(|| answer.error_id());
            let (_, report) = cell.forkyard(&["error", &id]);
            assert!(report.contains("the database is not there"), "{name}: {report}");
            let more = [
                "DEBUG: ".to_owned(),
                format!("error {id}, "),
                "trying again in".to_owned(),
            ];
            let is_about = |line: &&str| line.contains(&id) && !more.iter().any(|it| line.contains(it));
            let count = || cell.daemon.log().lines().filter(is_about).count();
            wait_until(&format!("the cause of {name}"), || count() > 0);
            assert_eq!(count(), 1, "{name}: the cause is told once");
        } else {
            wait_until(&format!("why {name} fails"), || {
                let said = cell.ask("").error_text() + &cell.daemon.log();
                said.contains("the database is not there")
            });
        }
    });
    table.each(false, |cell| assert!(cell.pid("") > 0));
}

#[test]
fn a_fastcgi_program_of_an_instance_is_started_again_before_the_next_request() {
    let table = Table::start();
    let row = ROWS.iter().find(|row| row.name == "libfcgi").expect("the row");
    let cell = table.cell(row, None, "libfcgi-good");
    let first = cell.pid("");
    let parent = process::status_line(first, "PPid").and_then(|pid| pid.parse().ok());
    let worker: u32 = parent.expect("its worker");
    process::signal(first, Signal::SIGKILL);
    let next = until("another program", || {
        process::children(worker).into_iter().find(|pid| *pid != first)
    });
    assert_eq!(cell.pid(""), next);
}

#[test]
fn start_up_files_are_the_same_in_every_kind_of_pool() {
    let cases = [
        ("wsgi", "main.py", WSGI),
        ("wsgi", "app.py", WSGI),
        ("asgi", "main.py", ASGI),
        ("asgi", "app.py", ASGI),
        ("node", "server.js", NODE),
        ("node", "index.js", NODE),
    ];
    let name = |runtime: &str, file: &str| format!("{runtime}-{}", file.replace('.', "-"));
    let daemon = Daemon::start(|dir| {
        let apps = dir.join("apps");
        fs::create_dir(&apps).expect("apps");
        let mut text = configuration(dir, "max = 30\n", "");
        for (runtime, file, code) in cases {
            let name = name(runtime, file);
            let root = apps.join(&name);
            fs::create_dir(&root).expect("mkdir");
            for (file, content) in [
                (file, code),
                ("forkyard.toml", &format!("runtime = {runtime:?}\n")),
            ] {
                fs::write(root.join(file), content).expect("write");
                own(&root.join(file));
            }
            own(&root);
            let table = format!("runtime = {runtime:?}\nroot = \"{}\"\n", root.display());
            let _ = writeln!(
                text,
                "{}",
                pool(dir, &name, "pm = \"ondemand\"\nmax_children = 1\n", &table)
            );
        }
        for (name, files) in [
            ("server", vec![("server.js", NODE)]),
            ("handler", vec![("forkyard.toml", "runtime = \"rust\"\n")]),
            (
                "entry",
                vec![
                    ("shop.py", "from made import app\n"),
                    ("forkyard.toml", "entry = \"shop.py\"\n"),
                ],
            ),
        ] {
            fs::create_dir(apps.join(name)).expect("mkdir");
            for (file, content) in files {
                fs::write(apps.join(name).join(file), content).expect("write");
                own(&apps.join(name).join(file));
            }
            own(&apps.join(name));
        }
        text
    });
    let ask = |pool: &str, name: &str| {
        let root = daemon.dir.join("apps").join(name);
        let params = Params::get(&root, "x", "").with("FORKYARD_APP_ROOT", &root.display().to_string());
        daemon.ask(pool, &params)
    };
    for (runtime, file, _) in cases {
        let name = name(runtime, file);
        for pool in ["sites", &name] {
            let answer = ask(pool, &name);
            assert!(
                answer.body().starts_with("pid="),
                "{name} in {pool}: {}",
                answer.text()
            );
        }
    }
    assert!(ask("sites", "server").body().starts_with("pid="));
    assert!(ask("sites", "entry").text().starts_with("Status: 503"));
    daemon.wait_for("forkyard.toml: entry = \"shop.py\" does not show the runtime; add one");
    assert!(ask("sites", "handler").text().starts_with("Status: 503"));
    daemon.wait_for("a handler in Rust needs its own pool");
}
