//! The life of a program that speaks HTTP: of each of its processes, and of all together. To the core it is a preloader.
//!
//! Each process lives as the table of [`crate::life`] says. One that is lost while the program is wanted is started again:
//! at once if it had lived for a minute, within a budget if a request may have ended it, or else after a back-off.
//!
//! It is ready once each process was tried and one is up; if none is, it is gone, and the core decides when another try is
//! made. From then on it is kept going here, whatever befalls its processes, until the core stops it: its workers are
//! there, and need it.
//!
//! Where another generation serves, it is on trial until it takes over: a process that ends by itself is a failed start of all,
//! and it is ready only once what came up has lived for [`PROOF`].

use super::budget::Budget;
use crate::life::backoff::{Backoff, LONGEST, WELL_AFTER};
use crate::life::{self, Force, Life, LifeCause};
use crate::tick::Tick;
use std::time::Duration;

/// Beyond its own start timeout, after which the spawning kit gives a process up and says why.
pub const START_TIMEOUT: Duration = Duration::from_secs(15);
/// How long the program of a new generation lives, after it is up, before it takes the place of one that serves.
pub const PROOF: Duration = Duration::from_secs(1);
/// How often in a second a process that dies at work is started again at once.
const AT_ONCE: u32 = 4;

/// What is to be done about a process, by its place, or what is to be told of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramAction {
    /// Start it.
    Start(usize),
    /// It is not to be started any more. What comes of that is still told.
    Cancel(usize),
    /// It is lost, or could not be started, and is started again after this long.
    BackOff {
        /// Its place.
        index: usize,
        /// Until then.
        delay: Duration,
        /// It is no accident: requests are refused as long as no process is up. Otherwise they wait.
        refuses: bool,
    },
    /// Make it end.
    Stop(usize, Force),
    /// Tell the core that it is ready.
    TellReady,
    /// Tell the core that nothing of it is left; because it could not be started, or else because it was to go.
    TellGone {
        /// It could not be started.
        failed: bool,
    },
}

#[derive(Debug)]
struct ProgramProcess {
    life: Life,
    /// It is lost, and started again then.
    again: Option<Tick>,
    /// When its last start began to count: it was up.
    since: Tick,
    backoff: Backoff,
    budget: Budget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProgramState {
    /// Nothing is wanted.
    Absent,
    /// Each process has its first try.
    Beginning,
    /// It is up, and is to live until then.
    Proving(Tick),
    /// The core knows that it is ready.
    Ready,
    /// It is to go, because it has failed or is not wanted.
    Stopping { failed: bool },
}

/// A program's processes.
#[derive(Debug)]
pub struct Program {
    processes: Vec<ProgramProcess>,
    state: ProgramState,
    /// Another generation serves.
    on_trial: bool,
}

impl Program {
    /// A program of so many processes; none is there yet.
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

    /// One that another master has started: these of its processes are up, and the others are started.
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

    /// It is wanted. `on_trial`: another generation serves until this one takes over.
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

    /// Its generation serves.
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
            // It came up while it was called off.
            actions.push(ProgramAction::Stop(index, force));
        }
        self.conclude(actions);
    }

    /// A process could not be started. Nothing of it is left.
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

    /// A process that was up is gone, with all that belonged to it. `was_at_work`: it had a request in its hands. That may have ended
    /// it, and says nothing about the next process.
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
                // One accident is allowed, but not on trial.
                let refuses = process.backoff.is_habit() || self.on_trial;
                actions.push(ProgramAction::BackOff {
                    index,
                    delay,
                    refuses,
                });
                fails = self.on_trial;
            }
        }
        // Once workers may have requests in the hands of others, those go on.
        if fails && (self.state != ProgramState::Ready || !self.is_up()) {
            self.give_up(Force::Kill, true, actions);
        }
        self.conclude(actions);
    }

    /// It is not wanted any more, or is to go faster.
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

    /// When [`Program::pass`] is to be called.
    pub fn next_deadline(&self) -> Option<Tick> {
        match self.state {
            ProgramState::Ready => self.processes.iter().filter_map(|process| process.again).min(),
            ProgramState::Proving(until) => Some(until),
            ProgramState::Absent | ProgramState::Beginning | ProgramState::Stopping { .. } => None,
        }
    }

    /// Time has passed.
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

    /// What a process is doing, in a word for people.
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

    /// Whether one of its processes is up.
    pub fn is_up(&self) -> bool {
        self.processes.iter().any(|process| process.life == Life::Ready)
    }

    /// Takes in what has happened to all processes.
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

    /// Nothing is left of it; whether it should be there.
    fn lose(&mut self) -> bool {
        let (life, action) = self.life.after(LifeCause::Gone);
        self.life = life;
        action == life::LifeAction::Lost
    }

    /// The time until its next try, longer each time.
    fn back_off(&mut self, now: Tick) -> Duration {
        let delay = self.backoff.fail(now, LONGEST).or(self.backoff.wait(now));
        let delay = delay.unwrap_or_default();
        self.again = Some(now + delay);
        delay
    }
}

#[cfg(test)]
mod tests;
