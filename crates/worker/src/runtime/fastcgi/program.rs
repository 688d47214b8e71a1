//! The process.

use super::program_socket::ProgramSocket;
use crate::spawn::capture::Capture;
use crate::sys::clock::ProcessClock;
use crate::sys::external::{self, ExternalProgram};
use crate::sys::process::{Ended, open_statm, resident_bytes};
use crate::sys::socket::{Readiness, wait};
use crate::sys::{Error, fd, pidfd, timeout_responder};
use nix::errno::Errno;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Bytes read of the program's output at once.
const PIECE_BYTES: usize = 8 * 1024;
/// Pieces read before something else has its turn.
const PIECES: usize = 16;
/// How long a program that was killed may take.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// How the program is started; the same each time.
#[derive(Debug, Clone)]
pub(super) struct Recipe {
    pub(super) path: CString,
    /// Name first.
    pub(super) arguments: Vec<CString>,
    /// `NAME=value`.
    pub(super) environment: Vec<CString>,
    pub(super) directory: CString,
}

impl Recipe {
    /// The environment, a variable a line.
    pub(super) fn variables(&self) -> String {
        let lines = self.environment.iter().map(|variable| variable.to_string_lossy());
        lines.map(|line| line.escape_debug().to_string() + "\n").collect()
    }
}

/// A program that runs, or has ended and was not reaped yet.
#[derive(Debug)]
pub(super) struct RunningProgram {
    pid: i32,
    process: OwnedFd,
    /// Its standard output and error, until their end.
    output: Option<OwnedFd>,
    clock: Option<ProcessClock>,
    cpu_micros: u64,
    statm: Option<File>,
    /// Requests that it has answered.
    pub(super) served: u64,
    /// It has read of a request at least.
    pub(super) had_work: bool,
    /// What it has written while it had requests, for the report of its end.
    pub(super) said: Capture,
}

/// What a read of the program's output came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// All that was there.
    Read,
    /// Nothing more will come.
    Ended,
}

impl RunningProgram {
    /// Starts it.
    ///
    /// # Errors
    /// The step that failed: `execve`, or one before it.
    pub(super) fn start(recipe: &Recipe, socket: &ProgramSocket) -> Result<RunningProgram, Error> {
        let copy = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map_err(|e| Error::from_io("dup", "", &e));
        let (output, theirs) = fd::pipe(false)?;
        fd::set_nonblocking(output.as_fd(), true)?;
        let foreign = ExternalProgram {
            path: recipe.path.clone(),
            arguments: recipe.arguments.clone(),
            environment: recipe.environment.clone(),
            directory: recipe.directory.clone(),
            streams: [copy(socket.listener())?, copy(theirs.as_fd())?, theirs],
        };
        let pid = external::start_retrying(&foreign)?;
        let process = pidfd::open(pid).inspect_err(|_| external::kill_group(pid))?;
        timeout_responder::pass_on_to(pid);
        Ok(RunningProgram {
            pid,
            process,
            output: Some(output),
            clock: ProcessClock::of(pid),
            cpu_micros: 0,
            statm: open_statm(Some(pid)),
            served: 0,
            had_work: false,
            said: Capture::default(),
        })
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// Readable when it has ended.
    pub(super) fn process(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    /// Readable when it has written something.
    pub(super) fn output(&self) -> Option<BorrowedFd<'_>> {
        self.output.as_ref().map(AsFd::as_fd)
    }

    /// How it ended, if it has; to be asked once.
    pub(super) fn reap(&self) -> Option<Ended> {
        if pidfd::has_ended(self.process.as_fd()) {
            timeout_responder::pass_on_to_none();
        }
        // No other process waits for this child, so the call can't fail.
        let ended = pidfd::reap(self.process.as_fd()).ok().flatten()?;
        // What it has started goes with it.
        external::kill_group(self.pid);
        timeout_responder::end_if_passed_on();
        Some(ended)
    }

    /// Waits until it has ended, for so long at most.
    pub(super) fn has_ended_within(&self, limit: Duration) -> bool {
        wait(self.process.as_fd(), Readiness::Readable, limit).unwrap_or(true)
    }

    /// Kills it and what it has started.
    pub(super) fn kill(self) {
        external::kill_group(self.pid);
        // It may be in a system call that nothing interrupts; it is not waited for any longer then.
        if self.has_ended_within(END_TIMEOUT) {
            let _ = self.reap();
        }
    }

    /// Asks it to end; kills it if it does not within `limit`.
    pub(super) fn end(self, limit: Duration) {
        external::terminate_group(self.pid);
        self.has_ended_within(limit);
        self.kill();
    }

    /// The same while it has a request.
    pub(super) fn read_in_request(&mut self, sink: &mut dyn FnMut(&[u8])) {
        let mut said = std::mem::take(&mut self.said);
        self.read_output(&mut |bytes| {
            said.push(bytes);
            sink(bytes);
        });
        self.said = said;
    }

    /// Reads what it has written; gives it to `sink`.
    pub(super) fn read_output(&mut self, sink: &mut dyn FnMut(&[u8])) -> Output {
        let Some(output) = &self.output else {
            return Output::Ended;
        };
        let mut buffer = [0; PIECE_BYTES];
        for _ in 0..PIECES {
            match nix::unistd::read(output, &mut buffer) {
                Ok(count @ 1..) => sink(&buffer[..count]),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Output::Read,
                Ok(0) | Err(_) => {
                    self.output = None;
                    return Output::Ended;
                }
            }
        }
        Output::Read
    }

    /// CPU time since it was asked before, microseconds, and the memory that it has, bytes.
    pub(super) fn usage(&mut self) -> (u64, u64) {
        let now = self.clock.map_or(0, ProcessClock::micros);
        let used = now.saturating_sub(self.cpu_micros);
        self.cpu_micros = now.max(self.cpu_micros);
        (used, self.resident_bytes())
    }

    fn resident_bytes(&self) -> u64 {
        self.statm.as_ref().and_then(resident_bytes).unwrap_or(0)
    }
}
