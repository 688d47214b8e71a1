//! Stopping sends SIGTERM first and waits `stop_timeout`, for programs and for workers with endless requests.

use super::fastcgi_programs::compiled;
use crate::support::prelude::*;

const NODE: &str = r#"
const fs = require("fs");
const note = (word) => fs.appendFileSync("notes", word + "\n");
const server = require("http").createServer((_, response) => response.end("pid=" + process.pid)).listen(3000);
process.on("SIGTERM", () => { note("term"); setTimeout(() => { note("done"); process.exit(0); }, 1500); });
"#;
const HTTP: &str = r#"
import http.server, os, signal, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"pid=%d" % os.getpid())
def note(word):
    with open("notes", "a") as file: file.write(word + "\n")
def clean(*_):
    note("term"); time.sleep(1.5); note("done"); os._exit(0)
signal.signal(signal.SIGTERM, clean)
http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"#;
const WSGI: &str = r#"
import os, signal, time
def note(word):
    with open("notes", "a") as file: file.write(word + "\n")
def clean(*_):
    note("term"); time.sleep(1.5); note("done"); os._exit(0)
def application(environ, start_response):
    signal.signal(signal.SIGTERM, clean)
    note("begun")
    while True: time.sleep(60)
"#;
const ASGI: &str = r#"
import asyncio
def note(word):
    with open("notes", "a") as file: file.write(word + "\n")
async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            if kind.endswith("shutdown"):
                note("term"); await asyncio.sleep(1.5); note("done")
            await send({"type": kind + ".complete"})
            if kind.endswith("shutdown"): return
    note("begun")
    await asyncio.sleep(600)
"#;
const RACK: &str = r#"
note = ->(word) { File.open("notes", "a") { |file| file.puts(word) } }
run(lambda do |_|
  trap("TERM") { note["term"]; sleep 1.5; note["done"]; exit!(0) }
  note["begun"]
  sleep 600
end)
"#;
const CGI: &str = "#!/bin/sh\ntrap 'echo term >>notes; sleep 1.5; echo done >>notes; exit 0' TERM\n\
                   echo begun >>notes\nwhile :; do sleep 0.1; done\n";
const FASTCGI: &str = "trap 'echo term >>notes; sleep 1.5; echo done >>notes; exit 0' TERM\n\
                       exec 3<&0\nPROGRAM <&3 &\necho begun >>notes\nwhile :; do sleep 0.1; done\n";

struct Kind {
    runtime: &'static str,
    file: &'static str,
    text: &'static str,
    application: &'static str,
    is_program: bool,
}

const KINDS: [Kind; 7] = [
    Kind {
        runtime: "node",
        file: "app.js",
        text: NODE,
        application: "",
        is_program: true,
    },
    Kind {
        runtime: "http",
        file: "app.py",
        text: HTTP,
        application: "start_command = \"python3 app.py\"\n",
        is_program: true,
    },
    Kind {
        runtime: "fastcgi",
        file: "app.sh",
        text: FASTCGI,
        application: "start_command = \"sh app.sh\"\n",
        is_program: true,
    },
    Kind {
        runtime: "wsgi",
        file: "wsgi.py",
        text: WSGI,
        application: "",
        is_program: false,
    },
    Kind {
        runtime: "asgi",
        file: "asgi.py",
        text: ASGI,
        application: "",
        is_program: false,
    },
    Kind {
        runtime: "rack",
        file: "config.ru",
        text: RACK,
        application: "",
        is_program: false,
    },
    Kind {
        runtime: "cgi",
        file: "x",
        text: CGI,
        application: "",
        is_program: false,
    },
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    Reload,
    Quit,
    Finish,
    Term,
}

struct Running {
    daemon: Daemon,
    root: tempfile::TempDir,
    _client: Client,
}

