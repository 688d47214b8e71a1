//! Programs that come up and do not stay: a server that listens and then finds its database down.

use super::{Broken, forkyard_at};
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

const MANAGERS: [&str; 3] = [
    "pm = \"static\"\nmax_children = 1\n",
    "pm = \"dynamic\"\nmax_children = 2\nstart_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 1\n",
    "pm = \"ondemand\"\nmax_children = 1\n",
];

fn fails_and_heals(runtime: &str, file: &str, source: &str, pm: &str, application: &str) {
    let broken = Broken::start(runtime, file, source, pm, application);
    // A process that dies with a request is started again at once, so each has one request at most, long before its end.
    let ask = || {
        let deaths = || {
            let log = broken.daemon.log();
            log.matches("is started again").count() + log.matches("does not stay up").count()
        };
        let before = deaths();
        let answer = broken.ask();
        let is_refused = answer.text().starts_with("Status: 503 Service Unavailable\r\n");
        if !is_refused {
            wait_until("the end of the process", || deaths() > before);
        }
        is_refused.then(|| answer.error_id())
    };
    let report = broken.report(&until("a refusal", ask));
    let summary = report["error"]["summary"].as_str().expect("a summary");
    assert!(summary.contains("Error: the database is down"), "{report:#}");
    let health = || forkyard_at(&broken.daemon, &["health", "--ready"]);
    wait_until("the health to say so", || {
        ask();
        let said = text_of(&health().stderr);
        said.contains("www: failing") && said.contains("the database is down")
    });
    let count = |delay: &str| broken.daemon.log().matches(&format!(" in {delay} s")).count();
    wait_until("longer delays", || {
        ask();
        ["0.2", "0.4", "0.8"].iter().all(|delay| count(delay) > 0)
    });
    let before = count("0.2");
    // It fails if the program is up just then: new workers take its place only if theirs stays up.
    wait_until("a restart", || {
        forkyard_at(&broken.daemon, &["restart", "www"]).status.success()
    });
    wait_until("a short delay", || {
        ask();
        count("0.2") > before
    });
    fs::write(broken.root.path().join("database"), "").expect("write");
    broken.heals_unchecked("database", "");
    assert!(health().status.success(), "{:?}", health());
}

#[test]
fn a_node_program_that_does_not_stay_up_is_failing() {
    for pm in MANAGERS {
        fails_and_heals("node", "server.js", NODE, pm, "");
    }
}

#[test]
fn an_http_program_that_does_not_stay_up_is_failing() {
    for pm in MANAGERS {
        let command = "start_command = \"node serve.js\"\n";
        fails_and_heals("http", "serve.js", NODE, pm, command);
    }
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
fn a_fastcgi_program_that_does_not_stay_up_is_failing() {
    for pm in MANAGERS {
        let command = "start_command = \"python3 app.py\"\n";
        fails_and_heals("fastcgi", "app.py", FASTCGI, pm, command);
    }
}
