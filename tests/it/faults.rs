//! Scripts that misbehave hurt their own request only.

use crate::support::prelude::*;

fn daemon(settings: &str) -> Daemon {
    let daemon =
        Daemon::start(|dir| php_pool(dir, &format!("pm = \"static\"\nmax_children = 2\n{settings}"), ""));
    daemon.wait_for_workers("www", 2);
    daemon.write("ok.php", "<?php echo 'fine';");
    daemon
}

pub(super) fn assert_well(daemon: &Daemon) {
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

/// No pool delays the start of new workers because of one URL that crashes.
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
        let runtime = PHP;
        let pools = managers.map(|(name, settings)| pool(dir, name, settings, runtime));
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
    assert_starts(&answer.text(), "Status: 500");
    assert_contains(&answer.error_text(), "Allowed memory size");
    assert_well(&daemon);
}

#[test]
fn a_script_that_ignores_term_is_killed() {
    let daemon = daemon("request_terminate_timeout = \"1s\"\n");
    daemon.write(
        "stubborn.php",
        "<?php set_time_limit(0); if (function_exists('pcntl_signal')) { pcntl_signal(SIGTERM, SIG_IGN); } while (true) { usleep(1000); }",
    );
    assert_starts(&daemon.get("www", "stubborn.php").text(), "Status: 504");
    assert_well(&daemon);
}

#[test]
fn the_preloader_can_be_killed() {
    let daemon = daemon("");
    let preloader = daemon.preloaders("www")[0];
    process::signal(preloader, Signal::SIGKILL);
    daemon.wait_for("[pool www] the preloader exited on signal 9");
    assert_eq!(daemon.get("www", "ok.php").body(), "fine", "its workers go on");
    let worker = daemon.workers("www")[0];
    process::signal(worker, Signal::SIGKILL);
    wait_until("a worker from a new preloader", || {
        let now = daemon.workers("www");
        now.len() == 2 && !now.contains(&worker)
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
    assert_contains(&line, "WARNING: [pool www] child ");
    assert_contains(&line, "\\x1b");
}

#[test]
fn noise_in_a_workers_pipes_disturbs_no_other_pool() {
    let daemon = Daemon::start(|dir| {
        let pool = |name: &str| {
            let settings = "pm = \"dynamic\"\nmax_children = 3\nstart_servers = 1\nmin_spare_servers = 1\n\
                            max_spare_servers = 2\ncatch_workers_output = true\n";
            pool(dir, name, settings, PHP)
        };
        pool("hostile") + &pool("quiet")
    });
    daemon.write("ok.php", "<?php echo 'fine';");
    let worker = daemon.wait_for_workers("hostile", 1)[0];
    let script = "import ctypes, os, socket, sys\n\
        libc, pid, open_ones = ctypes.CDLL(None), int(sys.argv[1]), []\n\
        for name in os.listdir(f'/proc/{pid}/fd'):\n    \
            fd = libc.syscall(438, os.pidfd_open(pid), int(name), 0)\n    \
            try:\n        \
                one = socket.socket(fileno=fd)\n        \
                if one.type == socket.SOCK_STREAM and not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):\n            \
                    open_ones.append(one)\n    \
            except OSError:\n        \
                pass\n\
        print(len(open_ones), flush=True)\n\
        written = 0\n\
        while written <= 100_000 or not os.path.exists(sys.argv[2]):\n    \
            for one in open_ones:\n        \
                try:\n            \
                    written += one.send(os.urandom(8) * 500, socket.MSG_DONTWAIT)\n        \
                except OSError:\n            \
                    pass\n\
        print(written)\n";
    let stop = daemon.dir.join("stop");
    let mut flood = Command::new("/usr/bin/python3")
        .args(["-c", script, &worker.to_string()])
        .arg(&stop)
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    let mut lines = std::io::BufReader::new(flood.stdout.take().expect("its output")).lines();
    let mut number = || -> u64 {
        let line = lines.next().expect("a line").expect("UTF-8");
        line.parse().expect("a number")
    };
    assert!(number() >= 3, "accept-notify, standard output, standard error");
    for _ in 0..50 {
        assert_eq!(daemon.get("quiet", "ok.php").body(), "fine");
    }
    fs::write(&stop, "").expect("stop");
    let written = number();
    assert!(written > 100_000, "{written} bytes are no flood");
    assert!(flood.wait().expect("the flood").success());
    assert_eq!(daemon.get("hostile", "ok.php").body(), "fine");
    assert!(daemon.workers("hostile").len() <= 3 && daemon.workers("quiet").len() <= 3);
}

#[test]
fn an_answer_that_nobody_reads_is_nobody_elses() {
    let daemon = Daemon::start(|dir| php_pool(dir, "pm = \"static\"\nmax_children = 1\n", ""));
    daemon.write("ok.php", "<?php echo 'fine';");
    let secret = "<?php file_put_contents('begun', ''); while (!file_exists('gone')) { usleep(1000); clearstatcache(); }
        ignore_user_abort(true); echo str_repeat('secret', 5000);";
    daemon.write("secret.php", secret);
    for keep in [false, true] {
        let _ = (
            fs::remove_file(daemon.dir.join("begun")),
            fs::remove_file(daemon.dir.join("gone")),
        );
        let mut client = daemon.client("www");
        client.keep = keep;
        client
            .send(&Params::get(&daemon.dir, "secret.php", ""), b"")
            .expect("send");
        wait_until("the request's begin", || daemon.dir.join("begun").exists());
        drop(client);
        daemon.write("gone", "");
        let answer = daemon.get("www", "ok.php");
        assert_lacks(&answer.text(), "secret");
        assert_eq!(answer.body(), "fine");
    }
}
