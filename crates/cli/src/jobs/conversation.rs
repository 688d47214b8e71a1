//! A conversation with the jobs process, over its unix socket or over TCP with a secret.

use super::{Outcome, Place, failed, failure};
use crate::EXIT_CONFIG;
use forkyard_config::{self as config, Errors, Loaded, Secret};
use forkyard_host::secret;
use forkyard_protocol::jobs::{JobsAnswer, JobsRequest, SecretRequest};
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// sysexits.h, EX_UNAVAILABLE: there is no process to ask.
const EXIT_UNAVAILABLE: u8 = 69;
/// The default time limit of a push, and the number of tries.
const PUSH_TIMEOUT: Duration = Duration::from_secs(2);
const PUSH_TRIES: usize = 3;
/// The time limit of an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
const SOCKET: &str = "/run/forkyard-jobs.sock";

#[derive(Debug, Clone)]
pub(super) enum JobsAddress {
    Unix(PathBuf),
    /// With the secret.
    Tcp(SocketAddr, Secret),
}

impl fmt::Display for JobsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobsAddress::Unix(path) => path.display().fmt(f),
            JobsAddress::Tcp(address, _) => address.fmt(f),
        }
    }
}

pub(super) struct Conversation {
    address: JobsAddress,
    pub(super) push_timeout: Duration,
    /// Answers are printed as JSON.
    pub(super) json: bool,
    stream: BufReader<Box<dyn Stream>>,
}

trait Stream: Read + Write {
    fn limit(&self, limit: Option<Duration>) -> io::Result<()>;
}

impl Stream for UnixStream {
    fn limit(&self, limit: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(limit)?;
        self.set_write_timeout(limit)
    }
}

impl Stream for TcpStream {
    fn limit(&self, limit: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(limit)?;
        self.set_write_timeout(limit)
    }
}

type Configuration = Result<Loaded, Errors>;

/// Returns the configured socket, or the default if the configuration can't be read. It may be invalid: the daemon keeps
/// running with the previous one.
fn socket_of(path: &Path, configuration: &Configuration) -> Outcome<PathBuf> {
    match configuration {
        Ok(loaded) => match &loaded.config.jobs {
            Some(jobs) => Ok(jobs.listen.clone()),
            None => Err(failed(EXIT_CONFIG, &format!("{} has no [jobs]", path.display()))),
        },
        Err(errors) if File::open(path).is_ok() => {
            let socket = config::jobs_socket(path);
            let socket = socket.ok_or_else(|| failed(EXIT_CONFIG, &errors.to_string()))?;
            let file = path.display();
            let shown = socket.display();
            eprintln!(
                "forkyard: {file} is not valid (see forkyard check -c {file}); asking the jobs process at {shown}"
            );
            Ok(socket)
        }
        Err(_) => Ok(PathBuf::from(SOCKET)),
    }
}

impl Conversation {
    /// Connects as the command line demands.
    pub(super) fn begin(file: &Path, at: &Place, json: bool) -> Outcome<Conversation> {
        let configuration = config::load(file);
        let jobs = configuration
            .as_ref()
            .ok()
            .and_then(|loaded| loaded.config.jobs.as_ref());
        let address = match (&at.connect, &at.socket) {
            (Some(address), _) => {
                let configured = jobs
                    .and_then(|jobs| jobs.tcp.as_ref())
                    .map(|tcp| &tcp.secret_file);
                let missing = "name the file with the secret: --secret-file FILE";
                let secret = at.secret_file.as_ref().or(configured);
                let secret = secret.ok_or_else(|| failed(EXIT_CONFIG, missing))?;
                let secret = secret::read(secret).map_err(|error| failed(EXIT_CONFIG, &error.to_string()))?;
                JobsAddress::Tcp(*address, secret)
            }
            (None, Some(path)) => JobsAddress::Unix(path.clone()),
            (None, None) => JobsAddress::Unix(socket_of(file, &configuration)?),
        };
        let push_timeout = jobs.map_or(PUSH_TIMEOUT, |jobs| jobs.push_timeout);
        Conversation::begin_at(address, push_timeout, json)
    }

