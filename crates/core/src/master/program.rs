//! The processes of a program that speaks HTTP; to the core it is a preloader.
//!
//! Each process follows [`crate::life`]. A lost one restarts: at once after a minute of life, within a budget if a
//! request may have killed it, otherwise after a back-off. The program is ready once all were tried and one is up, and
//! gone if none is. If another generation serves, it is on trial until it takes over: any exit is a failed start of all
//! processes, and it is ready only after [`PROOF`].

use super::budget::Budget;
use crate::life::backoff::{Backoff, LONGEST, WELL_AFTER};
use crate::life::{self, Force, Life, LifeCause};
use forkyard_base::tick::Tick;
use std::time::Duration;

/// The time beyond its start timeout for the spawning kit to end the start and report the failure.
pub const START_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a program on trial must be up.
pub const PROOF: Duration = Duration::from_secs(1);
/// Immediate restarts per second of a process that dies at work.
const AT_ONCE: u32 = 4;

/// What to do about a process, or what to report about the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramAction {
    Start(usize),
    /// Cancel its start; the result is still reported.
    Cancel(usize),
    /// It was lost or failed, and restarts after a delay.
    BackOff {
        index: usize,
        delay: Duration,
        /// Whether requests are refused while no process is up. Otherwise they wait.
        refuses: bool,
    },
    Stop(usize, Force),
    /// Report that the program is ready.
    TellReady,
    /// Report that nothing of the program is left.
    TellGone {
        /// Whether it failed to start.
        failed: bool,
    },
}

#[derive(Debug)]
struct ProgramProcess {
    life: Life,
    /// It was lost and restarts then.
    again: Option<Tick>,
    /// When it came up.
    since: Tick,
    backoff: Backoff,
    budget: Budget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProgramState {
    Absent,
    /// Each process has its first try.
    Beginning,
    /// Up, and on trial until then.
    Proving(Tick),
    Ready,
    /// It failed or is not needed.
    Stopping {
        failed: bool,
    },
}

#[derive(Debug)]
pub struct Program {
    processes: Vec<ProgramProcess>,
    state: ProgramState,
    on_trial: bool,
}

impl Program {
    /// Returns a program with this many processes, not started yet.
    pub fn new(processes: usize) -> Program {
        let down = |_| ProgramProcess {
            life: Life::Absent,
            again: None,
            since: Tick::ZERO,
            backoff: Backoff::default(),
            budget: Budget::of(AT_ONCE),
        };
        Program {
            processes: (0..processes).map(down).collect(),
            state: ProgramState::Absent,
            on_trial: false,
        }
    }

    /// Returns a program with running processes, by `up`.
    pub fn resume(up: &[bool], now: Tick, actions: &mut Vec<ProgramAction>) -> Program {
        let mut program = Program::new(up.len());
        program.state = ProgramState::Ready;
        for (index, (process, is_up)) in program.processes.iter_mut().zip(up).enumerate() {
            process.since = now;
            process.life = Life::Ready;
            if !is_up {
                process.life = Life::Absent;
                process.start(index, actions);
            }
        }
        program
    }

    /// Starts it. `on_trial`: another generation serves.
    pub fn start(&mut self, on_trial: bool, actions: &mut Vec<ProgramAction>) {
        if self.state != ProgramState::Absent {
            return;
        }
        self.on_trial = on_trial;
        self.state = ProgramState::Beginning;
        for (index, process) in self.processes.iter_mut().enumerate() {
            process.start(index, actions);
        }
    }

    /// Ends the trial: its generation serves.
    pub fn takes_over(&mut self) {
        self.on_trial = false;
    }

    /// A process is up.
    pub fn up(&mut self, index: usize, now: Tick, actions: &mut Vec<ProgramAction>) {
        let Some(process) = self.processes.get_mut(index) else {
            return;
        };
        process.since = now;
        process.life = process.life.after(LifeCause::Up).0;
        if let Life::Stopping(force) = process.life {
            // It came up while its start was canceled.
            actions.push(ProgramAction::Stop(index, force));
        }
        self.conclude(actions);
    }

    /// A process failed to start; nothing of it is left.
    pub fn failed(&mut self, index: usize, now: Tick, actions: &mut Vec<ProgramAction>) {
        let Some(process) = self.processes.get_mut(index) else {
            return;
        };
        if process.lose() {
            let delay = process.back_off(now);
            let refuses = true;
            actions.push(ProgramAction::BackOff {
                index,
                delay,
                refuses,
            });
        }
        self.conclude(actions);
    }

    /// A process exited. `was_at_work`: a request may have killed it.
    pub fn gone(&mut self, index: usize, was_at_work: bool, now: Tick, actions: &mut Vec<ProgramAction>) {
        let Some(process) = self.processes.get_mut(index) else {
            return;
        };
        let mut fails = false;
        if process.lose() {
            process.backoff.lives(process.since);
            let is_ready = self.state == ProgramState::Ready;
            let is_well = now.since(process.since) >= WELL_AFTER;
            if is_ready && (is_well || was_at_work) {
                let wait = match is_well {
                    true => None,
                    false => {
                        process.budget.spend(now);
                        process.budget.wait(now)
                    }
                };
                process.again = wait.map(|wait| now + wait);
                if wait.is_none() {
                    process.start(index, actions);
                }
            } else {
                let delay = process.back_off(now);
                // One failure is allowed, except on trial.
                let refuses = process.backoff.is_habit() || self.on_trial;
                actions.push(ProgramAction::BackOff {
                    index,
                    delay,
                    refuses,
                });
                fails = self.on_trial;
            }
        }
        // Once ready, requests in other processes continue.
        if fails && (self.state != ProgramState::Ready || !self.is_up()) {
            self.give_up(Force::Kill, true, actions);
        }
        self.conclude(actions);
    }

