//! `forkyard replay`: the request of a crash, sent again over FastCGI.

use super::EXIT_SOFTWARE;
use super::control::{
    CommandOutcome, CommandResult, Daemon, answer, ask_status, missing, printable, tell, unexpected,
};
use clap::Args;
use fastcgi::{Answer as Reply, Part, Request as Asked};
use forkyard_protocol::control::{Answer, Format, Request};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

/// How long the pool may be silent.
const SILENCE: Duration = Duration::from_secs(60);
/// The most that is kept of an answer, for its status.
const MOST_HEAD: usize = 64 * 1024;

/// `forkyard replay`.
#[derive(Debug, Args)]
pub(super) struct Replay {
    #[command(flatten)]
    daemon: Daemon,
    /// The report's id, which `forkyard crashes` shows
    id: String,
    /// The pool to send it to
    #[arg(long, value_name = "POOL")]
    to: String,
}

pub(super) fn run(arguments: &Replay) -> ExitCode {
    tell(replay(arguments))
}

/// A report's request.
#[derive(Debug, Deserialize)]
struct Recorded {
    method: String,
    path: String,
    query: String,
    script: String,
    is_cut: bool,
    is_redacted: bool,
    /// None if the report has only the scoreboard's texts.
    params: BTreeMap<String, String>,
}

/// Parameters that describe a body or a client's session.
const LEFT_OUT: [&str; 4] = ["CONTENT_LENGTH", "CONTENT_TYPE", "REMOTE_USER", "AUTH_TYPE"];
const HIDDEN: &str = "[hidden]";

fn failure(text: String) -> CommandOutcome {
    CommandOutcome::failure(EXIT_SOFTWARE, format!("forkyard: {text}\n"))
}

fn replay(arguments: &Replay) -> CommandResult {
    let (id, pool) = (printable(&arguments.id), &arguments.to);
    let asked = Request::Error {
        id: Some(arguments.id.clone()),
        format: Format::Json,
    };
    let report = match answer(&arguments.daemon, &asked)? {
        Answer::Report { report } => report,
        other => return Err(unexpected(other)),
    };
    let recorded = Recorded::deserialize(&report["request"])
        .map_err(|_| failure(format!("report {id} is not of a request")))?;
    if let Some(why) = recorded.obstacle(&id) {
        return Err(failure(why));
    }
    let status = ask_status(&arguments.daemon)?;
    if let Some(missing) = missing(&status, std::slice::from_ref(pool)) {
        return Err(missing);
    }
    let found = status.pools.iter().find(|it| it.name == *pool);
    let listen = found.map(|it| it.listen.clone()).unwrap_or_default();
    let head = send(&listen, &recorded).map_err(|error| {
        failure(format!(
            "pool {} has not answered {}: {error}",
            printable(pool),
            printable(&recorded.line())
        ))
    })?;
    let mut output = format!("{}: {}\n", printable(&recorded.line()), printable(&head));
    output += match recorded.params.is_empty() {
        true => "it was sent without cookies, authorization and other headers: it carries no session\n",
        false => "it was sent without cookies and authorization: it carries no session\n",
    };
    if recorded.is_redacted {
        output +=
            "the values of secrets in its query are not in the report: it was sent with [hidden] for them\n";
    }
    Ok(CommandOutcome::success(output))
}

impl Recorded {
    /// Returns why it can't be sent again.
    fn obstacle(&self, id: &str) -> Option<String> {
        let method = printable(&self.method);
        match self.method.as_str() {
            "GET" | "HEAD" => (self.is_cut && self.params.is_empty()).then(|| {
                format!("the request of report {id} is too long: the report has only its beginning")
            }),
            "" => Some(format!(
                "report {id} has no request: the worker died before it had read it"
            )),
            _ => Some(format!(
                "the request of report {id} is {method}: only GET and HEAD are sent again"
            )),
        }
    }

    fn uri(&self) -> String {
        let mark = if self.query.is_empty() { "" } else { "?" };
        format!("{}{mark}{}", self.path, self.query)
    }

    fn line(&self) -> String {
        format!("{} {}", self.method, self.uri())
    }

    /// The recorded parameters, or the usual ones of a web server.
    fn params(&self) -> Vec<(&str, String)> {
        if !self.params.is_empty() {
            let is_sent = |(name, value): &(&String, &String)| {
                !LEFT_OUT.contains(&name.as_str()) && value.as_str() != HIDDEN
            };
            let params = self.params.iter().filter(is_sent);
            return params
                .map(|(name, value)| (name.as_str(), value.clone()))
                .collect();
        }
        let root = self.script.strip_suffix(&self.path).unwrap_or_default();
        let mut params = vec![
            ("GATEWAY_INTERFACE", "CGI/1.1".to_owned()),
            (
                "SERVER_SOFTWARE",
                format!("forkyard-replay/{}", env!("CARGO_PKG_VERSION")),
            ),
            ("SERVER_PROTOCOL", "HTTP/1.1".to_owned()),
            ("SERVER_NAME", "localhost".to_owned()),
            ("SERVER_ADDR", "127.0.0.1".to_owned()),
            ("SERVER_PORT", "80".to_owned()),
            ("REMOTE_ADDR", "127.0.0.1".to_owned()),
            ("REMOTE_PORT", "0".to_owned()),
            ("REQUEST_SCHEME", "http".to_owned()),
            ("REDIRECT_STATUS", "200".to_owned()),
            ("REQUEST_METHOD", self.method.clone()),
            ("REQUEST_URI", self.uri()),
            ("DOCUMENT_URI", self.path.clone()),
            ("SCRIPT_NAME", self.path.clone()),
            ("QUERY_STRING", self.query.clone()),
            ("HTTP_HOST", "localhost".to_owned()),
            ("HTTP_USER_AGENT", "forkyard-replay".to_owned()),
        ];
        let files = [("SCRIPT_FILENAME", self.script.as_str()), ("DOCUMENT_ROOT", root)];
        let files = files.into_iter().filter(|(_, value)| !value.is_empty());
        params.extend(files.map(|(name, value)| (name, value.to_owned())));
        params
    }
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

fn connect(listen: &str) -> io::Result<Box<dyn Stream>> {
    if listen.starts_with('/') {
        let stream = UnixStream::connect(listen)?;
        stream.set_read_timeout(Some(SILENCE))?;
        return Ok(Box::new(stream));
    }
    let address = match listen.parse::<u16>() {
        Ok(port) => format!("127.0.0.1:{port}"),
        Err(_) => listen.to_owned(),
    };
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(SILENCE))?;
    Ok(Box::new(stream))
}

