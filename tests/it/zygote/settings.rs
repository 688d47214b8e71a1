//! Settings that differ between the pools of one zygote.

use super::{FRESH, ONDEMAND, STATIC, member, only_zygote, start, user};
use crate::support::prelude::*;

#[test]
fn settings_environment_and_directory_are_a_pools_own() {
    let daemon = Daemon::start(|dir| {
        let settings = |name: &str| {
            fs::create_dir(dir.join(name)).expect("directory");
            format!("{STATIC}chdir = \"DIR/{name}\"\nenv = {{ WHO = \"{name}\", ONLY_{name} = \"1\" }}\n")
        };
        let values =
            ", memory_limit = \"64M\", disable_functions = \"strrev\", opcache.validate_timestamps = 0";
        member(
            dir,
            "a",
            &settings("a"),
            values,
            "php_value = { date.timezone = \"Asia/Tokyo\" }\n",
        ) + &member(dir, "b", &settings("b"), ", precision = 5", "")
    });
    daemon.write(
        "own.php",
        "<?php $get = 'ini' . $_SERVER['SCRIPT_NAME'][0] . 'get'; $get = str_replace('/', '_', $get);
        ini_set('memory_limit', '33M');
        echo $get('memory_limit'), ' ', date_default_timezone_get(), ' ', $get('precision'), ' ', getenv('WHO'), ' ',
            (int) getenv('ONLY_a'), (int) getenv('ONLY_b'), ' ', function_exists('strrev') ? 'is' : 'no', ' ',
            $get('opcache.validate_timestamps');",
    );
    assert_eq!(daemon.get("a", "own.php").body(), "64M Asia/Tokyo 14 a 10 no 0");
    assert_eq!(daemon.get("b", "own.php").body(), "33M UTC 5 b 01 is 1");
    for name in ["a", "b"] {
        for worker in daemon.wait_for_workers(name, 2) {
            let cwd = fs::read_link(format!("/proc/{worker}/cwd")).expect("a directory");
            assert_eq!(cwd, daemon.dir.join(name));
        }
    }
    only_zygote(&daemon);
}

#[test]
fn what_is_fixed_at_the_start_makes_another_zygote_and_never_a_wrong_number() {
    let daemon = Daemon::start(|dir| {
        member(dir, "a", STATIC, "", "")
            + &member(
                dir,
                "b",
                STATIC,
                ", opcache.memory_consumption = 16, opcache.max_accelerated_files = 300",
                "",
            )
            + &member(dir, "c", STATIC, "", "")
    });
    daemon.write(
        "memory.php",
        "<?php $now = opcache_get_status(false)['memory_usage'];
        echo $now['used_memory'] > 0 ? 'sound ' : 'wrong ', ($now['used_memory'] + $now['free_memory']) >> 20;",
    );
    assert_eq!(daemon.get("a", "memory.php").body(), "sound 128");
    assert_eq!(daemon.get("b", "memory.php").body(), "sound 16");
    assert_eq!(daemon.get("c", "memory.php").body(), "sound 128");
    wait_until("two zygotes", || daemon.preloaders("zygote").len() == 2);
}

#[test]
fn limits_priority_groups_and_root_directory_are_applied() {
    skip_if!(needs_root());
    let daemon = Daemon::start(|dir| {
        fs::create_dir(dir.join("root")).expect("directory");
        write_file(
            dir.join("root/in.php"),
            "<?php echo getcwd(), ' ', __FILE__, ' ', count(scandir('/'));",
        );
        let chroot = format!("{STATIC}chroot = \"{}/root\"\n", dir.display());
        let limits = format!(
            "{STATIC}rlimit_files = 77\nrlimit_core = 0\nprocess.priority = -3\nno_new_privs = true\n\
             confine.deny_system_calls = true\n"
        );
        member(dir, "a", &chroot, "", "") + &member(dir, "b", &limits, "", "")
    });
    let a = daemon.wait_for_workers("a", 2)[0];
    wait_until("the root", || {
        let root = fs::read_link(format!("/proc/{a}/root")).expect("a root");
        root == daemon.dir.join("root")
    });
    let params = Params::get(Path::new(""), "in.php", "");
    assert_eq!(daemon.ask("a", &params).body(), "/ /in.php 3");
    let b = daemon.wait_for_workers("b", 2)[0];
    wait_until("a filter of system calls", || {
        let mode = process::status_line(b, "Seccomp");
        mode.as_deref().map(str::trim) == Some("2")
    });
    let limits = read_file(format!("/proc/{b}/limits"));
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .expect("a line");
    assert_eq!(files.split_ascii_whitespace().nth(3), Some("77"));
    let stat = read_file(format!("/proc/{b}/stat"));
    let nice = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(16));
    assert_eq!(nice, Some("-3"));
    assert_eq!(
        process::status_line(b, "NoNewPrivs").as_deref().map(str::trim),
        Some("1")
    );
    only_zygote(&daemon);
}

