//! The master's descriptors: one for each pool, at most four for a used pool without processes.

use super::member;
use crate::support::prelude::*;

const POOLS: usize = 8;

fn pools(dir: &Path, count: usize) -> String {
    (0..count).map(|number| member(dir, number, "")).collect()
}

fn open(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// A daemon that has started its zygote.
pub(super) fn start(count: usize) -> Daemon {
    let daemon = Daemon::start(|dir| pools(dir, count));
    daemon.write("pid.php", "<?php echo getmypid();");
    until("the zygote", || {
        let children = process::children(daemon.pid());
        let zygote = children
            .into_iter()
            .find(|pid| process::title(*pid).contains("zygote"))?;
        process::state(zygote).filter(|state| *state == 'S')
    });
    daemon
}

fn use_all(daemon: &Daemon, count: usize) {
    for number in 0..count {
        let body = daemon.get(&format!("p{number}"), "pid.php").body();
        assert!(body.parse::<u32>().is_ok(), "{body}");
    }
    for number in 0..count {
        daemon.wait_for_workers(&format!("p{number}"), 0);
    }
}

#[test]
fn a_pool_has_one_descriptor_and_four_when_it_was_used() {
    let (few, many) = (start(POOLS), start(2 * POOLS));
    wait_until("one descriptor for each pool", || {
        open(many.pid()) == open(few.pid()) + POOLS
    });
    let before = open(many.pid());
    for _ in 0..2 {
        use_all(&many, 2 * POOLS);
        wait_until("three more for each that was used", || {
            open(many.pid()) <= before + 3 * 2 * POOLS
        });
    }
    assert_lacks(&many.log(), "ERROR");
}

#[test]
fn a_pool_at_rest_goes_on_with_the_next_master() {
    let daemon = Daemon::start_kept(|dir| pools(dir, 2));
    daemon.write("pid.php", "<?php echo getmypid();");
    let first = daemon.kept_master();
    let worker: u32 = daemon.get("p1", "pid.php").body().parse().expect("a pid");
    wait_until("no worker", || process::state(worker).is_none());
    let unused = open(first);
    let worker: u32 = daemon.get("p0", "pid.php").body().parse().expect("a pid");
    wait_until("no worker", || process::state(worker).is_none());
    wait_until("the pool is at rest", || open(first) <= unused + 3);
    process::signal(first, Signal::SIGKILL);
    daemon.wait_for_count("ready to handle connections", 2);
    assert_ne!(daemon.kept_master(), first);
    for pool in ["p0", "p1"] {
        let body = daemon.get(pool, "pid.php").body();
        assert!(body.parse::<u32>().is_ok(), "{body}");
    }
    let log = daemon.log();
    assert_contains(&log, "2 pools and 0 workers go on");
    assert_lacks(&log, "missing or wrong");
}
