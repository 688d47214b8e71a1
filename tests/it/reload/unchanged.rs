//! Only what changed is replaced.

use crate::support::prelude::*;

const STATIC: &str = "pm = \"static\"\nmax_children = 2\n";
const CACHED: &str =
    "<?php $s = opcache_get_status(); echo $s ? $s['opcache_statistics']['start_time'] : 'off';";

fn named(dir: &Path, name: &str, settings: &str, application: &str) -> String {
    let application =
        format!("runtime = \"php\"\nversion = \"{PHP_VERSION}\"\npreloader = \"own\"\n{application}");
    pool(dir, name, &format!("{STATIC}{settings}"), &application)
}

fn write(daemon: &Daemon, text: &str) {
    fs::write(daemon.dir.join("forkyard.toml"), text).expect("configuration");
}

fn reload(daemon: &Daemon, times: usize) {
    daemon.signal(Signal::SIGUSR2);
    daemon.wait_for_count("reload done", times);
}

fn processes(daemon: &Daemon, pool: &str) -> (Vec<u32>, Vec<u32>) {
    (daemon.wait_for_workers(pool, 2), daemon.preloaders(pool))
}

#[test]
fn a_pool_of_which_nothing_changed_goes_on() {
    let text = |dir: &Path, value: &str| {
        let changed = format!("php_value = {{ date.timezone = \"{value}\" }}\n");
        named(dir, "kept", "status_path = \"/status\"\n", "") + &named(dir, "new", "", &changed)
    };
    let daemon = Daemon::start(|dir| text(dir, "Europe/Paris"));
    daemon.write("cached.php", CACHED);
    daemon.write("zone.php", "<?php echo date_default_timezone_get();");
    let (kept, new) = (processes(&daemon, "kept"), processes(&daemon, "new"));
    let cache = daemon.get("kept", "cached.php").body();
    assert!(cache.parse::<u64>().is_ok(), "{cache}");
    write(&daemon, &text(&daemon.dir, "Asia/Tokyo"));
    reload(&daemon, 1);
    assert_eq!(daemon.get("new", "zone.php").body(), "Asia/Tokyo");
    assert_eq!(daemon.get("kept", "cached.php").body(), cache);
    assert_eq!(processes(&daemon, "kept"), kept);
    wait_until("the new pool's old processes to leave", || {
        let now = (daemon.workers("new"), daemon.preloaders("new"));
        let is_new = |now: &[u32], old: &[u32]| now.iter().all(|pid| !old.contains(pid));
        is_new(&now.0, &new.0) && is_new(&now.1, &new.1)
    });
    let status = daemon.get("kept", "status").body();
    assert!(
        status
            .lines()
            .any(|line| line.starts_with("accepted conn:") && line.ends_with(" 3")),
        "{status}"
    );
    daemon.wait_for("nothing changed for: kept");
    let all = (processes(&daemon, "kept"), processes(&daemon, "new"));
    reload(&daemon, 2);
    assert_eq!((processes(&daemon, "kept"), processes(&daemon, "new")), all);
}

#[test]
fn always_is_always() {
    let daemon = Daemon::start(|dir| named(dir, "www", "reload = \"always\"\n", ""));
    let old = processes(&daemon, "www");
    reload(&daemon, 1);
    wait_until("the old processes to leave", || {
        let now = (daemon.workers("www"), daemon.preloaders("www"));
        let is_new = |now: &[u32], old: &[u32]| now.iter().all(|pid| !old.contains(pid));
        is_new(&now.0, &old.0) && is_new(&now.1, &old.1)
    });
}

#[test]
fn attributes_of_the_socket_alone_replace_nobody() {
    let text = |dir: &Path, mode: &str| {
        let path = dir.join("www.sock");
        let listen = format!(
            "listen = {{ address = \"{}\", mode = \"{mode}\" }}\n",
            path.display()
        );
        named(dir, "www", &listen, "")
    };
    let daemon = Daemon::start(|dir| text(dir, "0666"));
    let old = processes(&daemon, "www");
    write(&daemon, &text(&daemon.dir, "0600"));
    reload(&daemon, 1);
    assert_eq!(processes(&daemon, "www"), old);
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(daemon.socket("www"))
        .expect("socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_changed_php_ini_or_a_file_beside_it_counts() {
    let ini = |dir: &Path| {
        let etc = dir.join("etc");
        fs::create_dir_all(etc.join("conf.d")).expect("directory");
        fs::write(etc.join("php.ini"), "date.timezone = Europe/Paris\n").expect("php.ini");
        let application = format!("php_ini = \"{}\"\n", etc.display());
        named(dir, "www", "", &application) + &named(dir, "other", "", "")
    };
    let daemon = Daemon::start(ini);
    daemon.write("zone.php", "<?php echo date_default_timezone_get();");
    let other = processes(&daemon, "other");
    let zone = || daemon.get("www", "zone.php").body();
    assert_eq!(zone(), "Europe/Paris");
    daemon.write("etc/php.ini", "date.timezone = Asia/Tokyo\n");
    reload(&daemon, 1);
    assert_eq!(zone(), "Asia/Tokyo");
    daemon.write("etc/conf.d/zone.ini", "date.timezone = Asia/Seoul\n");
    reload(&daemon, 2);
    assert_eq!(zone(), "Asia/Seoul");
    let now = processes(&daemon, "www");
    reload(&daemon, 3);
    assert_eq!(processes(&daemon, "www"), now);
    assert_eq!(processes(&daemon, "other"), other);
}

#[test]
fn a_pool_that_could_not_start_is_tried_again() {
    let preload = |dir: &Path| {
        fs::write(dir.join("preload.php"), "<?php throw new Exception('no');").expect("write");
        let application = "php_admin_value = { opcache.preload = \"DIR/preload.php\" }\n";
        named(dir, "www", "", application).replace("pm = \"static\"", "pm = \"ondemand\"")
    };
    let daemon = Daemon::start(preload);
    let mut client = daemon.send("www", &Params::get(&daemon.dir, "hello.php", ""));
    daemon.wait_for("the preloader can't start");
    assert_starts(&client.answer().expect("answer").text(), "Status: 503 ");
    daemon.write("preload.php", "<?php const GREETING = 'hello';");
    daemon.write("hello.php", "<?php echo 'hello';");
    daemon.signal(Signal::SIGUSR2);
    wait_until("the new workers", || {
        daemon.get("www", "hello.php").body() == "hello"
    });
}
