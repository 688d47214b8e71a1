//! Headers, output, and the ways a script can end.

use super::client::{Reply, Request};
use super::servers::{Setup, directory};
use super::{Pair, pair, scripts, take_file};
use crate::support::prelude::*;

#[test]
fn response_codes() {
    let pair = pair();
    for code in [
        100, 200, 201, 204, 299, 301, 304, 400, 404, 418, 429, 451, 500, 511, 599, 700, 999,
    ] {
        pair.get(&format!("/headers.php?way=code&code={code}"));
    }
    assert_starts(
        &pair.get("/headers.php?way=code&code=404").text(),
        "Status: 404 Not Found\r\n",
    );
}

const HEADER_WAYS: [&str; 25] = [
    "line",
    "line-only-code",
    "line-long",
    "status",
    "status-twice",
    "status-and-line",
    "status-200",
    "location",
    "location-201",
    "location-301",
    "repeated",
    "304",
    "204",
    "type",
    "type-text",
    "type-none",
    "cookies",
    "authenticate",
    "newline",
    "empty",
    "late",
    "callback",
    "length",
    "remove-all",
    "none",
];

#[test]
fn headers() {
    let pair = pair();
    pair.get_each("/headers.php?way=", &HEADER_WAYS);
    assert_starts(
        &pair.get("/headers.php?way=location").text(),
        "Status: 302 Found\r\n",
    );
}

#[test]
fn headers_of_other_kinds() {
    for setup in [
        Setup::new().ini("cgi.nph = 1"),
        Setup::new().ini("cgi.rfc2616_headers = 1"),
    ] {
        let pair = Pair::start(&setup);
        pair.get_each("/headers.php?way=", &HEADER_WAYS);
    }
    let pair = Pair::start(&Setup::new().ini("expose_php = 1"));
    assert_contains(
        &pair.get("/headers.php").text(),
        concat!("X-Powered-By: PHP/", env!("FORKYARD_PHP"), "."),
    );
}

#[test]
fn head_requests() {
    let pair = pair();
    for uri in [
        "/headers.php?way=type",
        "/output.php?way=large",
        "/output.php?way=flush",
        "/ending.php?way=fatal",
    ] {
        pair.same(&Request::get(&scripts(), uri).with("REQUEST_METHOD", "HEAD"));
    }
}

#[test]
fn output_of_every_kind() {
    let pair = pair();
    let ways = [
        "large",
        "pieces",
        "flush",
        "nested",
        "stream",
        "nothing",
        "binary",
        "flush-first",
        "compressed",
        "none",
    ];
    pair.get_each("/output.php?way=", &ways);
    let request = Request::get(&scripts(), "/output.php?way=compressed").with("HTTP_ACCEPT_ENCODING", "gzip");
    assert!(pair.same(&request).text().contains("Content-Encoding: gzip"));
    let pair = Pair::start(&Setup::new().ini("output_buffering = 0"));
    pair.get_each("/output.php?way=", &ways);
}

const ENDINGS: [&str; 16] = [
    "none",
    "fatal",
    "exception",
    "error",
    "late-fatal",
    "exit",
    "exit-text",
    "exit-in-buffer",
    "warnings",
    "log-lines",
    "log-long",
    "memory",
    "parse",
    "compile",
    "destructor-throws",
    "buffer-callback",
];

#[test]
fn endings() {
    let pair = pair();
    for display in ["0", "1"] {
        pair.get_each(&format!("/ending.php?display={display}&way="), &ENDINGS);
    }
    let fatal = pair.get("/ending.php?way=fatal");
    assert_starts(&fatal.text(), "Status: 500 Internal Server Error\r\n");
    assert_starts(&fatal.errors(), "PHP message: PHP Fatal error:  Uncaught Error");
    let warnings = pair.get("/ending.php?way=warnings");
    assert_contains(&warnings.errors(), "PHP message: first; PHP message: PHP Warning");
}

#[test]
fn what_a_request_defines_is_gone_in_the_next() {
    let pair = pair();
    for _ in 0..3 {
        let answer = pair.get("/many_functions.php");
        assert!(answer.text().ends_with("all 4999\n"), "{answer:?}");
    }
}

#[test]
fn time_limit() {
    pair().get("/ending.php?way=time");
}

#[test]
fn errors_without_logging() {
    for setup in [
        Setup::new().ini("fastcgi.logging = 0"),
        Setup::new().ini("log_errors = 0"),
        Setup::new().ini("fastcgi.error_header = \"X-Failed: yes\""),
        Setup::new().ini("html_errors = 1\ndisplay_errors = 1"),
    ] {
        let pair = Pair::start(&setup);
        pair.get_each("/ending.php?way=", &["fatal", "warnings", "exit", "exception"]);
    }
}

/// The answer and the file that `script` writes, of both servers and with each `ignore_user_abort`.
fn same_answer_and_file(script: &str, send: impl Fn(&Request, &Path) -> Option<Reply>) {
    let pair = pair();
    for ignore in ["0", "1"] {
        let [expected, answer] = [&pair.fpm.socket, &pair.forkyard.socket].map(|socket| {
            let directory = directory();
            let file = directory.path().join("seen");
            let uri = format!("/{script}?ignore={ignore}&file={}", file.display());
            (send(&Request::get(&scripts(), &uri), socket), take_file(&file))
        });
        assert_eq!(expected, answer, "ignore_user_abort {ignore}");
        if let Some(reply) = answer.0 {
            assert_eq!(reply.body(), "answer\n");
        }
    }
    pair.get("/server.php");
}

#[test]
fn finishing_early() {
    same_answer_and_file("finish.php", |request, socket| Some(request.send(socket)));
}

#[test]
fn client_leaves() {
    same_answer_and_file("abort.php", |request, socket| {
        request.send_and_leave(socket);
        None
    });
}
