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
mod tests {
    use super::*;

    fn at(millis: u64) -> Tick {
        Tick::ZERO + Duration::from_millis(millis)
    }

    fn actions(act: impl FnOnce(&mut Vec<ProgramAction>)) -> Vec<ProgramAction> {
        let mut actions = Vec::new();
        act(&mut actions);
        actions
    }

    fn back_off(index: usize, millis: u64, refuses: bool) -> ProgramAction {
        let delay = Duration::from_millis(millis);
        ProgramAction::BackOff {
            index,
            delay,
            refuses,
        }
    }

    fn running(processes: usize) -> Program {
        let mut program = Program::new(processes);
        let mut actions = Vec::new();
        program.start(false, &mut actions);
        for index in 0..processes {
            program.up(index, at(0), &mut actions);
        }
        assert_eq!(actions.last(), Some(&ProgramAction::TellReady));
        program
    }

    #[test]
    fn it_is_ready_when_all_were_tried_and_one_is_up() {
        let mut program = Program::new(2);
        assert_eq!(
            actions(|out| program.start(false, out)),
            [ProgramAction::Start(0), ProgramAction::Start(1)]
        );
        assert_eq!(
            actions(|out| program.failed(0, at(1), out)),
            [back_off(0, 100, true)]
        );
        assert_eq!(
            actions(|out| program.up(1, at(2), out)),
            [ProgramAction::TellReady]
        );
        assert_eq!(program.next_deadline(), Some(at(101)));
        assert_eq!(
            actions(|out| program.pass(at(101), out)),
            [ProgramAction::Start(0)]
        );
        assert_eq!(
            actions(|out| program.failed(0, at(102), out)),
            [back_off(0, 200, true)]
        );
        assert_eq!(
            (program.next_deadline(), program.state(0)),
            (Some(at(302)), "failing")
        );
    }

    #[test]
    fn one_that_can_not_be_started_is_the_cores_to_try_again() {
        let mut program = Program::new(2);
        actions(|out| program.start(false, out));
        assert_eq!(
            actions(|out| program.failed(0, at(1), out)),
            [back_off(0, 100, true)]
        );
        let gone = ProgramAction::TellGone { failed: true };
        assert_eq!(
            actions(|out| program.failed(1, at(2), out)),
            [back_off(1, 100, true), gone]
        );
        assert_eq!(program.next_deadline(), None);
        assert_eq!(
            actions(|out| program.start(false, out)),
            [ProgramAction::Start(0), ProgramAction::Start(1)]
        );
    }

    /// Each row: how long it lived, whether a request was in its hands, what is done, and whether that is a habit now.
    #[test]
    fn one_that_does_not_stay_up_comes_back_later_each_time() {
        const MINUTE: u64 = 60_000;
        let mut program = running(1);
        let mut now = 0;
        for (lived, was_at_work, delay, refuses) in [
            (500, false, Some(100), false),
            (500, false, Some(200), true),
            // It may have been the request.
            (500, true, None, false),
            (5_000, false, Some(400), true),
            (MINUTE - 1, false, Some(800), true),
            (MINUTE, false, None, false),
            (10, false, Some(100), false),
            (10, false, Some(200), true),
            (10, false, Some(400), true),
            (10, false, Some(800), true),
            (10, false, Some(1_600), true),
            (10, false, Some(3_200), true),
            (10, false, Some(6_400), true),
            (10, false, Some(12_800), true),
            (10, false, Some(25_600), true),
            (10, false, Some(51_200), true),
            (10, false, Some(MINUTE), true),
            (10, false, Some(MINUTE), true),
            (MINUTE, true, None, false),
            (10, false, Some(100), false),
        ] {
            now += lived;
            let done = actions(|out| program.gone(0, was_at_work, at(now), out));
            match delay {
                None => assert_eq!(done, [ProgramAction::Start(0)], "{lived} {was_at_work}"),
                Some(delay) => {
                    assert_eq!(done, [back_off(0, delay, refuses)], "{lived} {was_at_work}");
                    assert_eq!(program.next_deadline(), Some(at(now + delay)));
                    assert_eq!(program.state(0), if refuses { "failing" } else { "waiting" });
                    now += delay;
                    let done = actions(|out| program.pass(at(now), out));
                    assert_eq!(done, [ProgramAction::Start(0)]);
                }
            }
            now += 50;
            assert_eq!(actions(|out| program.up(0, at(now), out)), []);
        }
    }

    #[test]
    fn one_that_a_request_may_have_ended_comes_back_at_once_within_a_budget() {
        let mut program = running(1);
        let mut now = 100;
        for crash in 0..AT_ONCE {
            let started = actions(|out| program.gone(0, true, at(now), out));
            assert_eq!(started, [ProgramAction::Start(0)], "{crash}");
            actions(|out| program.up(0, at(now + 1), out));
            now += 2;
        }
        // More than so many a second wait for the budget, and never longer than its second.
        for _ in 0..100 {
            actions(|out| program.gone(0, true, at(now), out));
            let due = program.next_deadline();
            assert!(due.is_none_or(|due| due <= at(now + 1_000)));
            now += 1_000;
            actions(|out| program.pass(at(now), out));
            actions(|out| program.up(0, at(now), out));
        }
    }

    fn on_trial(processes: usize) -> Program {
        let mut program = Program::new(processes);
        let mut actions = Vec::new();
        program.start(true, &mut actions);
        for index in 0..processes {
            program.up(index, at(index as u64), &mut actions);
        }
        assert!(!actions.contains(&ProgramAction::TellReady));
        program
    }