    /// Stops it, or stops it faster.
    pub fn stop(&mut self, force: Force, actions: &mut Vec<ProgramAction>) {
        if self.state == ProgramState::Absent {
            return;
        }
        self.give_up(force, false, actions);
        self.conclude(actions);
    }

    fn give_up(&mut self, force: Force, failed: bool, actions: &mut Vec<ProgramAction>) {
        self.state = ProgramState::Stopping { failed };
        for (index, process) in self.processes.iter_mut().enumerate() {
            process.again = None;
            let was_starting = process.life == Life::Starting;
            let (life, action) = process.life.after(LifeCause::Stop(force));
            process.life = life;
            match action {
                life::LifeAction::Stop(_) if was_starting => actions.push(ProgramAction::Cancel(index)),
                life::LifeAction::Stop(force) => actions.push(ProgramAction::Stop(index, force)),
                life::LifeAction::Nothing
                | life::LifeAction::Start
                | life::LifeAction::Fail
                | life::LifeAction::Lost => {}
            }
        }
    }

    /// When to call [`Program::pass`].
    pub fn next_deadline(&self) -> Option<Tick> {
        match self.state {
            ProgramState::Ready => self.processes.iter().filter_map(|process| process.again).min(),
            ProgramState::Proving(until) => Some(until),
            ProgramState::Absent | ProgramState::Beginning | ProgramState::Stopping { .. } => None,
        }
    }

    /// Handles timers that are due.
    pub fn pass(&mut self, now: Tick, actions: &mut Vec<ProgramAction>) {
        if matches!(self.state, ProgramState::Proving(until) if until <= now) {
            self.state = ProgramState::Ready;
            actions.push(ProgramAction::TellReady);
        }
        if self.state != ProgramState::Ready {
            return;
        }
        for (index, process) in self.processes.iter_mut().enumerate() {
            if process.again.is_some_and(|until| until <= now) {
                process.start(index, actions);
            }
        }
    }

    /// A process's state as a word for people.
    pub fn state(&self, index: usize) -> &'static str {
        let Some(process) = self.processes.get(index) else {
            return "stopped";
        };
        match process.life {
            Life::Absent if process.again.is_some() && process.backoff.is_habit() => "failing",
            Life::Absent if process.again.is_some() => "waiting",
            Life::Absent => "stopped",
            Life::Starting => "starting",
            Life::Ready => "up",
            Life::Failing | Life::Stopping(_) => "stopping",
        }
    }

    /// Whether a process is up.
    pub fn is_up(&self) -> bool {
        self.processes.iter().any(|process| process.life == Life::Ready)
    }

    fn conclude(&mut self, actions: &mut Vec<ProgramAction>) {
        let any = |wanted: fn(Life) -> bool| self.processes.iter().any(|process| wanted(process.life));
        let failed = match self.state {
            ProgramState::Beginning if any(|life| life == Life::Starting) => return,
            ProgramState::Beginning if any(|life| life == Life::Ready) => {
                let up = self
                    .processes
                    .iter()
                    .filter(|process| process.life == Life::Ready);
                let last = up.map(|process| process.since).max();
                match last.filter(|_| self.on_trial) {
                    Some(last) => self.state = ProgramState::Proving(last + PROOF),
                    None => {
                        self.state = ProgramState::Ready;
                        actions.push(ProgramAction::TellReady);
                    }
                }
                return;
            }
            ProgramState::Stopping { .. } if any(|life| life != Life::Absent) => return,
            ProgramState::Beginning => true,
            ProgramState::Stopping { failed } => failed,
            ProgramState::Absent | ProgramState::Proving(_) | ProgramState::Ready => return,
        };
        self.state = ProgramState::Absent;
        for process in &mut self.processes {
            process.again = None;
        }
        actions.push(ProgramAction::TellGone { failed });
    }
}

impl ProgramProcess {
    fn start(&mut self, index: usize, actions: &mut Vec<ProgramAction>) {
        self.again = None;
        self.life = self.life.after(LifeCause::Needed).0;
        actions.push(ProgramAction::Start(index));
    }

    /// Returns whether the process is needed and must restart.
    fn lose(&mut self) -> bool {
        let (life, action) = self.life.after(LifeCause::Gone);
        self.life = life;
        action == life::LifeAction::Lost
    }

    fn back_off(&mut self, now: Tick) -> Duration {
        let delay = self.backoff.fail(now, LONGEST).or(self.backoff.wait(now));
        let delay = delay.unwrap_or_default();
        self.again = Some(now + delay);
        delay
    }
}

#[cfg(test)]
mod tests;
