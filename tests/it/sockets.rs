//! Socket files that are deleted or replaced while the daemon runs.

use crate::support::prelude::*;

const ONE: &str = "pm = \"static\"\nmax_children = 1\n";
const HOLD: &str =
    "<?php while (!file_exists($_GET['until'])) { usleep(2000); clearstatcache(); } echo 'held';";

fn start(pools: &[(&str, &str)]) -> Daemon {
    let daemon = Daemon::start(|dir| {
        let pools = pools
            .iter()
            .map(|(name, settings)| pool(dir, name, settings, PHP));
        with_control(dir) + &pools.collect::<String>()
    });
    daemon.write("ok.php", "<?php echo 'fine';");
    daemon.write("hold.php", HOLD);
    daemon
}

fn forkyard(daemon: &Daemon, arguments: &[&str]) -> (String, Option<i32>) {
    let (code, text) = daemon.said(arguments);
    (text, code)
}

fn hold(daemon: &Daemon, name: &str) -> Client {
    let query = format!("until={}", daemon.dir.join("go").display());
    daemon.send(name, &Params::get(&daemon.dir, "hold.php", &query))
}

fn wait_until_busy(daemon: &Daemon, count: usize) {
    wait_until("busy workers", || {
        let (text, _) = forkyard(daemon, &["status", "www"]);
        text.matches("  Running ").count() >= count
    });
}

#[test]
fn a_deleted_socket_is_bound_again_by_a_reload_and_what_waited_there_is_served() {
    let rows = [
        ("static", ONE),
        ("ondemand", "pm = \"ondemand\"\nmax_children = 1\n"),
    ];
    each(rows, |(kind, settings)| {
        let daemon = start(&[("www", settings)]);
        assert_eq!(daemon.get("www", "ok.php").body(), "fine", "{kind}");
        let mut held = hold(&daemon, "www");
        wait_until_busy(&daemon, 1);
        // More connections than fit into one message of the queue.
        let mut waiting: Vec<Client> = (0..20)
            .map(|_| daemon.send("www", &Params::get(&daemon.dir, "ok.php", "")))
            .collect();
        fs::remove_file(daemon.socket("www")).expect("remove");
        let (text, _) = forkyard(&daemon, &["status"]);
        assert_contains(&text, "it can't be reached: its file is gone");

        let said = forkyard(&daemon, &["reload"]);
        assert_eq!(
            said,
            (
                "replaced www: clients could not reach its socket\n".to_owned(),
                Some(0)
            )
        );
        for client in &mut waiting {
            assert_eq!(client.answer().expect("an answer").body(), "fine", "{kind}");
        }
        assert_eq!(daemon.get("www", "ok.php").body(), "fine", "{kind}");
        fs::write(daemon.dir.join("go"), "").expect("go");
        assert_eq!(held.answer().expect("an answer").body(), "held", "{kind}");
        daemon.wait_for("its socket's file was gone: it is bound again; 20 connections that waited go over");
        let (text, _) = forkyard(&daemon, &["status"]);
        assert!(!text.contains("it can't be reached"), "{kind}: {text}");

        fs::remove_file(daemon.socket("www")).expect("remove");
        daemon.signal(Signal::SIGUSR2);
        daemon.wait_for_count("its socket's file was gone: it is bound again", 2);
        assert_eq!(daemon.get("www", "ok.php").body(), "fine", "{kind}");
        assert_eq!(forkyard(&daemon, &["reload"]).0, "kept www\n", "{kind}");
    });
}

#[test]
fn a_path_that_leads_to_something_else_is_left_alone_and_told() {
    let daemon = start(&[("www", ONE), ("other", ONE)]);
    let path = daemon.socket("www");
    let mut kept = daemon.client("www").kept();
    let params = Params::get(&daemon.dir, "ok.php", "");
    assert_eq!(kept.request(&params, b"").expect("an answer").body(), "fine");

    fs::remove_file(&path).expect("remove");
    fs::write(&path, "mine").expect("write");
    let (text, code) = forkyard(&daemon, &["reload"]);
    assert_contains(
        &text,
        "failed www: the path of the pool's private socket leads to another file, and can't be bound again: ",
    );
    assert_contains(&text, "exists and is no socket");
    assert_contains(&text, "kept other\n");
    assert_ne!(code, Some(0));
    assert_eq!(read_file(&path), "mine");
    assert_eq!(
        kept.request(&params, b"").expect("an answer").body(),
        "fine",
        "it goes on"
    );
    let (text, _) = forkyard(&daemon, &["status"]);
    assert_contains(&text, "it can't be reached: the path leads to something else");

    fs::remove_file(&path).expect("remove");
    let alien = UnixListener::bind(&path).expect("bind");
    let (text, code) = forkyard(&daemon, &["reload", "--all"]);
    let expected = format!("another process (pid {}) already listens on ", std::process::id());
    assert_contains(&text, &expected);
    assert_contains(&text, "replaced other");
    assert_ne!(code, Some(0));
    let connected = UnixStream::connect(&path).expect("connect");
    drop((alien, connected));

    let (text, code) = forkyard(&daemon, &["reload"]);
    assert_contains(&text, "replaced www: clients could not reach its socket\n");
    assert_eq!(code, Some(0));
    assert_eq!(daemon.get("www", "ok.php").body(), "fine");
    assert_eq!(daemon.get("other", "ok.php").body(), "fine");
}

#[test]
fn the_sockets_of_status_and_control_come_back_too() {
    let settings = format!("{ONE}status_listen = \"DIR/status.sock\"\nping.path = \"/ping\"\n");
    let daemon = start(&[("www", &settings)]);
    let ping = || {
        let mut client = Client::connect(&daemon.dir.join("status.sock")).expect("connect");
        let answer = client.request(&Params::get(&daemon.dir, "ping", ""), b"");
        answer.expect("an answer").body()
    };
    assert_eq!(ping(), "pong");
    let worker = daemon.wait_for_workers("www", 1);
    for name in ["status.sock", "control.sock"] {
        fs::remove_file(daemon.dir.join(name)).expect("remove");
    }
    daemon.reload_until("reload done");
    assert_eq!(ping(), "pong");
    let (text, code) = forkyard(&daemon, &["status"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(
        daemon.workers("www"),
        worker,
        "its own socket was there all the time"
    );
    for name in ["status.sock", "control.sock", "www.sock"] {
        fs::remove_file(daemon.dir.join(name)).expect("remove");
    }
    daemon.signal(Signal::SIGUSR2);
    daemon.wait_for_count("reload done", 2);
    assert_eq!(daemon.get("www", "ok.php").body(), "fine");
    assert_eq!(ping(), "pong");
    assert_eq!(forkyard(&daemon, &["status"]).1, Some(0));
}

#[test]
fn the_next_master_binds_a_deleted_socket_again() {
    let daemon = Daemon::start_kept(|dir| pool(dir, "www", ONE, PHP));
    daemon.write("ok.php", "<?php echo 'fine';");
    assert_eq!(daemon.get("www", "ok.php").body(), "fine");
    fs::remove_file(daemon.socket("www")).expect("remove");
    process::signal(daemon.kept_master(), Signal::SIGKILL);
    daemon.wait_for_count("ready to handle connections", 2);
    assert_eq!(daemon.get("www", "ok.php").body(), "fine");
}
