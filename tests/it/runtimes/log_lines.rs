//! What workers of every runtime say is in the log with their pool's name, once.

use super::fastcgi_programs::ODD;
use crate::support::prelude::*;

#[test]
fn a_line_names_its_pool_once() {
    let daemon = Daemon::start(|dir| {
        fs::write(dir.join("odd.py"), ODD).expect("write");
        write_program(&dir.join("deaf.cgi"), "#!/bin/sh\necho no header\n");
        fs::write(dir.join("closes.py"), CLOSES).expect("write");
        let root = dir.display();
        let one = |name: &str, application: &str| pool(dir, name, "", application);
        [
            one("cgi", &format!("runtime = \"cgi\"\nroot = \"{root}\"")),
            one(
                "http",
                &format!("runtime = \"http\"\naddress = \"127.0.0.1:{}\"", free_port()),
            ),
            one(
                "program",
                &format!("runtime = \"http\"\nroot = \"{root}\"\nstart_command = \"python3 closes.py\""),
            ),
            one(
                "fastcgi",
                &format!(
                    "runtime = \"fastcgi\"\nroot = \"{root}\"\nstart_command = \"python3 odd.py exits\""
                ),
            ),
        ]
        .concat()
    });
    for (name, script) in [
        ("cgi", "nothing.cgi"),
        ("cgi", "deaf.cgi"),
        ("http", "x"),
        ("program", "x"),
        ("fastcgi", "x"),
    ] {
        daemon.get(name, script);
    }
    let root = daemon.dir.display();
    for line in [
        format!("[pool cgi] malformed answer of {root}/deaf.cgi: "),
        "[pool http] the application can't be reached: ".to_owned(),
        "[pool program] the application gave no answer: ".to_owned(),
        format!("[pool fastcgi] could not start {root}: The application exited"),
    ] {
        let line = daemon.wait_for(&line);
        assert_eq!(line.matches("[pool ").count(), 1, "{line}");
    }
    let log = daemon.log();
    let twice = |line: &&str| line.matches("[pool ").count() > 1 || line.contains("] [");
    let strange: Vec<&str> = log
        .lines()
        .filter(|line| twice(line) && !line.contains("said"))
        .collect();
    assert!(strange.is_empty(), "{strange:#?}");
}

const CLOSES: &str = "import os, socket\nserver = socket.create_server(('127.0.0.1', int(os.environ['PORT'])))\n\
                      while True:\n    connection, _ = server.accept()\n    connection.recv(1)\n    connection.close()\n";
