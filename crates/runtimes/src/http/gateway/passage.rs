//! A request's passage from its client to a process, and its answer's back. Decides only: [`Passage::next`] returns
//! the next step, the event loop does it and reports the result.

use super::super::head::Framing;
use super::super::table::ProcessEntry;
use super::download::{Download, Ending, Taken as Read};
use super::links::{Attempt, LinkState, Reuse, Served, Unreachable};
use super::upload::Upload;
use super::upstream::{Route, Taken, Upstream};
use crate::is_idempotent;
use crate::queue::Queue;
use fastcgi::Params;
use forkyard_base::tick::Tick;
use forkyard_worker::timeout_response;
use std::collections::VecDeque;
use std::time::Duration;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Limits for discarding a client's data while it reads its answer.
const LINGER_LIMIT: Duration = Duration::from_secs(5);
const LINGER_BYTES: usize = 64 * 1024 * 1024;
const HURRY_LIMIT: Duration = Duration::from_secs(1);
const BAD_REQUEST: &str = "400 Bad Request";
const BAD_GATEWAY: &str = "502 Bad Gateway";
const UNAVAILABLE: &str = "503 Service Unavailable\r\nRetry-After: 5";
const UNREACHABLE: &str = "the application can't be reached";
const UNANSWERED: &str = "the application gave no answer";
const SURPLUS: &str =
    "an answer of the application was longer than its Content-Length: the next request is sent again";
const NO_CHUNK: &str = "its body is not in chunks";

#[derive(Debug)]
pub(super) struct Passage {
    front: Front,
    phase: Phase,
    upstream: Upstream,
    upload: Upload,
    download: Download,
    last_read: End,
    /// Steps that come before all others.
    todo: VecDeque<Step>,
    due: Option<Tick>,
    limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Front {
    /// The worker has the client's connection.
    FastCgi,
    /// A connection of the web server, for one request.
    Http,
}

/// ```text
/// HTTP: Head ──► Passing ──► Answered ──► Over        FastCGI: Passing ──► Answered ──► Over
///         └─────── 400 ────────┘  └► Lingering ┘
/// ```
/// To Over from anywhere if the client leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Head,
    /// The request has no complete answer; also a tunnel.
    Passing,
    /// The client gets the rest of the answer.
    Answered,
    /// Discards up to this many bytes before closing: closing with unread client data resets the connection, and the
    /// answer is lost.
    Lingering(usize),
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Client,
    Process,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// The longest wait for a process that is starting.
    pub(super) connect: Duration,
    pub(super) client: Duration,
}

/// The ends that can be read or written without blocking.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ready {
    pub(super) from_client: bool,
    pub(super) to_client: bool,
    pub(super) from_process: bool,
    pub(super) to_process: bool,
}

#[derive(Debug)]
pub(super) enum Step {
    /// Until something is ready.
    Wait,
    /// Choose a process and connect to it.
    Connect,
    /// Check a new connection.
    Complete,
    FromClient,
    ToClient,
    FromProcess,
    ToProcess,
    /// Check whether the client is still there.
    LookAtClient,
    /// Send no more, so that the other end sees the end of the data.
    ShutClient,
    ShutProcess,
    /// Count a request of the HTTP front.
    Begin(Box<Params>),
    /// Remove the request's time limit.
    Endless,
    /// `keeps`: the connection can carry another request.
    Release {
        taken: Taken,
        served: Served,
        keeps: bool,
    },
    /// Report why the answer is forkyard's.
    Explain(String),
    /// The request has ended. `None`: without an answer.
    Finish(Option<u16>),
    Over,
}

impl Passage {
    pub(super) fn fastcgi(head: Vec<u8>, framing: Framing, method: &[u8], limits: Limits) -> Passage {
        let reuse = match framing == Framing::Nothing && is_idempotent(method) {
            true => Reuse::Any,
            false => Reuse::Quiet,
        };
        Passage {
            front: Front::FastCgi,
            phase: Phase::Passing,
            upstream: Upstream {
                reuse,
                ..Upstream::default()
            },
            upload: Upload::fastcgi(head, framing),
            download: Download::cgi(method == b"HEAD", framing == Framing::Upgrade),
            last_read: End::Process,
            todo: VecDeque::new(),
            due: None,
            limits,
        }
    }

