//! Dead work: requests do not begin if their client has left, their time is over, or too many wait.

mod queue;
mod routed;
mod storm;

use crate::it::holding::{Site, answered};
use crate::support::prelude::*;
use forkyard_protocol::dead_work::{DeadWork, REASONS};
use forkyard_protocol::history::LastHour;

/// A visitor's request that the web server has passed on `ago` seconds ago.
fn visit(site: &Site, name: &str, ago: f64) -> Params {
    let now = SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("now");
    let start = ((now.as_secs_f64() - ago) * 1000.0) as u64;
    site.params(name).with("REQUEST_START", &start.to_string())
}

/// Occupies a worker until [`release`].
fn hold(site: &Site) -> Client {
    site.hold("held", visit(site, "held", 0.0))
}

fn release(site: &Site, held: Client) {
    site.release();
    answered(held);
}

fn dead(site: &Site) -> DeadWork {
    site.numbers().dead_work
}

/// Waits until the last hour also has all requests that did not begin.
fn wait_for_last_hour(site: &Site, row: &str) -> LastHour {
    until(&format!("{row}: the last hour"), || {
        let numbers = site.numbers();
        let hour = numbers.last_hour?;
        (hour.dead_work.counts() == numbers.dead_work.counts()[..REASONS]).then_some(hour)
    })
}
