//! Every runtime in a pool of one and in an application pool: start, answer, error, restart, limits, logs.

use super::{USERS, configuration};
use crate::it::runtimes::fastcgi_programs::compiled;
use crate::support::daemon::{Daemon, pool};
use crate::support::fcgi::{Answer, Params};
use crate::support::{is_root, place_library, process, until};
use nix::sys::signal::Signal;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

/// An application that answers `pid=PID` and says `a line of it` where its standard error is, if it is asked to.
struct Row {
    name: &'static str,
    file: &'static str,
    text: &'static str,
    /// In place of the text: code that can't be run.
    broken: &'static str,
    /// What that is answered with. 503: with a report.
    error: &'static str,
    /// Lines of `forkyard.toml` in its directory; PROGRAM is the program on libfcgi.
    own: &'static str,
    /// Lines of a pool's `application` table; ROOT is the directory.
    table: &'static str,
    /// A process of the application ends after `max_requests`, in a pool of one. A program that speaks HTTP is behind the
    /// workers that do.
    wears_out: bool,
}

const PHP: &str = "<?php if ($_GET) error_log('a line of it'); echo 'pid=', getmypid();";
const WSGI: &str = "import os, sys\ndef application(environ, start_response):\n    if environ['QUERY_STRING']:\n        \
                    print('a line of it', file=sys.stderr, flush=True)\n    start_response('200 OK', [])\n    \
                    return [b'pid=%d' % os.getpid()]\n";
const ASGI: &str = "import os, sys\nasync def application(scope, receive, send):\n    assert scope['type'] == 'http'\n    \
                    if scope['query_string']:\n        print('a line of it', file=sys.stderr, flush=True)\n    \
                    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n    \
                    await send({'type': 'http.response.body', 'body': b'pid=%d' % os.getpid()})\n";
const RACK: &str = "run ->(env) { $stderr.puts 'a line of it' unless env['QUERY_STRING'].empty?\n\
                    [200, {}, [\"pid=#{Process.pid}\"]] }\n";
const NODE: &str = "require('http').createServer((request, response) => {\n  \
                    if (request.url.includes('?log')) console.error('a line of it');\n  \
                    response.end('pid=' + process.pid);\n}).listen(process.env.PORT);\n";
const HTTP: &str = r#"
import os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_):
        pass
    def do_GET(self):
        if "?" in self.path:
            print("a line of it", file=sys.stderr, flush=True)
        body = b"pid=%d" % os.getpid()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"#;
const CGI: &str = "#!/bin/sh\n[ -z \"$QUERY_STRING\" ] || echo 'a line of it' >&2\n\
                   printf 'Content-Type: text/plain\\r\\n\\r\\npid=%s' $$\n";
const EXITS: &str = "import sys\nsys.exit('the database is not there')\n";

