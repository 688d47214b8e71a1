//! Connections that the boot leaves open.

use super::{ONE, mode_pool, worker_pool};
use crate::support::prelude::*;

const SCRIPT: &str = r#"<?php
$boot = stream_socket_client('unix://' . __DIR__ . '/server.sock');
fwrite($boot, "boot\n");
while (forkyard_handle_request(function () use ($boot) {
    $written = @fwrite($boot, 'worker');
    $own = stream_socket_client('unix://' . __DIR__ . '/server.sock');
    fwrite($own, 'own');
    fclose($own);
    echo json_encode([$written, fread($boot, 1), feof($boot)]);
}));
"#;

/// Starts a daemon that has a script, `worker.php`, beside a server's socket.
pub(super) fn beside_a_server(
    script: &str,
    configure: impl FnOnce(&Path) -> String,
) -> (Daemon, UnixListener) {
    let mut server = None;
    let daemon = Daemon::start(|dir| {
        server = Some(UnixListener::bind(dir.join("server.sock")).expect("bind"));
        make_writable(&dir.join("server.sock"));
        write_file(dir.join("worker.php"), script);
        configure(dir)
    });
    (daemon, server.expect("a server"))
}

#[test]
fn they_are_cut_refused_or_kept() {
    let (daemon, listener) = beside_a_server(SCRIPT, |dir| {
        let pm = "pm = \"ondemand\"\nmax_children = 1\n";
        let refuse = "boot_connections = \"refuse\"\n";
        worker_pool(dir, "cut", "worker.php", ONE, "") + &worker_pool(dir, "refuse", "worker.php", pm, refuse)
    });

    let (mut of_boot, _) = listener.accept().expect("accept");
    daemon.wait_for("[pool cut] the boot has left connections open, which workers find closed: ");
    for _ in 0..2 {
        assert_eq!(daemon.get("cut", "any.php").body(), "[false,\"\",true]");
        let (mut of_worker, _) = listener.accept().expect("accept");
        let mut said = String::new();
        of_worker.read_to_string(&mut said).expect("read");
        assert_eq!(said, "own");
    }
    let mut said = [0; 64];
    let count = of_boot.read(&mut said).expect("read");
    assert_eq!(&said[..count], b"boot\n");
    of_boot.write_all(b"x").expect("it is open");
    of_boot.set_nonblocking(true).expect("fcntl");
    assert!(of_boot.read(&mut said).is_err(), "nothing more came");

    assert_starts(&daemon.get("refuse", "any.php").text(), "Status: 503");
    let line = daemon.wait_for("the boot has left connections open: ");
    assert_contains(&line, "server.sock");
}

const CLOSED: &str = r#"<?php
$connection = stream_socket_client('unix://' . __DIR__ . '/server.sock');
forkyard_before_snapshot(function () use (&$connection) {
    fclose($connection);
});
while (forkyard_handle_request(function () use (&$connection) {
    $connection = stream_socket_client('unix://' . __DIR__ . '/server.sock');
    echo fwrite($connection, 'own');
}));
"#;

#[test]
fn those_that_a_function_before_the_snapshot_closes_are_not_left_open() {
    let (daemon, listener) = beside_a_server(CLOSED, |dir| {
        let pools = ["loop", "snapshot"].map(|mode| {
            let application = format!("worker_mode = \"{mode}\"\nboot_connections = \"refuse\"\n");
            mode_pool(dir, mode, "worker.php", ONE, &application)
        });
        pools.concat()
    });
    for pool in ["loop", "snapshot"] {
        for _ in 0..2 {
            assert_eq!(daemon.get(pool, "any.php").body(), "3", "{pool}");
        }
    }
    let mut said = Vec::new();
    for _ in 0..6 {
        let (mut connection, _) = listener.accept().expect("accept");
        let mut one = String::new();
        connection.set_nonblocking(true).expect("fcntl");
        let _ = connection.read_to_string(&mut one);
        said.push(one);
    }
    said.sort();
    assert_eq!(said, ["", "", "own", "own", "own", "own"]);
}
