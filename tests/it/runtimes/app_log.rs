//! Application output: in the daemon's log, or with `app_log` in a separate file.

use crate::support::prelude::*;

const STATIC: &str = "pm = \"static\"\nmax_children = 1\n";

/// Runtime, start file, an application that fails on purpose, and the ends of its backtrace.
const FAILING: [(&str, &str, &str, [&str; 2]); 4] = [
    (
        "asgi",
        "app.py",
        "async def app(scope, receive, send):\n    if scope['type'] != 'http':\n        return\n    deep()\n\
         def deep():\n    raise ValueError('it broke')\n",
        ["Traceback (most recent call last):", "ValueError: it broke"],
    ),
    (
        "wsgi",
        "app.py",
        "def application(environ, start_response):\n    deep()\ndef deep():\n    raise ValueError('it broke')\n",
        ["Traceback (most recent call last):", "ValueError: it broke"],
    ),
    (
        "rack",
        "config.ru",
        "def deep = raise(ArgumentError, 'it broke')\nrun ->(env) { deep }\n",
        ["it broke (ArgumentError)", "\tfrom "],
    ),
    (
        "node",
        "app.js",
        "require('http').createServer((request, response) => { console.error(new TypeError('it broke')); \
         response.end('x'); }).listen(process.env.PORT, '127.0.0.1');\n",
        ["TypeError: it broke", "    at "],
    ),
];

fn start(runtime: &str, file: &str, code: &str, settings: &str) -> Daemon {
    Daemon::start(|dir| {
        fs::write(dir.join(file), code).expect("application");
        let mut application = application_in(runtime, dir, "");
        match runtime {
            "asgi" => application += "entry = \"app:app\"\n",
            "wsgi" => application += "entry = \"app\"\n",
            "node" => application = application.replace("node", "http") + "start_command = \"node app.js\"\n",
            _ => {}
        }
        pool(dir, "www", &format!("{STATIC}{settings}"), &application)
    })
}

fn ask(daemon: &Daemon) {
    daemon.ask("www", &Params::get(&daemon.dir, "x", ""));
}

/// Without settings an error is in the daemon's log, its backtrace as one entry.
#[test]
fn a_backtrace_is_one_entry_of_the_daemon_s_log_by_default() {
    for (runtime, file, code, [begin, end]) in FAILING {
        let daemon = start(runtime, file, code, "");
        ask(&daemon);
        let first = daemon.wait_for(begin);
        assert!(first.contains("WARNING: [pool www] "), "{runtime}: {first}");
        let entry = until("the end of the entry", || {
            let log = daemon.log();
            let entry = log.split_once(&*first)?.1.split("\n[").next()?.to_owned();
            entry.trim_end().ends_with('"').then_some(entry)
        });
        assert!(entry.contains(end), "{runtime}: {first}{entry}");
        assert!(
            entry.lines().skip(1).all(|line| line.starts_with('\t')),
            "{runtime}: {entry}"
        );
        assert_eq!(daemon.log().matches(begin).count(), 1, "{runtime}");
    }
}

#[test]
fn an_app_log_has_plain_lines_and_belongs_to_the_pool_s_user() {
    for (runtime, file, code, [begin, end]) in FAILING {
        let daemon = start(runtime, file, code, "app_log = \"DIR/$pool.app\"\n");
        let path = log_of(&daemon);
        ask(&daemon);
        let text = until("the backtrace", || {
            let text = fs::read_to_string(&path).ok()?;
            text.lines()
                .any(|line| line.starts_with(end) || line.contains(end))
                .then_some(text)
        });
        assert!(
            text.contains(begin) && !text.contains("WARNING"),
            "{runtime}: {text}"
        );
        assert!(!daemon.log().contains("it broke"), "{runtime}: {}", daemon.log());
        let data = fs::metadata(&path).expect("the log");
        let owner = if is_root() {
            33
        } else {
            nix::unistd::Uid::current().as_raw()
        };
        assert_eq!((data.uid(), data.mode() & 0o777), (owner, 0o600), "{runtime}");
        fs::rename(&path, path.with_extension("old")).expect("rename");
        daemon.signal(Signal::SIGUSR1);
        daemon.wait_for("application log file re-opened");
        ask(&daemon);
        until("the new log", || {
            fs::read_to_string(&path).ok().filter(|text| text.contains(begin))
        });
        let old = read_file(path.with_extension("old"));
        assert_eq!(old.matches(begin).count(), 1, "{runtime}: {old}");
    }
}

fn log_of(daemon: &Daemon) -> PathBuf {
    Path::new(&daemon.dir).join("www.app")
}