impl Running {
    fn start(kind: &Kind, settings: &str, global: &str) -> Running {
        let root = directory();
        let text = kind.text.replace("PROGRAM", &compiled().display().to_string());
        write_program(&root.path().join(kind.file), text);
        let application = application_in(kind.runtime, root.path(), kind.application);
        let daemon = Daemon::start(|dir| {
            let settings = format!("catch_workers_output = true\nreload = \"always\"\n{settings}");
            let pool = pool(dir, "www", &settings, &application);
            format!("[global]\nprocess_control_timeout = \"200ms\"\n{global}{pool}")
        });
        let mut client = daemon.client("www");
        let script = root.path().join("x");
        let params = Params::get(root.path(), "x", "").with("SCRIPT_FILENAME", &script.display().to_string());
        if kind.is_program {
            let answer = client.request(&params, b"").expect("answer").body();
            assert!(answer.starts_with("pid="), "{}: {answer}", kind.runtime);
        } else {
            client.send(&params, b"").expect("send");
        }
        let running = Running {
            daemon,
            root,
            _client: client,
        };
        if !kind.is_program {
            running.wait_for("begun");
        }
        running
    }

    fn notes(&self) -> String {
        notes(self.root.path())
    }

    fn wait_for(&self, word: &str) {
        wait_until(&format!("{word:?} in {}", self.daemon.log()), || {
            self.notes().contains(word)
        });
    }
}

fn notes(root: &Path) -> String {
    fs::read_to_string(root.join("notes")).unwrap_or_default()
}

fn check(kind: &Kind, stop: Stop) {
    let global = match stop {
        Stop::Finish => "on_sigterm = \"finish\"\n",
        Stop::Reload | Stop::Quit | Stop::Term => "",
    };
    let mut running = Running::start(kind, "", global);
    let what = format!("{} {stop:?}", kind.runtime);
    running.daemon.signal(match stop {
        Stop::Reload => Signal::SIGUSR2,
        Stop::Quit => Signal::SIGQUIT,
        Stop::Finish | Stop::Term => Signal::SIGTERM,
    });
    if stop == Stop::Reload {
        running.wait_for("done");
        running.daemon.signal(Signal::SIGTERM);
    }
    running.daemon.wait();
    let (notes, log) = (running.notes(), running.daemon.log());
    assert!(notes.contains("term"), "{what}: {notes}\n{log}");
    if stop == Stop::Term {
        assert!(!notes.contains("done"), "{what}: {notes}\n{log}");
    } else {
        assert!(notes.contains("done"), "{what}: {notes}\n{log}");
    }
}

fn check_all(stop: Stop) {
    std::thread::scope(|scope| {
        for kind in &KINDS {
            scope.spawn(move || check(kind, stop));
        }
    });
}

tests! {
    fn a_reload_lets_what_it_replaces_clean_up() => check_all(Stop::Reload);
    fn sigquit_lets_what_it_stops_clean_up() => check_all(Stop::Quit);
    fn sigterm_that_means_finish_lets_what_it_stops_clean_up() => check_all(Stop::Finish);
    fn sigterm_gives_what_it_stops_a_second() => check_all(Stop::Term);
}

#[test]
fn stop_timeout_is_the_limit() {
    std::thread::scope(|scope| {
        for kind in &KINDS {
            scope.spawn(move || {
                let mut running = Running::start(kind, "stop_timeout = \"300ms\"\n", "");
                running.daemon.signal(Signal::SIGQUIT);
                running.daemon.wait();
                let notes = running.notes();
                assert!(
                    notes.contains("term") && !notes.contains("done"),
                    "{}: {notes}",
                    kind.runtime
                );
            });
        }
    });
}

#[test]
fn a_program_that_was_idle_for_too_long_cleans_up() {
    for kind in KINDS
        .iter()
        .filter(|kind| ["node", "http"].contains(&kind.runtime))
    {
        let idle = Kind {
            application: match kind.runtime {
                "http" => "start_command = \"python3 app.py\"\npreloader_idle_timeout = \"100ms\"\n",
                _ => "preloader_idle_timeout = \"100ms\"\n",
            },
            ..*kind
        };
        let running = Running::start(
            &idle,
            "pm = \"ondemand\"\nmax_children = 1\nprocess_idle_timeout = \"100ms\"\n",
            "",
        );
        running.wait_for("done");
    }
}
