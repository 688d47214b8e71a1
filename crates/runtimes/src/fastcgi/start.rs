//! A start of the program in progress.

use super::probe::{Probe, ProbeResult};
use super::program::{Output, RunningProgram};
use super::program_socket::ProgramSocket;
use super::supervisor::Means;
use forkyard_base::tick::Tick;
use forkyard_protocol::start_failure::Fall;
use forkyard_spawn::effects::{fault, oom_kills};
use forkyard_spawn::self_spawn::Attempt;
use forkyard_sys::clock;
use nix::errno::Errno;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

const CONNECT_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct ProgramStart {
    attempt: Attempt,
    program: RunningProgram,
    pub(super) oom_kills: u64,
    probe: Option<Probe>,
    next: Tick,
}

#[derive(Debug)]
pub(super) enum ProgramProgress {
    Pending(ProgramStart),
    Up(RunningProgram, Attempt, Option<OwnedFd>),
    Failed(Attempt, Fall),
}

impl ProgramStart {
    pub(super) fn begin(means: &Means, socket: &ProgramSocket) -> ProgramProgress {
        let now = clock::now();
        let mut attempt = Attempt::begin(Arc::clone(&means.plan), now);
        attempt.prepared(now);
        let before = oom_kills(None);
        let program = match RunningProgram::start(&means.recipe, socket) {
            Ok(program) => program,
            Err(error) => {
                let fall = match error.call {
                    "execve" | "chdir" => Fall::Exec(fault(&error), means.check()),
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

    /// Assumes that the program is up; requests already sent to it will prove it.
    pub(super) fn trust(self) -> ProgramProgress {
        ProgramProgress::Up(self.program, self.attempt, None)
    }

    pub(super) fn sources(&self) -> Vec<BorrowedFd<'_>> {
        let output = self.program.output();
        let connection = self.probe.as_ref().map(Probe::connection);
        std::iter::once(self.program.process())
            .chain(output)
            .chain(connection)
            .collect()
    }

    pub(super) fn deadline(&self) -> Tick {
        self.next.min(self.attempt.deadline())
    }

    pub(super) fn poll(
        mut self,
        means: &Means,
        socket: &ProgramSocket,
        log: &mut dyn FnMut(&[u8]),
    ) -> ProgramProgress {
        let now = clock::now();
        self.read_output(log);
        if let Some(ended) = self.program.reap() {
            self.read_output(log);
            let fall = Fall::Exited(ended, means.check(), oom_kills(None) > self.oom_kills);
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
            Ok((_, ProbeResult::Stranger(what))) => return self.fail(Fall::Stranger(what.to_string())),
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

    pub(super) fn pid(&self) -> i32 {
        self.program.pid()
    }

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
