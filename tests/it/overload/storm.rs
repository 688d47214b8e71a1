//! More requests than a pool can answer, from clients that give up.

use super::{dead, visit, wait_for_last_hour};
use crate::it::holding::{APPLICATIONS, Site};
use crate::support::prelude::*;
use forkyard_protocol::dead_work::DeadWork;
use forkyard_protocol::history::LastHour;
use std::sync::atomic::{AtomicBool, AtomicUsize};

const CLIENTS: usize = 160;
const WORKERS: usize = 4;
const FORGOTTEN: usize = 10;
const TAKES: &str = "100";
const PATIENCE_OF_CLIENTS: Duration = Duration::from_secs(2);
const LASTS: Duration = Duration::from_secs(8);

#[derive(Debug)]
struct Outcome {
    answered: usize,
    refused: usize,
    executed: usize,
    /// POSTs in the middle of the storm whose clients left at once, and were executed.
    forgotten: usize,
    /// How long the first request after the storm waited.
    after: Duration,
    dead: DeadWork,
    last_hour: LastHour,
}

fn fixed(settings: &str) -> String {
    format!("pm = \"static\"\nmax_children = {WORKERS}\n{settings}")
}

/// The number of workers is the autopilot's, up to [`WORKERS`].
fn chosen(settings: &str) -> String {
    let number =
        format!("max_children = \"auto\"\nmax_children_most = {WORKERS}\nstart_servers = {WORKERS}\n");
    format!("pm = \"dynamic\"\n{number}min_spare_servers = 1\nmax_spare_servers = {WORKERS}\n{settings}")
}

/// `is_timed`: the web server sends REQUEST_START.
fn storm(pool: &str, is_timed: bool) -> Outcome {
    let site = Site::start(&APPLICATIONS[0], pool, None);
    site.daemon.wait_for_workers("www", WORKERS);
    let ask = |name: &str, patience: Duration| {
        let mut params = visit(&site, name, 0.0);
        if !is_timed {
            params.0.retain(|(name, _)| name != "REQUEST_START");
        }
        let params = params.with("QUERY_STRING", &format!("n={name}&takes={TAKES}"));
        let mut client = site.client().patient_for(patience);
        client.request(&params, b"").ok().filter(|answer| answer.ended)
    };
    let (answered, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let forget = || {
        let params = visit(&site, "forgotten", 0.0).with("REQUEST_METHOD", "POST");
        let params = params.with("QUERY_STRING", "n=forgotten&takes=1");
        site.client().send(&params, b"").expect("send");
    };
    let begin = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_until("the middle", || begin.elapsed() >= LASTS / 2);
            (0..FORGOTTEN).for_each(|_| forget());
        });
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while begin.elapsed() < LASTS {
                    let asked = Instant::now();
                    match ask("n", PATIENCE_OF_CLIENTS) {
                        Some(answer) if answer.body() == "done" => {
                            answered.fetch_add(1, Ordering::SeqCst);
                        }
                        Some(answer) => {
                            assert_starts(&answer.status(), "503 ");
                            refused.fetch_add(1, Ordering::SeqCst);
                            wait_until("Retry-After", || asked.elapsed() >= Duration::from_secs(1));
                        }
                        None => {}
                    }
                }
            });
        }
    });
    let begin = Instant::now();
    assert_eq!(ask("last", PATIENCE).expect("an answer").body(), "done");
    let after = begin.elapsed();
    wait_until("the end of all work", || {
        site.daemon.status(&["www"])["pools"][0]["busy"] == 0
    });
    let begun = site.begun();
    let forgotten = begun.iter().filter(|name| *name == "forgotten").count();
    Outcome {
        answered: answered.into_inner(),
        refused: refused.into_inner(),
        executed: begun.len() - 1 - forgotten,
        forgotten,
        after,
        dead: dead(&site),
        last_hour: wait_for_last_hour(&site, "storm"),
    }
}

