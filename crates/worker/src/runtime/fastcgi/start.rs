//! A start that is under way.

use super::probe::{Probe, ProbeResult};
use super::program::{Output, Recipe, RunningProgram};
use super::program_socket::ProgramSocket;
use crate::spawn::effects::oom_kills;
use crate::spawn::error::{Ended, Fault};
use crate::spawn::handshake::response::CommandCheck;
use crate::spawn::plan::Plan;
use crate::spawn::self_spawn::{Attempt, Fall};
use crate::sys::{self, clock, process};
use crate::tick::Tick;
use nix::errno::Errno;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// How long until it is tried again to connect where too many wait.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);

/// A program that was started and is not up yet.
#[derive(Debug)]
pub(super) struct ProgramStart {
    attempt: Attempt,
    program: RunningProgram,
    /// How often the kernel had killed for want of memory before.
    oom_kills: u64,
    probe: Option<Probe>,
    /// When to look next.
    next: Tick,
}

/// What a start came to.
#[derive(Debug)]
pub(super) enum ProgramProgress {
    /// Nothing yet.
    Pending(ProgramStart),
    /// The program takes requests; on this connection, if there is one.
    Up(RunningProgram, Attempt, Option<OwnedFd>),
    /// It does not, and nothing of it is left.
    Failed(Attempt, Fall),
}

impl ProgramStart {
    /// Starts the program. `check`: looks what is wrong with its command.
    pub(super) fn begin(
        plan: &Arc<Plan>,
        recipe: &Recipe,
        socket: &ProgramSocket,
        check: &dyn Fn() -> CommandCheck,
    ) -> ProgramProgress {
        let now = clock::now();
        let mut attempt = Attempt::begin(Arc::clone(plan), now);
        attempt.prepared(now);
        let before = oom_kills(None);
        let program = match RunningProgram::start(recipe, socket) {
            Ok(program) => program,
            Err(error) => {
                let fall = match error.call {
                    "execve" | "chdir" => Fall::Exec(fault(&error), check()),
                    "pipe2" | "dup" | "fcntl F_SETFL" => Fall::Preparation(fault(&error)),
                    _ => Fall::Fork(fault(&error)),
                };
                return ProgramProgress::Failed(attempt, fall);
            }
        };
        attempt.executed(program.pid(), clock::now());
        ProgramProgress::Pending(ProgramStart {
            attempt,
            program,
            oom_kills: before,
            probe: None,
            next: now,
        })
    }

    /// Takes the program for up: the requests that were sent to it already will show whether it is.
    pub(super) fn trust(self) -> ProgramProgress {
        ProgramProgress::Up(self.program, self.attempt, None)
    }

    /// What becomes readable when there is something to be looked at: process, output, connection.
    pub(super) fn sources(&self) -> Vec<BorrowedFd<'_>> {
        let output = self.program.output();
        let connection = self.probe.as_ref().map(Probe::connection);
        std::iter::once(self.program.process())
            .chain(output)
            .chain(connection)
            .collect()
    }

    /// When to look in any case.
    pub(super) fn deadline(&self) -> Tick {
        self.next.min(self.attempt.deadline())
    }

    /// Looks how far it is. `log` is given what the program writes.
    pub(super) fn poll(
        mut self,
        socket: &ProgramSocket,
        check: &dyn Fn() -> CommandCheck,
        log: &mut dyn FnMut(&[u8]),
    ) -> ProgramProgress {
        let now = clock::now();
        self.read_output(log);
        if let Some(ended) = self.program.reap() {
            // What it wrote last came before its end.
            self.read_output(log);
            let fall = Fall::Exited(told(ended), check(), oom_kills(None) > self.oom_kills);
            return ProgramProgress::Failed(self.attempt, fall);
        }
        let probe = match self.probe.take() {
            Some(probe) => Ok(probe),
            None => Probe::ask(socket, now),
        };
        self.next = match probe.map(|probe| probe.poll(now)) {
            Ok((_, ProbeResult::Up(connection))) => {
                return ProgramProgress::Up(self.program, self.attempt, connection);
            }
            Ok((_, ProbeResult::Stranger(what))) => return self.fail(Fall::Stranger(what)),
            Ok((probe, ProbeResult::Pending)) => {
                self.probe = probe;
                self.probe.as_ref().map_or(now, Probe::next)
            }
            Err(error) if error.errno == Errno::EAGAIN => now + CONNECT_PAUSE,
            Err(error) => return self.fail(Fall::Preparation(fault(&error))),
        };
        if self.attempt.deadline() <= now {
            return self.fail(Fall::Timeout);
        }
        ProgramProgress::Pending(self)
    }

    /// How often the kernel had killed for want of memory before it was started.
    pub(super) fn oom_kills(&self) -> u64 {
        self.oom_kills
    }

    /// Its process.
    pub(super) fn pid(&self) -> i32 {
        self.program.pid()
    }

    /// Gives it up.
    pub(super) fn kill(self) {
        self.program.kill();
    }

    fn read_output(&mut self, log: &mut dyn FnMut(&[u8])) -> Output {
        let attempt = &mut self.attempt;
        self.program.read_output(&mut |bytes| {
            attempt.wrote(bytes);
            log(bytes);
        })
    }

    fn fail(self, fall: Fall) -> ProgramProgress {
        self.program.kill();
        ProgramProgress::Failed(self.attempt, fall)
    }
}

fn fault(error: &sys::Error) -> Fault {
    Fault {
        text: error.to_string(),
        errno: error.errno as i32,
    }
}

/// An end in the words of reports.
pub(super) fn told(ended: process::Ended) -> Ended {
    match ended {
        process::Ended::Code(code) => Ended::Code(code),
        process::Ended::Signal(number, core) => Ended::Signal { number, core },
    }
}
