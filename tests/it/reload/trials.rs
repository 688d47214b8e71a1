//! A restart tries new code in every process manager, with and without a worker: broken code never replaces working
//! code.

use super::super::cells::RUNTIMES;
use crate::support::prelude::*;

pub(super) const PMS: [(&str, &str, bool); 4] = [
    ("static", "pm = \"static\"\nmax_children = 1\n", true),
    (
        "dynamic",
        "pm = \"dynamic\"\nmax_children = 2\nstart_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 1\n",
        true,
    ),
    ("ondemand", "pm = \"ondemand\"\nmax_children = 1\n", true),
    (
        "empty",
        "pm = \"ondemand\"\nmax_children = 1\nprocess_idle_timeout = \"1s\"\n",
        false,
    ),
];

pub(super) fn workers(daemon: &Daemon, name: &str) -> u64 {
    let status: Value = serde_json::from_str(&daemon.said(&["status", "--json", name]).1).expect("JSON");
    let pool = &status["pools"][0];
    pool["busy"].as_u64().expect("busy") + pool["idle"].as_u64().expect("idle")
}

fn tries_before_it_serves(name: &str, file: &str) {
    let mut all = RUNTIMES.iter();
    let case = all
        .find(|it| it.name == name && it.file == file)
        .expect("a runtime");
    let daemon = Daemon::start(|dir| {
        let mut text = with_control(dir);
        for (name, pm, _) in PMS {
            let root = dir.join(name);
            make_folder(&root);
            fs::write(root.join(case.file), case.good.replace("VALUE", "one")).expect("write");
            text += &pool(dir, name, pm, &case.application(&root));
        }
        text
    });
    for (name, _, stays) in PMS {
        let label = format!("{} {name}", case.name);
        let ask = || daemon.get(name, "x").body();
        let file = daemon.dir.join(name).join(case.file);
        assert_eq!(ask(), "one", "{label}");
        if !stays {
            wait_until("no worker", || workers(&daemon, name) == 0);
        }
        fs::write(&file, case.broken).expect("write");
        let (code, text) = daemon.said(&["restart", name, "--wait"]);
        assert_eq!(code, Some(70), "{label}: {text}");
        assert_eq!(ask(), "one", "{label}");
        let (code, text) = daemon.said(&["health", "--ready"]);
        assert_eq!(code, Some(0), "{label}: {text}");
        fs::write(&file, case.good.replace("VALUE", "two")).expect("write");
        let (code, text) = daemon.said(&["restart", name, "--wait"]);
        assert_eq!(code, Some(0), "{label}: {text}");
        assert_eq!(ask(), "two", "{label}");
    }
}

tests! {
    fn a_wsgi_pool_is_tried() => tries_before_it_serves("wsgi", "wsgi.py");
    fn an_asgi_pool_is_tried_with_its_lifespan() => tries_before_it_serves("asgi", "main.py");
    fn a_rack_pool_is_tried() => tries_before_it_serves("rack", "config.ru");
    fn a_node_pool_is_tried() => tries_before_it_serves("node", "app.js");
    fn a_loop_of_php_is_tried() => tries_before_it_serves("php", "worker.php");
    fn a_program_that_speaks_http_is_tried() => tries_before_it_serves("http", "serve.js");
}

fn plain_php(pm: &str) -> Daemon {
    let daemon = Daemon::start(|dir| {
        fs::create_dir(dir.join("conf.d")).expect("mkdir");
        let dir_text = dir.display();
        let global = format!("[global]\ncontrol = \"{dir_text}/control.sock\"\n");
        let settings = format!("{pm}env = {{ PHP_INI_SCAN_DIR = \":{dir_text}/conf.d\" }}\n");
        global + &php_pool(dir, &settings, "")
    });
    daemon.write("page.php", "<?php echo 'page';");
    daemon
}

fn break_php(daemon: &Daemon) {
    let preload = daemon.write("preload.php", "<?php throw new Exception('no');");
    let text = format!("opcache.preload = {}\n", preload.display());
    fs::write(daemon.dir.join("conf.d/new.ini"), text).expect("write");
}

fn mend_php(daemon: &Daemon) {
    fs::remove_file(daemon.dir.join("conf.d/new.ini")).expect("remove");
}

#[test]
fn plain_php_is_tried_however_the_reload_comes() {
    for (name, pm, stays) in PMS {
        let daemon = plain_php(pm);
        let page = || assert_eq!(daemon.get("www", "page.php").body(), "page", "{name}");
        for way in [by_command as Way, by_signal, by_package] {
            page();
            if !stays {
                wait_until("no worker", || daemon.workers("www").is_empty());
            }
            break_php(&daemon);
            way(&daemon, false);
            page();
            mend_php(&daemon);
            way(&daemon, true);
            page();
        }
    }
}

type Way = fn(&Daemon, bool);