/// Returns the status of the answer.
fn send(listen: &str, recorded: &Recorded) -> io::Result<String> {
    let mut stream = connect(listen)?;
    let params = recorded.params();
    let pairs = params
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let pairs: Vec<(&[u8], &[u8])> = pairs.collect();
    let mut wire = Vec::new();
    let request = Asked {
        params: &pairs,
        ..Asked::default()
    };
    request.encode(&mut wire);
    stream.write_all(&wire)?;
    let mut reply = Reply::new();
    let mut head = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let count = match stream.read(&mut buffer) {
            Ok(0) => {
                return Err(io::Error::other(
                    "its worker closed the connection, as one that dies does",
                ));
            }
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::Error::other(format!(
                    "nothing came within {} s",
                    SILENCE.as_secs()
                )));
            }
            Err(error) => return Err(error),
        };
        let mut rest = &buffer[..count];
        loop {
            let (used, part) = reply.receive(rest);
            match part {
                Part::More => break,
                Part::Stdout(bytes) => {
                    let room = MOST_HEAD.saturating_sub(head.len());
                    head.extend_from_slice(&bytes[..bytes.len().min(room)]);
                }
                Part::End { .. } => return Ok(status(&head)),
                Part::Broken => return Err(io::Error::other("the answer is not FastCGI")),
                Part::Stderr(_) | Part::Closed(_) | Part::Other(..) => {}
            }
            rest = &rest[used..];
        }
    }
}

/// Returns the status of a CGI answer: 200 if none is named.
fn status(head: &[u8]) -> String {
    let text = String::from_utf8_lossy(head);
    let lines = text.lines().take_while(|line| !line.is_empty());
    let mut fields = lines.filter_map(|line| line.split_once(':'));
    let named = fields.find(|(name, _)| name.eq_ignore_ascii_case("status"));
    named.map_or_else(|| "200 OK".to_owned(), |(_, value)| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(method: &str) -> Recorded {
        Recorded {
            method: method.into(),
            path: "/a/x.php".into(),
            query: "b=1".into(),
            script: "/srv/www/a/x.php".into(),
            is_cut: false,
            is_redacted: false,
            params: BTreeMap::new(),
        }
    }

    #[test]
    fn what_the_worker_had_received_is_sent_without_session_and_body() {
        let mut recorded = recorded("GET");
        let all = [
            ("HTTP_COOKIE", HIDDEN),
            ("HTTP_ACCEPT", "*/*"),
            ("QUERY_STRING", "token=[hidden]"),
            ("CONTENT_LENGTH", "5"),
            ("REMOTE_USER", "me"),
        ];
        recorded.params = all
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let sent = [("HTTP_ACCEPT", "*/*"), ("QUERY_STRING", "token=[hidden]")];
        assert_eq!(
            recorded.params(),
            sent.map(|(name, value)| (name, value.to_owned()))
        );
    }

    #[test]
    fn a_request_is_sent_as_a_web_server_would() {
        let recorded = recorded("HEAD");
        let params = recorded.params();
        let param = |wanted: &str| {
            let found = params.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(param("REQUEST_URI"), Some("/a/x.php?b=1"));
        assert_eq!(param("DOCUMENT_ROOT"), Some("/srv/www"));
        assert_eq!(param("HTTP_COOKIE"), None);
    }

    #[test]
    fn only_a_whole_get_or_head_is_sent_again() {
        for method in ["GET", "HEAD"] {
            assert_eq!(recorded(method).obstacle("ab"), None);
        }
        for (method, said) in [
            ("POST", "only GET and HEAD"),
            ("", "before it had read it"),
            ("get", "is get"),
        ] {
            let why = recorded(method).obstacle("ab");
            assert!(why.as_ref().is_some_and(|why| why.contains(said)), "{why:?}");
        }
        let cut = Recorded {
            is_cut: true,
            ..recorded("GET")
        };
        assert!(cut.obstacle("ab").is_some_and(|why| why.contains("too long")));
    }

    #[test]
    fn the_status_is_read_from_the_head_alone() {
        assert_eq!(status(b"Content-Type: text/html\r\n\r\nStatus: 500"), "200 OK");
        assert_eq!(status(b"X: y\r\nstatus:404 Not Found\r\n\r\n"), "404 Not Found");
    }
}
