//! The codec against clients that others wrote, over real sockets.

use crate::support::prelude::*;
use fastcgi::{Input, Limits, Output, ProtocolStatus, Responder};
use fastcgi_client::io::{AsyncRead, AsyncWrite};
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;

/// A responder that returns its parameters line by line, an empty line, and the body. It writes the parameter
/// `TEST_STDERR` to STDERR; `TEST_BYTES` requests that many more bytes of output.
struct Echo {
    directory: TempDir,
    server: Option<JoinHandle<io::Result<()>>>,
}

impl Echo {
    fn start() -> Echo {
        let directory = tempfile::tempdir().expect("a directory for the socket");
        let listener = UnixListener::bind(directory.path().join("socket")).expect("a socket");
        let server = std::thread::spawn(move || serve(listener.accept()?.0));
        Echo {
            directory,
            server: Some(server),
        }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    fn connect(&self) -> Blocking {
        Blocking(UnixStream::connect(self.socket()).expect("a connection"))
    }

    fn join(mut self) {
        let server = self.server.take().expect("joined once");
        server.join().expect("no panic").expect("no failed call");
    }
}

fn serve(mut stream: UnixStream) -> io::Result<()> {
    let mut responder = Responder::new(Limits::default());
    let mut output = Output::new();
    let mut buffer = vec![0; 64 * 1024];
    let (mut start, mut end, mut body) = (0, 0, Vec::new());
    loop {
        let (consumed, meaning) = responder.receive(&buffer[start..end]);
        start += consumed;
        match meaning {
            Input::More => {
                assert_eq!(start, end, "input is left though no request waits");
                end = stream.read(&mut buffer)?;
                start = 0;
                if end == 0 {
                    assert!(responder.is_between_requests(), "the client left in the middle");
                    return Ok(());
                }
            }
            Input::Request => body.clear(),
            Input::Body(piece) => body.extend_from_slice(piece),
            Input::BodyEnd => {
                answer(&responder, &body, &mut output, &mut stream)?;
                responder.finish();
                if !responder.keep() {
                    return Ok(());
                }
            }
            Input::Reply(reply) => stream.write_all(reply.bytes())?,
            Input::Abort => return Ok(()),
            Input::Broken(violation) => return Err(io::Error::other(violation)),
        }
    }
}

fn answer(
    responder: &Responder,
    body: &[u8],
    output: &mut Output,
    stream: &mut UnixStream,
) -> io::Result<()> {
    let mut text = "Content-Type: text/plain\r\n\r\n".to_owned();
    for (name, value) in responder.params().iter() {
        let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        writeln!(text, "{name}={value}").expect("strings take all");
    }
    text.push('\n');
    let number = |name| -> usize {
        let value = responder.params().get(name).map(String::from_utf8_lossy);
        value.and_then(|value| value.parse().ok()).unwrap_or(0)
    };
    output.begin(responder.request_id());
    put(output, stream, Output::stdout, text.as_bytes())?;
    put(
        output,
        stream,
        Output::stderr,
        responder.params().get(b"TEST_STDERR").unwrap_or_default(),
    )?;
    put(output, stream, Output::stdout, body)?;
    put(output, stream, Output::stdout, &vec![b'x'; number(b"TEST_BYTES")])?;
    output.end(0, ProtocolStatus::RequestComplete);
    drain(output, stream)
}

fn put(
    output: &mut Output,
    stream: &mut UnixStream,
    add: fn(&mut Output, &[u8]) -> usize,
    mut bytes: &[u8],
) -> io::Result<()> {
    while !bytes.is_empty() {
        let taken = add(output, bytes);
        bytes = &bytes[taken..];
        if !bytes.is_empty() {
            drain(output, stream)?;
        }
    }
    Ok(())
}

fn drain(output: &mut Output, stream: &mut UnixStream) -> io::Result<()> {
    while !output.is_empty() {
        let written = stream.write(output.pending())?;
        output.consume(written);
    }
    Ok(())
}

struct Blocking(UnixStream);

impl AsyncRead for Blocking {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.0.read(into))
    }
}