fn by_command(daemon: &Daemon, starts: bool) {
    let (code, text) = daemon.said(&["reload"]);
    assert_eq!(code, Some(if starts { 0 } else { 70 }), "{text}");
    assert!(
        starts || text.contains("failed www: no new worker came up (error "),
        "{text}"
    );
}

fn by_signal(daemon: &Daemon, starts: bool) {
    const LINES: [&str; 2] = [
        "reload done; failed, and tried again: www",
        "reload done; replaced: www",
    ];
    let line = LINES[usize::from(starts)];
    let before = daemon.log().matches(line).count();
    daemon.signal(Signal::SIGUSR2);
    daemon.wait_for_count(line, before + 1);
}

fn by_package(daemon: &Daemon, starts: bool) {
    let bin = daemon.dir.join("bin");
    fs::create_dir_all(&bin).expect("mkdir");
    let (program, config) = (env!("CARGO_BIN_EXE_forkyard"), daemon.dir.join("forkyard.toml"));
    let script = format!("#!/bin/sh\nexec {program} \"$@\" -c {}\n", config.display());
    write_program(&bin.join("forkyard"), script.as_bytes());
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let postinst = concat!(env!("CARGO_MANIFEST_DIR"), "/debian/php.postinst");
    let mut shell = Command::new("sh");
    let output = shell
        .args([postinst, "triggered", "libphp"])
        .env("PATH", path)
        .output();
    let output = output.expect("sh");
    let text = text_of(&[output.stdout, output.stderr].concat());
    assert_eq!(
        output.status.code(),
        Some(0),
        "a package's script must not fail: {text}"
    );
    assert_eq!(text.contains("the old workers go on"), !starts, "{text}");
    assert_eq!(text.contains("replaced www"), starts, "{text}");
}

#[test]
fn few_pools_are_tried_at_a_time_though_each_has_a_worker() {
    const POOLS: usize = 9;
    let code = "import os, time\n\
        here = os.path.dirname(os.path.dirname(__file__))\n\
        if os.path.exists(here + '/again'):\n    \
            open(here + '/running/' + str(os.getpid()), 'w').close()\n    \
            if len(os.listdir(here + '/running')) > 4:\n        \
                open(here + '/many', 'w').close()\n    \
            while not os.path.exists(here + '/go'):\n        \
                time.sleep(0.01)\n    \
            os.unlink(here + '/running/' + str(os.getpid()))\n\
        def application(environ, start):\n    \
            start('200 OK', [])\n    \
            return [b'well']\n";
    let daemon = Daemon::start(|dir| {
        make_folder(&dir.join("running"));
        let mut text = with_control(dir);
        for at in 0..POOLS {
            let root = dir.join(format!("p{at}"));
            fs::create_dir(&root).expect("mkdir");
            fs::write(root.join("wsgi.py"), code).expect("write");
            let root = application_in("wsgi", root, "");
            text += &pool(
                dir,
                &format!("p{at}"),
                "pm = \"ondemand\"\nmax_children = 1\n",
                &root,
            );
        }
        text
    });
    let ask = |at: usize| {
        let params = Params::get(&daemon.dir, "x", "");
        daemon.ask(&format!("p{at}"), &params).body()
    };
    for at in 0..POOLS {
        assert_eq!(ask(at), "well");
    }
    fs::write(daemon.dir.join("again"), "").expect("write");
    let mut reload = forkyard(&["reload", "--all"], &daemon.dir)
        .spawn()
        .expect("forkyard");
    let running = || fs::read_dir(daemon.dir.join("running")).expect("running").count();
    wait_until("four that are tried", || running() >= 4);
    let preloaders = |at: usize| daemon.own_preloaders(&format!("p{at}")).len();
    assert_eq!((0..POOLS).map(preloaders).sum::<usize>(), POOLS + 4);
    fs::write(daemon.dir.join("go"), "").expect("write");
    assert_eq!(reload.wait().expect("an end").code(), Some(0));
    assert!(
        !daemon.dir.join("many").exists(),
        "more than four were tried at a time"
    );
    for at in 0..POOLS {
        assert_eq!(ask(at), "well");
    }
}

#[test]
fn pools_that_nobody_asks_cost_no_process() {
    let daemon = Daemon::start(|dir| {
        let mut text = with_control(dir);
        let code = "def application(environ, start):\n    start('200 OK', [])\n    return [b'well']\n";
        fs::write(dir.join("wsgi.py"), code).expect("write");
        for at in 0..20 {
            let root = application_in("wsgi", dir, "");
            let pm = "pm = \"ondemand\"\nmax_children = 1\n";
            text += &pool(dir, &format!("p{at}"), pm, &root);
        }
        text
    });
    let children = || process::children(daemon.pid()).len();
    let before = children();
    let text = exited(Some(0), daemon.said(&["reload", "--all"]));
    assert_eq!(text.matches("replaced p").count(), 20, "{text}");
    // The master's inspector process may exist for a moment, before and after.
    wait_until("no process more", || children() <= before);
    assert_lacks(&daemon.log(), "preloader");
}
