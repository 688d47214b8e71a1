//! The status of workers with concurrent requests: all formats of the status page, and `forkyard status`.

use super::concurrent::{Bench, KINDS};
use super::programs::Site;
use crate::support::prelude::*;

const FULL: &str =
    "pm = \"static\"\nmax_children = 1\nstatus_path = \"/status\"\nstatus_listen = \"DIR/status.sock\"\n";

fn page(daemon: &Daemon, query: &str) -> String {
    let mut client = Client::connect(&daemon.dir.join("status.sock")).expect("connect");
    let params = Params::get(&daemon.dir, "status", query);
    client.request(&params, b"").expect("the page").body()
}

fn json(daemon: &Daemon) -> Value {
    let text = page(daemon, "json&full");
    parsed(&text)
}

fn assert_tells(daemon: &Daemon, count: u64) {
    let told = json(daemon);
    assert_eq!(told["requests in flight"], count, "{told}");
    assert_eq!(told["processes"][0]["requests in flight"], count, "{told}");
    assert_has(
        &told,
        json!({"active processes": 1, "max active processes": 1, "total processes": 1}),
    );
    let text = page(daemon, "full");
    let line = format!("\nrequests in flight:   {count}\n");
    assert_eq!(text.matches(&line).count(), 2, "{text}");
    let xml = page(daemon, "xml&full");
    let element = format!("<requests-in-flight>{count}</requests-in-flight>");
    assert_eq!(xml.matches(&element).count(), 2, "{xml}");
    assert_contains(&page(daemon, "html&full"), "<th>requests in flight</th>");
    let metrics = page(daemon, "openmetrics");
    assert_contains(&metrics, &format!("\nphpfpm_requests_in_flight {count}\n"));
    let table = daemon.shown(&["status", "www"]);
    assert_contains(&table, &format!(", {count} in flight "));
}

#[test]
fn the_status_tells_of_requests_in_flight_of_a_worker_that_serves_many() {
    for kind in KINDS {
        let bench = Bench::start(kind, 2, FULL);
        let mut clients = bench.hold(2);
        clients.extend((2..7).map(|n| bench.send("until", &n.to_string())));
        assert_tells(&bench.daemon, 2);
        let told = json(&bench.daemon);
        assert_eq!(told["listen queue"], 5, "{told}");
        std::thread::sleep(Duration::from_millis(200));
        bench.mark("go");
        for client in &mut clients {
            assert!(client.answer().expect("answer").ended);
        }
        let told = until("the end of all", || {
            let told = json(&bench.daemon);
            let is_over = ["requests in flight", "listen queue", "active processes"];
            is_over.iter().all(|name| told[name] == 0).then_some(told)
        });
        assert_eq!(told["max listen queue"], 5, "{told}");
        assert_eq!(told["accepted conn"], 7, "{told}");
    }
}

#[test]
fn the_status_tells_of_requests_in_flight_of_a_worker_before_a_program() {
    let settings = "pm = \"static\"\nmax_children = 1\nstatus_path = \"/status\"\n\
                    status_listen = \"DIRECTORY/status.sock\"\n";
    let site = Site::start(&[("server.js", super::programs::SERVER)], settings, "node", "");
    site.daemon.wait_for("of the application is up");
    let clients: Vec<Client> = (0..3)
        .map(|_| site.daemon.send("app", &Params::get(&site.root, "hang", "")))
        .collect();
    wait_until("three requests", || json(&site.daemon)["requests in flight"] == 3);
    let told = json(&site.daemon);
    assert_eq!(
        (
            &told["processes"][0]["requests in flight"],
            &told["active processes"]
        ),
        (&3.into(), &1.into()),
        "{told}"
    );
    drop(clients);
    wait_until("none", || json(&site.daemon)["requests in flight"] == 0);
}
