//! What service managers, probes and log rotation ask: ping, health, drain, reopen-logs.

use crate::support::daemon;
use crate::support::prelude::*;
use std::thread;

fn start(global: &str) -> Daemon {
    Daemon::start(|dir| {
        let place = dir.display();
        let settings = format!("pm = \"static\"\nmax_children = 1\naccess.log = \"{place}/access.log\"\n");
        let pool = php_pool(dir, &settings, "");
        format!("[global]\ncontrol = \"{place}/control.sock\"\n{global}{pool}")
    })
}

/// Keeps the only worker busy until the file `go` exists.
fn occupy(daemon: &Daemon) -> Client {
    let script = "<?php touch(__DIR__ . '/begun'); while (!file_exists(__DIR__ . '/go')) usleep(10000); echo 'finished';";
    daemon.write("slow.php", script);
    let client = daemon.send("www", &Params::get(&daemon.dir, "slow.php", ""));
    wait_until("the request to run", || daemon.dir.join("begun").exists());
    client
}

#[test]
fn a_probe_sees_what_the_daemon_is_about() {
    let mut daemon = start("");
    daemon.wait_for_workers("www", 1);
    let pid = daemon.pid();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        daemon.said(&["ping"]),
        (Some(0), format!("forkyard {version}, pid {pid}\n"))
    );
    assert_eq!(daemon.said(&["ping", "-q"]), (Some(0), String::new()));
    for how in [
        &["health"][..],
        &["health", "--ready"],
        &["health", "--busy", "--pool", "www"],
    ] {
        let how = how.to_vec();
        wait_until("the daemon to be well", || daemon.said(&how).0 == Some(0));
    }
    let (code, text) = daemon.said(&["health", "--ready", "--pool", "nope"]);
    assert_eq!(
        (code, text.as_str()),
        (Some(70), "forkyard: there is no pool nope\n")
    );

    let mut client = occupy(&daemon);
    let waiting = daemon.send("www", &Params::get(&daemon.dir, "slow.php", ""));
    let busy = until("the connection to wait", || {
        Some(daemon.said(&["health", "--busy"])).filter(|(code, _)| *code == Some(1))
    });
    assert_eq!(busy.1, "www: all 1 workers are busy, and 1 wait\n");
    assert_eq!(daemon.said(&["health", "--ready"]).0, Some(0));

    assert_eq!(daemon.said(&["drain"]), (Some(0), String::new()));
    let (code, text) = daemon.said(&["health", "--ready"]);
    assert_eq!((code, text.as_str()), (Some(1), "the daemon is drained\n"));
    assert_eq!(daemon.said(&["health"]).0, Some(0));
    assert_eq!(daemon.said(&["drain", "--end"]).0, Some(0));
    assert_eq!(daemon.said(&["health", "--ready"]).0, Some(0));
    let begun = Instant::now();
    assert_eq!(daemon.said(&["drain", "--for", "300ms"]).0, Some(0));
    assert!(begun.elapsed() >= Duration::from_millis(300));
    daemon.signal(Signal::SIGTERM);
    daemon.wait_for("Finishing ...");
    let text = exited(Some(1), daemon.said(&["health", "--ready"]));
    assert_contains(&text, "the daemon is ending");
    daemon.write("go", "");
    assert_eq!(client.answer().expect("answer").body(), "finished");
    drop(waiting);
    assert!(daemon.wait().success());
    let text = exited(Some(69), daemon.said(&["health"]));
    assert_contains(&text, "is the daemon running");
}