#[test]
fn a_pool_that_is_confined_to_paths_reads_no_other() {
    skip_if!(needs_root());
    let daemon = Daemon::start(|dir| {
        let confined = format!("{STATIC}confine.write = [\"{}\"]\n", dir.display());
        member(dir, "a", &confined, "", "") + &member(dir, "b", STATIC, "", "")
    });
    daemon.write(
        "read.php",
        "<?php echo @file_get_contents('/etc/hostname') === false ? 'closed' : 'open';",
    );
    assert_eq!(daemon.get("a", "read.php").body(), "closed");
    assert_eq!(daemon.get("b", "read.php").body(), "open");
}

#[test]
fn a_crash_is_its_pools_own_and_its_memory_stays_sound() {
    let daemon = start(STATIC, "");
    let others = daemon.wait_for_workers("b", 2);
    let zygote = only_zygote(&daemon);
    for _ in 0..3 {
        assert_eq!(daemon.get("a", "code.php").body(), "code");
        let worker = daemon.wait_for_workers("a", 2)[0];
        process::signal(worker, Signal::SIGSEGV);
        wait_until("another worker", || {
            let now = daemon.workers("a");
            now.len() == 2 && !now.contains(&worker)
        });
        assert_eq!(daemon.get("a", "cached.php").body(), "cached");
    }
    assert_eq!((daemon.workers("b"), only_zygote(&daemon)), (others, zygote));
}

#[test]
fn an_own_preloader_beside_it_is_none_of_its_business() {
    let daemon = Daemon::start(|dir| {
        member(dir, "a", ONDEMAND, "", "")
            + &member(dir, "b", ONDEMAND, "", "").replace("\"zygote\"", "\"own\"")
    });
    daemon.write("user.php", &format!("<?php echo posix_getuid(); /* {FRESH} */"));
    for name in ["a", "b"] {
        assert_eq!(daemon.get(name, "user.php").body(), user(name).to_string());
    }
    wait_until("both kinds", || {
        daemon.preloaders("zygote").len() == 1 && daemon.preloaders("b").len() == 1
    });
}

#[test]
fn a_file_cache_is_its_users_own_and_outlives_the_zygote() {
    skip_if!(needs_root());
    use std::os::unix::fs::chown;
    let cache = directory();
    let own = cache.path().join("a");
    fs::create_dir(&own).expect("directory");
    fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).expect("chmod");
    chown(&own, Some(user("a")), Some(user("a"))).expect("chown");
    let daemon = Daemon::start(|dir| {
        let values = format!(", opcache.file_cache = \"{}\"", own.display());
        member(dir, "a", ONDEMAND, &values, "") + &member(dir, "b", ONDEMAND, "", "")
    });
    let script = daemon.write("code.php", "<?php echo 'code';");
    assert_eq!(daemon.get("b", "code.php").body(), "code");
    assert_eq!(daemon.get("a", "code.php").body(), "code");
    let system = fs::read_dir(&own)
        .expect("the cache")
        .next()
        .expect("a directory")
        .expect("an entry");
    let file = format!("{}{}.bin", system.path().display(), script.display());
    let about = fs::metadata(&file).expect("the compiled script");
    assert_eq!(about.uid(), user("a"));
    process::signal(only_zygote(&daemon), Signal::SIGKILL);
    wait_until("the workers to leave", || daemon.workers("a").is_empty());
    daemon.write(
        "hit.php",
        "<?php include 'code.php'; echo ' ', opcache_get_status()['opcache_statistics']['misses'];",
    );
    assert!(daemon.get("a", "hit.php").body().starts_with("code "));
    assert_eq!(
        fs::metadata(&file).expect("the compiled script").ino(),
        about.ino(),
        "it was not compiled again"
    );
}

#[test]
fn compiled_scripts_are_kept_for_each_user_in_a_directory_that_no_other_can_enter() {
    skip_if!(needs_root());
    let dir = directory();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let parent = dir.path().join("cache");
    let kept = format!("opcache_cache = \"{}\"\n", parent.display());
    let own = kept.clone() + "preloader = \"own\"\n";
    let daemon = Daemon::start(|dir| {
        member(dir, "a", ONDEMAND, "", &kept)
            + &member(dir, "b", ONDEMAND, "", &own).replace("preloader = \"zygote\"\n", "")
    });
    daemon.write("code.php", "<?php echo 'code';");
    for name in ["a", "b"] {
        assert_eq!(daemon.get(name, "code.php").body(), "code");
        let about = fs::metadata(parent.join(user(name).to_string())).expect("the user's directory");
        assert_eq!((about.uid(), about.mode() & 0o7777), (user(name), 0o700));
        until("a compiled script", || {
            let mut cache = fs::read_dir(parent.join(user(name).to_string())).expect("the cache");
            cache.next().map(drop)
        });
    }
    assert_eq!(
        fs::metadata(&parent).expect("the directory").mode() & 0o7777,
        0o711
    );
    // The daemon doesn't run a file that another user could have written: it rejects the configuration, and running
    // pools continue.
    let of_a = parent.join(user("a").to_string());
    fs::set_permissions(&of_a, fs::Permissions::from_mode(0o770)).expect("chmod");
    daemon.signal(Signal::SIGUSR2);
    daemon.wait_for(&format!(
        "[pool a] application.opcache_cache: open {}: Operation not permitted",
        of_a.display()
    ));
    assert_eq!(daemon.get("a", "code.php").body(), "code");
}
