//! A request for a job, from connect to end. The open connection is the lease: the job runs while it exists.

use crate::answer::{self, Bounded, Notices};
use crate::core::{Answer, JobId, Why};
use crate::store::{Claimed, Output};
use fastcgi::{Answer as Wire, Part, RecordType, Request};
use forkyard_config::{Address, Queue};
use forkyard_protocol::jobs;
use forkyard_sys::Error;
use forkyard_sys::socket::{self, Progress};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

/// Bytes per read, and reads per turn.
const READ_BYTES: usize = 16 * 1024;
const READS: usize = 16;
const HEAD_BYTES: usize = 16 * 1024;
/// The time from the abort to SIGTERM, from there to SIGKILL, and from there to giving up.
const GRACE_MS: u64 = 2_000;
const KILL_MS: u64 = 2_000;
const GIVE_UP_MS: u64 = 30_000;
const PROGRESS_MS: u64 = 1_000;

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) id: JobId,
    pub(crate) attempt: u32,
    pub(crate) pool: String,
    socket: OwnedFd,
    is_connecting: bool,
    output: Vec<u8>,
    sent: usize,
    wire: Wire,
    stdout: Vec<u8>,
    dropped: u64,
    most_stdout: usize,
    most_result: usize,
    most_payload: usize,
    log: Bounded,
    notices: Notices,
    started_ms: u64,
    ending: Ending,
    /// When progress may be stored again, milliseconds.
    progress_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Not,
    /// The worker has an order to abort, until this deadline.
    Asked(u64),
    /// The master has an order to end the worker, until this deadline.
    Ordered(u64),
    Forced(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Press {
    Nothing,
    Terminate { is_forced: bool },
    GiveUp,
}

#[derive(Debug, PartialEq)]
pub(crate) enum CallProgress {
    Waits,
    More,
    Over(Box<(Answer, Output)>),
    Broken(Output),
}

impl CallProgress {
    fn unreached() -> CallProgress {
        CallProgress::Over(Box::new((Answer::Unreached, Output::default())))
    }
}

/// Begins to connect to a pool. Returns `None` if its listen queue is full.
pub(crate) fn connect(address: &Address) -> Result<Option<OwnedFd>, Error> {
    match address {
        Address::Unix(path) => socket::connect_unix(path),
        Address::Tcp(address) => socket::connect_tcp(*address).map(Some),
        Address::TcpAny(port) => {
            socket::connect_tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, *port))).map(Some)
        }
    }
}

