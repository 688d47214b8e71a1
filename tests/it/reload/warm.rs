//! Warm-up: the scripts that were run most are compiled before the new workers serve.

use crate::support::prelude::*;

const ALWAYS: &str = "pm = \"static\"\nmax_children = 2\nreload = \"always\"\n";

const STATUS: &str = "<?php $s = opcache_get_status(); echo $s['opcache_statistics']['misses'], \"\\n\", \
                      implode(\"\\n\", array_map('basename', array_keys($s['scripts'])));";

fn write(daemon: &Daemon, name: &str, text: &str) {
    let path = daemon.write(name, text);
    let file = fs::File::options().write(true).open(path).expect("open");
    file.set_modified(SystemTime::now() - Duration::from_secs(60))
        .expect("utimens");
}

const KINDS: [&str; 2] = ["preloader = \"own\"\n", "preloader = \"zygote\"\n"];

fn start(application: &str) -> Daemon {
    let daemon = Daemon::start(|dir: &Path| php_pool(dir, ALWAYS, application));
    write_large(&daemon);
    assert_eq!(daemon.get("www", "large.php").body(), "large");
    daemon
}

fn write_large(daemon: &Daemon) {
    let functions =
        (0..1_500).map(|n| format!("function large{n}($a) {{ return [$a, 'text {n}', {n}]; }}\n"));
    let text = format!("<?php echo 'large';\n{}", functions.collect::<String>());
    write(daemon, "large.php", &text);
}

fn reload(daemon: &Daemon) {
    daemon.reload_until("reload done");
}

#[test]
fn the_first_request_finds_its_script_compiled() {
    for before in KINDS {
        for after in KINDS {
            let daemon = start(before);
            write(&daemon, "status.php", STATUS);
            write(
                &daemon,
                "page.php",
                "<?php require __DIR__ . '/part.php'; echo part();",
            );
            write(&daemon, "part.php", "<?php function part() { return 'part'; }");
            for _ in 0..3 {
                assert_eq!(daemon.get("www", "page.php").body(), "part");
            }
            assert!(daemon.get("www", "status.php").body().contains("page.php"));
            daemon.write("forkyard.toml", &php_pool(&daemon.dir, ALWAYS, after));
            reload(&daemon);
            let status = daemon.get("www", "status.php").body();
            let mut lines = status.lines();
            assert_eq!(
                lines.next(),
                Some("4"),
                "nothing was compiled but the four by the warm-up, {before}{after}: {status}"
            );
            let mut scripts: Vec<&str> = lines.collect();
            scripts.sort_unstable();
            assert_eq!(scripts, ["large.php", "page.php", "part.php", "status.php"]);
            assert_eq!(daemon.get("www", "page.php").body(), "part");
            assert!(daemon.get("www", "status.php").body().starts_with("4\n"));
        }
    }
}

#[test]
fn it_can_be_off() {
    for kind in KINDS {
        let daemon = start(&format!("{kind}warm_up = 0\n"));
        write(&daemon, "status.php", STATUS);
        write(&daemon, "page.php", "<?php echo 'page';");
        assert_eq!(daemon.get("www", "page.php").body(), "page");
        reload(&daemon);
        assert!(!daemon.get("www", "status.php").body().contains("page.php"));
    }
}

#[test]
fn scripts_are_compiled_and_not_run() {
    let daemon = start("");
    let ran = daemon.dir.join("ran");
    write(
        &daemon,
        "page.php",
        &format!(
            "<?php touch('{}'); class Some {{ function a() {{ echo 'page'; }} }} (new Some)->a();",
            ran.display()
        ),
    );
    assert_eq!(daemon.get("www", "page.php").body(), "page");
    fs::remove_file(&ran).expect("it ran");
    reload(&daemon);
    write(&daemon, "status.php", STATUS);
    assert!(daemon.get("www", "status.php").body().contains("page.php"));
    assert!(!ran.exists());
    assert_eq!(daemon.get("www", "page.php").body(), "page");
}

#[test]
fn what_became_of_scripts_meanwhile_does_not_block_a_reload() {
    for kind in KINDS {
        changed_scripts_do_not_block_a_reload(kind);
    }
}