#[test]
fn an_overloaded_pool_does_work_that_somebody_waits_for() {
    let auto = "max_request_queue_time = \"auto\"\n";
    let rows = [(fixed(auto), true), (fixed(auto), false), (chosen(auto), true)];
    each(rows, |(pool, is_timed)| {
        let outcome = storm(&pool, is_timed);
        let Outcome {
            answered, executed, ..
        } = outcome;
        println!("auto, timed {is_timed}: {outcome:?}");
        assert!(answered * 100 >= executed * 95, "{outcome:?}");
        let capacity = WORKERS * 10 * LASTS.as_secs() as usize;
        assert!(answered * 2 >= capacity, "{outcome:?}");
        assert!(outcome.refused > 0 && outcome.dead.overload > 0, "{outcome:?}");
        assert!(outcome.last_hour.errors >= outcome.dead.overload, "{outcome:?}");
        assert!(outcome.after < Duration::from_secs(1), "{outcome:?}");
        assert_eq!(outcome.forgotten, FORGOTTEN, "{outcome:?}");
    });
}

/// A static pool has as many workers as the autopilot's number, so that no slot is free.
#[test]
fn a_pool_with_fewer_workers_than_slots_sees_its_queue() {
    const SLOTS: u64 = 24;
    each(["dynamic", "ondemand"], |manager| {
        let number = format!("max_children = \"auto\"\nmax_children_most = {SLOTS}\n");
        let pool = format!("pm = \"{manager}\"\n{number}max_request_queue_time = \"auto\"\n");
        let spare = "start_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 2\n";
        let pool = if manager == "dynamic" { pool + spare } else { pool };
        let site = Site::start(&APPLICATIONS[0], &pool, None);
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS / 2 {
                scope.spawn(|| {
                    while !ends.load(Ordering::SeqCst) {
                        let params = visit(&site, "n", 0.0).with("QUERY_STRING", "n=n&computes=100");
                        let _ = site.client().request(&params, b"");
                    }
                });
            }
            let _end = Ended(&ends);
            let overload = || {
                let status = &site.daemon.status(&["www"])["pools"][0];
                let most = status["limits"]["max_children"].as_u64().expect("a number");
                let count = status["numbers"]["dead_work"]["overload"]
                    .as_u64()
                    .expect("a number");
                (most, count)
            };
            let before = until(&format!("{manager}: a number below the slots"), || {
                let (most, count) = overload();
                (most < SLOTS).then_some(count)
            });
            wait_until(&format!("{manager}: refused requests"), || {
                let (most, count) = overload();
                most < SLOTS && count > before
            });
        });
    });
}

/// The threads also end if a wait is in vain.
struct Ended<'e>(&'e AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The web server's clock may be wrong, or another server had the request before.
#[test]
fn a_wait_that_the_pool_did_not_see_is_no_overload() {
    let managers = ["static", "dynamic", "ondemand"];
    each(managers, |manager| {
        let pool = format!("pm = \"{manager}\"\nmax_children = 2\nmax_request_queue_time = \"auto\"\n");
        let spare = "start_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 2\n";
        let pool = if manager == "dynamic" { pool + spare } else { pool };
        let site = Site::start(&APPLICATIONS[0], &pool, None);
        for number in 0..60 {
            let params = visit(&site, "n", 3.0).with("QUERY_STRING", "n=n&takes=50");
            let answer = site.client().request(&params, b"").expect("an answer");
            assert_eq!(answer.body(), "done", "{manager}: request {number}");
        }
    });
}

#[test]
fn dead_work_ends_with_its_clients() {
    let skips = storm(&fixed(""), true);
    println!("skip: {skips:?}");
    assert!(skips.dead.abandoned > 0 && skips.refused == 0, "{skips:?}");
    assert!(skips.after < Duration::from_secs(1), "{skips:?}");
    let runs = storm(&fixed("abandoned = \"run\"\n"), true);
    println!("run: {runs:?}");
    assert!(
        runs.after > Duration::from_secs(2) && runs.answered * 2 < runs.executed,
        "{runs:?}"
    );
}
