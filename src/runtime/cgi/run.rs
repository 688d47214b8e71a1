//! Starts a program for a request and passes bytes both ways.

use super::head::Head;
use super::meta;
use super::target::{self, Target};
use crate::config;
use crate::runtime::refuse;
use crate::scoreboard::Stage;
use crate::sys::foreign::{self, Foreign};
use crate::sys::process::{self, Ended, Usage};
use crate::sys::{Error, fd};
use crate::worker::{ClientGone, Peer, Request, Runtime, Sink, Stop, relay};
use std::ffi::CString;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Duration;

/// Bytes of a line of standard error that are logged.
const LOGGED_BYTES: usize = 1024;

/// Bytes of standard error that are kept until the header has been written.
const MOST_HELD_BYTES: usize = 64 * 1024;
/// How long the end of an answer waits for that of its program if the access log has processor time or memory in it: a program
/// ends right after its output, as a rule.
const USAGE_PATIENCE: Duration = Duration::from_millis(20);
/// How long to wait for a program that is being written to (ETXTBSY), each time.
const BUSY_PAUSES_MS: [u64; 6] = [1, 2, 4, 8, 16, 32];

/// Answers each request by a process of its own.
#[derive(Debug)]
pub struct Cgi {
    settings: config::Cgi,
}

impl Cgi {
    /// A runtime with these settings.
    pub fn new(settings: config::Cgi) -> Cgi {
        Cgi { settings }
    }

    fn serve(&self, request: &mut Request<'_>) -> Result<(), ClientGone> {
        let (script, root) = (self.settings.script.as_deref(), self.settings.root.as_deref());
        let target = match target::find(script, root, request.params()) {
            Ok(target) => target,
            Err(none) => {
                log::warn!("[pool {}] {none}", request.pool());
                let status = none.status();
                return refuse(request, status, &none.to_string(), &status[4..]);
            }
        };
        let program = match self.begin(request, &target) {
            Ok(program) => program,
            Err(error) => {
                let script = target.script.display();
                log::error!(
                    "[pool {}] {script} can't be started: {error}{}",
                    request.pool(),
                    hint(&error)
                );
                return internal_error(request, "the program could not be started");
            }
        };
        program.answer(request, &target)
    }

    /// Starts the program.
    fn begin(&self, request: &Request<'_>, target: &Target) -> Result<Running, Error> {
        let own = std::env::vars_os().map(|(name, value)| (name.into_vec(), value.into_vec()));
        let (input_theirs, input) = fd::pipe(false)?;
        let (output, output_theirs) = fd::pipe(false)?;
        let (errors, errors_theirs) = fd::pipe(false)?;
        for ours in [&input, &output, &errors] {
            fd::set_nonblocking(ours.as_fd(), true)?;
        }
        let directory = target.script.parent().unwrap_or(Path::new("/"));
        let c_string = |path: &Path| CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        let program = Foreign {
            path: c_string(&target.script),
            arguments: meta::arguments(self.settings.search_arguments, request.params(), target),
            environment: meta::environment(own, request.params(), target),
            directory: c_string(directory),
            streams: [input_theirs, output_theirs, errors_theirs],
        };
        let pid = start(&program)?;
        let peer = Peer {
            head: Vec::new(),
            chunked: false,
            input: Some(input),
            output,
            errors: Some(errors),
        };
        Ok(Running { pid, peer })
    }
}

/// Starts a program; one that is being written to right now is given a moment until that is done.
fn start(program: &Foreign) -> Result<i32, Error> {
    let mut pauses = BUSY_PAUSES_MS.iter();
    loop {
        match foreign::start(program) {
            Err(error) if error.errno == nix::errno::Errno::ETXTBSY => match pauses.next() {
                Some(pause) => std::thread::sleep(Duration::from_millis(*pause)),
                None => return Err(error),
            },
            outcome => return outcome,
        }
    }
}

impl Runtime for Cgi {
    fn answer(&mut self, request: &mut Request<'_>) {
        if request.is_for_application() {
            // Whoever is gone needs no answer.
            let _ = self.serve(request);
        }
    }
}

/// A program that has been started.
struct Running {
    pid: i32,
    peer: Peer,
}

impl Running {
    fn answer(self, request: &mut Request<'_>, target: &Target) -> Result<(), ClientGone> {
        let Running { pid, peer } = self;
        let name = target.script.file_name().unwrap_or_default();
        let mut answer = Answer {
            head: Some(Head::new(name.as_bytes().starts_with(b"nph-"))),
            wrong: None,
            script: &target.script,
            errors: Vec::new(),
            held: Vec::new(),
        };
        let relayed = relay(request, peer, &mut answer);
        answer.log_errors(request, true);
        let outcome = match relayed {
            Ok(()) => answer.end(request),
            Err(stop) => {
                foreign::kill_group(pid);
                answer.give_up(request, stop)
            }
        };
        answer.let_go_of_errors(request);
        let mut reaped = None;
        // The answer is on its way; what the program still does concerns the worker only.
        if outcome.is_ok() {
            if request.logs_usage() {
                reaped = process::reap_within(pid, USAGE_PATIENCE);
                account(request, reaped.as_ref());
            }
            // Whoever has the whole answer finds its line in the access log.
            request.set_stage(Stage::End);
            let _ = request.finish();
        }
        let reaped = reaped.map_or_else(|| process::reap_used(pid), Ok);
        account(request, reaped.as_ref().ok());
        match reaped.map(|(ended, _)| ended) {
            Ok(Ended::Code(0)) => {}
            Ok(ended) if relayed.is_ok() => {
                log::warn!(
                    "[pool {}] {} {}",
                    request.pool(),
                    target.script.display(),
                    told(ended)
                );
            }
            Ok(_) => {}
            Err(error) => log::error!("[pool {}] {error}", request.pool()),
        }
        outcome
    }
}

