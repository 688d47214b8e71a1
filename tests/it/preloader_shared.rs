//! Pools that share a preloader, and so an OPcache.

use crate::support::daemon::{Daemon, pool};
use crate::support::{process, until};
use nix::sys::signal::Signal;
use std::fs;
use std::path::Path;

const STATIC: &str = "pm = \"static\"\nmax_children = 2\n";
const ONDEMAND: &str = "pm = \"ondemand\"\nmax_children = 2\nprocess_idle_timeout = \"1s\"\n";
const FRESH: &str = "opcache.file_update_protection = 0";
const CACHED: &str = "<?php echo opcache_is_script_cached(__DIR__ . '/code.php') ? 'cached' : 'not';";

/// A pool that shares; `values` are more of its php_admin_value, `application` more lines of its application.
fn member(dir: &Path, name: &str, settings: &str, values: &str, application: &str) -> String {
    let application = format!(
        "runtime = \"php\"\nversion = \"8.2\"\npreloader = \"shared\"\n\
         php_admin_value = {{ {FRESH}{values} }}\n{application}"
    );
    pool(dir, name, settings, &application)
}

fn two(dir: &Path, settings: &str) -> String {
    member(dir, "a", settings, "", "") + &member(dir, "b", settings, "", "")
}

fn start(settings: &str) -> Daemon {
    let daemon = Daemon::start(|dir| two(dir, settings));
    daemon.write("code.php", "<?php echo 'code';");
    daemon.write("cached.php", CACHED);
    daemon
}

fn reload(daemon: &Daemon, text: &str, times: usize) {
    fs::write(daemon.dir.join("forkyard.toml"), text).expect("configuration");
    daemon.signal(Signal::SIGUSR2);
    daemon.wait_for_count("reload done", times);
}

/// The pid of the only preloader, once it is that of these pools.
fn only_preloader(daemon: &Daemon, label: &str) -> u32 {
    until(&format!("one preloader, of {label}"), || {
        let all = all_preloaders(daemon);
        match (all.as_slice(), daemon.preloaders(label).as_slice()) {
            ([pid], [labelled]) if pid == labelled => Some(*pid),
            _ => None,
        }
    })
}

fn all_preloaders(daemon: &Daemon) -> Vec<u32> {
    let mut children = process::children(daemon.pid());
    children.retain(|pid| process::title(*pid).starts_with("forkyard: preloader"));
    children
}

/// The name that /proc shows a listening socket under.
fn listening(daemon: &Daemon, pool: &str) -> String {
    let path = daemon.socket(pool).display().to_string();
    let sockets = fs::read_to_string("/proc/net/unix").expect("sockets");
    // The flag 10000 is __SO_ACCEPTCON.
    let mut own = sockets
        .lines()
        .filter(|line| line.ends_with(&path) && line.contains(" 00010000 "));
    let inode = own.next().and_then(|line| line.split_whitespace().nth(6));
    format!("socket:[{}]", inode.expect("a listening socket"))
}

fn holds(pid: u32, name: &str) -> bool {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors");
    entries
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .any(|target| target.to_string_lossy() == name)
}

#[test]
fn what_one_pool_has_compiled_is_there_for_the_other() {
    let daemon = start(STATIC);
    only_preloader(&daemon, "shared a+b");
    assert_eq!(daemon.get("b", "cached.php").body(), "not");
    assert_eq!(daemon.get("a", "code.php").body(), "code");
    assert_eq!(daemon.get("b", "cached.php").body(), "cached");
}

#[test]
fn groups_with_names_are_apart() {
    let daemon = Daemon::start(|dir| {
        let own = |name: &str| format!("runtime = \"php\"\nversion = \"8.2\"\npreloader = \"{name}\"\n");
        pool(dir, "a", STATIC, &own("shared:x"))
            + &pool(dir, "b", STATIC, &own("shared:y"))
            + &pool(dir, "c", STATIC, &own("shared:x"))
            + &pool(dir, "d", STATIC, &own("own"))
    });
    for label in ["shared:x a+c", "shared:y b", "d"] {
        until(label, || (daemon.preloaders(label).len() == 1).then_some(()));
    }
    // A worker that was just forked still has its preloader's title.
    until("three preloaders", || {
        (all_preloaders(&daemon).len() == 3).then_some(())
    });
}