impl Call {
    pub(crate) fn new(
        socket: OwnedFd,
        queue: &Queue,
        job: &Claimed,
        step: usize,
        (most_result, most_payload): (usize, usize),
        now_ms: u64,
    ) -> Call {
        Call {
            id: job.start.id,
            attempt: job.start.attempt,
            pool: queue.pool.clone(),
            socket,
            is_connecting: !matches!(queue.address, Address::Unix(_)),
            output: request(queue, job, step),
            sent: 0,
            wire: Wire::new(),
            stdout: Vec::new(),
            dropped: 0,
            // One more byte shows that a payload is too long.
            most_stdout: most_result.max(most_payload) + HEAD_BYTES + 1,
            most_result,
            most_payload,
            log: Bounded::new(most_result),
            notices: Notices::default(),
            started_ms: now_ms,
            ending: Ending::Not,
            progress_ms: now_ms,
        }
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub(crate) fn duration_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.started_ms)
    }

    pub(crate) fn query(&self) -> String {
        jobs::query(self.id, self.attempt)
    }

    /// Sends as much as possible; returns whether that was all. The next poll reports errors.
    pub(crate) fn begin(&mut self) -> bool {
        if let Ok(Progress::Done(count)) = socket::send(self.socket.as_fd(), &self.output) {
            self.sent = count;
        }
        self.sent == self.output.len()
    }

    pub(crate) fn is_connecting(&self) -> bool {
        self.is_connecting
    }

    /// Whether any bytes of the request were sent: the pool may have begun it.
    fn has_begun(&self) -> bool {
        self.sent > 0
    }

    pub(crate) fn abort(&mut self, why: Why, now_ms: u64) {
        if self.ending != Ending::Not {
            return;
        }
        let grace = match why {
            Why::Cancelled => GRACE_MS,
            Why::TimedOut => GRACE_MS / 2,
        };
        self.ending = Ending::Asked(now_ms + grace);
        self.output
            .extend_from_slice(&fastcgi::header(RecordType::AbortRequest, 1, 0, 0));
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        let ending = match self.ending {
            Ending::Not => None,
            Ending::Asked(until) | Ending::Ordered(until) | Ending::Forced(until) => Some(until),
        };
        let progress = self.notices.progress.as_ref().map(|_| self.progress_ms);
        ending.into_iter().chain(progress).min()
    }

    pub(crate) fn press(&mut self, now_ms: u64) -> Press {
        match self.ending {
            Ending::Asked(until) if until <= now_ms => {
                self.ending = Ending::Ordered(now_ms + KILL_MS);
                Press::Terminate { is_forced: false }
            }
            Ending::Ordered(until) if until <= now_ms => {
                self.ending = Ending::Forced(now_ms + GIVE_UP_MS);
                Press::Terminate { is_forced: true }
            }
            Ending::Forced(until) if until <= now_ms => Press::GiveUp,
            Ending::Not | Ending::Asked(_) | Ending::Ordered(_) | Ending::Forced(_) => Press::Nothing,
        }
    }

    pub(crate) fn take_progress(&mut self, now_ms: u64) -> Option<(u32, String)> {
        if self.progress_ms > now_ms {
            return None;
        }
        let progress = self.notices.progress.take()?;
        self.progress_ms = now_ms + PROGRESS_MS;
        Some(progress)
    }

    pub(crate) fn poll(&mut self) -> CallProgress {
        if std::mem::take(&mut self.is_connecting) && socket::take_error(self.socket.as_fd()).is_err() {
            return CallProgress::unreached();
        }
        while self.sent < self.output.len() {
            match socket::send(self.socket.as_fd(), &self.output[self.sent..]) {
                Ok(Progress::Done(count)) => self.sent += count,
                Ok(Progress::WouldBlock) => break,
                Err(_) if !self.has_begun() => {
                    return CallProgress::unreached();
                }
                // An answer may come before the whole request was read.
                Err(_) => self.sent = self.output.len(),
            }
        }
        let mut buffer = [0; READ_BYTES];
        for _ in 0..READS {
            match socket::receive(self.socket.as_fd(), &mut buffer) {
                Ok(Progress::Done(count)) if count > 0 => {
                    if let Some(over) = self.take(&buffer[..count]) {
                        return over;
                    }
                }
                Ok(Progress::WouldBlock) => return CallProgress::Waits,
                Ok(Progress::Done(_)) | Err(_) => {
                    return match self.has_begun() {
                        true => CallProgress::Broken(self.remains()),
                        false => CallProgress::unreached(),
                    };
                }
            }
        }
        CallProgress::More
    }

    pub(crate) fn remains(&mut self) -> Output {
        Output {
            log: self.log.take(),
            ..Output::default()
        }
    }

    fn take(&mut self, mut input: &[u8]) -> Option<CallProgress> {
        loop {
            let (used, part) = self.wire.receive(input);
            match part {
                Part::More => return None,
                Part::Stdout(bytes) => {
                    let room = self
                        .most_stdout
                        .saturating_sub(self.stdout.len())
                        .min(bytes.len());
                    self.stdout.extend_from_slice(&bytes[..room]);
                    self.dropped += (bytes.len() - room) as u64;
                }
                Part::Stderr(bytes) => {
                    self.log.push(bytes);
                    self.notices.push(bytes);
                }
                Part::End { app_status, .. } => {
                    self.notices.end();
                    let (mut answer, mut output) = answer::read(&self.stdout, app_status);
                    let long = output.payload.take_if(|next| next.len() > self.most_payload);
                    let too_long = || format!("its next payload has more than {} bytes", self.most_payload);
                    if let Some(why) = self.notices.late.take().or(long.map(|_| too_long())) {
                        answer = Answer::Failed;
                        (output.error, output.payload) = (Some(why), None);
                    }
                    let excess = output.result.len().saturating_sub(self.most_result) as u64;
                    output.cut = excess + self.dropped;
                    output.result.truncate(self.most_result);
                    output.log = self.log.take();
                    output.error = output.error.map(|error| answer::explained(error, &output.log));
                    return Some(CallProgress::Over(Box::new((answer, output))));
                }
                Part::Closed(_) | Part::Other(..) => {}
                Part::Broken => {
                    let error = Some("the answer is not FastCGI".to_owned());
                    let output = Output {
                        error,
                        ..self.remains()
                    };
                    return Some(CallProgress::Over(Box::new((Answer::Failed, output))));
                }
            }
            input = &input[used..];
        }
    }
}

