//! The access log of a worker: gathers what a request's line needs, and writes it with one system call.
//!
//! The file is opened by the master. [`crate::logs::Handout`] describes where workers find it, and how they notice that
//! it was opened anew.

#[cfg(any(test, fuzzing))]
pub(super) mod fuzz;
mod head;
mod line;
mod text;

use crate::config::AccessLog;
use crate::config::access::Token;
use crate::logs::Handout;
use crate::scoreboard::header;
use crate::scoreboard::slot_writer::Description;
use crate::sys::clock::{self, CpuTimes};
use crate::tick::Tick;
use fastcgi::Params;
use head::AnswerHead;
use line::RequestFacts;
use nix::errno::Errno;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;

/// Writes the lines of one worker.
#[derive(Debug)]
pub struct Recorder {
    settings: AccessLog,
    pool: String,
    /// Bytes of a line, with its newline.
    limit: usize,
    file: Option<OwnedFd>,
    shelf: OwnedFd,
    /// How often the file had been opened anew when it was taken.
    taken: u64,
    needs: Needs,
    request: LoggedRequest,
    line: Vec<u8>,
    /// The last line could not be written, which has been said.
    is_failing: bool,
    /// A line was cut, which has been said.
    has_cut: bool,
}

/// What costs something to find out.
#[derive(Debug, Clone, Copy)]
struct Needs {
    cpu: bool,
    memory: bool,
    peer: bool,
}

/// What is known of the request that is being served.
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
    /// The values of the parameters that the format names, in its order.
    params: Vec<Option<Vec<u8>>>,
    peer: Option<IpAddr>,
    head: AnswerHead,
    later_status: Option<u16>,
    memory: u64,
    program_micros: u64,
}

impl Recorder {
    /// Takes the log from where the master has put it.
    pub fn new(
        settings: AccessLog,
        pool: String,
        limit: usize,
        shelf: OwnedFd,
        board: &[AtomicU64],
    ) -> Recorder {
        let wants = |test: fn(&Token) -> bool| settings.format.tokens.iter().any(test);
        let needs = Needs {
            cpu: wants(|token| matches!(token, Token::Cpu(_) | Token::CpuTime)),
            memory: wants(|token| matches!(token, Token::Memory(_))),
            peer: wants(|token| matches!(token, Token::Peer)),
        };
        let taken = header::logs_opened(board);
        Recorder {
            settings,
            pool,
            limit,
            file: Handout::current(&shelf),
            shelf,
            taken,
            needs,
            request: LoggedRequest::default(),
            line: Vec::new(),
            is_failing: false,
            has_cut: false,
        }
    }

    /// A request was taken up.
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

    /// Whether lines hold the client's address.
    pub fn wants_peer(&self) -> bool {
        self.needs.peer
    }

    /// Whether lines hold processor time or memory.
    pub fn wants_usage(&self) -> bool {
        self.needs.cpu || self.needs.memory
    }

    /// The request is known. `peer`: the FastCGI client, if it is wanted and has an address.
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
            // More could not be in the line.
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

    /// Output of the application; the log needs its headers.
    pub fn output(&mut self, bytes: &[u8]) {
        self.request.head.take(bytes);
    }

    /// The application's last word on the status, which came after the headers.
    pub fn status(&mut self, status: u16) {
        self.request.later_status = Some(status);
    }

    /// Peak memory in bytes.
    pub fn memory(&mut self, bytes: u64) {
        self.request.memory = bytes;
    }

    /// CPU time that a program used on behalf of the request, microseconds.
    pub fn program_cpu(&mut self, micros: u64) {
        self.request.program_micros += micros;
    }

    /// The application is done; what follows is not counted.
    pub fn end(&mut self) {
        self.request.ended.get_or_insert_with(clock::now);
    }

    /// Writes the line if the application is done and there is none yet.
    pub fn finish(&mut self, board: &[AtomicU64]) {
        let request = &mut self.request;
        let Some(ended) = request.ended.filter(|_| !request.is_written) else {
            return;
        };
        request.is_written = true;
        let status = request.later_status.unwrap_or_else(|| request.head.status());
        if is_suppressed(request, &self.settings.suppress_paths, status) {
            return;
        }
        let mut cpu = if self.needs.cpu {
            clock::cpu_times().since(request.begun_cpu)
        } else {
            CpuTimes::default()
        };
        // Of a program only the sum is known.
        cpu.user_micros += request.program_micros;
        let facts = RequestFacts {
            pool: &self.pool,
            method: &request.method,
            uri: &request.uri,
            query: &request.query,
            script: &request.script,
            user: &request.user,
            params: &request.params,
            content_length: request.content_length,
            peer: request.peer,
            status,
            head: &request.head,
            memory: request.memory,
            micros: ended.since(request.begun).as_micros() as u64,
            cpu,
            begun_epoch_micros: request.begun_epoch_micros,
            logged_epoch: clock::epoch_seconds(),
        };
        self.line.clear();
        let is_whole = line::render(&self.settings.format, &facts, self.limit, &mut self.line);
        if self.line.is_empty() {
            return;
        }
        self.line.push(b'\n');
        if !is_whole && !self.has_cut {
            self.has_cut = true;
            log::info!(
                "the log buffer is full ({}). The access log request has been truncated.",
                self.limit
            );
        }
        self.write(board);
    }

    fn write(&mut self, board: &[AtomicU64]) {
        let opened = header::logs_opened(board);
        if opened != self.taken {
            if let Some(file) = Handout::current(&self.shelf) {
                self.file = Some(file);
                self.taken = opened;
            }
        }
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

/// Whether a request is one of those that the operator does not want to see.
fn is_suppressed(request: &LoggedRequest, paths: &[String], status: u16) -> bool {
    !paths.is_empty()
        && request.query.is_empty()
        && matches!(request.method.as_slice(), b"GET" | b"HEAD")
        && (200..300).contains(&status)
        && request.content_length == 0
        && paths.iter().any(|path| path.as_bytes() == request.uri)
}