    pub(super) fn http(limits: Limits, now: Tick) -> Passage {
        Passage {
            front: Front::Http,
            phase: Phase::Head,
            upstream: Upstream::default(),
            upload: Upload::default(),
            download: Download::http(false),
            last_read: End::Process,
            todo: VecDeque::new(),
            due: Some(now + limits.client),
            limits,
        }
    }

    /// When to call [`Passage::pass_due`].
    pub(super) fn due(&self) -> Option<Tick> {
        self.due
    }

    /// The connection to the process.
    pub(super) fn link(&self) -> Option<usize> {
        self.upstream.taken()?.link
    }

    pub(super) fn next(&mut self, ready: Ready) -> Step {
        if let Some(step) = self.todo.pop_front() {
            return step;
        }
        match (self.phase, self.front) {
            (Phase::Over, _) => Step::Over,
            (Phase::Head | Phase::Lingering(_), _) if ready.from_client => Step::FromClient,
            (Phase::Answered, _) if ready.to_client => Step::ToClient,
            (Phase::Head | Phase::Lingering(_) | Phase::Answered, _) => Step::Wait,
            (Phase::Passing, front) => match self.upstream.route {
                Route::Choosing => Step::Connect,
                Route::Pausing if front == Front::Http && ready.from_client => Step::LookAtClient,
                Route::Pausing => Step::Wait,
                Route::Taken(taken) if taken.state != LinkState::Connecting => self.carry(ready),
                Route::Taken(_) if ready.to_process || ready.from_process => Step::Complete,
                Route::Taken(_) => Step::Wait,
            },
        }
    }

    fn carry(&self, ready: Ready) -> Step {
        let has_answer = self.download.has_more();
        if ready.to_process && self.upload.has_more() {
            return Step::ToProcess;
        }
        if ready.to_client && has_answer {
            return Step::ToClient;
        }
        let from_client = ready.from_client && self.upload.wants_more();
        let from_process = ready.from_process && ready.to_client && !has_answer;
        match self.last_read {
            End::Process if from_client => Step::FromClient,
            _ if from_process => Step::FromProcess,
            _ if from_client => Step::FromClient,
            _ => Step::Wait,
        }
    }

    /// Processes that failed, and which kept connections the request may use.
    pub(super) fn wanted(&self) -> (&[ProcessEntry], Reuse) {
        (&self.upstream.tried, self.upstream.reuse)
    }

    pub(super) fn attempted(&mut self, process: Option<ProcessEntry>, attempt: Attempt, now: Tick) {
        let (link, state) = match attempt {
            Attempt::Link(id, state) => (Some(id), state),
            Attempt::Busy | Attempt::Unreachable(_) => (None, LinkState::Connecting),
        };
        self.upstream.take(Taken { process, link, state });
        let is_connecting = link.is_some() && state == LinkState::Connecting;
        self.due = is_connecting.then(|| now + CONNECT_LIMIT);
        match attempt {
            Attempt::Link(..) => {}
            Attempt::Unreachable(why) => self.unreachable(why, now),
            Attempt::Busy => {
                // Try the process again later; it has not seen the request.
                self.release(Served::Unknown, false);
                self.wait(now);
            }
        }
    }

    /// There is no process to choose. `failure`: the report id of a failed start.
    pub(super) fn not_chosen(&mut self, failure: Option<u32>, now: Tick) {
        match failure.filter(|_| self.upstream.tried.is_empty()) {
            Some(id) => {
                let why = format!("the application can't be started (error {id:08x})");
                self.refuse(UNAVAILABLE, &why, now);
            }
            None => self.wait(now),
        }
    }

    pub(super) fn completed(&mut self, result: Result<(), Unreachable>, now: Tick) {
        if let Err(why) = result {
            return self.unreachable(why, now);
        }
        self.due = None;
        if let Route::Taken(taken) = &mut self.upstream.route {
            taken.state = LinkState::New;
        }
    }

    /// Bytes for the process. Report a failure with [`Passage::process_is_deaf`].
    pub(super) fn for_process(&mut self) -> &mut Queue {
        &mut self.upload.out
    }

