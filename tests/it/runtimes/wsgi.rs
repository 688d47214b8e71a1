//! Python's WSGI (PEP 3333), in workers that are forked from a loaded application.

use crate::support::daemon::{Daemon, directory, pool};
use crate::support::fcgi::Params;
use crate::support::place_library;
use std::fs;

const ECHO: &str = r#"
import os
loaded = os.getpid()
def application(environ, start_response):
    body = environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Type", "text/plain")])
    yield f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']} {environ['QUERY_STRING']} {len(body)}\n".encode()
    yield f"{loaded != os.getpid()}\n".encode()
"#;

fn start(files: &[(&str, &str)], application: &str) -> (Daemon, tempfile::TempDir) {
    place_library();
    let root = directory();
    for (name, text) in files {
        fs::write(root.path().join(name), text).expect("write");
    }
    let application = format!(
        "runtime = \"wsgi\"\nroot = \"{}\"\n{application}",
        root.path().display()
    );
    let daemon = Daemon::start(|dir| pool(dir, "www", "pm = \"static\"\nmax_children = 2\n", &application));
    (daemon, root)
}

#[test]
fn an_application_is_loaded_once_and_answers_in_workers() {
    let (daemon, _root) = start(&[("wsgi.py", ECHO)], "");
    let params = Params::get(&daemon.dir, "some/path", "a=b")
        .with("REQUEST_METHOD", "POST")
        .with("CONTENT_LENGTH", "200000");
    let answer = daemon
        .client("www")
        .request(&params, &[b'x'; 200_000])
        .expect("answer");
    assert_eq!(answer.body(), "POST /some/path a=b 200000\nTrue\n");
    assert_eq!(daemon.preloaders("www").len(), 1);
    assert_eq!(daemon.wait_for_workers("www", 2).len(), 2);
}
