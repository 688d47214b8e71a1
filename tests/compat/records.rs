//! Which records an answer has, however it ends.

use super::client::{Kept, Reply, Request, record, send};
use super::servers::forkyard::Forkyard;
use super::servers::php_fpm::PhpFpm;
use super::servers::{Setup, directory};
use super::{assert_equal, scripts};
use crate::support::forkyard_fpm;
use std::path::Path;

const ABORT_REQUEST: u8 = 2;

const WAYS: [&str; 27] = [
    "nothing",
    "header",
    "flushed-header",
    "empty",
    "equal",
    "more",
    "short",
    "short-exit",
    "short-die",
    "short-fatal",
    "short-throw",
    "short-memory",
    "short-finish",
    "short-long",
    "exit",
    "fatal",
    "late-shutdown",
    "error-first",
    "error-only",
    "error-between",
    "error-last",
    "flush-last",
    "large",
    "large-error",
    "304",
    "204",
    "body",
];

fn scripted() -> Vec<Request> {
    let of = |way: &str| Request::get(&scripts(), &format!("/records.php?way={way}"));
    let head = |way: &str| of(way).with("REQUEST_METHOD", "HEAD");
    let post = |way: &str, body: Vec<u8>| {
        let uri = format!("/records.php?way={way}");
        Request::post(&scripts(), &uri, "text/plain", body)
    };
    let mut requests: Vec<Request> = WAYS.into_iter().map(of).collect();
    requests.extend(["short", "equal", "error-last", "large"].map(head));
    requests.push(post("body", b"0123".to_vec()));
    requests.push(post("exit", vec![b'x'; 100_000]));
    requests
}

fn time_limit() -> Vec<Request> {
    vec![Request::get(&scripts(), "/records.php?way=short-time")]
}

fn built_in() -> Vec<Request> {
    let get = |uri: &str| Request::get(&scripts(), uri);
    vec![
        get("/missing.php"),
        get("/broken.inc"),
        get("/ping"),
        get("/ping").with("REQUEST_METHOD", "HEAD"),
        get("/status"),
        get("/status?full&json"),
    ]
}

/// Removes a worker script's stack frames and the status pages' numbers.
fn comparable(mut reply: Reply) -> Reply {
    if let Some(at) = reply.errors().find("\nStack trace") {
        reply.stderr.truncate(at);
    }
    if reply.text().contains("start since") {
        reply.stdout.clear();
    }
    reply
}

fn ask(socket: &Path, request: &Request) -> (Reply, Reply, bool) {
    let once = request.send(socket);
    let mut connection = Kept::open(socket);
    let kept = connection.try_send(request).expect("an answer");
    let next = connection.try_send(&Request::get(&scripts(), "/records.php?way=equal"));
    let goes_on = next.is_ok_and(|next| next.body() == "four");
    (comparable(once), comparable(kept), goes_on)
}

fn compare(expected: &Path, socket: &Path, requests: &[Request]) {
    for request in requests {
        let [expected, answer] = [expected, socket].map(|socket| ask(socket, request));
        assert_equal(&expected.0, &answer.0);
        assert_equal(&expected.1, &answer.1);
        assert_eq!(expected.2, answer.2, "is the connection kept after {expected:?}");
        assert_eq!(answer.0.end, Some((0, 0)), "{answer:?}");
    }
}

fn setup() -> Setup {
    let mut setup = Setup::new();
    setup.ping = true;
    setup
}

#[test]
fn of_a_pool_of_its_own_file() {
    let requests = [scripted(), time_limit(), built_in()].concat();
    let fpm = PhpFpm::start(&setup());
    compare(&fpm.socket, &Forkyard::start(&setup()).socket, &requests);
}

#[test]
fn of_the_drop_in() {
    let fpm = PhpFpm::start(&setup());
    let mut ondemand = setup();
    ondemand.ondemand = true;
    let own = setup().admin_value("forkyard.preloader", "own");
    let zygote = setup().admin_value("forkyard.preloader", "zygote");
    for setup in [ondemand, own, zygote] {
        let server = PhpFpm::start_as(forkyard_fpm(), &setup);
        compare(&fpm.socket, &server.socket, &[scripted(), built_in()].concat());
    }
}

#[test]
fn of_a_worker_script() {
    const WORKER: &str =
        "<?php while (forkyard_handle_request(function () { include $_SERVER['SCRIPT_FILENAME']; }));";
    let fpm = PhpFpm::start(&setup());
    let directory = directory();
    let worker = directory.path().join("worker.php");
    std::fs::write(&worker, WORKER).expect("writable");
    for mode in ["loop", "snapshot"] {
        let mut setup = setup();
        setup.application = format!("worker = {worker:?}\nworker_mode = \"{mode}\"\n");
        let requests = [scripted(), time_limit()].concat();
        compare(&fpm.socket, &Forkyard::start(&setup).socket, &requests);
    }
}

/// A client that aborts its request: nginx doesn't, the protocol allows it.
#[test]
fn of_a_request_that_is_aborted() {
    let pair = super::Pair::start(&setup());
    let aborted = |length: &str| {
        let request = Request::post(&scripts(), "/records.php?way=body", "text/plain", "0123456789");
        let mut wire = request.with("CONTENT_LENGTH", length).encode(false);
        wire.truncate(wire.len() - 8);
        wire.extend(record(ABORT_REQUEST, &[]));
        wire
    };
    let expected = send(aborted("10"), &pair.fpm.socket);
    assert_equal(&expected, &send(aborted("10"), &pair.forkyard.socket));
    let answer = send(aborted("20"), &pair.forkyard.socket);
    assert_eq!(answer.records, [""; 0], "{answer:?}");
    pair.get("/server.php");
}