/// The request has used what its program has.
fn account(request: &mut Request<'_>, reaped: Option<&(Ended, Usage)>) {
    if let Some((_, usage)) = reaped {
        request.set_memory(usage.peak_memory_bytes);
        request.set_program_cpu(usage.cpu_micros);
    }
}

/// What a program writes, on its way to the client.
struct Answer<'t> {
    /// The header, until it is whole.
    head: Option<Head>,
    /// What is wrong with it.
    wrong: Option<String>,
    script: &'t Path,
    /// A line of standard error whose end has yet to come.
    errors: Vec<u8>,
    /// Standard error that waits for the header: nginx has little room for it before, and would answer 502.
    held: Vec<u8>,
}

impl Sink for Answer<'_> {
    fn output(&mut self, request: &mut Request<'_>, bytes: &[u8]) -> Result<(), Stop> {
        let Some(head) = &mut self.head else {
            return Ok(request.write(bytes)?);
        };
        match head.take(bytes) {
            Ok(None) => Ok(()),
            Ok(Some((header, rest))) => {
                request.write(&header)?;
                self.head = None;
                self.let_go_of_errors(request);
                request.write(rest)?;
                Ok(())
            }
            Err(malformed) => {
                self.wrong = Some(malformed.to_string());
                Err(Stop::Enough)
            }
        }
    }

    fn errors(&mut self, request: &mut Request<'_>, bytes: &[u8]) {
        let room = MOST_HELD_BYTES.saturating_sub(self.held.len());
        self.held.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if self.head.is_none() {
            self.let_go_of_errors(request);
        }
        self.errors.extend_from_slice(bytes);
        self.log_errors(request, false);
    }
}

impl Answer<'_> {
    fn let_go_of_errors(&mut self, request: &mut Request<'_>) {
        if !self.held.is_empty() {
            // A client that is gone is noticed by whoever writes output.
            let _ = request.write_error(&self.held);
            self.held.clear();
        }
    }

    /// Logs the whole lines, and at the end what is left.
    fn log_errors(&mut self, request: &Request<'_>, all: bool) {
        if !request.catches_output() {
            self.errors.clear();
            return;
        }
        while let Some(end) = self.errors.iter().position(|byte| *byte == b'\n') {
            self.log_error(request, end);
            self.errors.drain(..=end);
        }
        if (all && !self.errors.is_empty()) || self.errors.len() > LOGGED_BYTES {
            self.log_error(request, self.errors.len());
            self.errors.clear();
        }
    }

    fn log_error(&self, request: &Request<'_>, end: usize) {
        let line = String::from_utf8_lossy(&self.errors[..end.min(LOGGED_BYTES)]);
        log::warn!(
            "[pool {}] {} said into stderr: \"{}\"",
            request.pool(),
            self.script.display(),
            line.escape_debug()
        );
    }

    /// The output has ended.
    fn end(&mut self, request: &mut Request<'_>) -> Result<(), ClientGone> {
        match self.head.take() {
            None => Ok(()),
            Some(head) => self.malformed(request, &head.ended().to_string()),
        }
    }

    fn give_up(&mut self, request: &mut Request<'_>, stop: Stop) -> Result<(), ClientGone> {
        match stop {
            Stop::Enough => {
                let wrong = self.wrong.take().unwrap_or_default();
                self.malformed(request, &wrong)
            }
            Stop::Failed(errno) => {
                log::error!("[pool {}] poll: {errno}", request.pool());
                if self.head.is_some() {
                    return internal_error(request, "the program could not be waited for");
                }
                Ok(())
            }
            Stop::ClientGone | Stop::ClientSilent => {
                let (pool, script) = (request.pool(), self.script.display());
                let why = if stop == Stop::ClientGone {
                    "left"
                } else {
                    "fell silent"
                };
                log::info!("[pool {pool}] {script} was killed: the client {why}");
                Err(ClientGone)
            }
        }
    }

    fn malformed(&self, request: &mut Request<'_>, why: &str) -> Result<(), ClientGone> {
        log::error!(
            "[pool {}] malformed answer of {}: {why}",
            request.pool(),
            self.script.display()
        );
        internal_error(request, "the program's answer is malformed")
    }
}

/// The log says more than the client is told.
fn internal_error(request: &mut Request<'_>, why: &str) -> Result<(), ClientGone> {
    refuse(request, "500 Internal Server Error", why, why)
}

fn hint(error: &Error) -> &'static str {
    match error.errno {
        nix::errno::Errno::ENOEXEC => ": it is no program; let a script begin with #! and its interpreter",
        nix::errno::Errno::ENOENT => ": its interpreter, the one behind #!, does not exist",
        nix::errno::Errno::EACCES => ": the pool's user may not execute it or its interpreter",
        _ => "",
    }
}

fn told(ended: Ended) -> String {
    match ended {
        Ended::Code(code) => format!("exited with code {code}"),
        Ended::Signal(signal, _) => format!("was ended by signal {signal}"),
    }
}
