//! The access log of a worker; each line is one write(2).
//!
//! The master opens the file. [`forkyard_host::logs::Handout`] describes how workers get it and notice that it was reopened.

#[cfg(any(test, fuzzing))]
#[path = "../../fuzz/access.rs"]
pub(super) mod fuzz;
pub(super) mod head;
mod line;
mod text;

use super::request::description;
use fastcgi::Params;
use forkyard_base::tick::Tick;
use forkyard_config::AccessLog;
use forkyard_config::access::Token;
use forkyard_host::logs::Handout;
use forkyard_scoreboard::header;
use forkyard_scoreboard::slot_writer::Description;
use forkyard_sys::clock::{self, CpuTimes};
use head::AnswerHead;
use line::RequestFacts;
use nix::errno::Errno;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Writes the lines of one worker.
#[derive(Debug)]
pub struct Recorder {
    settings: AccessLog,
    pool: String,
    limit: usize,
    file: Option<OwnedFd>,
    /// `None`: the file stays.
    shelf: Option<OwnedFd>,
    /// The master's count of reopenings when `file` was taken.
    taken: u64,
    needs: Needs,
    request: LoggedRequest,
    line: Vec<u8>,
    is_failing: bool,
    has_cut: bool,
}

#[derive(Debug, Clone, Copy)]
struct Needs {
    cpu: bool,
    memory: bool,
    peer: bool,
}

#[derive(Debug, Default)]
struct LoggedRequest {
    begun_epoch_micros: u64,
    begun: Tick,
    begun_cpu: CpuTimes,
    ended: Option<Tick>,
    is_written: bool,
    method: Vec<u8>,
    uri: Vec<u8>,
    query: Vec<u8>,
    script: Vec<u8>,
    user: Vec<u8>,
    content_length: u64,
    params: Vec<Option<Vec<u8>>>,
    peer: Option<IpAddr>,
    head: AnswerHead,
    later_status: Option<u16>,
    memory: u64,
    program_micros: u64,
}

impl Recorder {
    /// Takes the log from the master's handout.
    pub fn new(
        settings: AccessLog,
        pool: String,
        limit: usize,
        shelf: OwnedFd,
        board: &[AtomicU64],
    ) -> Recorder {
        let (file, taken) = (Handout::current(&shelf), header::logs_opened(board));
        Recorder::with_file(settings, pool, limit, file, Some(shelf), taken)
    }

    /// Makes a recorder of requests that no worker answers, with a file of its own.
    pub fn of_refused(settings: AccessLog, limit: usize, file: OwnedFd) -> Recorder {
        Recorder::with_file(settings, String::new(), limit, Some(file), None, 0)
    }

    fn with_file(
        settings: AccessLog,
        pool: String,
        limit: usize,
        file: Option<OwnedFd>,
        shelf: Option<OwnedFd>,
        taken: u64,
    ) -> Recorder {
        let wants = |test: fn(&Token) -> bool| settings.format.tokens.iter().any(test);
        let needs = Needs {
            cpu: wants(|token| matches!(token, Token::Cpu(_) | Token::CpuTime)),
            memory: wants(|token| matches!(token, Token::Memory(_))),
            peer: wants(|token| matches!(token, Token::Peer)),
        };
        Recorder {
            settings,
            pool,
            limit,
            file,
            shelf,
            taken,
            needs,
            request: LoggedRequest::default(),
            line: Vec::new(),
            is_failing: false,
            has_cut: false,
        }
    }

    /// Starts a request.
    pub fn begin(&mut self, now: Tick) {
        let request = &mut self.request;
        for text in [
            &mut request.method,
            &mut request.uri,
            &mut request.query,
            &mut request.script,
            &mut request.user,
        ] {
            text.clear();
        }
        request.params.clear();
        request.head.clear();
        request.later_status = None;
        request.begun = now;
        request.begun_epoch_micros = clock::epoch_micros();
        request.ended = None;
        request.is_written = false;
        request.content_length = 0;
        request.memory = 0;
        request.program_micros = 0;
        request.peer = None;
        if self.needs.cpu {
            request.begun_cpu = clock::cpu_times();
        }
    }

    /// Whether lines contain the client's address.
    pub fn wants_peer(&self) -> bool {
        self.needs.peer
    }

    /// Whether lines contain CPU time or memory.
    pub fn wants_usage(&self) -> bool {
        self.needs.cpu || self.needs.memory
    }

