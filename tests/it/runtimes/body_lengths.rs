//! Bodies that are shorter or longer than their Content-Length, and clients that leave in the middle.

use super::concurrent::{ASGI, Bench, Kind, ONE, THREADED};
use super::programs::Site;
use crate::support::prelude::*;

const NODE: &str = r#"
const fs = require('fs');
require('http').createServer((request, response) => {
  if (request.url === '/long') {
    response.setHeader('Content-Length', 3);
    response.write('abc');
    // With the connection's next request.
    return request.socket.once('data', () => response.end('more'));
  }
  let size = 0;
  fs.writeFileSync(`${__dirname}/begun${request.url.slice(1)}`, '');
  request.on('data', (piece) => { size += piece.length; });
  request.on('aborted', () => fs.writeFileSync(`${__dirname}/aborted${request.url.slice(1)}`, ''));
  request.on('end', () => response.end(`${request.method} ${request.url} ${size}`));
}).listen(process.env.PORT);
"#;

const STATIC: &str = "pm = \"static\"\nmax_children = 1\n";

fn node() -> Site {
    Site::start(
        &[("app.js", NODE)],
        STATIC,
        "node",
        "start_command = \"node app.js\"\n",
    )
}

fn naming(path: &str, length: usize) -> Params {
    Params::get(Path::new("/srv"), path, "").posting(length)
}

#[test]
fn a_program_s_client_whose_body_is_shorter_than_it_says_gets_400() {
    let site = node();
    let mut kept = site.daemon.client("app").kept();
    for path in ["1", "2"] {
        let answer = kept.request(&naming(path, 10), b"12345").expect("answer");
        assert!(answer.status().starts_with("400 ") && answer.ended, "{answer:?}");
        let line = "its body is 5 bytes shorter than its Content-Length";
        assert_contains(&answer.body(), line);
        site.daemon.wait_for(line);
        assert_eq!(
            kept.request(&naming("3", 5), b"12345").expect("answer").body(),
            "POST /3 5"
        );
    }
    let mut client = site.daemon.client("app");
    let wire = naming("4", 10).request(b"12345");
    let (begin, end) = wire.split_at(wire.len() - 8);
    client.send_raw(begin).expect("send");
    let is_there = |name: &str| wait_until(name, || site.root.join(name).exists());
    is_there("begun4");
    client.send_raw(end).expect("send");
    assert!(client.answer().expect("answer").status().starts_with("400 "));
    is_there("aborted4");
}

#[test]
fn an_answer_longer_than_it_says_leaves_the_next_request_alone() {
    let site = node();
    for _ in 0..3 {
        assert_eq!(site.get("long"), "abc");
        assert_eq!(site.get("x"), "GET /x 0");
    }
    site.daemon.wait_for_count(
        "an answer of the application was longer than its Content-Length",
        3,
    );
}

#[test]
fn a_program_gets_no_more_of_a_body_than_it_says() {
    let site = node();
    let mut kept = site.daemon.client("app").kept();
    let more = b"12345GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";
    for _ in 0..3 {
        assert_eq!(
            kept.request(&naming("1", 5), more).expect("answer").body(),
            "POST /1 5"
        );
        let answer = kept.request(&Params::get(Path::new("/srv"), "2", ""), b"");
        assert_eq!(answer.expect("answer").body(), "GET /2 0");
    }
    let nothing = Params::get(Path::new("/srv"), "3", "").with("CONTENT_LENGTH", "0");
    assert_eq!(kept.request(&nothing, more).expect("answer").body(), "GET /3 0");
    assert_eq!(
        kept.request(&naming("4", 0), more).expect("answer").body(),
        "POST /4 0"
    );
}

#[test]
fn a_program_sees_that_a_client_leaves_in_the_middle_of_its_body() {
    let site = node();
    for (path, stays) in [("1", false), ("2", true)] {
        let mut client = site.daemon.client("app");
        let (head, rest) = naming(path, 10).request_in_two(b"12345");
        client.send_raw(&head).expect("send");
        // Without the end record.
        client.send_raw(&rest[..rest.len() - 8]).expect("send");
        if stays {
            client.shut();
            assert!(!client.answer().expect("the end").ended);
        }
        drop(client);
        wait_until("the program to see it", || {
            site.root.join(format!("aborted{path}")).exists()
        });
    }
    assert_eq!(site.get("x"), "GET /x 0");
}

#[test]
fn an_application_sees_the_end_of_a_body_that_is_shorter_than_it_says() {
    for kind in [ASGI].into_iter().chain(THREADED) {
        let bench = Bench::start(kind, 2, ONE);
        let mut kept = bench.daemon.client("www").kept();
        for _ in 0..2 {
            let answer = kept.request(&naming("echo", 10), b"12345").expect("answer");
            assert!(answer.ended, "{answer:?}");
            assert_eq!(answer.body(), "12345", "{}", kind.runtime);
            let answer = kept.request(&naming("echo", 5), b"12345").expect("answer");
            assert_eq!(answer.body(), "12345", "{}", kind.runtime);
        }
        leaves_in_the_middle(kind, &bench);
    }
}

fn leaves_in_the_middle(kind: Kind, bench: &Bench) {
    for stays in [false, true] {
        let mut client = bench.daemon.client("www");
        let wire = naming("echo", 10).request(b"12345");
        client.send_raw(&wire[..wire.len() - 8]).expect("send");
        if stays {
            client.shut();
            client.answer().expect("the end");
        }
    }
    assert_eq!(bench.get("echo", ""), "", "{}", kind.runtime);
}