    /// Bytes for the client, and whether they are the last. Report the result with [`Passage::delivered`] or
    /// [`Passage::end`].
    pub(super) fn for_client(&mut self) -> (&mut Queue, bool) {
        (&mut self.download.out, self.phase == Phase::Answered)
    }

    pub(super) fn process_is_deaf(&mut self) {
        self.upload.break_off();
    }

    pub(super) fn delivered(&mut self, now: Tick) {
        if self.phase == Phase::Answered && self.download.out.is_empty() {
            match self.front {
                Front::FastCgi => self.end(),
                Front::Http => self.close(now),
            }
        }
    }

    /// `is_last`: a FastCGI body ends.
    pub(super) fn client_sent(&mut self, bytes: &[u8], is_last: bool, now: Tick) {
        self.last_read = End::Client;
        match (self.phase, self.front) {
            (Phase::Head, _) => self.head(bytes, now),
            (Phase::Passing, Front::FastCgi) => {
                if let Err(short) = self.upload.piece(bytes, is_last) {
                    self.refuse_short(&short.to_string(), now);
                }
            }
            (Phase::Passing, Front::Http) => self.body(bytes, now),
            (Phase::Lingering(left), _) if bytes.len() < left => {
                self.phase = Phase::Lingering(left - bytes.len());
            }
            (Phase::Lingering(_), _) => self.end(),
            (Phase::Answered | Phase::Over, _) => {}
        }
    }

    fn head(&mut self, bytes: &[u8], now: Tick) {
        match self.upload.head(bytes) {
            Ok(None) => {}
            Ok(Some(head)) => {
                self.download = Download::http(head.is_upgrade);
                self.todo.push_back(Step::Begin(Box::new(head.params)));
                (self.phase, self.due) = (Phase::Passing, None);
                self.body(&[], now);
            }
            Err(why) => {
                log::warn!("a request was refused: {why}");
                self.refuse(BAD_REQUEST, why, now);
            }
        }
    }

    fn body(&mut self, bytes: &[u8], now: Tick) {
        if self.upload.bytes(bytes).is_ok() {
            return;
        }
        log::warn!("a request was cut off: {NO_CHUNK}");
        match self.download.status() {
            None => self.refuse(BAD_REQUEST, NO_CHUNK, now),
            Some(_) => self.close(now),
        }
    }

    fn refuse_short(&mut self, why: &str, now: Tick) {
        if self.download.has_begun() {
            return self.cut(why);
        }
        log::warn!("a request was refused: {why}");
        self.refuse(BAD_REQUEST, why, now);
    }

    /// An HTTP client sends nothing more.
    pub(super) fn client_ended(&mut self) {
        match self.phase == Phase::Passing && self.upload.end() {
            true => self.todo.push_back(Step::ShutProcess),
            false => self.end(),
        }
    }

    pub(super) fn process_sent(&mut self, bytes: &[u8], now: Tick) {
        self.last_read = End::Process;
        match self.download.take(bytes) {
            Read::More => {}
            Read::Switched => {
                self.todo.push_back(Step::Endless);
                self.upload.switch();
            }
            Read::End { keeps } => {
                let keeps = keeps && self.upload.is_sent();
                self.release(Served::Whole, keeps);
                self.phase = Phase::Answered;
            }
            Read::Malformed(malformed) if self.download.has_begun() => self.cut(&malformed.to_string()),
            Read::Malformed(_) if self.upstream.may_leave_kept() => {
                log::warn!("{SURPLUS}");
                self.release(Served::Unknown, false);
                self.upload.rewind();
            }
            Read::Malformed(malformed) => self.fail(BAD_GATEWAY, UNANSWERED, &malformed.to_string(), now),
        }
    }

