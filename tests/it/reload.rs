//! Reload: clients do not notice it, and a wrong configuration changes nothing.

mod begins;
mod held;
mod last;
mod opcache;
pub(super) mod proof;
mod trials;
mod unchanged;
mod warm;

use crate::support::prelude::*;
use std::sync::atomic::AtomicU64;

fn configure(dir: &Path, value: &str) -> String {
    let application = format!("php_value = {{ date.timezone = \"{value}\" }}\n");
    php_pool(dir, "pm = \"static\"\nmax_children = 3\n", &application)
}

const ZONE: &str = "<?php echo date_default_timezone_get();";

#[test]
fn new_workers_serve_while_an_old_one_finishes() {
    let daemon = Daemon::start(|dir| configure(dir, "Europe/Paris"));
    let old = daemon.wait_for_workers("www", 3);
    daemon.write("zone.php", ZONE);
    daemon.write(
        "hold.php",
        "<?php touch($_GET['until'] . '.begun'); while (!file_exists($_GET['until'])) { usleep(2000); clearstatcache(); } \
         echo date_default_timezone_get();",
    );
    assert_eq!(daemon.get("www", "zone.php").body(), "Europe/Paris");
    let go = daemon.dir.join("go");
    let mut slow = daemon.client("www");
    slow.send(
        &Params::get(&daemon.dir, "hold.php", &format!("until={}", go.display())),
        b"",
    )
    .expect("send");
    wait_until("the request to begin", || daemon.dir.join("go.begun").exists());
    write_file(
        daemon.dir.join("forkyard.toml"),
        configure(&daemon.dir, "Asia/Tokyo"),
    );
    daemon.reload_until("the new workers serve");
    wait_until("the old idle workers to leave", || {
        let left = daemon
            .workers("www")
            .iter()
            .filter(|pid| old.contains(pid))
            .count();
        left <= 1
    });
    assert_eq!(daemon.get("www", "zone.php").body(), "Asia/Tokyo");
    fs::write(&go, "").expect("go");
    assert_eq!(slow.answer().expect("answer").body(), "Europe/Paris");
    daemon.wait_for_other_workers("www", 3, &old);
    wait_until("the old preloader to leave", || {
        daemon.preloaders("www").len() == 1
    });
}

#[test]
fn a_wrong_configuration_is_told_and_changes_nothing() {
    let daemon = Daemon::start(|dir| configure(dir, "Europe/Paris"));
    let before = daemon.wait_for_workers("www", 3);
    daemon.write("zone.php", ZONE);
    fs::write(daemon.dir.join("forkyard.toml"), "[pool.www]\nmax_childern = 1\n").expect("configuration");
    daemon.reload_until("the old one stays in force");
    daemon.wait_for("max_childern");
    daemon.wait_for("max_children");
    assert_eq!(daemon.get("www", "zone.php").body(), "Europe/Paris");
    assert_eq!(daemon.workers("www"), before);
}

#[test]
fn a_pool_that_cannot_start_keeps_its_old_workers() {
    let daemon = Daemon::start(|dir| configure(dir, "Europe/Paris"));
    let before = daemon.wait_for_workers("www", 3);
    daemon.write("zone.php", ZONE);
    daemon.write("preload.php", "<?php throw new Exception('no');");
    let broken = format!(
        "php_admin_value = {{ opcache.preload = \"{}/preload.php\" }}\n",
        daemon.dir.display()
    );
    let text = php_pool(&daemon.dir, "pm = \"static\"\nmax_children = 3\n", &broken);
    fs::write(daemon.dir.join("forkyard.toml"), text).expect("configuration");
    daemon.signal(Signal::SIGUSR2);
    assert_contains(&daemon.wait_for("[pool www] the preloader can't start"), "error ");
    assert_lacks(&daemon.log(), "its workers go on");
    assert_eq!(daemon.get("www", "zone.php").body(), "Europe/Paris");
    assert_eq!(daemon.workers("www"), before);
    fs::write(
        daemon.dir.join("forkyard.toml"),
        configure(&daemon.dir, "Asia/Tokyo"),
    )
    .expect("configuration");
    daemon.reload_until("the new workers serve");
    wait_until("the new configuration", || {
        daemon.get("www", "zone.php").body() == "Asia/Tokyo"
    });
}

#[test]
fn a_kept_socket_follows_the_configuration() {
    use std::os::unix::fs::PermissionsExt;
    let daemon = Daemon::start(|dir| configure(dir, "Europe/Paris"));
    let mode = |daemon: &Daemon| {
        fs::metadata(daemon.socket("www"))
            .expect("socket")
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode(&daemon), 0o666);
    let text = configure(&daemon.dir, "Europe/Paris").replace("0666", "0600");
    fs::write(daemon.dir.join("forkyard.toml"), text).expect("configuration");
    daemon.signal(Signal::SIGUSR2);
    wait_until("the new mode", || mode(&daemon) == 0o600);
}

#[test]
fn pools_come_and_go() {
    let one = |dir: &Path, name: &str| pool(dir, name, "", PHP);
    let daemon = Daemon::start(|dir| one(dir, "a") + &one(dir, "b"));
    daemon.write("pid.php", "<?php echo getmypid();");
    assert!(daemon.get("b", "pid.php").ended);
    let text = one(&daemon.dir, "a") + &one(&daemon.dir, "c");
    fs::write(daemon.dir.join("forkyard.toml"), text).expect("configuration");
    daemon.reload_until("reload done");
    assert!(daemon.socket("c").exists());
    assert!(daemon.get("c", "pid.php").ended && daemon.get("a", "pid.php").ended);
    wait_until("the old pool to close", || !daemon.socket("b").exists());
    daemon.wait_for_workers("b", 0);
}

#[test]
fn no_request_is_lost_over_many_reloads() {
    let settings = "reload = \"always\"\npm = \"dynamic\"\nmax_children = 6\nstart_servers = 3\nmin_spare_servers = 2\nmax_spare_servers = 4\n";
    let daemon = Daemon::start(|dir| php_pool(dir, settings, ""));
    daemon.write("pid.php", "<?php usleep(1000); echo getmypid();");
    let params = Params::get(&daemon.dir, "pid.php", "");
    let (stop, served) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        // Stops the threads if an assertion fails, too: the scope waits for them.
        let _stop = StopAtEnd(&stop);
        for keep in [false, false, true] {
            let (daemon, params, stop, served) = (&daemon, &params, &stop, &served);
            scope.spawn(move || {
                let mut kept = None;
                while !stop.load(Ordering::Relaxed) {
                    let mut client = kept.take().unwrap_or_else(|| daemon.client("www"));
                    client.keep = keep;
                    let answer = client.request(params, b"").expect("answer");
                    assert!(answer.ended && answer.body().parse::<u32>().is_ok(), "{answer:?}");
                    served.fetch_add(1, Ordering::Relaxed);
                    if keep {
                        kept = Some(client);
                    }
                }
            });
        }
        for round in 1..=10 {
            daemon.signal(Signal::SIGUSR2);
            daemon.wait_for_count("the new workers serve", round);
            let so_far = served.load(Ordering::Relaxed);
            wait_until("some requests", || served.load(Ordering::Relaxed) > so_far + 20);
        }
    });
    assert!(served.load(Ordering::Relaxed) > 200);
}
