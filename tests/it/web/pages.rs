//! The paths, while the pool is idle, busy, full, drained and ending.

use super::{Site, TRANSPORTS, Transport};
use crate::support::prelude::*;

#[test]
fn the_numbers_are_told_while_every_worker_is_busy() {
    each(TRANSPORTS, |transport| {
        let site = Site::start(transport, 2);
        let clients = site.hold(2);
        let got = until("busy workers", || {
            let got = site.place.get("/metrics");
            let is_busy = got.number("forkyard_pool_workers{pool=\"www\",state=\"busy\"}") > 1.5;
            is_busy.then_some(got)
        });
        assert_eq!(got.status, 200);
        assert_contains(
            &got.header,
            "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8",
        );
        assert_ends(&got.body, "# EOF\n");
        for (name, value) in [
            ("forkyard_pool_up{pool=\"www\"}", 1.0),
            ("forkyard_pool_workers_max{pool=\"www\"}", 2.0),
            ("forkyard_pool_workers{pool=\"www\",state=\"idle\"}", 0.0),
            ("forkyard_pool_requests_total{pool=\"www\"}", 2.0),
            ("forkyard_daemon_pools{}", 1.0),
        ] {
            let seen = got.number(name);
            assert!((seen - value).abs() < 0.5, "{name} {seen}");
        }
        assert_eq!(site.place.get("/health/ready").status, 200);
        assert_eq!(site.place.get("/health/busy").status, 200, "nothing waits");
        let _waiting = site
            .daemon
            .send("www", &Params::get(&site.daemon.dir, "a.php", ""));
        let busy = site.place.wait_for("/health/busy", 503);
        let full = "{\"state\":\"busy or not ready\",\"pools\":[{\"pool\":\"www\",\"problem\":\"all 2 workers are busy, and 1 \
                    wait\"}]}\n";
        assert_eq!(busy.body, full);
        assert_eq!(site.place.get("/health/ready").status, 200);
        assert_eq!(site.place.get("/health/live").status, 200);
        assert_eq!(site.place.get("/health/live").body, "{\"state\":\"live\"}\n");
        site.release(clients);
        site.place.wait_for("/health/busy", 200);
    });
}

#[test]
fn the_metrics_are_those_of_the_command() {
    let site = Site::start(Transport::Unix, 1);
    for _ in 0..3 {
        assert_eq!(site.daemon.get("www", "a.php").body(), "a");
    }
    let families = |text: &str| -> BTreeSet<String> {
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        types.map(str::to_owned).collect()
    };
    let own = site.place.get("/metrics").body;
    let command = site.daemon.shown(&["status", "--metrics"]);
    assert_eq!(families(&own), families(&command));
    let request =
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\nConnection: close\r\n\r\n";
    let older = site.place.talk(request);
    assert_contains(
        &older,
        "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n",
    );
    assert_contains(&older, "# TYPE forkyard_pool_requests_total counter\n");
    assert_lacks(&older, "EOF");
}

#[test]
fn no_path_shows_what_visitors_ask_for() {
    let site = Site::start(Transport::Tcp, 2);
    let clients = site.hold(1);
    assert_contains(&site.daemon.shown(&["status", "--json"]), "secret=7");
    for path in [
        "/metrics",
        "/health/busy",
        "/status/www",
        "/status/www?json",
        "/status/www?full",
        "/status/www?json&full",
        "/status/www?html&f",
        "/",
    ] {
        let got = site.place.get(path);
        let all = format!("{}{}", got.header, got.body);
        for text in ["secret", "hold.php", "www-data"] {
            assert!(!all.contains(text), "{path} has {text}: {all}");
        }
    }
    let refused = site.place.get("/status/www?full");
    assert_eq!(refused.status, 403);
    assert_contains(&refused.body, "forkyard status www");
    site.release(clients);
}

#[test]
fn the_status_page_has_php_fpm_s_fields() {
    let site = Site::start(Transport::Unix, 2);
    for _ in 0..3 {
        assert_eq!(site.daemon.get("www", "a.php").body(), "a");
    }
    let clients = site.hold(1);
    for (query, content_type, parts) in [
        (
            "",
            "text/plain;charset=UTF-8",
            &[
                "pool:                 www\n",
                "accepted conn:        4\n",
                "active processes:     1\n",
            ][..],
        ),
        (
            "?json",
            "application/json",
            &[
                "{\"pool\":\"www\",\"process manager\":\"static\"",
                "\"idle processes\":1,\"active processes\":1",
            ],
        ),
        (
            "?xml",
            "text/xml;charset=UTF-8",
            &["<total-processes>2</total-processes>"],
        ),
        (
            "?html",
            "text/html;charset=UTF-8",
            &["<th>total processes</th><td>2</td>"],
        ),
        (
            "?openmetrics",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            &["phpfpm_total_processes 2\n"],
        ),
    ] {
        let path = format!("/status/www{query}");
        let got = until("one busy and one idle worker", || {
            let got = site.place.get(&path);
            parts.iter().all(|part| got.body.contains(part)).then_some(got)
        });
        assert_contains(&got.header, &format!("Content-Type: {content_type}\r\n"));
    }
    assert_eq!(site.place.get("/status/other").status, 404);
    site.release(clients);
}

#[test]
fn a_drained_and_an_ending_daemon_is_not_ready() {
    let mut site = Site::start(Transport::Unix, 1);
    assert_eq!(site.place.get("/health/ready?pool=nope").status, 404);
    assert_eq!(site.daemon.said(&["drain"]).0, Some(0));
    let drained = site.place.wait_for("/health/ready", 503);
    assert_eq!(drained.body, "{\"state\":\"not ready\",\"daemon\":\"drained\"}\n");
    assert_eq!(site.place.get("/health/live").status, 200);
    assert_eq!(site.daemon.said(&["drain", "--end"]).0, Some(0));
    site.place.wait_for("/health/ready?pool=www", 200);
    let clients = site.hold(1);
    site.daemon.signal(Signal::SIGQUIT);
    let ending = site.place.wait_for("/health/ready", 503);
    assert_contains(&ending.body, "\"daemon\":\"ending\"");
    assert_eq!(site.place.get("/health/live").status, 200);
    site.release(clients);
    assert!(site.daemon.wait().success());
    assert!(site.place.connect().is_err());
    assert!(!site.daemon.dir.join("web.sock").exists());
}

#[test]
fn a_master_that_stands_still_is_not_live() {
    let site = Site::start(Transport::Unix, 1);
    site.daemon.signal(Signal::SIGSTOP);
    wait_until("the daemon to stand still", || {
        process::state(site.daemon.pid()) == Some('T')
    });
    let got = site.place.wait_for("/health/live", 503);
    assert_eq!(
        got.body,
        "{\"state\":\"not live\",\"daemon\":\"does not answer\"}\n"
    );
    assert_eq!(site.place.get("/metrics").status, 503);
    site.daemon.signal(Signal::SIGCONT);
    site.place.wait_for("/health/live", 200);
    site.place.wait_for("/metrics", 200);
}
