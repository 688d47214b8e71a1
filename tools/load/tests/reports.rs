//! forkyard-load against a server that counts on the other side.

use fastcgi::{Input, Limits, Output, ProtocolStatus, Responder};
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::process::Command;

/// Answers `requests` requests on one connection with their body's length, then closes it. Returns how many came.
fn serve<S: Read + Write>(mut stream: S, requests: usize) -> io::Result<usize> {
    let mut responder = Responder::new(Limits::default());
    let mut output = Output::new();
    let mut buffer = vec![0; 64 * 1024];
    let (mut start, mut end, mut body, mut served) = (0, 0, 0, 0);
    while served < requests {
        let (consumed, meaning) = responder.receive(&buffer[start..end]);
        start += consumed;
        match meaning {
            Input::More => {
                (start, end) = (0, stream.read(&mut buffer)?);
                if end == 0 {
                    break;
                }
            }
            Input::Request => body = 0,
            Input::Body(piece) => body += piece.len(),
            Input::BodyEnd => {
                let failed = responder.params().get(b"FAIL") == Some(b"1");
                let status = if failed { "Status: 500 No\r\n" } else { "" };
                output.begin(responder.request_id());
                output.stdout(format!("{status}Content-Type: text/plain\r\n\r\n{body}").as_bytes());
                output.end(0, ProtocolStatus::RequestComplete);
                responder.finish();
                served += 1;
                stream.write_all(output.pending())?;
                output.consume(usize::MAX);
                if !responder.keep() {
                    break;
                }
            }
            Input::Reply(_) | Input::Abort | Input::Broken(_) => {
                return Err(io::Error::other("not a request"));
            }
        }
    }
    Ok(served)
}

/// forkyard-load's JSON report.
fn load(arguments: &[&str]) -> serde_json::Value {
    let output = Command::new(env!("CARGO_BIN_EXE_forkyard-load"))
        .args(["--script", "/srv/echo.php", "--timeout-ms", "20000"])
        .args(arguments)
        .output()
        .expect("forkyard-load runs");
    let text = String::from_utf8(output.stdout).expect("text");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text:?}"))
}

#[test]
fn every_request_is_sent_once_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    let server = std::thread::spawn(move || {
        let streams = listener.incoming().take(40);
        streams
            .map(|stream| serve(stream?, usize::MAX))
            .sum::<io::Result<usize>>()
    });
    let report = load(&[
        "--connect",
        &address,
        "--clients",
        "3",
        "--requests",
        "40",
        "--body-bytes",
        "200000",
    ]);
    assert_eq!(server.join().expect("no panic").expect("no failed call"), 40);
    assert_eq!(
        (&report["requests"], &report["errors"]),
        (&40.into(), &0.into()),
        "{report}"
    );
}

#[test]
fn a_kept_connection_that_the_server_closes_is_replaced_without_loss() {
    let directory = tempfile::tempdir().expect("a directory for the socket");
    let socket = directory.path().join("socket");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let server = std::thread::spawn(move || {
        let streams = listener.incoming().take(20);
        streams.map(|stream| serve(stream?, 5)).sum::<io::Result<usize>>()
    });
    let socket = socket.to_str().expect("a plain name");
    let report = load(&["--connect", socket, "--keep", "--requests", "100"]);
    assert_eq!(server.join().expect("no panic").expect("no failed call"), 100);
    assert_eq!(
        (&report["requests"], &report["errors"]),
        (&100.into(), &0.into()),
        "{report}"
    );
    assert!(report["reconnects"].as_u64() >= Some(19), "{report}");
}

#[test]
fn failures_are_told_by_kind() {
    let directory = tempfile::tempdir().expect("a directory for the socket");
    let socket = directory.path().join("socket");
    let address = socket.to_str().expect("a plain name");
    let report = load(&["--connect", address, "--requests", "2"]);
    assert_eq!(report["errors_by_kind"]["connect"], 2, "{report}");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let server = std::thread::spawn(move || -> io::Result<()> {
        serve(listener.accept()?.0, 1)?;
        listener.accept()?.0.read_exact(&mut [0; 8])?;
        let mut stream = listener.accept()?.0;
        stream.read_exact(&mut [0; 8])?;
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    });
    let arguments = [
        "--connect",
        address,
        "--requests",
        "3",
        "--param",
        "FAIL=1",
        "--body-bytes",
        "1000000",
    ];
    let report = load(&arguments);
    server.join().expect("no panic").expect("no failed call");
    let kinds = &report["errors_by_kind"];
    let counted = ["status", "eof", "protocol"].map(|kind| kinds[kind].as_u64());
    assert_eq!(counted, [Some(1), Some(1), Some(1)], "{report}");
    assert_eq!(report["statuses"]["500"], 1, "{report}");
}
