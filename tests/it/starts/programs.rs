//! Applications that fail after they have loaded: a lifespan or a hook after the fork without its database, and a server
//! that listens and then finds its database down.

use super::Broken;
use crate::support::prelude::*;

const NODE: &str = "const fs = require('fs');\n\
    const server = require('http').createServer((request, response) => response.end('well'));\n\
    server.listen(process.env.PORT, '127.0.0.1', () => {\n  \
        if (!fs.existsSync('ROOT/database')) setTimeout(() => { throw new Error('the database is down'); }, 100);\n\
    });\n";
const FASTCGI: &str = concat!(
    include_str!("../../support/fastcgi_server.py"),
    r#"
import threading

def end():
    os.write(2, b"OSError: the database is down\n")
    os._exit(1)

if not os.path.exists("ROOT/database"):
    threading.Timer(0.1, end).start()
serve(lambda params: b"well")
"#
);

const ASGI: &str = "import os\n\
    async def app(scope, receive, send):\n    \
        if scope['type'] == 'lifespan':\n        \
            await receive()\n        \
            if not os.path.exists('ROOT/database'):\n            \
                await send({'type': 'lifespan.startup.failed', 'message': 'the database is down'})\n            \
                return\n        \
            await send({'type': 'lifespan.startup.complete'})\n        \
            await receive()\n        \
            await send({'type': 'lifespan.shutdown.complete'})\n        \
            return\n    \
        await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n    \
        await send({'type': 'http.response.body', 'body': b'well'})\n";
const WSGI: &str = "import os, forkyard\n\
    @forkyard.after_fork\n\
    def connect():\n    \
        if not os.path.exists('ROOT/database'):\n        \
            raise OSError('the database is down')\n\
    def application(environ, start):\n    \
        start('200 OK', [])\n    \
        return [b'well']\n";
const RACK: &str = "Forkyard.after_fork { raise 'the database is down' unless File.exist?('ROOT/database') }\n\
    run ->(env) { [200, {}, ['well']] }\n";

const MANAGERS: [&str; 3] = [
    "pm = \"static\"\nmax_children = COUNT\n",
    "pm = \"dynamic\"\nmax_children = 2\nstart_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 1\n",
    "pm = \"ondemand\"\nmax_children = COUNT\n",
];

fn fails_and_heals(runtime: &str, file: &str, source: &str, pm: &str, application: &str) {
    let is_program = matches!(runtime, "node" | "http" | "fastcgi");
    let workers = if is_program && !pm.contains("dynamic") {
        1
    } else {
        2
    };
    let pm = pm.replace("COUNT", &workers.to_string());
    let broken = Broken::start(runtime, file, source, &pm, application);
    let refused = || match is_program {
        // It serves for a moment after each start.
        true => until("a refusal", || {
            let answer = broken.ask();
            let is_refused = answer.text().starts_with("Status: 503 Service Unavailable\r\n");
            is_refused.then(|| answer.error_id())
        }),
        false => broken.refused(),
    };
    let report = broken.report(&refused());
    match is_program {
        true => assert_contains(
            &report["error"]["summary"].to_string(),
            "Error: the database is down",
        ),
        false => assert_contains(&report.to_string(), "the database is down"),
    }
    let health = || said_by(&mut broken.daemon.at_socket(&["health", "--ready"]));
    let tells = || {
        let (code, said) = health();
        code != Some(0) && said.contains("www: failing") && said.contains("the database is down")
    };
    let count = |delay: &str| broken.daemon.log().matches(&format!(" in {delay} s")).count();
    wait_until("longer delays", || {
        let _ = if is_program {
            broken.ask().text()
        } else {
            broken.refused()
        };
        ["0.2", "0.4", "0.8"].iter().all(|delay| count(delay) > 0)
    });
    if is_program {
        wait_until("the health to say so", || {
            broken.ask();
            tells()
        });
        let before = count("0.2");
        let restart = broken.daemon.at_socket(&["restart", "www"]).output();
        assert_success(&restart.expect("forkyard"));
        wait_until("a short delay", || {
            broken.ask();
            count("0.2") > before
        });
    } else {
        assert!(count("0.1") > 0 && tells(), "{:?}", health());
    }
    broken.heals_unchecked("database", "");
    assert_eq!(health().0, Some(0), "{:?}", health());
}

const ROWS: [(&str, &str, &str, &str); 6] = [
    ("asgi", "main.py", ASGI, "entry = \"main:app\"\n"),
    ("wsgi", "wsgi.py", WSGI, ""),
    ("rack", "config.ru", RACK, ""),
    ("node", "server.js", NODE, ""),
    ("http", "serve.js", NODE, "start_command = \"node serve.js\"\n"),
    (
        "fastcgi",
        "app.py",
        FASTCGI,
        "start_command = \"python3 app.py\"\n",
    ),
];

fn all_are_failing(pm: &str) {
    each(ROWS, |(runtime, file, source, application)| {
        fails_and_heals(runtime, file, source, pm, application);
    });
}

#[test]
fn an_application_of_a_static_pool_that_does_not_stay_up_is_failing() {
    all_are_failing(MANAGERS[0]);
}

#[test]
fn an_application_of_a_dynamic_pool_that_does_not_stay_up_is_failing() {
    all_are_failing(MANAGERS[1]);
}

#[test]
fn an_application_of_an_ondemand_pool_that_does_not_stay_up_is_failing() {
    all_are_failing(MANAGERS[2]);
}

#[test]
fn what_a_program_says_before_it_is_up_tells_why_it_ended_later() {
    let source = NODE
        .replace(
            "server.listen",
            "console.error('Error: the database is down');\nserver.listen",
        )
        .replace("throw new Error('the database is down')", "process.exit(1)");
    let command = "start_command = \"node serve.js\"\n";
    fails_and_heals("http", "serve.js", &source, MANAGERS[0], command);
}

#[test]
fn a_worker_that_ends_with_code_0_before_it_serves_has_a_report() {
    let source = WSGI.replace("raise OSError('the database is down')", "os._exit(0)");
    let broken = Broken::start(
        "wsgi",
        "wsgi.py",
        &source,
        "pm = \"static\"\nmax_children = 2\n",
        "",
    );
    let report = broken.report(&broken.refused());
    assert_contains(&report.to_string(), "exited with code 0");
    broken.heals_unchecked("database", "");
}
