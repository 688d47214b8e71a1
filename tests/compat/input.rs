//! Bodies.

use super::client::Request;
use super::servers::forkyard::Forkyard;
use super::servers::php_fpm::PhpFpm;
use super::servers::{Setup, directory};
use super::{Pair, pair, scripts};
use crate::support::forkyard_fpm;
use crate::support::prelude::*;
use std::net::Shutdown;

const FORM: &str = "application/x-www-form-urlencoded";
const BOUNDARY: &str = "multipart/form-data; boundary=BB";

fn part(name: &str, file: Option<&str>, content: &[u8]) -> Vec<u8> {
    let file = file
        .map(|file| format!("; filename=\"{file}\"\r\nContent-Type: text/x"))
        .unwrap_or_default();
    let mut bytes =
        format!("--BB\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n").into_bytes();
    bytes.extend(content);
    bytes.extend(b"\r\n");
    bytes
}

fn multipart(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = parts.concat();
    bytes.extend(b"--BB--\r\n");
    bytes
}

#[test]
fn forms() {
    let pair = pair();
    for body in ["a=1&b[x]=2&b[y]=3&c=%C3%A9+d", "", "novalue", "a=1&a=2;b=3"] {
        pair.post("/server.php?q=1", FORM, body);
        pair.post(
            "/server.php",
            "application/x-www-form-urlencoded; charset=utf-8",
            body,
        );
    }
    let many: String = (0..2000).map(|i| format!("v{i}={i}&")).collect();
    pair.post("/input.php", FORM, many);
}

