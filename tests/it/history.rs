//! The last two weeks of a pool, over reloads, upgrades and killed masters.

use crate::support::prelude::*;
use forkyard_protocol::history::{Minute, Period};
use forkyard_scoreboard::Archive;
use forkyard_scoreboard::minutes::minute_of;
use forkyard_sys::clock;
use std::os::fd::OwnedFd;

const POOLS: [&str; 5] = ["static", "dynamic", "ondemand", "cgi", "sites"];
const DAY: u64 = 24 * 60;

fn start() -> Daemon {
    Daemon::start_kept(|dir| {
        let site = dir.join("apps/site");
        fs::create_dir_all(&site).expect("mkdir");
        let php = "<?php echo 'fine';";
        for file in [site.join("index.php"), dir.join("fine.php")] {
            write_file(&file, php);
        }
        fs::create_dir_all(dir.join("cgi")).expect("mkdir");
        write_program(
            &dir.join("cgi/app.cgi"),
            "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nfine'\n",
        );
        if is_root() {
            chown(&site, Some(33), Some(33)).expect("chown");
            chown(site.join("index.php"), Some(33), Some(33)).expect("chown");
        }
        let dynamic = "pm = \"dynamic\"\nmax_children = 2\nstart_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 1\n";
        let ondemand = "pm = \"ondemand\"\nmax_children = 1\nprocess_idle_timeout = \"100ms\"\n";
        let fixed = "pm = \"static\"\nmax_children = 1\n";
        let path = dir.display();
        with_control(dir)
            + &pool(dir, "static", fixed, PHP)
            + &pool(dir, "dynamic", dynamic, PHP)
            + &pool(dir, "ondemand", ondemand, PHP)
            + &pool(dir, "idle", fixed, PHP)
            + &pool(dir, "cgi", fixed, &application_in("cgi", dir.join("cgi"), ""))
            + &format!(
                "[pool.sites]\nlisten = {{ address = \"{path}/sites.sock\", mode = \"0666\" }}\nrouting = \"application\"\n\
                 [pool.sites.applications]\ndirectories = [\"{path}/apps\"]\nmin_uid = 1\n"
            )
    })
}

fn ask(daemon: &Daemon, pool: &str) {
    let params = match pool {
        "cgi" => Params::get(&daemon.dir.join("cgi"), "app.cgi", ""),
        "sites" => {
            let site = daemon.dir.join("apps/site");
            Params::get(&site, "index.php", "").with("FORKYARD_APP_ROOT", &site.display().to_string())
        }
        _ => Params::get(&daemon.dir, "fine.php", ""),
    };
    assert_eq!(daemon.ask(pool, &params).body(), "fine", "{pool}");
}

fn periods(daemon: &Daemon, pool: &str) -> Vec<Period> {
    let status = until("a master", || {
        let output = daemon.run(&["status", "--json", pool]);
        serde_json::from_slice::<Value>(&output.stdout).ok()
    });
    match &status["pools"][0]["periods"] {
        Value::Null => Vec::new(),
        periods => serde_json::from_value(periods.clone()).expect("periods"),
    }
}

/// The requests in hours, and in tens of minutes.
fn requests(daemon: &Daemon, pool: &str) -> (u64, u64) {
    let periods = periods(daemon, pool);
    let sum = |minutes: u64| {
        let all = periods.iter().filter(|period| period.minutes == minutes);
        all.map(|period| period.requests).sum()
    };
    (sum(60), sum(10))
}

/// The master's memory with the history.
fn memory(master: u32) -> Option<File> {
    let entries = fs::read_dir(format!("/proc/{master}/fd")).expect("descriptors");
    let mut paths = entries.map_while(Result::ok).map(|entry| entry.path());
    let path = paths.find(|path| {
        let target = fs::read_link(path).unwrap_or_default();
        target.to_string_lossy().starts_with("/memfd:forkyard history")
    })?;
    let opened = File::options().read(true).write(true).open(path);
    Some(opened.expect("the memory"))
}

#[test]
fn yesterday_is_known_over_reloads_upgrades_and_killed_masters() {
    let daemon = start();
    let master = daemon.kept_master();
    assert_eq!(periods(&daemon, "static"), []);
    assert!(memory(master).is_none(), "no pool had a request");
    for count in 1..=3 {
        for pool in POOLS {
            ask(&daemon, pool);
            wait_until("the request to be counted", || {
                requests(&daemon, pool) == (count, count)
            });
        }
    }
    assert_eq!(periods(&daemon, "idle"), []);
    let memory = memory(master).expect("a memory");
    assert_eq!(memory.metadata().expect("its size").len(), 32 << 20);

    // Another day, as the daemon would have kept it.
    let mut archive = Archive::adopt(OwnedFd::from(memory))
        .expect("mmap")
        .expect("an archive");
    let now = clock::now();
    let present = minute_of(now);
    let yesterday = (present / 10 * 10).wrapping_sub(DAY + 30);
    for pool in POOLS {
        let ten = Minute {
            minute: yesterday,
            requests: 3_600,
            errors: 7,
            dead: [1, 0, 0, 5],
            run_micros: 7_200_000_000,
            waits: [3_000, 600, 0, 0, 0, 0, 0, 0],
        };
        assert!(archive.keep(pool, &[ten], now));
    }
    let has_all = |daemon: &Daemon, count: u64| {
        for pool in POOLS {
            wait_until(pool, || requests(daemon, pool) == (3_600 + count, 3_600 + count));
            let text = daemon.shown(&["status", pool]);
            assert_contains(
                &text,
                "\n  same hour a day ago: 3600 requests, 7 errors, 2.00 busy workers; 95 % waited at most 10.0 ms; dead work: \
                 abandoned 1, overload 5\n",
            );
        }
    };
    has_all(&daemon, 3);
    let begun = periods(&daemon, "static")[0].began;

    assert!(daemon.run(&["reload", "--all"]).status.success());
    has_all(&daemon, 3);
    assert!(daemon.run(&["upgrade"]).status.success());
    has_all(&daemon, 3);
    let master = daemon.kept_master();
    process::signal(master, Signal::SIGKILL);
    daemon.next_kept_master(master);
    has_all(&daemon, 3);
    for pool in POOLS {
        ask(&daemon, pool);
    }
    has_all(&daemon, 4);
    let again = periods(&daemon, "static")[0].began;
    assert!(again.abs_diff(begun) <= 2, "{again} {begun}");
    let status = daemon.status(&[]);
    for pool in status["pools"].as_array().expect("pools") {
        assert!(pool["periods"].is_null(), "only named pools have them: {pool}");
    }
}
