//! The status of starting applications.

use super::{Sites, get};
use crate::support::prelude::*;

const HELD: &str = "import os, time\nwhile not os.path.exists('go'):\n    time.sleep(0.01)\n\
                    def application(environ, start):\n    start('200 OK', [])\n    return [b'at last']\n";
const SERVER: &str = "import os, sys, time, http.server\nwhile not os.path.exists('go'):\n    time.sleep(0.01)\n\
                      class H(http.server.BaseHTTPRequestHandler):\n    def do_GET(self):\n        self.send_response(200)\n        \
                      self.end_headers()\n        self.wfile.write(b'at last')\n\
                      http.server.HTTPServer(('127.0.0.1', int(os.environ['PORT'])), H).serve_forever()\n";

fn start_of(status: &Value, name: &str) -> Option<Value> {
    let starting = status["starting"].as_array().expect("starting");
    let is_it = |it: &&Value| {
        it["application"]
            .as_str()
            .is_some_and(|root| root.ends_with(name))
    };
    starting.iter().find(is_it).cloned()
}

#[test]
fn starts_under_way_are_shown_with_their_step_and_how_long_they_last() {
    let sites = Sites::start("max = 4");
    let held = sites.add("held", 0, &[("passenger_wsgi.py", HELD)]);
    let settings = "runtime = \"http\"\nstart_command = \"python3 server.py\"\n";
    let program = sites.add(
        "program",
        0,
        &[("server.py", SERVER), ("forkyard.toml", settings)],
    );
    sites.add(
        "broken",
        0,
        &[("passenger_wsgi.py", "import nothing_of_that_name\n")],
    );
    let port = sites.nginx.port;
    let ask = |path: &'static str| std::thread::spawn(move || get(port, path).expect("answer"));
    let waiting = [ask("/held/"), ask("/held/"), ask("/program/")];
    let wanted = "SUBPROCESS_APP_LOAD_OR_EXEC";
    let status = until("the step", || {
        let status = sites.status();
        let at = |name: &str| Some(start_of(&status, name)?["step"] == wanted);
        (at("held") == Some(true) && at("program") == Some(true)).then_some(status)
    });
    let start = start_of(&status, "held").expect("held");
    let pid = start["pid"].as_u64().expect("a process") as u32;
    assert_eq!(process::title(pid), "forkyard: preloader sites:held");
    let book = &status["book"];
    assert_eq!(book["waiting"], 3, "{status}");
    let later = until("time to pass", || {
        let later = start_of(&sites.status(), "held").expect("held");
        (later["for_ms"].as_u64() >= Some(300)).then_some(later)
    });
    assert_eq!((&later["step"], &later["pid"]), (&start["step"], &start["pid"]));
    assert!(
        later["step_for_ms"].as_u64() > start["step_for_ms"].as_u64(),
        "{later}"
    );
    assert!(
        later["step_for_ms"].as_u64() <= later["for_ms"].as_u64(),
        "{later}"
    );
    let shown = sites.table(&["sites"]);
    let root = held.display();
    let line = shown
        .lines()
        .find(|line| line.contains(&format!("of {root} for ")))
        .expect(&shown);
    assert_contains(line, &format!("s: {wanted} for "));
    assert_contains(line, &format!(", pid {pid}"));
    let line = shown
        .lines()
        .find(|line| line.contains(&format!("  {root}: ")))
        .expect(&shown);
    assert_contains(line, "2 requests wait, the oldest for ");
    let metrics = sites.table(&["--metrics"]);
    for wanted in ["instances_starting", "start_age_seconds", "oldest_wait_seconds"] {
        let wanted = format!("forkyard_applications_{wanted}{{pool=\"sites\",application=\"{root}\"}} ");
        let line = metrics
            .lines()
            .find(|line| line.starts_with(&wanted))
            .expect(&metrics);
        let value: f64 = line[wanted.len()..].parse().expect(line);
        assert!(value > 0.0, "{line}");
    }
    assert_eq!(sites.get("/broken/").0, 503);
    let status = sites.status();
    let failed = status["errors"].as_array().expect("errors")[0].clone();
    assert_ends(failed["application"].as_str().unwrap_or_default(), "/broken");
    assert!(failed["time"].as_u64() > Some(1_700_000_000), "{failed}");
    assert_eq!(start_of(&status, "broken"), None);
    for root in [held, program] {
        fs::write(root.join("go"), "").expect("go");
    }
    for answer in waiting {
        assert_eq!(answer.join().expect("client"), (200, "at last".to_owned()));
    }
    until("nothing under way", || {
        let status = sites.status();
        let none = status["starting"].as_array().is_some_and(Vec::is_empty);
        none.then(|| assert_eq!(status["book"]["waiting"], 0))
    });
}
