//! Runs the examples of docs/reference/spawning.md.

use super::Kit;
use crate::support::prelude::*;
use forkyard_spawn::error::Category;
use forkyard_spawn::handshake::properties::Address;

fn example(name: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/spawning.md");
    let document = super::text(path);
    let mark = format!("<!-- example: {name} -->");
    let (_, rest) = document.split_once(&mark).expect("the example");
    let (_, rest) = rest.split_once("```").expect("its beginning");
    let (_, rest) = rest.split_once('\n').expect("its first line");
    let (code, _) = rest.split_once("\n```").expect("its end");
    code.to_owned()
}

fn plan(kit: &Kit, interpreter: &str, name: &str) -> forkyard_spawn::plan::Plan {
    let mut plan = kit.native("");
    fs::write(kit.root().join(name), example(name)).expect("a file");
    plan.start_command = format!("{interpreter} {name}");
    plan
}

#[test]
fn each_example_comes_up_and_answers() {
    let rows = [
        ("/bin/sh", "app.sh"),
        ("/usr/bin/python3", "app.py"),
        ("/usr/bin/ruby", "app.rb"),
        ("/usr/bin/node", "app.js"),
    ];
    each(rows, |(interpreter, name)| {
        let mut kit = Kit::new();
        let up = kit.up(plan(&kit, interpreter, name));
        let Address::Tcp(host, port) = &up.sockets[0].address else {
            panic!("{name}: no port");
        };
        let mut stream = TcpStream::connect((host.as_str(), *port)).expect("a connection");
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .expect("a request");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        let answer = String::from_utf8_lossy(&answer);
        assert_starts(&answer, "HTTP/1.");
        assert_contains(&answer, " 200 OK\r\n");
        kit.stop();
        kit.assert_clean();
    });
}

#[test]
fn the_failing_example_is_explained() {
    let mut kit = Kit::new();
    let report = kit.failure(plan(&kit, "/bin/sh", "failing.sh"));
    assert_eq!(report.failure.category, Category::Io);
    assert_eq!(report.failure.summary, "The database does not answer");
    assert!(report.failure.solution.as_str().contains("database.yml"));
}