#[test]
fn values_environment_and_directory_are_each_pools_own() {
    let daemon = Daemon::start(|dir| {
        let settings = |name: &str| {
            fs::create_dir(dir.join(name)).expect("directory");
            format!(
                "{STATIC}chdir = \"{0}/{name}\"\nenv = {{ WHO = \"{name}\", ONLY_{name} = \"1\" }}\n",
                dir.display()
            )
        };
        let values = |limit: &str| format!(", memory_limit = \"{limit}\"");
        let zone = |zone: &str| format!("php_value = {{ date.timezone = \"{zone}\" }}\n");
        member(dir, "a", &settings("a"), &values("64M"), &zone("Asia/Tokyo"))
            + &member(dir, "b", &settings("b"), ", precision = 5", "")
            + &member(dir, "c", &format!("{STATIC}clear_env = true\n"), "", "")
    });
    daemon.write(
        "own.php",
        // OPcache compiles ini_get() of a setting that can't change into its value, so the name is put together.
        "<?php $get = 'ini' . $_SERVER['SCRIPT_NAME'][0] . 'get'; $get = str_replace('/', '_', $get);
        ini_set('memory_limit', '33M');
        echo $get('memory_limit'), ' ', date_default_timezone_get(), ' ', $get('precision'), ' ',
            basename(getcwd()), ' ', getenv('WHO'), ' ', (int) getenv('ONLY_a'), (int) getenv('ONLY_b'), ' ',
            basename($_SERVER['USER'] ?? getenv('USER'));",
    );
    // PHP enters the script's directory; what the pool says is seen in its workers.
    let own = |pool: &str| daemon.get(pool, "own.php").body();
    let dir = daemon
        .dir
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    let user = std::process::Command::new("ps")
        .args([
            "-o",
            "user=",
            "-p",
            &daemon.wait_for_workers("a", 2)[0].to_string(),
        ])
        .output()
        .expect("ps");
    let user = String::from_utf8_lossy(&user.stdout).trim().to_owned();
    assert_eq!(own("a"), format!("64M Asia/Tokyo 14 {dir} a 10 {user}"));
    assert_eq!(own("b"), format!("33M UTC 5 {dir} b 01 {user}"));
    assert_eq!(own("c"), format!("33M UTC 14 {dir}  00 {user}"));
    let directory = |pid: u32| fs::read_link(format!("/proc/{pid}/cwd")).expect("a directory");
    for name in ["a", "b"] {
        for worker in daemon.wait_for_workers(name, 2) {
            assert_eq!(directory(worker), daemon.dir.join(name));
        }
    }
    assert_eq!(
        directory(daemon.wait_for_workers("c", 2)[0]),
        directory(daemon.pid()),
        "a pool without chdir stays where the master is"
    );
    only_preloader(&daemon, "shared a+b+c");
}

#[test]
fn a_worker_has_no_descriptor_of_another_pools() {
    let daemon = start(STATIC);
    let (a, b) = (listening(&daemon, "a"), listening(&daemon, "b"));
    for worker in daemon.wait_for_workers("a", 2) {
        assert!(holds(worker, &a) && !holds(worker, &b));
    }
    for worker in daemon.wait_for_workers("b", 2) {
        assert!(holds(worker, &b) && !holds(worker, &a));
    }
}

#[test]
fn log_lines_of_workers_are_of_their_pool() {
    let daemon = Daemon::start(|dir| {
        member(dir, "a", STATIC, "", "") + &member(dir, "b", STATIC, ", forkyard.none = 1", "")
    });
    daemon.wait_for("[pool b] Unable to set php_admin_value 'forkyard.none'");
    assert!(!daemon.log().contains("[pool a] Unable"), "{}", daemon.log());
}

