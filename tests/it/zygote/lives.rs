//! Zygotes and masters end, and reloads come.

use super::{ONDEMAND, STATIC, member, only_zygote, pid, start, two};
use crate::support::prelude::*;

#[test]
fn a_zygote_can_be_killed_and_its_workers_go_on() {
    let daemon = Daemon::start(|dir| format!("[global]\nlog_level = \"debug\"\n{}", two(dir, STATIC, "")));
    daemon.write("code.php", "<?php echo 'code';");
    daemon.wait_for_count("] child ", 4);
    let zygote = only_zygote(&daemon);
    let workers = (daemon.wait_for_workers("a", 2), daemon.wait_for_workers("b", 2));
    process::signal(zygote, Signal::SIGKILL);
    daemon.wait_for("the preloader exited on signal 9");
    for name in ["a", "b"] {
        assert_eq!(daemon.get(name, "code.php").body(), "code");
    }
    assert_eq!((daemon.workers("a"), daemon.workers("b")), workers);
    process::signal(workers.0[0], Signal::SIGKILL);
    wait_until("a worker of another zygote", || {
        let now = daemon.workers("a");
        now.len() == 2 && !now.contains(&workers.0[0])
    });
    assert_ne!(only_zygote(&daemon), zygote);
    for _ in 0..4 {
        assert_eq!(
            daemon.get("a", "code.php").body(),
            "code",
            "both memories are sound"
        );
    }
}

#[test]
fn a_reload_that_finds_nothing_changed_leaves_everything() {
    let daemon = start(ONDEMAND, "");
    let (worker, zygote) = (pid(&daemon, "a"), only_zygote(&daemon));
    daemon.reload_until("reload done");
    assert_eq!((pid(&daemon, "a"), only_zygote(&daemon)), (worker, zygote));
    pid(&daemon, "b");
    assert_eq!(only_zygote(&daemon), zygote);
}

#[test]
fn what_php_ini_says_holds_from_a_reload_on_for_all_at_once_and_unused_pools_start_nothing() {
    let dir = directory();
    let ini = dir.path().join("php.ini");
    let scan = |value: u32| format!("memory_limit = {value}M\n");
    fs::write(&ini, scan(201)).expect("php.ini");
    let own = format!("php_ini = \"{}\"\n", ini.display());
    let daemon = Daemon::start(|dir| {
        let pools = ["a", "b", "c"].map(|name| member(dir, name, ONDEMAND, "", &own));
        pools.concat()
    });
    daemon.write("limit.php", "<?php echo ini_get('memory_limit');");
    daemon.write("pid.php", "<?php echo getmypid();");
    assert_eq!(daemon.get("a", "limit.php").body(), "201M");
    let zygote = only_zygote(&daemon);
    fs::write(&ini, scan(202)).expect("php.ini");
    assert_eq!(daemon.get("b", "limit.php").body(), "201M", "before the reload");
    daemon.reload_until("reload done");
    // An unused pool has not changed, but must not keep PHP's earlier state either.
    assert_eq!(daemon.get("c", "limit.php").body(), "202M");
    for name in ["a", "b"] {
        assert_eq!(daemon.get(name, "limit.php").body(), "202M");
    }
    assert_ne!(only_zygote(&daemon), zygote, "the old one has ended");
}

#[test]
fn a_pool_whose_own_settings_change_gets_workers_of_the_same_zygote() {
    let daemon = start(STATIC, "");
    let zygote = only_zygote(&daemon);
    let (a, b) = (daemon.wait_for_workers("a", 2), daemon.wait_for_workers("b", 2));
    let text = member(&daemon.dir, "a", STATIC, "", "")
        + &member(&daemon.dir, "b", STATIC, ", memory_limit = \"77M\"", "");
    fs::write(daemon.dir.join("forkyard.toml"), text).expect("configuration");
    daemon.reload_until("reload done");
    daemon.write("limit.php", "<?php echo ini_get('memory_limit');");
    assert_eq!(daemon.get("b", "limit.php").body(), "77M");
    assert_eq!(daemon.workers("a"), a);
    daemon.wait_for_other_workers("b", 2, &b);
    assert_eq!(only_zygote(&daemon), zygote);
}