const ROWS: [Row; 9] = [
    Row {
        name: "php",
        file: "index.php",
        text: PHP,
        broken: "<?php throw new Exception('the database is not there');",
        error: "500",
        own: "",
        table: "runtime = \"php\"\nversion = \"VERSION\"\n",
        wears_out: true,
    },
    Row {
        name: "wsgi",
        file: "passenger_wsgi.py",
        text: WSGI,
        broken: EXITS,
        error: "503",
        own: "",
        table: "runtime = \"wsgi\"\nroot = \"ROOT\"\n",
        wears_out: true,
    },
    Row {
        name: "asgi",
        file: "asgi.py",
        text: ASGI,
        broken: EXITS,
        error: "503",
        own: "",
        table: "runtime = \"asgi\"\nroot = \"ROOT\"\n",
        wears_out: true,
    },
    Row {
        name: "rack",
        file: "config.ru",
        text: RACK,
        broken: "abort 'the database is not there'\n",
        error: "503",
        own: "",
        table: "runtime = \"rack\"\nroot = \"ROOT\"\n",
        wears_out: true,
    },
    Row {
        name: "node",
        file: "app.js",
        text: NODE,
        broken: "throw new Error('the database is not there');\n",
        error: "503",
        own: "",
        table: "runtime = \"node\"\nroot = \"ROOT\"\n",
        wears_out: false,
    },
    Row {
        name: "http",
        file: "serve.py",
        text: HTTP,
        broken: EXITS,
        error: "503",
        own: "runtime = \"http\"\nstart_command = \"python3 serve.py\"\n",
        table: "runtime = \"http\"\nroot = \"ROOT\"\nstart_command = \"python3 serve.py\"\n",
        wears_out: false,
    },
    Row {
        name: "libfcgi",
        file: "run",
        text: "#!/bin/sh\nexec PROGRAM\n",
        broken: "#!/bin/sh\necho 'the database is not there' >&2; exit 1\n",
        error: "503",
        own: "runtime = \"fastcgi\"\nstart_command = \"./run\"\n",
        table: "runtime = \"fastcgi\"\nroot = \"ROOT\"\nstart_command = \"./run\"\n",
        wears_out: true,
    },
    Row {
        name: "php-cgi",
        file: "index.php",
        text: PHP,
        broken: "<?php throw new Exception('the database is not there');",
        error: "500",
        own: "runtime = \"fastcgi\"\nstart_command = \"php-cgi8.2 -d log_errors=1 -d display_errors=0\"\n",
        table: "runtime = \"fastcgi\"\nroot = \"ROOT\"\n\
                start_command = \"php-cgi8.2 -d log_errors=1 -d display_errors=0\"\n",
        wears_out: true,
    },
    Row {
        name: "cgi",
        file: "run.cgi",
        text: CGI,
        broken: "#!/bin/sh\necho 'the database is not there' >&2; exit 1\n",
        error: "500",
        own: "runtime = \"cgi\"\nentry = \"run.cgi\"\n",
        table: "runtime = \"cgi\"\nscript = \"ROOT/run.cgi\"\n",
        wears_out: true,
    },
];

/// Requests after which a process is replaced.
const MAX_REQUESTS: usize = 20;

/// One daemon with an application pool `sites` and a pool for each application.
struct Table {
    daemon: Daemon,
}

/// An application of the table in one kind of pool.
#[derive(Clone, Copy)]
struct Cell<'a> {
    table: &'a Table,
    row: &'a Row,
    /// `None`: the application pool.
    pool: Option<&'a str>,
    directory: &'a str,
}

fn directory(row: &Row, is_broken: bool) -> String {
    let manner = if is_broken { "broken" } else { "good" };
    format!("{}-{manner}", row.name)
}

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
        fs::write(&path, content).expect("write");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod");
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
        place_library();
        let daemon = Daemon::start(|dir| {
            let apps = dir.join("apps");
            fs::create_dir(&apps).expect("apps");
            let applications = format!("max = 30\nmax_requests = {MAX_REQUESTS}\n");
            let mut text = configuration(dir, &applications, "");
            for row in &ROWS {
                for is_broken in [false, true] {
                    add(&apps, row, is_broken);
                    let name = directory(row, is_broken);
                    let table = row.table.replace("ROOT", &apps.join(&name).display().to_string());
                    let table = table.replace("VERSION", env!("FORKYARD_PHP"));
                    let settings = format!(
                        "pm = \"ondemand\"\nmax_children = 1\ncatch_workers_output = true\nmax_requests = {MAX_REQUESTS}\n"
                    );
                    let _ = writeln!(text, "{}", pool(dir, &name, &settings, &table));
                }
            }
            text
        });
        Table { daemon }
    }

    /// Runs a step for every row in both kinds of pool.
    fn each(&self, is_broken: bool, step: impl Fn(Cell<'_>)) {
        for row in &ROWS {
            let directory = directory(row, is_broken);
            for pool in [None, Some(directory.as_str())] {
                step(Cell {
                    table: self,
                    row,
                    pool,
                    directory: &directory,
                });
            }
        }
    }

    fn forkyard(&self, arguments: &[&str]) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_forkyard"))
            .args(&arguments[..1])
            .arg("--socket")
            .arg(self.daemon.dir.join("control.sock"))
            .args(&arguments[1..])
            .output()
            .expect("forkyard");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }
}

