//! Scripts that misbehave hurt their own request only.

use crate::support::daemon::{Daemon, php_pool};
use crate::support::fcgi::Params;
use crate::support::{StopAtEnd, until};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

fn daemon(settings: &str) -> Daemon {
    let daemon =
        Daemon::start(|dir| php_pool(dir, &format!("pm = \"static\"\nmax_children = 2\n{settings}"), ""));
    daemon.wait_for_workers("www", 2);
    daemon.write("ok.php", "<?php echo 'fine';");
    daemon
}

fn assert_well(daemon: &Daemon) {
    daemon.wait_for_workers("www", 2);
    for _ in 0..4 {
        assert_eq!(daemon.get("www", "ok.php").body(), "fine");
    }
}

#[test]
fn a_script_that_kills_itself() {
    let daemon = daemon("");
    daemon.write("kill.php", "<?php posix_kill(getmypid(), 9); sleep(5);");
    assert!(!daemon.get("www", "kill.php").ended);
    daemon.wait_for("exited on signal 9 (SIGKILL)");
    daemon.wait_for("was serving \"GET /kill.php\"");
    assert_well(&daemon);
}

#[test]
fn a_script_that_segfaults() {
    let daemon = daemon("");
    daemon.write("crash.php", "<?php posix_kill(getmypid(), 11); sleep(5);");
    assert!(!daemon.get("www", "crash.php").ended);
    daemon.wait_for("exited on signal 11 (SIGSEGV");
    assert_well(&daemon);
}

/// A URL that crashes its worker, asked for again and again: the others are served, and no pool begins to wait before it
/// makes workers, whichever way it makes them.
#[test]
fn a_url_that_crashes_holds_nobody_back() {
    let managers = [
        ("static", "pm = \"static\"\nmax_children = 2\n"),
        (
            "dynamic",
            "pm = \"dynamic\"\nmax_children = 5\nstart_servers = 2\nmin_spare_servers = 1\nmax_spare_servers = 3\n",
        ),
        ("ondemand", "pm = \"ondemand\"\nmax_children = 5\n"),
    ];
    let daemon = Daemon::start(|dir| {
        let runtime = "runtime = \"php\"\nversion = \"8.2\"\n";
        let pools =
            managers.map(|(name, settings)| crate::support::daemon::pool(dir, name, settings, runtime));
        pools.concat()
    });
    daemon.write("ok.php", "<?php echo 'fine';");
    daemon.write("crash.php", "<?php posix_kill(posix_getpid(), 11); sleep(5);");
    let crashes = 12;
    for _ in 0..crashes {
        for (pool, _) in managers {
            assert!(!daemon.get(pool, "crash.php").ended, "{pool}");
            assert_eq!(daemon.get(pool, "ok.php").body(), "fine", "{pool}");
        }
    }
    daemon.wait_for_count("exited on signal 11 (SIGSEGV", crashes * managers.len());
    daemon.wait_for_workers("static", 2);
    let log = daemon.log();
    for held_back in ["the next try is in", "the next is made in", "no worker is left"] {
        assert!(!log.contains(held_back), "{log}");
    }
}

#[test]
fn a_script_that_recurses_for_ever() {
    let daemon = daemon("");
    daemon.write(
        "deep.php",
        "<?php class A { function __toString(): string { return \"x$this\"; } } echo new A;",
    );
    let _ = daemon.get("www", "deep.php");
    assert_well(&daemon);
}

#[test]
fn a_script_that_runs_out_of_memory() {
    let daemon = daemon("");
    daemon.write(
        "memory.php",
        "<?php ini_set('memory_limit', '8M'); $a = []; while (true) { $a[] = str_repeat('x', 10000); }",
    );
    let answer = daemon.get("www", "memory.php");
    assert!(answer.text().starts_with("Status: 500"), "{}", answer.text());
    assert!(
        answer.error_text().contains("Allowed memory size"),
        "{}",
        answer.error_text()
    );
    assert_well(&daemon);
}

#[test]
fn a_script_that_ignores_term_is_killed() {
    let daemon = daemon("request_terminate_timeout = \"1s\"\n");
    daemon.write(
        "stubborn.php",
        "<?php set_time_limit(0); if (function_exists('pcntl_signal')) { pcntl_signal(SIGTERM, SIG_IGN); } while (true) { usleep(1000); }",
    );
    let answer = daemon.get("www", "stubborn.php");
    assert!(answer.text().starts_with("Status: 504"), "{}", answer.text());
    assert_well(&daemon);
}

