//! The autopilot: its choice for pools with a number, and for pools that follow it.

use super::upgrade::{install, installed};
use crate::support::prelude::*;

/// Waits, computes, and uses memory, as long and as much as the query asks for. The processor time does not depend on what
/// else the machine does.
const WORK: &str = "<?php
function computed() {
    $use = getrusage();
    return ($use['ru_utime.tv_sec'] + $use['ru_stime.tv_sec']) * 1e3 + ($use['ru_utime.tv_usec'] + $use['ru_stime.tv_usec']) / 1e3;
}
$end = computed() + ($_GET['compute'] ?? 0);
while (isset($_GET['compute']) && computed() < $end);
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

fn configure(dir: &Path, pools: &[(&str, String)]) -> String {
    let php = PHP.to_owned();
    let pools = pools
        .iter()
        .map(|(name, settings)| pool(dir, name, settings, &php));
    with_control(dir) + &pools.collect::<String>()
}

fn start(pools: &[(&'static str, String)]) -> Daemon {
    let daemon = Daemon::start(|dir| configure(dir, pools));
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
        let _end = StopAtEnd(&ends);
        act()
    })
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
        assert_has(&before, json!({"max_children": 3, "has_looked": false}));
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
    let frame: Value = parsed(&daemon.shown(&["top", "--once", "--json"]));
    for (name, _) in &pools {
        let mut rows = frame["pools"].as_array().expect("pools").iter();
        let row = rows.find(|row| row["name"] == *name).expect("the pool");
        let shown = row["advice"].as_str().unwrap_or_default();
        assert_starts(shown, "max_children = 3; the autopilot would choose ");
    }
    let text = exited(Some(70), daemon.said(&["advise", "nowhere"]));
    assert_contains(&text, "there is no pool nowhere");
}

/// Returns the autopilot's number. A static pool follows it at a reload.
fn chosen(daemon: &Daemon, pool: &str) -> u64 {
    advice(daemon, pool)["chosen"].as_u64().expect("a number")
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
    let pools = managers("\"auto\"");
    let daemon = start(&pools);
    for (pool, _) in &pools {
        let begun = most(&daemon, pool);
        assert!((1..MANY).contains(&begun), "{pool}: {begun}");
        under_load(&daemon, pool, 30, WAITS, || {
            wait_until("another choice", || chosen(&daemon, pool) >= MANY);
            match *pool {
                "static" => assert_eq!(most(&daemon, pool), begun, "not before the reload"),
                _ => {
                    grown(&daemon, pool, MANY);
                    wait_until("more workers than at the start", || {
                        daemon.workers(pool).len() as u64 > begun
                    });
                    let line = daemon.wait_for(&format!("[pool {pool}] max_children auto = "));
                    assert_contains(&line, ": ");
                }
            }
        });
        let now = advice(&daemon, pool);
        assert_eq!(now["is_followed"], true, "{now}");
    }
    let before = pools.each_ref().map(|(pool, _)| chosen(&daemon, pool));
    exited(Some(0), daemon.said(&["reload", "--all"]));
    for ((pool, _), before) in pools.iter().zip(before) {
        let now = grown(&daemon, pool, MANY);
        assert!(now * 10 >= before * 9, "{pool}: {before} {now}");
        if *pool == "static" {
            daemon.wait_for_workers(pool, now as usize);
        }
    }
}

#[test]
fn the_operator_s_bound_and_number_win() {
    let number = managers("3");
    let names = ["static-number", "dynamic-number", "ondemand-number"];
    let number = number
        .into_iter()
        .zip(names)
        .map(|((_, settings), name)| (name, settings, 3));
    let bounded =
        managers("\"auto\"").map(|(name, settings)| (name, settings + "max_children_most = 4\n", 4));
    let pools: Vec<(&str, String, u64)> = number.chain(bounded).collect();
    let daemon = start(
        &pools
            .iter()
            .map(|(name, settings, _)| (*name, settings.clone()))
            .collect::<Vec<_>>(),
    );
    for (pool, _, most_of) in &pools {
        assert_eq!(most(&daemon, pool), *most_of, "{pool}");
        under_load(&daemon, pool, 12, WAITS, || {
            wait_until("a look", || advice(&daemon, pool)["has_looked"] == true);
            assert_eq!(most(&daemon, pool), *most_of, "{pool}");
            assert!(daemon.workers(pool).len() as u64 <= *most_of, "{pool}");
        });
        if *most_of == 4 {
            assert_eq!(chosen(&daemon, pool), 4, "{pool}");
        }
    }
}

#[test]
fn an_upgrade_keeps_the_number() {
    let pools = managers("\"auto\"");
    let daemon = Daemon::start_by(|dir| configure(dir, &pools), installed);
    daemon.write("work.php", WORK);
    for (pool, _) in &pools {
        under_load(&daemon, pool, 30, WAITS, || {
            wait_until("another choice", || chosen(&daemon, pool) >= MANY);
        });
    }
    let before = pools.each_ref().map(|(pool, _)| chosen(&daemon, pool));
    install(&daemon.dir);
    daemon.reload_until("taking over from process");
    daemon.wait_for("the new workers serve");
    for ((pool, _), before) in pools.iter().zip(before) {
        let now = grown(&daemon, pool, MANY);
        assert!(now * 10 >= before * 9, "{pool}: {before} {now}");
        assert_eq!(advice(&daemon, pool)["has_looked"], true, "{pool}");
    }
}
