//! Headers, output, and the ways a script can end.

use super::client::Request;
use super::servers::{Setup, directory};
use super::{Pair, assert_equal, pair, scripts, take_file};

#[test]
fn response_codes() {
    let pair = pair();
    for code in [
        100, 200, 201, 204, 299, 301, 304, 400, 404, 418, 429, 451, 500, 511, 599, 700, 999,
    ] {
        pair.get(&format!("/headers.php?way=code&code={code}"));
    }
    assert!(
        pair.get("/headers.php?way=code&code=404")
            .text()
            .starts_with("Status: 404 Not Found\r\n")
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
    for way in HEADER_WAYS {
        pair.get(&format!("/headers.php?way={way}"));
    }
    assert!(
        pair.get("/headers.php?way=location")
            .text()
            .starts_with("Status: 302 Found\r\n")
    );
}

#[test]
fn headers_of_other_kinds() {
    for setup in [
        Setup::new().ini("cgi.nph = 1"),
        Setup::new().ini("cgi.rfc2616_headers = 1"),
    ] {
        let pair = Pair::start(&setup);
        for way in HEADER_WAYS {
            pair.get(&format!("/headers.php?way={way}"));
        }
    }
    let pair = Pair::start(&Setup::new().ini("expose_php = 1"));
    assert!(pair.get("/headers.php").text().contains(concat!(
        "X-Powered-By: PHP/",
        env!("FORKYARD_PHP"),
        "."
    )));
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
    for way in ways {
        pair.get(&format!("/output.php?way={way}"));
    }
    let request = Request::get(&scripts(), "/output.php?way=compressed").with("HTTP_ACCEPT_ENCODING", "gzip");
    assert!(pair.same(&request).text().contains("Content-Encoding: gzip"));
    let pair = Pair::start(&Setup::new().ini("output_buffering = 0"));
    for way in ways {
        pair.get(&format!("/output.php?way={way}"));
    }
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
        for way in ENDINGS {
            pair.get(&format!("/ending.php?display={display}&way={way}"));
        }
    }
    let fatal = pair.get("/ending.php?way=fatal");
    assert!(
        fatal.text().starts_with("Status: 500 Internal Server Error\r\n"),
        "{fatal:?}"
    );
    assert!(
        fatal
            .errors()
            .starts_with("PHP message: PHP Fatal error:  Uncaught Error"),
        "{fatal:?}"
    );
    let warnings = pair.get("/ending.php?way=warnings");
    assert!(
        warnings
            .errors()
            .contains("PHP message: first; PHP message: PHP Warning"),
        "{warnings:?}"
    );
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
        for way in ["fatal", "warnings", "exit", "exception"] {
            pair.get(&format!("/ending.php?way={way}"));
        }
    }
}

#[test]
fn finishing_early() {
    let pair = pair();
    for ignore in ["0", "1"] {
        let ask = |socket| {
            let directory = directory();
            let file = directory.path().join("seen");
            let uri = format!("/finish.php?ignore={ignore}&file={}", file.display());
            (Request::get(&scripts(), &uri).send(socket), take_file(&file))
        };
        let (expected, answer) = (ask(&pair.fpm.socket), ask(&pair.forkyard.socket));
        assert_equal(&expected.0, &answer.0);
        assert_eq!(expected.1, answer.1, "ignore_user_abort {ignore}");
        assert_eq!(answer.0.body(), "answer\n");
    }
    pair.get("/server.php");
}

#[test]
fn client_leaves() {
    let pair = pair();
    for ignore in ["0", "1"] {
        let ask = |socket| {
            let directory = directory();
            let file = directory.path().join("seen");
            let uri = format!("/abort.php?ignore={ignore}&file={}", file.display());
            Request::get(&scripts(), &uri).send_and_leave(socket);
            take_file(&file)
        };
        assert_eq!(
            ask(&pair.fpm.socket),
            ask(&pair.forkyard.socket),
            "ignore_user_abort {ignore}"
        );
    }
    pair.get("/server.php");
}