fn changed_scripts_do_not_block_a_reload(kind: &str) {
    let daemon = start(&format!("{kind}warm_up_time = \"1s\"\n"));
    write(&daemon, "status.php", STATUS);
    for name in [
        "broken.php",
        "gone.php",
        "fifo.php",
        "huge.php",
        "fatal.php",
        "fine.php",
    ] {
        write(&daemon, name, "<?php echo 'fine';");
        assert_eq!(daemon.get("www", name).body(), "fine");
    }
    write(&daemon, "broken.php", "<?php this is ( no PHP");
    write(
        &daemon,
        "fatal.php",
        "<?php class A { abstract function b(); function strlen() {} } function strlen() {}",
    );
    fs::remove_file(daemon.dir.join("gone.php")).expect("remove");
    fs::remove_file(daemon.dir.join("fifo.php")).expect("remove");
    make_fifo(&daemon.dir.join("fifo.php"));
    write(
        &daemon,
        "huge.php",
        &format!("<?php /* {} */", "x".repeat(9 << 20)),
    );
    daemon.reload_until("reload done");
    assert_eq!(daemon.get("www", "fine.php").body(), "fine");
    let status = daemon.get("www", "status.php").body();
    assert_contains(&status, "fine.php");
    assert_lacks(&status, "huge.php");
    wait_until("the old processes to leave", || {
        process::children(daemon.pid()).len() == 3 && daemon.workers("www").len() == 2
    });
    assert_lacks(&daemon.log(), "said:");
}

#[test]
fn a_script_that_takes_too_long_is_given_up() {
    let memory = "php_admin_value = { memory_limit = \"4G\" }\n";
    for kind in KINDS {
        let daemon = start(&format!("{kind}warm_up_time = \"500ms\"\n{memory}"));
        give_up_a_slow_script(&daemon);
    }
}

fn give_up_a_slow_script(daemon: &Daemon) {
    write(daemon, "slow.php", "<?php echo 'slow';");
    assert_eq!(daemon.get("www", "slow.php").body(), "slow");
    let many: String = (0..120_000)
        .map(|n| format!("function f{n}($a) {{ return match(true) {{ $a > {n} => [$a, {n}], default => f{n}($a + 1) }}; }}\n"))
        .collect();
    assert!(many.len() < 12 << 20);
    let part = &many[..many[..7 << 20].rfind("\nfunction").expect("a function") + 1];
    write(daemon, "slow.php", &format!("<?php\n{part}"));
    reload(daemon);
    daemon.write("quick.php", "<?php echo 'quick';");
    assert_eq!(daemon.get("www", "quick.php").body(), "quick");
    daemon.wait_for("took too long");
}

#[test]
fn a_stopped_warm_up_does_not_hold_up_a_reload() {
    let daemon = start(&format!("{}warm_up_time = \"1s\"\n", KINDS[1]));
    write(&daemon, "page.php", "<?php echo 'page';");
    assert_eq!(daemon.get("www", "page.php").body(), "page");
    let zygote = daemon.preloaders("www")[0];
    // It names no scripts, so the compiling process waits for them.
    process::signal(zygote, Signal::SIGSTOP);
    daemon.signal(Signal::SIGUSR2);
    let warm_up = until("the process that compiles", || {
        let all = process::children(daemon.pid()).into_iter();
        let mut found = all.filter(|pid| process::title(*pid) == "forkyard: warm-up www");
        found.next()
    });
    process::signal(warm_up, Signal::SIGSTOP);
    daemon.wait_for("reload done");
    assert_eq!(daemon.get("www", "page.php").body(), "page");
    process::signal(zygote, Signal::SIGCONT);
    process::signal(warm_up, Signal::SIGCONT);
    wait_until("the old processes to leave", || {
        process::children(daemon.pid()).len() == 3
    });
}

#[test]
fn in_a_chroot_it_happens_inside() {
    skip_if!(needs_root());
    let daemon = Daemon::start(|dir| {
        let settings = format!("{ALWAYS}chroot = \"{}\"\n", dir.display());
        php_pool(dir, &settings, "")
    });
    write(&daemon, "status.php", STATUS);
    write(&daemon, "page.php", "<?php echo 'page';");
    let get = |name: &str| {
        let params = Params::get(Path::new(""), name, "");
        daemon.ask("www", &params).body()
    };
    assert_eq!(get("page.php"), "page");
    write_large(&daemon);
    assert_eq!(get("large.php"), "large");
    reload(&daemon);
    assert!(get("status.php").contains("page.php"));
}
