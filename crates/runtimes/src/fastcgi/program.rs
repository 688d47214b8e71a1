//! The FastCGI program's process.

use super::program_socket::ProgramSocket;
use forkyard_spawn::capture::Capture;
use forkyard_sys::clock::ProcessClock;
use forkyard_sys::process::{Ended, Program, open_statm, resident_bytes};
use forkyard_sys::socket::{Readiness, wait};
use forkyard_sys::{Error, external, fd, pidfd, timeout_responder};
use nix::errno::Errno;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

const PIECE_BYTES: usize = 8 * 1024;
const PIECES: usize = 16;
const END_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub(super) struct Recipe {
    /// The first one is the executable.
    pub(super) arguments: Vec<CString>,
    pub(super) environment: Vec<CString>,
    pub(super) directory: CString,
}

impl Recipe {
    pub(super) fn variables(&self) -> String {
        let lines = self.environment.iter().map(|variable| variable.to_string_lossy());
        lines.map(|line| line.escape_debug().to_string() + "\n").collect()
    }
}

#[derive(Debug)]
pub(super) struct RunningProgram {
    pid: i32,
    process: OwnedFd,
    output: Option<OwnedFd>,
    clock: Option<ProcessClock>,
    cpu_micros: u64,
    statm: Option<File>,
    pub(super) served: u64,
    pub(super) had_work: bool,
    pub(super) said: Capture,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    Read,
    Ended,
}

impl RunningProgram {
    pub(super) fn start(recipe: &Recipe, socket: &ProgramSocket) -> Result<RunningProgram, Error> {
        let (output, theirs) = fd::pipe(false)?;
        fd::set_nonblocking(output.as_fd(), true)?;
        let foreign = Program {
            path: recipe.arguments.first().cloned().unwrap_or_default(),
            arguments: recipe.arguments.clone(),
            environment: recipe.environment.clone(),
            descriptors: vec![
                (fd::copy(socket.listener())?, 0),
                (fd::copy(theirs.as_fd())?, 1),
                (theirs, 2),
            ],
            descriptor_limit: None,
        };
        let pid =
            timeout_responder::start_and_pass_on(|| external::start_retrying(&foreign, &recipe.directory))?;
        let process = pidfd::open(pid).inspect_err(|_| {
            timeout_responder::pass_on_to_none();
            external::kill_group(pid);
        })?;
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

    pub(super) fn process(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    pub(super) fn output(&self) -> Option<BorrowedFd<'_>> {
        self.output.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn reap(&self) -> Option<Ended> {
        if pidfd::has_ended(self.process.as_fd()) {
            timeout_responder::pass_on_to_none();
        }
        let ended = pidfd::reap(self.process.as_fd()).ok().flatten()?;
        external::kill_group(self.pid);
        timeout_responder::end_if_passed_on();
        Some(ended)
    }

    pub(super) fn has_ended_within(&self, limit: Duration) -> bool {
        wait(self.process.as_fd(), Readiness::Readable, limit).unwrap_or(true)
    }

    pub(super) fn kill(self) {
        external::kill_group(self.pid);
        if self.has_ended_within(END_TIMEOUT) {
            let _ = self.reap();
        }
    }

    pub(super) fn end(self, limit: Duration) {
        external::terminate_group(self.pid);
        self.has_ended_within(limit);
        self.kill();
    }

    pub(super) fn read_in_request(&mut self, sink: &mut dyn FnMut(&[u8])) {
        let mut said = std::mem::take(&mut self.said);
        self.read_output(&mut |bytes| {
            said.push(bytes);
            sink(bytes);
        });
        self.said = said;
    }

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

    /// CPU time since the last call, in microseconds, and memory in bytes.
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
