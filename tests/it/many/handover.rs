//! The state that a master with many pools hands over: for a new worker it writes only the changes.

use super::member;
use crate::support::prelude::*;

const LOOKS: usize = 3;

/// Bytes that a process writes to memory files from `act` until it is idle again.
fn written(pid: u32, dir: &Path, act: impl FnOnce()) -> usize {
    let waits = || {
        wait_until("the master to wait", || {
            let place = read_file(format!("/proc/{pid}/wchan"));
            place.contains("epoll") || place.contains("ep_poll")
        });
    };
    let report = dir.join("writes");
    let mut strace = strace::attach(pid, &report, &["-yy", "-s", "4096", "-e", "trace=pwrite64"]);
    act();
    // The master may not have read yet that the worker is up.
    wait_until("the last state of the worker", || {
        let text = read_file(&report);
        text.contains(r#"\"up\":true"#)
    });
    waits();
    process::signal(strace.id(), Signal::SIGINT);
    process::wait(&mut strace, "strace's end");
    let text = read_file(&report);
    let lines = text.lines().filter(|line| line.contains("memfd:handover-"));
    let counts = lines.filter_map(|line| line.rsplit_once(" = ")?.1.parse::<usize>().ok());
    counts.sum()
}

fn least_written(count: usize) -> usize {
    let daemon = Daemon::start_kept(|dir| {
        (0..count + LOOKS)
            .map(|number| member(dir, number, "").replace("\"1s\"", "\"60s\""))
            .collect()
    });
    daemon.write("pid.php", "<?php echo getmypid();");
    let serves = |number: usize| {
        let body = daemon.get(&format!("p{number}"), "pid.php").body();
        body.parse::<u32>().expect("a pid")
    };
    let first = serves(0);
    let master: u32 = process::status_line(first, "PPid")
        .and_then(|pid| pid.parse().ok())
        .expect("a master");
    for number in 1..count {
        serves(number);
    }
    let looks = (count..count + LOOKS).map(|number| {
        written(master, &daemon.dir, || {
            serves(number);
        })
    });
    looks.min().expect("some looks")
}

#[test]
fn a_worker_costs_as_much_with_many_pools_as_with_few() {
    let (few, many) = (least_written(1), least_written(24));
    assert!(few > 0, "something is left for a next master");
    // A busy master writes one state less, because it sees two changes at once; the whole state would be 24 times as much.
    assert!(many <= 2 * few, "{many} bytes, and {few} with one pool");
}
