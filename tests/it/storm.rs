//! Reloads, upgrades and killed masters in any order, under load: no request fails and nothing leaks.

use crate::it::upgrade::{install, installed};
use crate::random::{Random, number};
use crate::support::prelude::*;
use std::sync::atomic::AtomicU64;
use std::time::UNIX_EPOCH;

const EVENTS: u64 = 24;

struct Storm {
    daemon: Daemon,
    address: String,
}

impl Storm {
    fn start() -> Storm {
        let address = free_address();
        let dynamic = "pm = \"dynamic\"\nmax_children = 6\nstart_servers = 2\nmin_spare_servers = 1\nmax_spare_servers = 3\nreload = \"always\"\n";
        let ondemand =
            format!("listen = \"{address}\"\npm = \"ondemand\"\nmax_children = 4\nreload = \"always\"\n");
        let configure = |dir: &Path| {
            let pools = pool(dir, "www", dynamic, PHP) + &pool(dir, "tcp", &ondemand, PHP);
            format!("[global]\nprocess_control_timeout = \"20s\"\n{pools}")
        };
        let daemon = Daemon::start_by(configure, |dir| {
            let mut command = installed(dir);
            command.arg("--keeper");
            command
        });
        daemon.write(
            "work.php",
            "<?php usleep(mt_rand(0, 3000)); echo 'done ' . $_GET['n'];",
        );
        Storm { daemon, address }
    }

    fn client(&self, pool: &str) -> Client {
        let client = match pool {
            "tcp" => Client::connect_tcp(&self.address),
            pool => Client::connect(&self.daemon.socket(pool)),
        };
        client.expect("connect")
    }

    fn ask(&self, pool: &str, keeps: bool, stop: &AtomicBool, served: &AtomicU64) {
        let mut kept = None;
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            number += 1;
            let mut client = kept.take().unwrap_or_else(|| self.client(pool));
            client.keep = keeps;
            let params = Params::get(&self.daemon.dir, "work.php", &format!("n={number}"));
            let answer = client.request(&params, b"").expect("answer");
            assert!(
                answer.ended && answer.body() == format!("done {number}"),
                "{pool}, kept: {keeps}: {answer:?}"
            );
            served.fetch_add(1, Ordering::Relaxed);
            kept = Some(client).filter(|_| keeps);
        }
    }

    fn master(&self) -> u32 {
        self.daemon.kept_master()
    }

    fn master_now(&self) -> Option<u32> {
        let children = process::children(self.daemon.pid());
        let mut masters = children.into_iter().filter(|pid| {
            let title = process::title(*pid);
            title.starts_with("forkyard: master process") || title.contains("bin/forkyard run -c ")
        });
        masters.next()
    }

    fn processes(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        let mut todo = vec![self.daemon.pid()];
        while let Some(pid) = todo.pop() {
            todo.extend(process::children(pid));
            *counts.entry(process::title(pid)).or_default() += 1;
        }
        counts
    }

    fn descriptors(&self) -> [BTreeMap<String, usize>; 2] {
        [self.daemon.pid(), self.master()].map(|pid| {
            let mut kinds = BTreeMap::new();
            let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
            for path in entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()) {
                let text = path.display().to_string();
                let kind = text.split(['[', ' ']).next().unwrap_or_default();
                let kind = kind
                    .split_once("forkyard.work.")
                    .map_or(kind, |(before, _)| before)
                    .to_owned();
                *kinds.entry(kind).or_default() += 1;
            }
            kinds
        })
    }

    fn settle(&self) -> ([BTreeMap<String, usize>; 2], BTreeMap<String, usize>) {
        let mut last = None;
        let mut same = 0;
        until("quiet", || {
            let now = (self.descriptors(), self.processes());
            same = if last.as_ref() == Some(&now) { same + 1 } else { 0 };
            last = Some(now);
            (same >= 60).then(|| last.take().expect("just put there"))
        })
    }
}

fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    listener.local_addr().expect("address").to_string()
}

#[test]
fn no_request_is_lost_and_nothing_is_left_behind() {
    let events = number("FORKYARD_STORM").unwrap_or(EVENTS);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let seed = number("FORKYARD_SEED").unwrap_or(now.subsec_nanos().into());
    eprintln!("FORKYARD_SEED={seed} FORKYARD_STORM={events}");
    let mut random = Random::new(seed);
    let storm = Storm::start();
    let daemon = &storm.daemon;
    let (stop, served) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut kills, mut missed, mut upgrades) = (0, 0, 0);
    let before = std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        for (pool, keeps) in [
            ("www", false),
            ("www", true),
            ("www", true),
            ("tcp", false),
            ("tcp", true),
        ] {
            let (storm, stop, served) = (&storm, &stop, &served);
            scope.spawn(move || storm.ask(pool, keeps, stop, served));
        }
        let wait_for_requests = |count: u64| {
            let so_far = served.load(Ordering::Relaxed);
            wait_until("some requests", || {
                served.load(Ordering::Relaxed) > so_far + count
            });
        };
        wait_for_requests(50);
        for pool in ["www", "tcp"] {
            let params = Params::get(&daemon.dir, "work.php", "n=0");
            let answer = storm.client(pool).request(&params, b"").expect("answer");
            assert_eq!(answer.body(), "done 0");
        }
        let before = storm.descriptors();
        for _ in 0..events {
            match random.below(5) {
                0 | 1 => match storm.master_now() {
                    Some(master) => {
                        let _ = kill(Pid::from_raw(master as i32), Signal::SIGKILL);
                        kills += 1;
                    }
                    None => missed += 1,
                },
                2 => {
                    install(&daemon.dir);
                    daemon.signal(Signal::SIGUSR2);
                    upgrades += 1;
                }
                _ => daemon.signal(Signal::SIGUSR2),
            }
            // The next event often comes in the middle of this one.
            wait_for_requests([0, 5, 40, 200, 400][random.below(5)]);
        }
        wait_for_requests(200);
        before
    });
    eprintln!(
        "{} requests, {kills} kills ({missed} came when there was no master), {upgrades} upgrades: {} times taken over",
        served.load(Ordering::Relaxed),
        daemon.log().matches("taking over from process").count()
    );
    let (after, processes) = storm.settle();
    let masters = processes
        .iter()
        .filter(|(title, _)| title.contains("master process"));
    assert_eq!(masters.map(|(_, count)| count).sum::<usize>(), 1, "{processes:?}");
    let of = |title: &str| processes.get(title).copied().unwrap_or(0);
    assert!(
        of("forkyard: pool www") <= 6 && of("forkyard: pool tcp") <= 4,
        "{processes:?}"
    );
    let preloaders = processes
        .iter()
        .filter(|(title, _)| title.starts_with("forkyard: preloader"));
    assert!(
        preloaders.map(|(_, count)| count).sum::<usize>() <= 2,
        "{processes:?}"
    );
    let workers = of("forkyard: pool www") + of("forkyard: pool tcp");
    for (before, after) in before.iter().zip(&after) {
        for (kind, count) in after {
            let slack = match kind.as_str() {
                "pipe:" | "anon_inode:" => workers,
                // The history of the pools begins after their first requests.
                "/memfd:forkyard" => 1,
                _ => 0,
            };
            let had = before.get(kind).copied().unwrap_or(0);
            assert!(
                *count <= had + slack,
                "{kind}: {count}, {had} before\n{before:?}\n{after:?}"
            );
        }
    }
}