    fn begin_at(address: JobsAddress, push_timeout: Duration, json: bool) -> Outcome<Conversation> {
        let connect = || -> io::Result<Box<dyn Stream>> {
            Ok(match &address {
                JobsAddress::Unix(path) => Box::new(UnixStream::connect(path)?),
                JobsAddress::Tcp(address, _) => Box::new(TcpStream::connect_timeout(address, push_timeout)?),
            })
        };
        let stream = connect().map_err(|error| {
            let key = match &address {
                JobsAddress::Unix(_) => "listen",
                JobsAddress::Tcp(..) => "listen_tcp",
            };
            let advice =
                format!("does the daemon run, and does its configuration have [jobs] with this as {key}?");
            failed(EXIT_UNAVAILABLE, &format!("{address}: {error}; {advice}"))
        })?;
        let mut conversation = Conversation {
            address,
            push_timeout,
            json,
            stream: BufReader::new(stream),
        };
        if let JobsAddress::Tcp(_, secret) = &conversation.address {
            let secret = secret.reveal().to_owned();
            let command = "secret".to_owned();
            conversation.ask_for(&SecretRequest { command, secret }, Some(push_timeout))?;
        }
        Ok(conversation)
    }

    /// Connects again, perhaps to a new process.
    pub(super) fn begin_again(&mut self) {
        if let Ok(next) = Conversation::begin_at(self.address.clone(), self.push_timeout, self.json) {
            *self = next;
        }
    }

    /// Connects to a socket. Returns `None` if no process listens.
    pub(super) fn begin_with(socket: &Path) -> Option<Conversation> {
        let address = JobsAddress::Unix(socket.to_owned());
        Conversation::begin_at(address, PUSH_TIMEOUT, false).ok()
    }

    /// Sends a request that may be repeated, with a time limit. After that its outcome is unknown.
    pub(super) fn ask_within(&mut self, request: &JobsRequest, limit: Duration) -> Outcome<JobsAnswer> {
        let until = Instant::now() + limit;
        for _ in 0..PUSH_TRIES {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let answer = self.try_ask(request, Some(left));
            if answer.is_ok() {
                return answer;
            }
            // The process may have been replaced.
            self.begin_again();
        }
        Ok(JobsAnswer::Error {
            message: format!(
                "{}: no answer in time, so it is not known whether the job is stored; pushed again with the same ref it is stored once",
                self.address
            ),
            is_temporary: true,
            is_unknown: true,
        })
    }

    pub(super) fn ask(&mut self, request: &impl serde::Serialize) -> Outcome<JobsAnswer> {
        self.ask_for(request, Some(PATIENCE))
    }

    /// Sends a request and waits for the answer, or without a limit if it is `None`.
    pub(super) fn ask_for(
        &mut self,
        request: &impl serde::Serialize,
        limit: Option<Duration>,
    ) -> Outcome<JobsAnswer> {
        match self.try_ask(request, limit)? {
            JobsAnswer::Error { message, .. } => Err(failure(&message)),
            answer => Ok(answer),
        }
    }

    /// Sends a request. Returns an error if no answer comes.
    pub(super) fn try_ask(
        &mut self,
        request: &impl serde::Serialize,
        limit: Option<Duration>,
    ) -> Outcome<JobsAnswer> {
        // Fails only for a time of 0.
        let _ = self.stream.get_ref().limit(limit);
        let mut line = serde_json::to_vec(request).unwrap_or_default();
        line.push(b'\n');
        let mut answer = Vec::new();
        let sent = self.stream.get_mut().write_all(&line);
        let read = sent.and_then(|()| self.stream.read_until(b'\n', &mut answer));
        read.and_then(|_| Ok(serde_json::from_slice(&answer)?))
            .map_err(|error| {
                let why = match (error.kind(), limit) {
                    (io::ErrorKind::WouldBlock, Some(limit)) => format!("none came within {limit:?}"),
                    _ => error.to_string(),
                };
                failure(format!("{}: no answer: {why}", self.address))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_protocol::jobs::Nothing;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_process_that_does_not_answer_is_not_waited_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("jobs.sock");
        let _listener = UnixListener::bind(&path).expect("a socket");
        let mut conversation = Conversation::begin_with(&path).expect("a conversation");
        let asked = conversation.ask_for(&JobsRequest::Queues(Nothing {}), Some(Duration::from_millis(20)));
        let error = asked.err().map(|failed| failed.errors).unwrap_or_default();
        assert!(
            error.contains("jobs.sock: no answer: none came within 20ms"),
            "{error}"
        );
    }
}