#[test]
fn other_bodies() {
    let pair = pair();
    let root = scripts();
    pair.post("/server.php", "application/json", r#"{"a":[1,2]}"#);
    for (method, kind, body) in [
        ("PUT", "application/json", "{}"),
        ("PATCH", FORM, "a=1"),
        ("GET", FORM, "a=1"),
    ] {
        pair.same(&Request::post(&root, "/server.php", kind, body).with("REQUEST_METHOD", method));
    }
    pair.post("/server.php", "", "plain");
    pair.post("/input.php", "application/octet-stream", vec![7; 3 << 20]);
}

#[test]
fn lengths_that_do_not_fit() {
    let pair = pair();
    let request = Request::post(&scripts(), "/server.php", FORM, "a=1&b=2");
    pair.same(&request.clone().with("CONTENT_LENGTH", "3"));
    pair.same(&request.clone().with("CONTENT_LENGTH", "7x"));
    pair.same(&request.without("CONTENT_LENGTH"));
    pair.get("/server.php");
}

#[test]
fn uploads() {
    let pair = pair();
    let body = multipart(&[
        part("field", None, b"value"),
        part("one", Some("a b.txt"), b"file content"),
        part("many[]", Some("1.bin"), &[1; 100_000]),
        part("many[]", Some("2.bin"), b""),
        part("none", Some(""), b""),
    ]);
    pair.post("/input.php", BOUNDARY, body.clone());
    pair.post("/input.php", "multipart/form-data", body.clone());
    pair.post("/input.php", BOUNDARY, &body[..body.len() / 2]);
}

#[test]
fn bodies_over_the_limit() {
    let pair = Pair::start(&Setup::new().ini("post_max_size = 100K\nupload_max_filesize = 20K"));
    pair.post("/input.php", FORM, vec![b'a'; 300_000]);
    pair.post("/input.php", "application/json", vec![b'a'; 300_000]);
    pair.post(
        "/input.php",
        BOUNDARY,
        multipart(&[part("f", Some("f"), &[b'x'; 300_000])]),
    );
    pair.post(
        "/input.php",
        BOUNDARY,
        multipart(&[part("f", Some("f"), &[b'x'; 30_000])]),
    );
    pair.post("/output.php", FORM, vec![b'a'; 300_000]);
}

#[test]
fn an_upload_of_100_megabytes_needs_no_memory() {
    let pair = Pair::start(&Setup::new().ini("post_max_size = 200M\nupload_max_filesize = 200M"));
    let body = multipart(&[part("big", Some("big.bin"), &vec![b'z'; 100 << 20])]);
    let reply = pair.same(&Request::post(&scripts(), "/input.php", BOUNDARY, body));
    assert!(reply.body().ends_with("bool(true)\n"), "{reply:?}");
    let worker = Request::get(&scripts(), "/pid.php")
        .send(&pair.forkyard.socket)
        .body();
    let status = fs::read_to_string(format!("/proc/{worker}/status")).expect("the worker");
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .expect("its peak");
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(peak_kib < 60_000, "the worker took {peak_kib} KiB");
}

#[test]
fn body_that_is_not_read() {
    let pair = pair();
    pair.post("/output.php?way=flush", "application/json", vec![b'x'; 1 << 20]);
    pair.post("/missing.php", "application/json", vec![b'x'; 1 << 20]);
}

#[test]
fn body_in_a_file() {
    let pair = pair();
    let directory = directory();
    let file = directory.path().join("body");
    fs::write(&file, "a=from+file").expect("the directory is writable");
    let request = Request::post(&scripts(), "/server.php", FORM, "").with("CONTENT_LENGTH", "11");
    let name = file.display().to_string();
    assert!(
        pair.same(&request.clone().with("REQUEST_BODY_FILE", &name))
            .body()
            .contains("from file")
    );
    pair.same(&request.with("REQUEST_BODY_FILE", "/nowhere/at/all"));
    pair.get("/server.php");
}

const NOTES: &str = "<?php $errors = array_map(fn($file) => [$file['error'], $file['size']], $_FILES);
    $seen = json_encode([$_POST, $errors, strlen(file_get_contents('php://input'))]);
    file_put_contents($_SERVER['OUT'] . '.new', $seen);
    rename($_SERVER['OUT'] . '.new', $_SERVER['OUT']);";
const WORKER: &str =
    "<?php while (forkyard_handle_request(function () { include $_SERVER['SCRIPT_FILENAME']; }));";

#[test]
fn what_a_client_that_leaves_has_sent_of_a_body() {
    let place = directory();
    let script = place.path().join("notes.php");
    fs::write(&script, NOTES).expect("writable");
    let worker = place.path().join("worker.php");
    fs::write(&worker, WORKER).expect("writable");
    let fpm = PhpFpm::start(&Setup::new());
    let dropin = PhpFpm::start_as(forkyard_fpm(), &Setup::new());
    let own = Forkyard::start(&Setup::new());
    let workers = ["loop", "snapshot"].map(|mode| {
        let mut setup = Setup::new();
        setup.application = format!("worker = {worker:?}\nworker_mode = \"{mode}\"\n");
        Forkyard::start(&setup)
    });
    let mut sockets = vec![
        ("php-fpm", &fpm.socket),
        ("forkyard-fpm", &dropin.socket),
        ("forkyard", &own.socket),
    ];
    sockets.extend(
        ["loop", "snapshot"]
            .into_iter()
            .zip(workers.iter().map(|it| &it.socket)),
    );
    let file = multipart(&[
        part("file", Some("a"), &[b'x'; 60_000]),
        part("after", None, b"1"),
    ]);
    let large = vec![b'x'; 100_002];
    for (number, (kind, body, sent)) in [
        (FORM, b"amount=1000000&to=bob".to_vec(), 9),
        (FORM, b"amount=1000000&to=bob".to_vec(), 21),
        ("application/json", large.clone(), 5_000),
        ("text/plain", large, 50_000),
        (BOUNDARY, file.clone(), 30_000),
        (BOUNDARY, file, 60_120),
    ]
    .into_iter()
    .enumerate()
    {
        let mut seen = Vec::new();
        for (name, socket) in &sockets {
            let out = place.path().join(format!("{number}-{name}"));
            let request = Request::post(place.path(), "/notes.php", kind, &body[..sent])
                .with("CONTENT_LENGTH", &body.len().to_string())
                .with("OUT", &out.display().to_string());
            let mut wire = request.encode(false);
            if sent < body.len() {
                wire.truncate(wire.len() - 8);
            }
            let mut client = UnixStream::connect(socket).expect("the server listens");
            client.write_all(&wire).expect("it reads");
            client.shutdown(Shutdown::Write).expect("a connection");
            seen.push((
                *name,
                until("the script's notes", || fs::read_to_string(&out).ok()),
            ));
        }
        for (name, text) in &seen {
            assert_eq!(*text, seen[0].1, "{kind}, {sent} of {}: {name}", body.len());
        }
    }
}