#[test]
fn a_crash_in_one_pool_is_its_own() {
    let daemon = start(STATIC);
    let preloader = only_preloader(&daemon, "shared a+b");
    let others = daemon.wait_for_workers("b", 2);
    let worker = daemon.wait_for_workers("a", 2)[0];
    process::signal(worker, Signal::SIGSEGV);
    until("another worker", || {
        let now = daemon.workers("a");
        (now.len() == 2 && !now.contains(&worker)).then_some(())
    });
    assert_eq!(daemon.get("a", "code.php").body(), "code");
    assert_eq!(daemon.workers("b"), others);
    assert_eq!(only_preloader(&daemon, "shared a+b"), preloader);
}

#[test]
fn the_preloader_can_be_killed_and_both_pools_go_on() {
    let daemon = start(STATIC);
    let preloader = only_preloader(&daemon, "shared a+b");
    let workers = (daemon.wait_for_workers("a", 2), daemon.wait_for_workers("b", 2));
    process::signal(preloader, Signal::SIGKILL);
    for name in ["a", "b"] {
        daemon.wait_for(&format!("[pool {name}] the preloader exited on signal 9"));
        assert_eq!(daemon.get(name, "code.php").body(), "code", "its workers go on");
    }
    assert_eq!((daemon.workers("a"), daemon.workers("b")), workers);
    process::signal(workers.0[0], Signal::SIGKILL);
    process::signal(workers.1[0], Signal::SIGKILL);
    for (name, gone) in [("a", workers.0[0]), ("b", workers.1[0])] {
        until("a worker from the new preloader", || {
            let now = daemon.workers(name);
            (now.len() == 2 && !now.contains(&gone)).then_some(())
        });
        assert_eq!(daemon.get(name, "code.php").body(), "code");
    }
    assert_ne!(only_preloader(&daemon, "shared a+b"), preloader);
}

#[test]
fn a_pool_whose_own_settings_changed_gets_workers_of_the_same_process() {
    let daemon = start(STATIC);
    let preloader = only_preloader(&daemon, "shared a+b");
    let (a, b) = (daemon.wait_for_workers("a", 2), daemon.wait_for_workers("b", 2));
    assert_eq!(daemon.get("a", "code.php").body(), "code");
    let text = member(&daemon.dir, "a", STATIC, "", "")
        + &member(&daemon.dir, "b", STATIC, ", memory_limit = \"77M\"", "");
    reload(&daemon, &text, 1);
    daemon.write("limit.php", "<?php echo ini_get('memory_limit');");
    assert_eq!(daemon.get("b", "limit.php").body(), "77M");
    assert_eq!(daemon.get("b", "cached.php").body(), "cached");
    assert_eq!(daemon.workers("a"), a);
    until("the old workers of b to leave", || {
        let now = daemon.workers("b");
        (now.len() == 2 && now.iter().all(|pid| !b.contains(pid))).then_some(())
    });
    assert_eq!(only_preloader(&daemon, "shared a+b"), preloader);
}

#[test]
fn what_the_process_is_made_from_replaces_all_of_them() {
    let daemon = start(STATIC);
    let preloader = only_preloader(&daemon, "shared a+b");
    assert_eq!(daemon.get("b", "code.php").body(), "code");
    let value = ", opcache.interned_strings_buffer = 4";
    let text = member(&daemon.dir, "a", STATIC, value, "") + &member(&daemon.dir, "b", STATIC, value, "");
    reload(&daemon, &text, 1);
    let next = only_preloader(&daemon, "shared a+b");
    assert_ne!(next, preloader);
    daemon.write(
        "value.php",
        "<?php echo ini_get('opcache.interned_strings_buffer');",
    );
    for name in ["a", "b"] {
        assert_eq!(daemon.get(name, "value.php").body(), "4");
        assert_eq!(
            daemon.get(name, "cached.php").body(),
            "cached",
            "it was warmed up"
        );
    }
    assert_eq!(only_preloader(&daemon, "shared a+b"), next);
}

