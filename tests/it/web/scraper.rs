//! Debian's Prometheus scrapes the numbers.

use super::{Place, Site, Transport};
use crate::it::scrapers::Running;
use crate::support::prelude::*;

#[test]
fn prometheus_scrapes_the_numbers() {
    let site = Site::start(Transport::Tcp, 2);
    let Place::Tcp(target) = site.place else {
        panic!("a port");
    };
    let clients = site.hold(1);
    let dir = directory();
    let text = format!(
        "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: forkyard\n    static_configs:\n      \
         - targets: ['127.0.0.1:{target}']\n"
    );
    let prometheus = Running::prometheus(dir, &text);
    until("a scrape", || {
        prometheus.ask("up{job=\"forkyard\"}").filter(|up| *up > 0.5)
    });
    for (query, value) in [
        ("forkyard_pool_up{pool=\"www\"}", 1.0),
        ("forkyard_pool_workers{pool=\"www\",state=\"busy\"}", 1.0),
        ("forkyard_pool_workers_max{pool=\"www\"}", 2.0),
        ("forkyard_pool_requests_total{pool=\"www\"}", 1.0),
    ] {
        let seen = until(query, || prometheus.ask(query));
        assert!((seen - value).abs() < 0.1, "{query} {seen}");
    }
    prometheus.has_no_errors();
    site.release(clients);
}