#[test]
fn a_reload_takes_up_new_code_where_php_does_not_look() {
    let daemon = Daemon::start(|dir| {
        member(dir, "a", STATIC, ", opcache.validate_timestamps = 0", "") + &member(dir, "b", STATIC, "", "")
    });
    daemon.write("code.php", "<?php echo 'old';");
    assert_eq!(daemon.get("a", "code.php").body(), "old");
    daemon.write("code.php", "<?php echo 'new';");
    assert_eq!(daemon.get("a", "code.php").body(), "old");
    let (a, b) = (daemon.wait_for_workers("a", 2), daemon.wait_for_workers("b", 2));
    daemon.reload_until("reload done");
    assert_eq!(daemon.get("a", "code.php").body(), "new");
    daemon.wait_for_other_workers("a", 2, &a);
    assert_eq!(daemon.workers("b"), b, "PHP looks there itself");
}

#[test]
fn a_zygote_of_one_pool_begins_and_ends_with_its_workers() {
    let idle = "preloader_idle_timeout = \"1s\"\n";
    let daemon = Daemon::start(|dir| {
        let other = ", opcache.memory_consumption = 16";
        member(dir, "a", ONDEMAND, "", idle) + &member(dir, "b", ONDEMAND, other, idle)
    });
    daemon.write("code.php", "<?php echo 'code';");
    assert!(process::children(daemon.pid()).is_empty());
    for name in ["a", "b"] {
        assert_eq!(daemon.get(name, "code.php").body(), "code");
    }
    wait_until("no process but the master", || {
        process::children(daemon.pid()).is_empty()
    });
    assert_eq!(daemon.get("a", "code.php").body(), "code");
    only_zygote(&daemon);
}

#[test]
fn a_zygote_whose_pools_are_gone_ends() {
    let daemon = start(STATIC, "");
    only_zygote(&daemon);
    let own = two(&daemon.dir, STATIC, "").replace("\"zygote\"", "\"own\"");
    fs::write(daemon.dir.join("forkyard.toml"), own).expect("configuration");
    daemon.reload_until("reload done");
    wait_until("the zygote to end", || daemon.preloaders("zygote").is_empty());
    assert_eq!(daemon.get("a", "code.php").body(), "code");
}

#[test]
fn with_the_daemon_everything_ends() {
    let mut daemon = start(ONDEMAND, "");
    pid(&daemon, "a");
    let zygote = only_zygote(&daemon);
    daemon.end(Signal::SIGQUIT);
    wait_until("the zygote to end", || !process::runs(zygote));
}

#[test]
fn workers_go_on_when_their_master_is_killed_and_the_next_one_has_a_zygote_of_its_own() {
    let daemon =
        Daemon::start_kept(|dir| format!("[global]\nlog_level = \"debug\"\n{}", two(dir, STATIC, "")));
    daemon.write("pid.php", "<?php echo getmypid();");
    let first = daemon.kept_master();
    let of = |pool: &str| {
        let title = format!("forkyard: pool {pool}");
        let masters: Vec<u32> = process::children(daemon.pid());
        let all = masters
            .iter()
            .flat_map(|pid| process::children(*pid))
            .chain(masters.iter().copied());
        let mut own: Vec<u32> = all
            .filter(|pid| process::title(*pid) == title && process::runs(*pid))
            .collect();
        own.sort_unstable();
        own
    };
    let workers = until("workers", || Some(of("a")).filter(|own| own.len() == 2));
    until("workers", || Some(of("b")).filter(|own| own.len() == 2));
    crate::it::keeper::until_known(daemon.pid(), 4);
    process::signal(first, Signal::SIGKILL);
    daemon.next_kept_master(first);
    daemon.wait_for("4 workers go on");
    let served: u32 = daemon.get("a", "pid.php").body().parse().expect("a pid");
    assert!(workers.contains(&served), "{served} of {workers:?}");
    process::signal(workers[0], Signal::SIGKILL);
    process::signal(workers[1], Signal::SIGKILL);
    wait_until("workers of the next zygote", || {
        let now = of("a");
        now.len() == 2 && now.iter().all(|pid| !workers.contains(pid))
    });
    let served: u32 = daemon.get("a", "pid.php").body().parse().expect("a pid");
    assert!(!workers.contains(&served), "{served} of {workers:?}");
}