fn in_url(kind: &str) -> String {
    let mut text = String::new();
    for byte in kind.bytes() {
        match byte {
            byte if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(&byte) => {
                text.push(char::from(byte));
            }
            byte => _ = write!(text, "%{byte:02X}"),
        }
    }
    text
}

fn request(queue: &Queue, job: &Claimed, step: usize) -> Vec<u8> {
    let path = format!("{}{}/{}", jobs::PATH, job.queue, job.kind);
    let place = format!("{}{}/{}", jobs::PATH, job.queue, in_url(&job.kind));
    let query = jobs::query(job.start.id, job.start.attempt);
    let uri = format!("{place}?{query}");
    let number = |number: u32| number.to_string();
    let (id, length) = (job.start.id.to_string(), job.payload.len().to_string());
    let (attempt, failures) = (number(job.start.attempt), number(job.start.counters.failures));
    let crashes = number(job.start.counters.crashes);
    let script = queue.script.as_ref().map(|script| script.display().to_string());
    let mut params: Vec<(&str, &str)> = vec![
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_SOFTWARE", "forkyard-jobs"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_NAME", "localhost"),
        ("SERVER_PORT", "80"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REQUEST_METHOD", "POST"),
        ("REQUEST_URI", &uri),
        ("SCRIPT_NAME", &path),
        ("DOCUMENT_URI", &path),
        ("QUERY_STRING", &query),
        ("CONTENT_TYPE", &job.content_type),
        ("CONTENT_LENGTH", &length),
        ("HTTP_HOST", "localhost"),
        ("FORKYARD_JOB_ID", &id),
        ("FORKYARD_JOB_QUEUE", &job.queue),
        ("FORKYARD_JOB_KIND", &job.kind),
        ("FORKYARD_JOB_TENANT", &job.tenant),
        ("FORKYARD_JOB_ATTEMPT", &attempt),
        ("FORKYARD_JOB_FAILURES", &failures),
        ("FORKYARD_JOB_CRASHES", &crashes),
    ];
    if let Some(script) = &script {
        params.push(("SCRIPT_FILENAME", script));
        if let Some((root, _)) = script.rsplit_once('/') {
            params.push(("DOCUMENT_ROOT", root));
        }
    }
    if let Some(step) = job.steps.get(step) {
        params.push(("FORKYARD_JOB_STEP", step));
    }
    if let Some(key) = &job.key {
        params.push(("FORKYARD_JOB_KEY", key));
    }
    if let Some(trace) = &job.traceparent {
        params.push(("HTTP_TRACEPARENT", trace));
    }
    let params: Vec<(&[u8], &[u8])> = (params.iter())
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
        .collect();
    let mut wire = Vec::new();
    let request = Request {
        params: &params,
        body: &job.payload,
        ..Request::default()
    };
    request.encode(&mut wire);
    wire
}