    /// The process has closed the connection.
    pub(super) fn process_ended(&mut self, now: Tick) {
        let ending = self.download.ending();
        let may_repeat = ending == Ending::Nothing && self.upstream.may_ask_again();
        let served = match ending {
            Ending::Whole => Served::Whole,
            Ending::Cut(_) | Ending::Nothing | Ending::NoHead(_) => Served::Broken,
        };
        self.release(served, false);
        match ending {
            Ending::Whole => self.phase = Phase::Answered,
            Ending::Cut(why) => self.cut(why),
            Ending::Nothing if may_repeat => self.upload.rewind(),
            Ending::Nothing => self.fail(
                BAD_GATEWAY,
                UNANSWERED,
                "it closed the connection without an answer",
                now,
            ),
            Ending::NoHead(why) => self.fail(BAD_GATEWAY, UNANSWERED, &why, now),
        }
    }

    pub(super) fn pass_due(&mut self, now: Tick) {
        self.due = None;
        match (self.phase, self.upstream.route) {
            (Phase::Passing, Route::Taken(_)) => self.unreachable(Unreachable::TooSlow, now),
            (Phase::Passing, _) => self.upstream.route = Route::Choosing,
            _ => self.end(),
        }
    }

    /// The request has exceeded its time limit. The worker answers on FastCGI.
    pub(super) fn expire(&mut self, now: Tick) {
        match self.front == Front::Http && self.download.status().is_none() {
            true => self.refuse(timeout_response::STATUS, timeout_response::BODY, now),
            false => self.end(),
        }
    }

    /// The worker exits, and a new connection without a request can't hold it up.
    pub(super) fn hurry(&mut self, now: Tick) {
        if self.phase == Phase::Head {
            self.due = Some(now + HURRY_LIMIT);
        }
    }

    fn wait(&mut self, now: Tick) {
        match self.upstream.pause(now, self.limits.connect) {
            Ok(due) => self.due = Some(due),
            Err(why) => self.fail(UNAVAILABLE, UNREACHABLE, &why.to_string(), now),
        }
    }

    /// Refuses the request if there is no other process.
    fn unreachable(&mut self, why: Unreachable, now: Tick) {
        let is_started = self.upstream.taken().is_some_and(|taken| taken.process.is_some());
        self.release(Served::Unknown, false);
        match is_started {
            true => self.upstream.why = Some(why),
            false => self.fail(BAD_GATEWAY, UNREACHABLE, &why.to_string(), now),
        }
    }

    fn fail(&mut self, status: &str, what: &str, why: &str, now: Tick) {
        log::error!("{what}: {why}");
        self.refuse(status, what, now);
    }

    fn refuse(&mut self, status: &str, why: &str, now: Tick) {
        self.release(Served::Unknown, false);
        self.phase = Phase::Answered;
        let kind = "Content-Type: text/plain; charset=utf-8";
        if self.front == Front::FastCgi {
            self.todo.push_back(Step::Explain(why.to_owned()));
            let answer = format!("Status: {status}\r\n{kind}\r\n\r\n{why}\n");
            return self.download.replace(answer.into_bytes(), None);
        }
        let number = status.get(..3).and_then(|number| number.parse().ok());
        let length = why.len() + 1;
        let answer = format!(
            "HTTP/1.1 {status}\r\nConnection: close\r\n{kind}\r\nContent-Length: {length}\r\n\r\n{why}\n"
        );
        self.download.replace(answer.into_bytes(), number);
        self.todo.push_back(Step::Finish(number));
        self.due = Some(now + self.limits.client);
    }

    fn cut(&mut self, why: &str) {
        log::error!("an answer of the application is cut short: {why}");
        self.end();
    }

    fn close(&mut self, now: Tick) {
        self.todo.push_back(Step::ShutClient);
        if self.upload.is_read() {
            return self.end();
        }
        self.release(Served::Unknown, false);
        self.todo.push_back(Step::Finish(self.download.status()));
        self.phase = Phase::Lingering(LINGER_BYTES);
        self.due = Some(now + LINGER_LIMIT);
    }

    fn release(&mut self, served: Served, keeps: bool) {
        self.due = None;
        if let Some(taken) = self.upstream.release() {
            self.todo.push_back(Step::Release { taken, served, keeps });
        }
    }

    /// Ends without more bytes for the client, because it has left or has everything.
    pub(super) fn end(&mut self) {
        self.release(Served::Unknown, false);
        self.todo.push_back(Step::Finish(self.download.status()));
        self.phase = Phase::Over;
    }
}
