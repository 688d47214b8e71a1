//! Zero bytes in a web server's input.

use super::client::{Reply, Request};
use super::servers::Setup;
use super::servers::forkyard::Forkyard;
use super::{Pair, scripts};

const READ: [&str; 26] = [
    "AUTH_TYPE",
    "CONTENT_LENGTH",
    "CONTENT_TYPE",
    "DOCUMENT_ROOT",
    "DOCUMENT_URI",
    "GATEWAY_INTERFACE",
    "HTTP_AUTHORIZATION",
    "HTTP_CONTENT_TYPE",
    "HTTP_COOKIE",
    "HTTP_HOST",
    "HTTP_X_ANY",
    "ORIG_PATH_INFO",
    "PATH_INFO",
    "PATH_TRANSLATED",
    "PHP_ADMIN_VALUE",
    "PHP_VALUE",
    "QUERY_STRING",
    "REMOTE_ADDR",
    "REMOTE_USER",
    "REQUEST_METHOD",
    "REQUEST_URI",
    "SCRIPT_NAME",
    "SERVER_NAME",
    "SERVER_PROTOCOL",
    "SERVER_SOFTWARE",
    "TZ",
];

fn value(name: &str) -> &'static str {
    match name {
        "CONTENT_LENGTH" => "3\099",
        "CONTENT_TYPE" => "application/x-www-form-urlencoded\0; charset=x",
        "HTTP_AUTHORIZATION" => "Basic dXNlcjpwYXNz\0x",
        "HTTP_COOKIE" => "a=1; b=2\0; c=3",
        "PATH_INFO" | "ORIG_PATH_INFO" | "PATH_TRANSLATED" => "/a\0/b",
        "PHP_VALUE" | "PHP_ADMIN_VALUE" => "precision = 5\0\nuser_agent = x",
        "QUERY_STRING" => "a=1\0&b=2",
        "REQUEST_METHOD" => "POST\0x",
        "REQUEST_URI" | "SCRIPT_NAME" | "DOCUMENT_URI" => "/server.php\0.txt",
        "SERVER_SOFTWARE" => "Microsoft-IIS\0nginx",
        _ => "before\0after",
    }
}

#[test]
fn in_what_php_reads() {
    let pair = Pair::start(&Setup::new());
    let base = Request::post(
        &scripts(),
        "/server.php?q=1",
        "application/x-www-form-urlencoded",
        "a=1",
    );
    let differ: Vec<&str> = READ
        .into_iter()
        .filter(|name| {
            let request = base.clone().with(name, value(name));
            request.send(&pair.fpm.socket) != request.send(&pair.forkyard.socket)
        })
        .collect();
    assert!(differ.is_empty(), "{differ:?}");
    // php-fpm has such a parameter under a part of its name, or with bytes of its memory in the name.
    let plain = pair.same(&base);
    for name in READ {
        let named = base.clone().with(&format!("{name}\0x"), "value");
        assert_eq!(named.send(&pair.forkyard.socket), plain, "{name}");
    }
}

fn is_refused(reply: &Reply) -> bool {
    reply.text().starts_with("Status: 404 Not Found\r\n")
        && reply.body() == "File not found.\n"
        && reply.errors()
            == "Primary script unknown: its name has a zero byte (SCRIPT_FILENAME, or PATH_TRANSLATED)"
}

#[test]
fn in_the_name_of_a_script() {
    let root = scripts().display().to_string();
    let plain = Request::get(&scripts(), "/path.php");
    let servers = ["", "cgi.fix_pathinfo = 0"].map(|ini| Forkyard::start(&Setup::new().ini(ini)));
    for server in &servers {
        for path in [
            "path.php\0",
            "path.php\0.txt",
            "path.php/a\0b",
            "\0path.php",
            "broken.inc\0.php",
        ] {
            let named = plain.clone().with("SCRIPT_FILENAME", &format!("{root}/{path}"));
            let reply = named.send(&server.socket);
            assert!(is_refused(&reply), "{path:?}: {reply:?}");
            let translated = plain
                .clone()
                .without("SCRIPT_FILENAME")
                .with("PATH_TRANSLATED", &format!("{root}/{path}"));
            let reply = translated.send(&server.socket);
            assert!(is_refused(&reply), "PATH_TRANSLATED {path:?}: {reply:?}");
        }
        let reply = plain.send(&server.socket);
        assert!(!is_refused(&reply) && reply.errors().is_empty(), "{reply:?}");
    }
}

#[test]
fn in_the_path_of_ping() {
    let mut setup = Setup::new();
    setup.ping = true;
    let server = Forkyard::start(&setup);
    let ping = Request::get(&scripts(), "/ping");
    assert_eq!(ping.send(&server.socket).body(), "pong");
    let reply = ping.with("SCRIPT_NAME", "/ping\0x").send(&server.socket);
    assert_eq!(reply.body(), "File not found.\n", "{reply:?}");
}
