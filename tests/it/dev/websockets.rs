//! WebSocket through `forkyard dev`, which has no second address for it.

use super::stand::{Dev, site};
use crate::it::runtimes::websockets::{ASGI, Socket, program};
use crate::support::prelude::*;

const PACKAGE: &str = r#"{"scripts": {"start": "NODE_PATH=/usr/share/nodejs node app.js"}}"#;
const OWN: &str = "runtime = \"http\"\nstart_command = \"env NODE_PATH=/usr/share/nodejs node app.js\"\n";

fn passes(files: &[(&str, &str)], file: &str, code: impl Fn(&str) -> String) {
    let first = code("one");
    let files: Vec<(&str, &str)> = files.iter().copied().chain([(file, &*first)]).collect();
    let (_dir, root) = site(&files);
    let dev = Dev::start(&root);
    assert_eq!(dev.get("/page").status, 200, "{file}: {}", dev.said());
    let address = format!("ws://127.0.0.1:{}/ws", dev.port);
    let mut socket = Socket::open(&address);
    let greeting = socket.hear();
    let is_of_us = greeting.contains("127.0.0.1") && !greeting.contains("6.6.6.6");
    assert!(is_of_us, "{file}: {greeting}: {}", dev.said());
    assert!(
        socket.ask("hello").ends_with(" one hello"),
        "{file}: {}",
        dev.said()
    );
    let long = "x".repeat(60_000);
    assert!(socket.ask(&long).ends_with(&format!(" one {long}")), "{file}");
    let mut other = Socket::open(&address);
    other.hear();
    assert!(other.ask("x").ends_with(" one x"), "{file}");
    assert!(socket.ask("again").ends_with(" one again"), "{file}");
    assert_eq!(other.close(), "closed 1000", "{file}: {}", dev.said());
    fs::write(root.join(file), code("number two")).expect("write");
    wait_until("the new code", || {
        let mut new = Socket::open(&address);
        new.hear();
        new.ask("b").ends_with(" number two b")
    });
    let last = socket.hear();
    assert!(last.starts_with("closed"), "{file}: {last}");
    assert!(dev.said().contains("GET /ws 101 "), "{file}: {}", dev.said());
}

#[test]
fn websockets_pass_to_an_asgi_application() {
    passes(&[], "main.py", |version| ASGI.replace("VERSION", version));
}

#[test]
fn websockets_pass_to_an_application_of_node_and_to_other_programs() {
    passes(&[("package.json", PACKAGE)], "app.js", program);
    passes(&[("forkyard.toml", OWN)], "app.js", program);
}

#[test]
fn without_uvicorn_a_websocket_is_refused_with_the_reason() {
    let code = "async def application(scope, receive, send):\n    assert scope['type'] == 'http'\n    \
                await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n    \
                await send({'type': 'http.response.body', 'body': b'page'})\n";
    let (_dir, root) = site(&[
        ("asgi.py", code),
        ("uvicorn.py", "raise ImportError('not here')\n"),
    ]);
    let dev = Dev::start(&root);
    assert_eq!(dev.get("/").body, "page", "{}", dev.said());
    let mut client = dev.connect();
    let request = "GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    client.write_all(request.as_bytes()).expect("write");
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    let answer = loop {
        let count = client.read(&mut piece).expect("an answer");
        text.extend_from_slice(&piece[..count]);
        let answer = text_of(&text);
        if count == 0 || answer.contains("WebSocket needs uvicorn") {
            break answer;
        }
    };
    assert!(
        answer.starts_with("HTTP/1.1 501 ") && answer.contains("WebSocket needs uvicorn"),
        "{answer}: {}",
        dev.said()
    );
}
