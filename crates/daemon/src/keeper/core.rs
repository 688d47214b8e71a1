//! When a master is started, and when the keeper leaves.
//!
//! ```text
//!            Ended (not by itself)          Deadline
//!  Running ───────────────────────▶ Waiting ────────▶ Running
//!     │ Ended (code 0, or never ready)  │ Stop
//!     └──────────────▶ Gone ◀───────────┘
//! ```

use forkyard_base::tick::Tick;
use forkyard_core::life::backoff::{FIRST as SHORT, LONGEST, delay};
use std::time::Duration;

/// A master that ran this long is restarted without a delay.
const WELL_AFTER: Duration = Duration::from_secs(1);
/// The longest delay after a death by signal. The next master is ready within a second, and more frequent starts would
/// take processor time from the workers.
const LONGEST_AFTER_SIGNAL: Duration = Duration::from_millis(500);
/// EX_SOFTWARE of sysexits.h: the first master was killed.
const EXIT_SOFTWARE: u8 = 70;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeeperState {
    /// A master runs, started at this time.
    Running(Tick),
    /// No master runs until this deadline.
    Waiting(Tick),
    Gone,
}

/// An event of the keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeeperEvent {
    /// The master is ready to serve.
    Ready,
    /// The master exited with this code; `None` if a signal killed it.
    Ended(Option<u8>),
    /// The master could not be started.
    NotStarted,
    /// The keeper received a signal to stop.
    Stop,
    /// The deadline has passed.
    Deadline,
}

/// The keeper's next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeeperAction {
    /// Nothing.
    Nothing,
    /// Start a master now.
    Start,
    /// Start a master after this delay.
    Wait(Duration),
    /// Forward the signal to the master.
    Forward,
    /// Exit with this code.
    Leave(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Killed,
    Failed,
}

/// The keeper's state machine.
#[derive(Debug)]
pub struct Core {
    state: KeeperState,
    /// Some master was ready: always restart from now on.
    was_ever_ready: bool,
    is_ready: bool,
    /// Failures by error since the last ready master.
    failures: u32,
    /// Deaths by signal since the last ready master.
    kills: u32,
}

impl Core {
    /// Creates the state for the start of the first master.
    pub fn new(now: Tick) -> Core {
        Core {
            state: KeeperState::Running(now),
            was_ever_ready: false,
            is_ready: false,
            failures: 0,
            kills: 0,
        }
    }

    /// Returns the time of [`KeeperEvent::Deadline`].
    pub fn deadline(&self) -> Option<Tick> {
        match self.state {
            KeeperState::Waiting(until) => Some(until),
            KeeperState::Running(_) | KeeperState::Gone => None,
        }
    }

    /// Processes an event and returns the next step.
    pub fn handle(&mut self, event: KeeperEvent, now: Tick) -> KeeperAction {
        match (self.state, event) {
            (KeeperState::Running(_), KeeperEvent::Ready) => {
                (self.was_ever_ready, self.is_ready) = (true, true);
                (self.failures, self.kills) = (0, 0);
                KeeperAction::Nothing
            }
            (KeeperState::Running(_), KeeperEvent::Ended(Some(0))) => self.leave(0),
            (KeeperState::Running(since), KeeperEvent::Ended(code)) => {
                self.lost(since, code, code.map_or(Why::Killed, |_| Why::Failed), now)
            }
            (KeeperState::Running(since), KeeperEvent::NotStarted) => {
                self.lost(since, None, Why::Failed, now)
            }
            (KeeperState::Running(_), KeeperEvent::Stop) => KeeperAction::Forward,
            (KeeperState::Waiting(_), KeeperEvent::Deadline) => {
                (self.state, self.is_ready) = (KeeperState::Running(now), false);
                KeeperAction::Start
            }
            (KeeperState::Waiting(_), KeeperEvent::Stop) => self.leave(0),
            (KeeperState::Running(_), KeeperEvent::Deadline)
            | (
                KeeperState::Waiting(_),
                KeeperEvent::Ready | KeeperEvent::Ended(_) | KeeperEvent::NotStarted,
            )
            | (
                KeeperState::Gone,
                KeeperEvent::Ready
                | KeeperEvent::Ended(_)
                | KeeperEvent::NotStarted
                | KeeperEvent::Stop
                | KeeperEvent::Deadline,
            ) => KeeperAction::Nothing,
        }
    }