    /// Describes the request. `peer`: the FastCGI client's address, if wanted and known.
    pub fn describe(&mut self, about: &Description<'_>, params: &Params, peer: Option<IpAddr>) {
        let request = &mut self.request;
        for (text, value) in [
            (&mut request.method, about.method),
            (&mut request.uri, about.uri),
            (&mut request.query, about.query),
            (&mut request.script, about.script),
            (&mut request.user, about.user),
        ] {
            text.clear();
            text.extend_from_slice(&value[..value.len().min(self.limit)]);
        }
        request.content_length = about.content_length;
        request.params.clear();
        for token in &self.settings.format.tokens {
            if let Token::Param(name) = token {
                let value = params.get(name.as_bytes());
                let value = value.map(|value| value[..value.len().min(self.limit)].to_vec());
                request.params.push(value);
            }
        }
        request.peer = peer;
    }

    /// Reads headers from the application's output.
    pub fn output(&mut self, bytes: &[u8]) {
        self.request.head.take(bytes);
    }

    /// Sets a status that the application reported after the headers.
    pub fn status(&mut self, status: u16) {
        self.request.later_status = Some(status);
    }

    /// Sets the peak memory in bytes.
    pub fn memory(&mut self, bytes: u64) {
        self.request.memory = bytes;
    }

    /// Adds a program's CPU time in microseconds.
    pub fn program_cpu(&mut self, micros: u64) {
        self.request.program_micros += micros;
    }

    /// Records the end of the request; only the first counts.
    pub fn end(&mut self, now: Tick) {
        self.request.ended.get_or_insert(now);
    }

    /// Writes the line of a request that no worker answers.
    pub fn refused(
        &mut self,
        pool: &str,
        params: &Params,
        waited: Duration,
        status: u16,
        peer: Option<IpAddr>,
    ) {
        self.pool.clear();
        self.pool.push_str(pool);
        let now = clock::now();
        self.begin(now);
        let request = &mut self.request;
        let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        request.begun_epoch_micros = request.begun_epoch_micros.saturating_sub(micros);
        self.describe(&description(params), params, peer);
        self.status(status);
        self.end(now + waited);
        if self.render() {
            self.append();
        }
    }

    /// Writes the line unless it was written already.
    pub fn finish(&mut self, board: &[AtomicU64]) {
        if self.render() {
            self.turn_to_current(board);
            self.append();
        }
    }

    /// Renders the line, once. Returns whether there is one.
    fn render(&mut self) -> bool {
        let request = &mut self.request;
        let Some(ended) = request.ended.filter(|_| !request.is_written) else {
            return false;
        };
        request.is_written = true;
        let status = request.later_status.unwrap_or_else(|| request.head.status());
        if is_suppressed(request, &self.settings.suppress_paths, status) {
            return false;
        }
        let mut cpu = if self.needs.cpu {
            clock::cpu_times().since(request.begun_cpu)
        } else {
            CpuTimes::default()
        };
        cpu.user_micros += request.program_micros;
        let facts = RequestFacts {
            pool: &self.pool,
            request,
            status,
            micros: ended.since(request.begun).as_micros() as u64,
            cpu,
            logged_epoch: clock::epoch_seconds(),
        };
        self.line.clear();
        let is_whole = line::render(&self.settings.format, &facts, self.limit, &mut self.line);
        if self.line.is_empty() {
            return false;
        }
        self.line.push(b'\n');
        if !is_whole && !self.has_cut {
            self.has_cut = true;
            log::info!(
                "the log buffer is full ({}). The access log request has been truncated.",
                self.limit
            );
        }
        true
    }

    /// Takes the file that the master has opened since.
    fn turn_to_current(&mut self, board: &[AtomicU64]) {
        let opened = header::logs_opened(board);
        if opened != self.taken {
            if let Some(file) = self.shelf.as_ref().and_then(Handout::current) {
                self.file = Some(file);
                self.taken = opened;
            }
        }
    }

    fn append(&mut self) {
        let Some(file) = &self.file else { return };
        let result = loop {
            match nix::unistd::write(file, &self.line) {
                Err(Errno::EINTR) => {}
                Ok(count) if count < self.line.len() => break Err(Errno::ENOSPC),
                result => break result.map(drop),
            }
        };
        match result {
            Ok(()) => self.is_failing = false,
            Err(errno) if !self.is_failing => {
                self.is_failing = true;
                log::error!(
                    "the access log {} can't be written: {}; requests are served, their lines are lost",
                    self.settings.path.display(),
                    errno.desc()
                );
            }
            Err(_) => {}
        }
    }
}

fn is_suppressed(request: &LoggedRequest, paths: &[String], status: u16) -> bool {
    !paths.is_empty()
        && request.query.is_empty()
        && matches!(request.method.as_slice(), b"GET" | b"HEAD")
        && (200..300).contains(&status)
        && request.content_length == 0
        && paths.iter().any(|path| path.as_bytes() == request.uri)
}
