//! Many crashes in a short time give every pool new processes.

use crate::support::prelude::*;

const CRASH: &str = "<?php posix_kill(getmypid(), 11); sleep(5);";

fn daemon(threshold: u32) -> Daemon {
    let daemon = Daemon::start(|dir| {
        let settings = "pm = \"static\"\nmax_children = 2\n";
        format!(
            "[global]\nemergency_restart_threshold = {threshold}\nemergency_restart_interval = \"1m\"\n{}{}",
            php_pool(dir, settings, ""),
            pool(dir, "other", settings, PHP),
        )
    });
    daemon.write("ok.php", "<?php echo 'fine';");
    daemon.write("crash.php", CRASH);
    daemon
}

#[test]
fn every_pool_is_made_anew() {
    let daemon = daemon(3);
    let before = daemon.wait_for_workers("other", 2);
    let preloaders = [daemon.preloaders("www")[0], daemon.preloaders("other")[0]];
    for _ in 0..2 {
        assert!(!daemon.get("www", "crash.php").ended);
    }
    daemon.wait_for_count("exited on signal 11 (SIGSEGV", 2);
    assert!(!daemon.log().contains("failed processes threshold"));
    assert!(!daemon.get("www", "crash.php").ended);
    let line = daemon.wait_for("failed processes threshold");
    assert_ends(
        &line,
        "WARNING: failed processes threshold (3 in 60 sec) is reached, initiating reload",
    );
    daemon.wait_for("[pool www] the new workers serve");
    daemon.wait_for("[pool other] the new workers serve");
    wait_until("new processes everywhere", || {
        let workers = daemon.workers("other");
        let is_new = workers.len() == 2 && workers.iter().all(|pid| !before.contains(pid));
        let loaded = [daemon.preloaders("www"), daemon.preloaders("other")].concat();
        is_new && loaded.len() == 2 && loaded.iter().all(|pid| !preloaders.contains(pid))
    });
    for pool in ["www", "other"] {
        assert_eq!(daemon.get(pool, "ok.php").body(), "fine");
    }
    assert!(!daemon.get("www", "crash.php").ended);
    daemon.wait_for_count("exited on signal 11 (SIGSEGV", 4);
    assert_eq!(daemon.log().matches("failed processes threshold").count(), 1);
}

#[test]
fn other_ends_are_no_crashes() {
    let daemon = daemon(1);
    daemon.write("kill.php", "<?php posix_kill(getmypid(), 9); sleep(5);");
    assert!(!daemon.get("www", "kill.php").ended);
    daemon.wait_for("exited on signal 9 (SIGKILL)");
    daemon.wait_for_workers("www", 2);
    assert!(!daemon.log().contains("failed processes threshold"));
}