#[test]
fn the_preloader_can_be_killed() {
    let daemon = daemon("");
    let preloader = daemon.preloaders("www")[0];
    crate::support::process::signal(preloader, nix::sys::signal::Signal::SIGKILL);
    daemon.wait_for("[pool www] the preloader exited on signal 9");
    assert_eq!(daemon.get("www", "ok.php").body(), "fine", "its workers go on");
    let worker = daemon.workers("www")[0];
    crate::support::process::signal(worker, nix::sys::signal::Signal::SIGKILL);
    until("a worker from a new preloader", || {
        let now = daemon.workers("www");
        (now.len() == 2 && !now.contains(&worker)).then_some(())
    });
    assert_well(&daemon);
}

#[test]
fn output_of_workers_is_caught() {
    let daemon = daemon("catch_workers_output = true\n");
    daemon.write(
        "say.php",
        "<?php file_put_contents('php://stderr', \"to \\x1b the log\\n\"); echo 'said';",
    );
    assert_eq!(daemon.get("www", "say.php").body(), "said");
    let line = daemon.wait_for("said into stderr: \"to ");
    assert!(
        line.contains("WARNING: [pool www] child ") && line.contains("\\x1b"),
        "{line}"
    );
}

/// Noise in every pipe that a worker holds (accept-notify among them), as fast as it goes. PHP itself can't get at them.
#[test]
fn noise_in_a_workers_pipes_disturbs_no_other_pool() {
    let daemon = Daemon::start(|dir| {
        let pool = |name: &str| {
            let settings = "pm = \"dynamic\"\nmax_children = 3\nstart_servers = 1\nmin_spare_servers = 1\n\
                            max_spare_servers = 2\ncatch_workers_output = true\n";
            crate::support::daemon::pool(dir, name, settings, "runtime = \"php\"\nversion = \"8.2\"\n")
        };
        pool("hostile") + &pool("quiet")
    });
    daemon.write("ok.php", "<?php echo 'fine';");
    let worker = daemon.wait_for_workers("hostile", 1)[0];
    let mut pipes: Vec<File> = std::fs::read_dir(format!("/proc/{worker}/fd"))
        .expect("its descriptors")
        .filter_map(Result::ok)
        .filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to.to_string_lossy().starts_with("pipe:")))
        .filter_map(|fd| {
            File::options()
                .write(true)
                .custom_flags(nix::libc::O_NONBLOCK)
                .open(fd.path())
                .ok()
        })
        .collect();
    assert!(pipes.len() >= 3, "child_accept, standard output, standard error");
    let stop = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let end = StopAtEnd(&stop);
        let flood = scope.spawn(|| {
            let (mut state, mut written) = (5_u64, 0);
            while !stop.load(Ordering::Relaxed) {
                for pipe in &mut pipes {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    written += pipe.write(&state.to_be_bytes().repeat(500)).unwrap_or(0);
                }
            }
            written
        });
        for _ in 0..50 {
            assert_eq!(daemon.get("quiet", "ok.php").body(), "fine");
        }
        drop(end);
        flood.join().expect("the flood")
    });
    assert!(written > 100_000, "{written} bytes are no flood");
    assert_eq!(daemon.get("hostile", "ok.php").body(), "fine");
    assert!(daemon.workers("hostile").len() <= 3 && daemon.workers("quiet").len() <= 3);
}

/// What one client has not read must never be told to the next.
#[test]
fn an_answer_that_nobody_reads_is_nobody_elses() {
    let daemon = Daemon::start(|dir| php_pool(dir, "pm = \"static\"\nmax_children = 1\n", ""));
    daemon.write("ok.php", "<?php echo 'fine';");
    let secret = "<?php file_put_contents('begun', ''); while (!file_exists('gone')) { usleep(1000); clearstatcache(); }
        ignore_user_abort(true); echo str_repeat('secret', 5000);";
    daemon.write("secret.php", secret);
    crate::support::daemon::make_writable(&daemon.dir);
    for keep in [false, true] {
        let _ = (
            std::fs::remove_file(daemon.dir.join("begun")),
            std::fs::remove_file(daemon.dir.join("gone")),
        );
        let mut client = daemon.client("www");
        client.keep = keep;
        client
            .send(&Params::get(&daemon.dir, "secret.php", ""), b"")
            .expect("send");
        until("the request's begin", || {
            daemon.dir.join("begun").exists().then_some(())
        });
        drop(client);
        daemon.write("gone", "");
        let answer = daemon.get("www", "ok.php");
        assert!(!answer.text().contains("secret"), "{}", answer.text());
        assert_eq!(answer.body(), "fine");
    }
}
