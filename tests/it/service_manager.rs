//! Under a service manager: notification, watchdog, socket activation.

use crate::support::hear;
use crate::support::prelude::*;

const STATIC: &str = "pm = \"static\"\nmax_children = 1\n";

#[test]
fn the_service_manager_is_told() {
    let dir = directory();
    let path = dir.path();
    let text = php_pool(path, STATIC, "");
    let (mut daemon, socket) = Daemon::start_notified(path, &text, &[("WATCHDOG_USEC", "400000")]);
    assert_contains(&hear(&socket, "READY=1"), &format!("MAINPID={}", daemon.pid()));
    hear(&socket, "WATCHDOG=1");
    hear(&socket, "WATCHDOG=1");
    daemon.signal(Signal::SIGUSR2);
    assert!(hear(&socket, "RELOADING=1").contains("MONOTONIC_USEC="));
    hear(&socket, "READY=1");
    daemon.write(
        "env.php",
        "<?php echo json_encode([getenv('NOTIFY_SOCKET'), getenv('WATCHDOG_USEC')]);",
    );
    assert_eq!(daemon.get("www", "env.php").body(), "[false,false]");
    daemon.signal(Signal::SIGQUIT);
    hear(&socket, "STOPPING=1");
    assert!(daemon.wait().success());
}

const ACTIVATE: &str = "import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
s.listen(64)
os.dup2(s.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])";

#[test]
fn a_socket_that_was_passed_is_served_and_left() {
    let dir = directory();
    let path = dir.path();
    fs::write(path.join("forkyard.toml"), php_pool(path, STATIC, "")).expect("configuration");
    let socket = path.join("www.sock");
    let mut command = Command::new("python3");
    command
        .args(["-c", ACTIVATE])
        .arg(&socket)
        .arg(env!("CARGO_BIN_EXE_forkyard"))
        .args(["run", "-c"]);
    command.arg(path.join("forkyard.toml"));
    let mut daemon = Daemon::launch(path, command).ready();
    daemon.write(
        "env.php",
        "<?php echo json_encode([getenv('LISTEN_FDS'), getenv('LISTEN_PID')]);",
    );
    let mut client = Client::connect(&socket).expect("connect");
    let answer = client
        .request(&Params::get(path, "env.php", ""), b"")
        .expect("answer");
    assert_eq!(answer.body(), "[false,false]");
    daemon.end(Signal::SIGQUIT);
    assert!(socket.exists(), "the socket is the service manager's to remove");
}

#[test]
fn descriptors_are_left_with_the_service_manager() {
    let dir = directory();
    let path = dir.path();
    let text = php_pool(path, &format!("{STATIC}reload = \"always\"\n"), "");
    let (mut daemon, socket) = Daemon::start_notified(path, &text, &[("FDSTORE", "64")]);
    let mut kept = BTreeSet::new();
    let mut names = |text: &str| {
        let mut buffer = [0; 4096];
        loop {
            let count = socket.recv(&mut buffer).expect("a message");
            let message = text_of(&buffer[..count]);
            if let Some(name) = message.lines().find_map(|line| line.strip_prefix("FDNAME=")) {
                if message.contains("FDSTORE=1") {
                    kept.insert(name.to_owned());
                } else {
                    kept.remove(name);
                }
            }
            if message.contains(text) {
                return kept.clone();
            }
        }
    };
    names("READY=1");
    let before = names("w0.r");
    for name in [
        "handover-a",
        "handover-b",
        "handover-config",
        "p1.l",
        "p1.qi",
        "g1.b",
    ] {
        assert!(before.contains(name), "{name} in {before:?}");
    }
    daemon.signal(Signal::SIGUSR2);
    let both = names("g2.mi");
    assert!(both.contains("g1.b") && both.contains("p1.l"), "{both:?}");
    daemon.wait_for("the new workers serve");
    daemon.signal(Signal::SIGQUIT);
    let left = names("FDSTOREREMOVE=1\nFDNAME=handover-config");
    assert!(
        left.is_empty(),
        "nothing is left when the daemon has ended: {left:?}"
    );
    assert!(daemon.wait().success());
}

#[test]
fn a_store_that_is_too_small_is_said_with_the_figures() {
    for (most, is_said) in [("12", true), ("13", false)] {
        let dir = directory();
        let text = php_pool(dir.path(), STATIC, "");
        let (daemon, socket) = Daemon::start_notified(dir.path(), &text, &[("FDSTORE", most)]);
        hear(&socket, "READY=1");
        daemon.wait_for("ready to handle connections");
        let words = format!(
            "{most} descriptors can be left for a next master: 1 pools need 13 when each has a worker"
        );
        assert_eq!(daemon.log().contains(&words), is_said, "{}", daemon.log());
    }
}

#[test]
fn nothing_is_left_where_nothing_is_kept() {
    for most in [None, Some("0")] {
        assert_first_word_is_ready(most);
    }
}

fn assert_first_word_is_ready(most: Option<&str>) {
    let dir = directory();
    let path = dir.path();
    let most: Vec<_> = most.map(|most| ("FDSTORE", most)).into_iter().collect();
    let (daemon, socket) = Daemon::start_notified(path, &php_pool(path, STATIC, ""), &most);
    daemon.wait_for("ready to handle connections");
    let mut buffer = [0; 4096];
    let count = socket.recv(&mut buffer).expect("a message");
    assert_starts(&String::from_utf8_lossy(&buffer[..count]), "READY=1");
}