#[test]
fn a_daemon_that_hangs_is_not_waited_for() {
    let daemon = start("");
    daemon.signal(Signal::SIGSTOP);
    wait_until("the daemon to stand still", || {
        process::state(daemon.pid()) == Some('T')
    });
    let commands = [
        ("health", "within 1 s"),
        ("ping", "within 1 s"),
        ("reopen-logs", "within 1 s"),
        ("status", "within 10 s"),
        ("status --metrics", "within 10 s"),
        ("top --once", "within 10 s"),
        ("logs", "within 10 s"),
        ("advise", "within 10 s"),
        ("events", "within 10 s"),
        ("crashes", "within 10 s"),
        ("error", "within 10 s"),
        ("opcache www", "within 10 s"),
        ("routes www", "within 10 s"),
        ("releases www", "within 10 s"),
        ("restart www", "within 10 s"),
        ("reload", "within 10 s"),
        ("upgrade", "within 10 s"),
        ("take /srv/none", "within 10 s"),
    ];
    let said = thread::scope(|scope| {
        let said = commands.map(|(command, _)| {
            let words: Vec<&str> = command.split(' ').collect();
            let daemon = &daemon;
            scope.spawn(move || daemon.said(&words))
        });
        said.map(|said| said.join().expect("an answer"))
    });
    daemon.signal(Signal::SIGCONT);
    for ((code, text), (command, limit)) in said.iter().zip(commands) {
        assert_contains(text, &format!("the daemon did not answer {limit}"));
        assert_eq!(*code, Some(69), "{command}: {text}");
    }
    wait_until("the daemon to answer", || daemon.said(&["health"]).0 == Some(0));
}

#[test]
fn sigterm_can_let_requests_finish() {
    let mut daemon = start("on_sigterm = \"finish\"\n");
    let mut client = occupy(&daemon);
    daemon.signal(Signal::SIGTERM);
    daemon.wait_for("Finishing ...");
    daemon.write("go", "");
    assert_eq!(client.answer().expect("answer").body(), "finished");
    assert!(daemon.wait().success());
}

#[test]
fn a_second_sigterm_ends_requests() {
    let mut daemon = start("on_sigterm = \"finish\"\n");
    let _client = occupy(&daemon);
    daemon.signal(Signal::SIGTERM);
    daemon.wait_for("Finishing ...");
    daemon.signal(Signal::SIGTERM);
    daemon.wait_for("Terminating ...");
    assert!(daemon.wait().success());
}

#[test]
fn logs_are_opened_anew() {
    let daemon = start("");
    daemon.write("ok.php", "<?php echo 'fine';");
    let access = daemon.dir.join("access.log");
    assert_eq!(daemon.get("www", "ok.php").body(), "fine");
    until("the request's line", || {
        fs::read_to_string(&access)
            .ok()
            .filter(|text| text.contains("ok.php"))
    });
    fs::rename(&access, daemon.dir.join("access.log.1")).expect("rename");
    assert_eq!(daemon.said(&["reopen-logs"]), (Some(0), String::new()));
    assert!(access.exists(), "it is there when the command returns");
    assert_eq!(daemon.get("www", "ok.php").body(), "fine");
    until("the next request's line", || {
        fs::read_to_string(&access)
            .ok()
            .filter(|text| text.contains("ok.php"))
    });
}

#[test]
fn logs_that_can_t_be_opened_anew_are_named() {
    let configure = |dir: &Path| {
        let logs = dir.join("logs");
        make_folder(&logs);
        let place = |name: &str| logs.join(name).display().to_string();
        let (access, app, slow) = (place("access.log"), place("app.log"), place("slow.log"));
        let settings = format!("access.log = \"{access}\"\napp_log = \"{app}\"\nslowlog = \"{slow}\"\n");
        let more = "pm = \"static\"\nmax_children = 1\nrequest_slowlog_timeout = \"60s\"\n";
        let control = dir.join("control.sock");
        let pool = php_pool(dir, &format!("{settings}{more}"), "");
        format!("control = \"{}\"\n{pool}", control.display())
    };
    let daemon = Daemon::start_logged(configure, "logs/daemon.log");
    let (logs, away) = (daemon.dir.join("logs"), daemon.dir.join("away"));
    fs::rename(&logs, &away).expect("rename");
    let said = exited(Some(70), daemon.said(&["reopen-logs"]));
    for name in ["daemon.log", "access.log", "app.log", "slow.log"] {
        assert_contains(&said, name);
    }
    fs::rename(&away, &logs).expect("rename");
    assert_eq!(daemon.said(&["reopen-logs"]), (Some(0), String::new()));
}

#[test]
fn the_status_is_shown_again_and_again() {
    let daemon = start("");
    let mut child = daemon::forkyard(&["status", "--watch=50ms"], &daemon.dir)
        .stdout(Stdio::piped())
        .spawn()
        .expect("forkyard");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let heads = lines
        .map_while(Result::ok)
        .filter(|line| line.starts_with("POOL "));
    assert_eq!(heads.take(3).count(), 3);
    assert!(process::wait(&mut child, "forkyard status").success());
}
