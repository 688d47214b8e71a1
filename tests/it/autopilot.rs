//! The autopilot: its choice for pools with a number.

use crate::support::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// Waits, computes, and uses memory, as long and as much as the query asks for.
const WORK: &str = "<?php
$end = hrtime(true) + ($_GET['compute'] ?? 0) * 1e6;
while (hrtime(true) < $end);
usleep(($_GET['wait'] ?? 0) * 1000);
$memory = str_repeat('x', ($_GET['mib'] ?? 0) << 20);
echo 'done';";

/// How a pool manages its workers, with its number.
fn managers(most: &str) -> [(&'static str, String); 3] {
    [
        ("static", format!("pm = \"static\"\nmax_children = {most}\n")),
        (
            "dynamic",
            format!(
                "pm = \"dynamic\"\nmax_children = {most}\nmin_spare_servers = 1\nmax_spare_servers = 2\n"
            ),
        ),
        ("ondemand", format!("pm = \"ondemand\"\nmax_children = {most}\n")),
    ]
}

fn start(pools: &[(&'static str, String)]) -> Daemon {
    let daemon = Daemon::start(|dir| {
        let php = format!("runtime = \"php\"\nversion = {:?}\n", env!("FORKYARD_PHP"));
        let pools = pools
            .iter()
            .map(|(name, settings)| pool(dir, name, settings, &php));
        with_control(dir) + &pools.collect::<String>()
    });
    daemon.write("work.php", WORK);
    daemon
}

/// Keeps so many requests under way in a pool while `act` runs.
fn under_load<T>(daemon: &Daemon, pool: &str, requests: usize, query: &str, act: impl FnOnce() -> T) -> T {
    let ends = AtomicBool::new(false);
    let params = Params::get(&daemon.dir, "work.php", query);
    std::thread::scope(|scope| {
        for _ in 0..requests {
            scope.spawn(|| {
                while !ends.load(Ordering::SeqCst) {
                    assert_eq!(daemon.ask(pool, &params).body(), "done");
                }
            });
        }
        // The threads also end if `act` panics.
        let _end = Ended(&ends);
        act()
    })
}

struct Ended<'e>(&'e AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn advice(daemon: &Daemon, pool: &str) -> serde_json::Value {
    daemon.status(&[pool])["pools"][0]["advice"].clone()
}

#[test]
fn every_pool_has_advice_and_a_busy_one_is_looked_at() {
    let pools = managers("3");
    let daemon = start(&pools);
    for (name, _) in &pools {
        let before = advice(&daemon, name);
        assert_eq!(
            (&before["max_children"], &before["has_looked"]),
            (&3.into(), &false.into())
        );
        assert!(
            before["chosen"].as_u64().is_some_and(|chosen| chosen > 0),
            "{before}"
        );
        under_load(&daemon, name, 3, "wait=20", || {
            wait_until("a look at the pool", || {
                advice(&daemon, name)["has_looked"] == true
            });
        });
        let (now, text) = (advice(&daemon, name), daemon.shown(&["advise", name]));
        let because = now["because"].as_str().expect("a reason");
        assert!(!because.is_empty(), "{now}");
        assert_contains(
            &text,
            &format!("{name}: max_children = 3; the autopilot would choose "),
        );
        assert_contains(&text, because);
        assert!(daemon.workers(name).len() <= 3, "only advice");
    }
    let all = daemon.shown(&["advise"]);
    assert_eq!(all.lines().count(), 3, "{all}");
    let json: serde_json::Value =
        serde_json::from_str(&daemon.shown(&["advise", "static", "--json"])).expect("JSON");
    assert_eq!(json[0]["pool"], "static");
    assert_contains(
        &daemon.shown(&["status", "--metrics"]),
        "forkyard_pool_workers_advised{pool=\"static\"} ",
    );
    let (code, text) = daemon.said(&["advise", "nowhere"]);
    assert_eq!(code, Some(70), "{text}");
    assert_contains(&text, "there is no pool nowhere");
}