#[test]
fn pools_that_are_always_replaced_share_the_new_process() {
    let settings = format!("{STATIC}reload = \"always\"\n");
    let daemon = start(&settings);
    let mut before = only_preloader(&daemon, "shared a+b");
    for times in 1..=3 {
        reload(&daemon, &two(&daemon.dir, &settings), times);
        let now = only_preloader(&daemon, "shared a+b");
        assert_ne!(now, before);
        for name in ["a", "b"] {
            assert_eq!(daemon.get(name, "code.php").body(), "code");
        }
        before = now;
    }
}

#[test]
fn a_pool_that_is_removed_leaves_nothing_in_the_process() {
    // The first in the file has started it.
    let daemon = start(STATIC);
    let preloader = only_preloader(&daemon, "shared a+b");
    let socket = listening(&daemon, "a");
    assert!(holds(preloader, &socket));
    reload(&daemon, &member(&daemon.dir, "b", STATIC, "", ""), 1);
    assert_eq!(only_preloader(&daemon, "shared b"), preloader);
    assert!(!holds(preloader, &socket));
    let worker = daemon.wait_for_workers("b", 2)[0];
    process::signal(worker, Signal::SIGKILL);
    until("another worker", || {
        let now = daemon.workers("b");
        (now.len() == 2 && !now.contains(&worker)).then_some(())
    });
    assert_eq!(daemon.get("b", "code.php").body(), "code");
    // And one that comes back joins it.
    reload(&daemon, &two(&daemon.dir, STATIC), 2);
    assert_eq!(daemon.get("a", "code.php").body(), "code");
    assert_eq!(only_preloader(&daemon, "shared a+b"), preloader);
}

#[test]
fn an_idle_pool_leaves_and_the_last_one_ends_the_process() {
    let idle = "preloader_idle_timeout = \"1s\"\n";
    let daemon =
        Daemon::start(|dir| member(dir, "a", ONDEMAND, "", idle) + &member(dir, "b", ONDEMAND, "", idle));
    daemon.write("code.php", "<?php echo 'code';");
    daemon.write(
        "wait.php",
        "<?php while (!file_exists(__DIR__ . '/go')) { usleep(10000); clearstatcache(); } echo 'done';",
    );
    let (a, b) = ("a", "b");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| daemon.get(b, "wait.php").body());
        assert_eq!(daemon.get(a, "code.php").body(), "code");
        let preloader = only_preloader(&daemon, "shared a+b");
        // The other one's request still runs.
        assert_eq!(only_preloader(&daemon, "shared b"), preloader);
        assert_eq!(daemon.get(a, "code.php").body(), "code");
        assert_eq!(only_preloader(&daemon, "shared a+b"), preloader);
        daemon.write("go", "");
        assert_eq!(waits.join().expect("an answer"), "done");
    });
    until("no process but the master", || {
        process::children(daemon.pid()).is_empty().then_some(())
    });
    assert_eq!(daemon.get(b, "code.php").body(), "code");
    only_preloader(&daemon, "shared b");
}

#[test]
fn the_daemon_ends_in_good_order() {
    for signal in [Signal::SIGQUIT, Signal::SIGTERM] {
        let mut daemon = start(STATIC);
        only_preloader(&daemon, "shared a+b");
        let children = process::children(daemon.pid());
        daemon.signal(signal);
        assert!(daemon.wait().success());
        assert!(children.iter().all(|pid| !process::runs(*pid)));
        assert!(!daemon.log().contains("ERROR"), "{}", daemon.log());
    }
}

#[test]
fn pools_that_can_not_share_are_refused() {
    let daemon = start(STATIC);
    let text = member(&daemon.dir, "a", STATIC, "", "")
        + &member(&daemon.dir, "b", &format!("{STATIC}user = \"nobody\"\n"), "", "");
    fs::write(daemon.dir.join("forkyard.toml"), text).expect("configuration");
    daemon.signal(Signal::SIGUSR2);
    daemon.wait_for("pool b can't share pool a's preloader: user differs");
    assert_eq!(daemon.get("b", "code.php").body(), "code", "the old ones serve");
}