    #[test]
    fn beside_one_that_serves_it_has_to_live_before_it_is_ready() {
        let mut program = on_trial(2);
        assert_eq!(program.next_deadline(), Some(at(1) + PROOF));
        assert_eq!(actions(|out| program.pass(at(1_000), out)), []);
        assert_eq!(
            actions(|out| program.pass(at(1_001), out)),
            [ProgramAction::TellReady]
        );
        program.takes_over();
        assert_eq!(
            actions(|out| program.gone(0, false, at(1_100), out)),
            [back_off(0, 100, false)]
        );
    }

    /// Each row: when the first of two processes ends, and whether the other is told to end.
    #[test]
    fn beside_one_that_serves_an_end_is_a_failed_start() {
        let gone = ProgramAction::TellGone { failed: true };
        for ended in [1, 300, 1_000] {
            let mut program = on_trial(2);
            assert_eq!(
                actions(|out| program.gone(0, false, at(ended), out)),
                [back_off(0, 100, true), ProgramAction::Stop(1, Force::Kill)],
                "{ended}"
            );
            assert_eq!(actions(|out| program.gone(1, false, at(ended + 1), out)), [gone]);
            assert_eq!(program.next_deadline(), None);
        }
        // Its workers are made.
        let mut program = on_trial(2);
        actions(|out| program.pass(at(1_001), out));
        let ended = actions(|out| program.gone(0, false, at(1_002), out));
        assert_eq!(ended, [back_off(0, 100, true)]);
        let ended = actions(|out| program.gone(1, false, at(1_003), out));
        assert_eq!(ended, [back_off(1, 100, true), gone]);
    }

    #[test]
    fn one_on_trial_that_is_not_wanted_has_not_failed() {
        let mut program = on_trial(2);
        actions(|out| program.gone(0, false, at(10), out));
        assert_eq!(actions(|out| program.stop(Force::Kill, out)), []);
        let gone = ProgramAction::TellGone { failed: false };
        assert_eq!(actions(|out| program.gone(1, false, at(20), out)), [gone]);
    }

    #[test]
    fn another_master_goes_on_with_what_is_up() {
        let mut out = Vec::new();
        let mut program = Program::resume(&[true, false], at(0), &mut out);
        assert_eq!(out, [ProgramAction::Start(1)]);
        assert_eq!(actions(|out| program.start(false, out)), []);
        assert_eq!(actions(|out| program.up(1, at(1), out)), []);
        assert_eq!(
            actions(|out| program.gone(0, false, at(60_000), out)),
            [ProgramAction::Start(0)]
        );
    }

    #[test]
    fn it_goes_as_hard_as_it_must() {
        let mut program = running(3);
        actions(|out| program.gone(0, false, at(10), out));
        actions(|out| program.gone(1, true, at(2_000), out));
        let stop = |force| ProgramAction::Stop(2, force);
        assert_eq!(
            actions(|out| program.stop(Force::Ask, out)),
            [ProgramAction::Cancel(1), stop(Force::Ask)]
        );
        // What had been called off came up all the same.
        let came = actions(|out| program.up(1, at(2_100), out));
        assert_eq!(came, [ProgramAction::Stop(1, Force::Ask)]);
        assert_eq!(
            actions(|out| program.stop(Force::Kill, out)),
            [ProgramAction::Stop(1, Force::Kill), stop(Force::Kill)]
        );
        assert_eq!(actions(|out| program.gone(1, false, at(2_200), out)), []);
        let gone = ProgramAction::TellGone { failed: false };
        assert_eq!(actions(|out| program.gone(2, false, at(2_300), out)), [gone]);
        assert_eq!(actions(|out| program.stop(Force::Kill, out)), []);
    }

    /// Whatever comes in whatever order: it says that it is gone once for each start, and only when nothing is left.
    #[test]
    fn it_always_comes_to_an_end() {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut below = |limit: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % limit
        };
        for _ in 0..2_000 {
            let count = 1 + below(3) as usize;
            let mut program = Program::new(count);
            let (mut out, mut now) = (Vec::new(), 0);
            // What the world has: nothing, a start under way, a process.
            let mut world = vec![0_u8; count];
            program.start(below(2) == 0, &mut out);
            let mut gone = 0;
            for step in 0..60 {
                for action in std::mem::take(&mut out) {
                    match action {
                        ProgramAction::Start(index) => {
                            assert_eq!(world[index], 0);
                            world[index] = 1;
                        }
                        ProgramAction::Cancel(index) => assert_eq!(world[index], 1),
                        ProgramAction::Stop(index, _) => assert_ne!(world[index], 0),
                        ProgramAction::BackOff { index, .. } => assert_eq!(world[index], 0),
                        ProgramAction::TellReady => assert!(program.is_up() && gone == 0),
                        ProgramAction::TellGone { .. } => {
                            assert!(world.iter().all(|it| *it == 0));
                            gone += 1;
                        }
                    }
                }
                now += below(400);
                let index = below(count as u64) as usize;
                match (world[index], below(3)) {
                    (1, 0) => {
                        world[index] = 0;
                        program.failed(index, at(now), &mut out);
                    }
                    (1, _) => {
                        world[index] = 2;
                        program.up(index, at(now), &mut out);
                    }
                    (2, 0 | 1) => {
                        world[index] = 0;
                        program.gone(index, false, at(now), &mut out);
                    }
                    _ => program.pass(at(now), &mut out),
                }
                if step == 40 {
                    program.stop(Force::Kill, &mut out);
                }
            }
            for (index, state) in world.iter().enumerate().take(count) {
                match state {
                    1 => program.failed(index, at(now), &mut out),
                    2 => program.gone(index, false, at(now), &mut out),
                    _ => {}
                }
            }
            gone += out
                .iter()
                .filter(|action| matches!(action, ProgramAction::TellGone { .. }))
                .count();
            assert_eq!(gone, 1);
        }
    }
}