impl Cell<'_> {
    fn name(&self) -> String {
        let kind = self.pool.map_or("an application pool", |_| "a pool of one");
        format!("{} in {kind}", self.row.name)
    }

    fn ask(&self, query: &str) -> Answer {
        let daemon = &self.table.daemon;
        let root = daemon.dir.join("apps").join(self.directory);
        let params =
            Params::get(&root, self.row.file, query).with("FORKYARD_APP_ROOT", &root.display().to_string());
        let answer = daemon.client(self.pool.unwrap_or("sites")).request(&params, b"");
        answer.unwrap_or_else(|error| panic!("{}: {error}", self.name()))
    }

    /// The pid that a good answer names.
    fn pid(&self, query: &str) -> u32 {
        let answer = self.ask(query);
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
        let first = cell.pid("");
        assert!(first > 0, "{}", cell.name());
    });
    table.each(false, |cell| {
        // libfcgi's program has words of its own.
        let (query, wanted) = match cell.row.name {
            "libfcgi" => ("say", "plain words"),
            _ => ("log", "a line of it"),
        };
        let name = match cell.pool {
            Some(pool) => format!("[pool {pool}]"),
            None => format!("[pool sites:{}]", cell.directory),
        };
        let mut to_web_server = String::new();
        until(&format!("the line of {}", cell.name()), || {
            to_web_server += &cell.ask(query).error_text();
            let log = table.daemon.log();
            let is_logged = log
                .lines()
                .any(|line| line.contains(&name) && line.contains(wanted));
            (is_logged || to_web_server.contains(wanted)).then_some(())
        });
    });
    table.each(false, |cell| {
        if cell.pool.is_none() || cell.row.wears_out {
            // The next one of a program that speaks HTTP comes up beside it.
            let first = cell.pid("");
            until(&format!("another process of {}", cell.name()), || {
                (cell.pid("") != first).then_some(())
            });
        }
    });
    let before: Vec<u32> = {
        let all = std::cell::RefCell::new(Vec::new());
        table.each(false, |cell| all.borrow_mut().push(cell.pid("")));
        all.into_inner()
    };
    for row in &ROWS {
        let root = table.daemon.dir.join("apps").join(directory(row, false));
        fs::write(root.join("tmp/restart.txt"), "").expect("touch");
    }
    table.forkyard(&["reload", "--all"]);
    let index = std::cell::Cell::new(0);
    table.each(false, |cell| {
        let before = before[index.replace(index.get() + 1)];
        until(&format!("another process of {}", cell.name()), || {
            (cell.pid("") != before).then_some(())
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
            // The router has words of its own.
            let id = text.split_once("Error ID: ").map(|(_, id)| id.trim().to_owned());
            let report = table.forkyard(&["error", &id.unwrap_or_else(|| answer.error_id())]);
            assert!(report.contains("the database is not there"), "{name}: {report}");
        } else {
            until(&format!("why {name} fails"), || {
                let said = cell.ask("").error_text() + &table.daemon.log();
                said.contains("the database is not there").then_some(())
            });
        }
    });
    // The others are served all the time.
    table.each(false, |cell| assert!(cell.pid("") > 0));
}

/// An instance looks after its program while it has no request, too.
#[test]
fn a_fastcgi_program_of_an_instance_is_started_again_before_the_next_request() {
    let table = Table::start();
    let row = ROWS.iter().find(|row| row.name == "libfcgi").expect("the row");
    let cell = Cell {
        table: &table,
        row,
        pool: None,
        directory: "libfcgi-good",
    };
    let first = cell.pid("");
    let parent = process::status_line(first, "PPid").and_then(|pid| pid.parse().ok());
    let worker: u32 = parent.expect("its worker");
    process::signal(first, Signal::SIGKILL);
    let next = until("another program", || {
        process::children(worker).into_iter().find(|pid| *pid != first)
    });
    assert_eq!(cell.pid(""), next);
}

/// What is said by `runtime` alone is found by the same files in both kinds of pool.
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
    place_library();
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
        // Without a word from which it could be known.
        for (name, files) in [
            ("server", vec![("server.js", NODE)]),
            (
                "entry",
                vec![("shop.py", ASGI), ("forkyard.toml", "entry = \"shop.py\"\n")],
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
        daemon.client(pool).request(&params, b"").expect("an answer")
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
    assert!(ask("sites", "entry").text().starts_with("Status: 404"));
    daemon
        .wait_for("forkyard.toml: entry = \"shop.py\" does not show what the application is; add a runtime");
}