    fn lost(&mut self, since: Tick, code: Option<u8>, why: Why, now: Tick) -> KeeperAction {
        if !self.was_ever_ready {
            return self.leave(code.unwrap_or(EXIT_SOFTWARE));
        }
        let wait = if !self.is_ready {
            let (count, longest) = match why {
                Why::Killed => (&mut self.kills, LONGEST_AFTER_SIGNAL),
                Why::Failed => (&mut self.failures, LONGEST),
            };
            let wait = delay(*count, longest);
            *count = count.saturating_add(1);
            wait
        } else if now.since(since) < WELL_AFTER {
            SHORT
        } else {
            Duration::ZERO
        };
        self.state = KeeperState::Waiting(now + wait);
        KeeperAction::Wait(wait)
    }

    fn leave(&mut self, code: u8) -> KeeperAction {
        self.state = KeeperState::Gone;
        KeeperAction::Leave(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Tick {
        Tick::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn one_that_is_killed_comes_back() {
        let mut core = Core::new(at(0));
        core.handle(KeeperEvent::Ready, at(10));
        assert_eq!(
            core.handle(KeeperEvent::Ended(None), at(5_000)),
            KeeperAction::Wait(Duration::ZERO)
        );
        assert_eq!(core.deadline(), Some(at(5_000)));
        assert_eq!(core.handle(KeeperEvent::Deadline, at(5_000)), KeeperAction::Start);
        core.handle(KeeperEvent::Ready, at(5_010));
        assert_eq!(
            core.handle(KeeperEvent::Ended(Some(1)), at(5_020)),
            KeeperAction::Wait(SHORT)
        );
    }

    #[test]
    fn one_that_ends_by_itself_is_not_brought_back() {
        let mut core = Core::new(at(0));
        core.handle(KeeperEvent::Ready, at(10));
        assert_eq!(core.handle(KeeperEvent::Stop, at(20)), KeeperAction::Forward);
        assert_eq!(
            core.handle(KeeperEvent::Ended(Some(0)), at(30)),
            KeeperAction::Leave(0)
        );
        assert_eq!(core.deadline(), None);
    }

    #[test]
    fn a_first_one_that_never_was_ready_is_an_error() {
        assert_eq!(
            Core::new(at(0)).handle(KeeperEvent::Ended(Some(78)), at(5)),
            KeeperAction::Leave(78)
        );
        assert_eq!(
            Core::new(at(0)).handle(KeeperEvent::NotStarted, at(5)),
            KeeperAction::Leave(EXIT_SOFTWARE)
        );
    }

    #[test]
    fn one_that_is_killed_before_it_is_ready_is_followed_within_a_second_whatever_came_before() {
        let mut core = Core::new(at(0));
        core.handle(KeeperEvent::Ready, at(10));
        core.handle(KeeperEvent::Ended(None), at(2_000));
        let mut now = at(2_000);
        for round in 0..40 {
            assert_eq!(core.handle(KeeperEvent::Deadline, now), KeeperAction::Start);
            // Some masters fail by themselves, with longer and longer delays.
            let end = if round % 4 == 3 { Some(78) } else { None };
            let KeeperAction::Wait(wait) = core.handle(KeeperEvent::Ended(end), now) else {
                panic!("another is tried");
            };
            assert!(end.is_some() || wait <= LONGEST_AFTER_SIGNAL, "{round}: {wait:?}");
            now = now + wait;
        }
        assert_eq!(core.handle(KeeperEvent::Deadline, now), KeeperAction::Start);
        assert_eq!(
            core.handle(KeeperEvent::Ended(Some(78)), now),
            KeeperAction::Wait(LONGEST)
        );
    }

    #[test]
    fn later_ones_that_are_never_ready_are_tried_less_and_less() {
        let mut core = Core::new(at(0));
        core.handle(KeeperEvent::Ready, at(10));
        core.handle(KeeperEvent::Ended(None), at(2_000));
        let mut now = at(2_000);
        let mut waits = Vec::new();
        for _ in 0..10 {
            assert_eq!(core.handle(KeeperEvent::Deadline, now), KeeperAction::Start);
            let KeeperAction::Wait(wait) = core.handle(KeeperEvent::Ended(Some(78)), now) else {
                panic!("another is tried");
            };
            waits.push(wait.as_millis());
            now = now + wait;
        }
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 51200]);
        assert_eq!(
            core.handle(KeeperEvent::Stop, now),
            KeeperAction::Leave(0),
            "there is no master to pass it on to"
        );
    }
}
