//! The autopilot: its choice for pools with a number.

use super::upgrade::{install, program};
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
        let because = advice(&daemon, name)["because"].to_string();
        assert!(because.len() > "\"\"".len(), "a reason");
        let text = daemon.shown(&["advise", name]);
        assert_contains(
            &text,
            &format!("{name}: max_children = 3; the autopilot would choose "),
        );
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

fn most(daemon: &Daemon, pool: &str) -> u64 {
    let status = daemon.status(&[pool]);
    status["pools"][0]["limits"]["max_children"]
        .as_u64()
        .expect("max_children")
}

/// Waits until a pool may have at least so many workers, and returns the number.
fn grown(daemon: &Daemon, pool: &str, least: u64) -> u64 {
    until(&format!("{least} workers for {pool}"), || {
        Some(most(daemon, pool)).filter(|most| *most >= least)
    })
}

const WAITS: &str = "wait=40";
/// More than at the start on any machine with fewer than nine processors.
const MANY: u64 = 40;

#[test]
fn requests_that_wait_get_many_workers_and_keep_them_through_a_reload() {
    let [_, dynamic, ondemand] = managers("\"auto\"");
    let daemon = start(&[dynamic, ondemand]);
    for pool in ["dynamic", "ondemand"] {
        let begun = most(&daemon, pool);
        assert!((1..MANY).contains(&begun), "{pool}: {begun}");
        under_load(&daemon, pool, 30, WAITS, || {
            grown(&daemon, pool, MANY);
            wait_until("more workers than at the start", || {
                daemon.workers(pool).len() as u64 > begun
            });
        });
        let line = daemon.wait_for(&format!("[pool {pool}] max_children auto = "));
        assert_contains(&line, ": ");
        let now = advice(&daemon, pool);
        assert_eq!(now["is_followed"], true, "{now}");
    }
    let before = ["dynamic", "ondemand"].map(|pool| most(&daemon, pool));
    let (code, text) = daemon.said(&["reload", "--all"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(["dynamic", "ondemand"].map(|pool| most(&daemon, pool)), before);
}

#[test]
fn a_static_pool_gets_another_number_at_a_reload() {
    let [fixed, ..] = managers("\"auto\"");
    let daemon = start(&[fixed]);
    let begun = most(&daemon, "static");
    daemon.wait_for_workers("static", begun as usize);
    let wanted = under_load(&daemon, "static", 30, WAITS, || {
        until("another choice", || {
            let chosen = advice(&daemon, "static")["chosen"].as_u64()?;
            (chosen >= MANY).then_some(chosen)
        })
    });
    assert_eq!(most(&daemon, "static"), begun, "not before the reload");
    let (code, text) = daemon.said(&["reload", "--all"]);
    assert_eq!(code, Some(0), "{text}");
    let now = grown(&daemon, "static", MANY);
    assert!(now * 2 >= wanted, "{now} {wanted}");
    daemon.wait_for_workers("static", now as usize);
}

#[test]
fn requests_that_compute_get_about_as_many_workers_as_processors() {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    for (pool, settings) in &managers("\"auto\"")[1..] {
        let daemon = start(&[(pool, settings.clone())]);
        let begun = most(&daemon, pool);
        assert!(begun > cores * 2, "{pool}: {begun}");
        under_load(&daemon, pool, 8, "compute=15", || {
            wait_until("few workers", || most(&daemon, pool) <= cores * 2);
            wait_until("the others to leave", || {
                daemon.workers(pool).len() as u64 <= cores * 2
            });
        });
        assert_contains(&daemon.shown(&["advise", pool]), "processor");
    }
}

#[test]
fn memory_bounds_the_workers() {
    for (pool, settings) in managers("\"auto\"") {
        let daemon = start(&[(pool, format!("{settings}memory_max = \"200M\"\n"))]);
        under_load(&daemon, pool, 12, "wait=30&mib=30", || {
            wait_until("a bound by memory", || {
                let because = advice(&daemon, pool)["because"].to_string();
                because.contains("memory; a worker")
            });
            let now = most(&daemon, pool);
            assert!((1..=6).contains(&now), "{pool}: {now}");
            wait_until("the others to leave", || daemon.workers(pool).len() as u64 <= now);
        });
    }
}

#[test]
fn the_operator_s_bound_and_number_win() {
    let [_, (_, dynamic), _] = managers("\"auto\"");
    let daemon = start(&[
        ("bounded", format!("{dynamic}max_children_most = 4\n")),
        ("number", managers("3")[1].1.clone()),
    ]);
    for (pool, number) in [("bounded", 4), ("number", 3)] {
        assert_eq!(most(&daemon, pool), number);
        under_load(&daemon, pool, 12, WAITS, || {
            wait_until("a look", || advice(&daemon, pool)["has_looked"] == true);
            assert_eq!(most(&daemon, pool), number);
            assert!(daemon.workers(pool).len() as u64 <= number);
        });
    }
    assert_eq!(advice(&daemon, "bounded")["chosen"], 4);
}

#[test]
fn an_upgrade_keeps_the_number() {
    let dir = directory();
    let path = dir.path();
    let [_, _, (name, ondemand)] = managers("\"auto\"");
    let php = format!("runtime = \"php\"\nversion = {:?}\n", env!("FORKYARD_PHP"));
    write_file(
        path.join("forkyard.toml"),
        with_control(path) + &pool(path, name, &ondemand, &php),
    );
    make_writable(path);
    install(path);
    let mut command = Command::new(program(path));
    command.args(["run", "-c"]).arg(path.join("forkyard.toml"));
    let daemon = Daemon::launch(path, command);
    daemon.wait_for("ready to handle connections");
    daemon.write("work.php", WORK);
    let before = under_load(&daemon, name, 30, WAITS, || {
        grown(&daemon, name, MANY);
        most(&daemon, name)
    });
    let before = before.min(most(&daemon, name));
    install(path);
    daemon.reload_until("taking over from process");
    daemon.wait_for("the new workers serve");
    let now = most(&daemon, name);
    assert!(now * 10 >= before * 9, "{before} {now}");
    assert_eq!(advice(&daemon, name)["has_looked"], true);
}
