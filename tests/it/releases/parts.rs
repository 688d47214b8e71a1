//! A new release gets the part of the requests that its step states.

use super::Shop;
use super::visitors::{DYNAMIC, ONDEMAND, STATIC, Visitors, application};
use crate::support::prelude::*;
use std::collections::VecDeque;

/// Requests of one look, and the looks of one judgement.
const LOOK: u64 = 200;
const LOOKS: usize = 3;
const MOST_LOOKS: u32 = 40;

/// Percentages that are close enough.
fn band(percent: u64) -> std::ops::RangeInclusive<u64> {
    percent * 17 / 20..=percent * 12 / 10 + 1
}

/// Watches until the new release has had its part for a while. Returns the parts of all looks, in percent.
fn looks(visitors: &Visitors, percent: u64) -> Result<Vec<u64>, Vec<u64>> {
    let counts = || [visitors.seen("1 1 1"), visitors.seen("2 2 2")];
    let mut before = VecDeque::from([counts()]);
    let mut parts = Vec::new();
    for _ in 0..MOST_LOOKS {
        let last = before[before.len() - 1];
        wait_until("requests", || {
            counts().iter().sum::<u64>() >= last.iter().sum::<u64>() + LOOK
        });
        let now = counts();
        before.push_back(now);
        if before.len() > LOOKS + 1 {
            before.pop_front();
        }
        let [old, new] = [0, 1].map(|side| now[side] - before[0][side]);
        parts.push(new * 100 / (old + new));
        if before.len() > LOOKS && band(percent).contains(&parts[parts.len() - 1]) {
            return Ok(parts);
        }
    }
    Err(parts)
}

#[test]
fn a_release_gets_the_part_of_its_step() {
    // The application, the visitors, whether they keep their connections, and how long a script waits,
    // in microseconds.
    let rows = [
        ("zygote", STATIC, 50, 1, false, 500),
        ("zygote", STATIC, 50, 1, true, 500),
        ("zygote", STATIC, 50, 4, false, 500),
        ("zygote", STATIC, 50, 4, true, 20_000),
        ("zygote", DYNAMIC, 50, 4, false, 20_000),
        ("zygote", ONDEMAND, 50, 4, false, 20_000),
        ("zygote", ONDEMAND, 50, 6, true, 20_000),
        ("zygote", STATIC, 10, 4, false, 500),
        ("zygote", STATIC, 10, 4, true, 20_000),
        ("asgi", STATIC, 50, 4, false, 0),
        ("asgi", ONDEMAND, 50, 4, true, 0),
        ("node", STATIC, 50, 4, true, 0),
    ];
    for (name, manager, percent, count, is_kept, micros) in rows {
        let row = format!("{name} {manager}{percent} %, {count} visitors, kept {is_kept}, {micros} µs");
        let steps = format!("gradual = [{percent}]\nstep_time = \"600s\"\n");
        let shop = Shop::start(application(name), &format!("{manager}{steps}"), false);
        for release in ["1", "2"].iter().filter(|_| micros > 0) {
            let script = format!("<?php usleep({micros}); echo '{release} {release} {release}';");
            write_file(
                shop.daemon.dir.join(format!("releases/{release}/index.php")),
                script,
            );
        }
        shop.assert_serves("1", &[]);
        let mut command = forkyard(&["deploy", "shop", &shop.release("2")], &shop.daemon.dir);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut deployment = command.spawn().expect("a deployment");
        let visitors = Visitors::start(&shop, &["/"], count, is_kept);
        shop.daemon
            .wait_for(&format!("the new release gets {percent} % of the requests"));
        let parts = looks(&visitors, percent);
        println!("{row}: {parts:?}");
        assert!(parts.is_ok(), "{row}: {parts:?}");
        exited(Some(0), shop.daemon.said(&["rollback", "shop"]));
        process::wait(&mut deployment, "the command's end");
        let seen = visitors.end();
        let is_whole = |text: &String| ["1 1 1", "2 2 2"].iter().any(|whole| text.contains(whole));
        assert!(seen.keys().all(is_whole), "{row}: {seen:?}");
    }
}