impl AsyncWrite for Blocking {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.0.write(from))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a blocking stream is never pending"),
    }
}

fn params(body: &str) -> fastcgi_client::Params<'static> {
    fastcgi_client::Params::default()
        .request_method("POST")
        .script_filename("/srv/echo")
        .content_length(body.len())
}

fn text(stdout: Option<Vec<u8>>) -> String {
    String::from_utf8(stdout.unwrap_or_default()).expect("text")
}

#[test]
fn the_fastcgi_client_crate_is_answered_once() {
    let echo = Echo::start();
    let params = params("the body")
        .custom("TEST_STDERR", "a complaint")
        .custom("LONG", "v".repeat(70_000));
    let client = fastcgi_client::Client::new(echo.connect());
    let request = fastcgi_client::Request::new(params, fastcgi_client::io::Cursor::new("the body"));
    let response = wait(client.execute_once(request)).expect("an answer");
    let stdout = text(response.stdout);
    assert_starts(&stdout, "Content-Type: text/plain\r\n\r\nFCGI_ROLE=RESPONDER\n");
    assert_contains(&stdout, "\nSCRIPT_FILENAME=/srv/echo\n");
    assert!(stdout.contains(&format!("\nLONG={}\n", "v".repeat(70_000))));
    assert!(stdout.ends_with("\n\nthe body"), "{stdout}");
    assert_eq!(response.stderr.as_deref(), Some(&b"a complaint"[..]));
    echo.join();
}

#[test]
fn the_fastcgi_client_crate_is_answered_on_a_kept_connection() {
    let echo = Echo::start();
    let mut client = fastcgi_client::Client::new_keep_alive(echo.connect());
    for round in 0..100 {
        let body = "b".repeat(round * 997);
        let request = fastcgi_client::Request::new(
            params(&body).custom("TEST_BYTES", (round * 3001).to_string()),
            fastcgi_client::io::Cursor::new(body.as_bytes()),
        );
        let response = wait(client.execute(request)).expect("an answer");
        let stdout = text(response.stdout);
        assert!(
            stdout.ends_with(&format!("\n\n{body}{}", "x".repeat(round * 3001))),
            "round {round}"
        );
        assert_eq!(response.stderr, None);
    }
    drop(client);
    echo.join();
}

const CGI_FCGI: &str = "/usr/bin/cgi-fcgi";

fn cgi_fcgi(environment: &[(&str, &str)], body: &str) -> (String, String) {
    let echo = Echo::start();
    let mut child = Command::new(CGI_FCGI)
        .args(["-bind", "-connect"])
        .arg(echo.socket())
        .env_clear()
        .envs(environment.iter().copied())
        .env("CONTENT_LENGTH", body.len().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("cgi-fcgi (Debian package libfcgi-bin)");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(body.as_bytes())
        .expect("a reader");
    let output = child.wait_with_output().expect("an end");
    assert!(output.status.success());
    echo.join();
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (text(output.stdout), text(output.stderr))
}

#[test]
fn libfcgi_is_answered() {
    let environment = [
        ("REQUEST_METHOD", "POST"),
        ("SCRIPT_FILENAME", "/srv/echo"),
        ("EMPTY", ""),
    ];
    let (stdout, stderr) = cgi_fcgi(&environment, "from libfcgi");
    assert_starts(&stdout, "Content-Type: text/plain\r\n\r\nFCGI_ROLE=RESPONDER\n");
    assert_contains(&stdout, "\nSCRIPT_FILENAME=/srv/echo\n");
    assert_contains(&stdout, "\nEMPTY=\n");
    assert!(stdout.ends_with("\n\nfrom libfcgi"), "{stdout}");
    assert_eq!(stderr, "");
}

#[test]
fn libfcgi_reads_both_streams_of_a_long_answer() {
    let environment = [
        ("REQUEST_METHOD", "GET"),
        ("TEST_STDERR", "a complaint"),
        ("TEST_BYTES", "300000"),
    ];
    let (stdout, stderr) = cgi_fcgi(&environment, "");
    assert!(stdout.ends_with(&format!("\n\n{}", "x".repeat(300_000))));
    assert_eq!(stderr, "a complaint");
}
