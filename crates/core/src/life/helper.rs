//! A helper with a clock and a back-off, restarted by [`Rules::restart`] and killed if it does not stop.

use super::backoff::{Backoff, LONGEST};
use super::{Force, Life, LifeAction, LifeCause};
use forkyard_base::tick::Tick;
use std::time::Duration;

/// The rules of a kind of helper.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// When it starts again.
    pub restart: Restart,
    /// The extra time of a stop, and the time between SIGKILLs.
    pub grace: Duration,
}

/// When a missing helper is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// On demand. A normal exit is no failure.
    Needed,
    /// At once, until it should stop.
    Always,
}

impl Rules {
    /// A pool's reporter, which exits when unused.
    pub const REPORTER: Rules = Rules {
        restart: Restart::Needed,
        grace: Duration::from_secs(2),
    };
    /// An application pool's router and its inspector.
    pub const ROUTER: Rules = Rules {
        restart: Restart::Always,
        grace: Duration::from_secs(1),
    };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happened {
    Needed,
    Ended,
    /// It failed, or could not be started.
    Failed,
    /// It should stop within this time.
    Leave(Duration),
    /// The time from [`Helper::deadline`] has come.
    Deadline,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelperAction {
    None,
    Start,
    /// Tell it to stop.
    Ask,
    Kill,
    /// Log this delay before the next attempt.
    BackOff(Duration),
    /// It is gone until it is needed.
    Idle,
}

/// A helper with its clock.
#[derive(Debug)]
pub struct Helper {
    rules: Rules,
    life: Life,
    since: Tick,
    /// When it may start again or is killed.
    due: Option<Tick>,
    backoff: Backoff,
}

impl Helper {
    /// Returns a helper that is not running. With [`Restart::Always`] it is due now.
    pub fn new(rules: Rules, now: Tick) -> Helper {
        Helper {
            rules,
            life: Life::Absent,
            since: now,
            due: (rules.restart == Restart::Always).then_some(now),
            backoff: Backoff::default(),
        }
    }

    /// When to send [`Happened::Deadline`].
    pub fn deadline(&self) -> Option<Tick> {
        self.due
    }

    /// Whether it should stop.
    pub fn is_leaving(&self) -> bool {
        match self.life {
            Life::Absent => self.due.is_none(),
            Life::Starting | Life::Ready | Life::Failing => false,
            Life::Stopping(_) => true,
        }
    }

    /// Handles an event and returns what to do.
    pub fn handle(&mut self, happened: Happened, now: Tick) -> HelperAction {
        match (happened, self.life, self.due) {
            (Happened::Needed, Life::Absent, None) => self.change(LifeCause::Needed, now),
            (Happened::Ended | Happened::Failed, ..) => self.gone(happened, now),
            (Happened::Leave(_), Life::Absent, Some(_)) => self.idle(),
            (Happened::Leave(limit), Life::Starting | Life::Ready | Life::Stopping(_), due) => {
                let end = now + limit + self.rules.grace;
                self.due = Some(due.map_or(end, |due| due.min(end)));
                self.change(LifeCause::Stop(Force::Ask), now)
            }
            (Happened::Deadline, Life::Absent, Some(_)) => {
                self.due = None;
                match self.rules.restart {
                    Restart::Needed => HelperAction::Idle,
                    Restart::Always => self.change(LifeCause::Needed, now),
                }
            }
            (Happened::Deadline, Life::Stopping(_), _) => {
                self.due = Some(now + self.rules.grace);
                self.change(LifeCause::Stop(Force::Kill), now);
                HelperAction::Kill
            }
            (Happened::Needed | Happened::Leave(_) | Happened::Deadline, ..) => HelperAction::None,
        }
    }

    fn change(&mut self, cause: LifeCause, now: Tick) -> HelperAction {
        let (life, action) = self.life.after(cause);
        self.life = life;
        match action {
            LifeAction::Start => {
                self.since = now;
                // It needs no start message.
                self.life = self.life.after(LifeCause::Up).0;
                HelperAction::Start
            }
            LifeAction::Stop(Force::Ask) => HelperAction::Ask,
            LifeAction::Stop(Force::Terminate | Force::Kill) | LifeAction::Fail => HelperAction::Kill,
            LifeAction::Nothing | LifeAction::Lost => HelperAction::None,
        }
    }

    fn gone(&mut self, happened: Happened, now: Tick) -> HelperAction {
        let before = self.life;
        let (life, action) = before.after(LifeCause::Gone);
        self.life = life;
        match action {
            LifeAction::Lost => {
                self.backoff.lives(self.since);
                if happened == Happened::Ended && self.rules.restart == Restart::Needed {
                    return self.idle();
                }
                let delay = self.backoff.fail(now, LONGEST).unwrap_or(LONGEST);
                self.due = Some(now + delay);
                HelperAction::BackOff(delay)
            }
            LifeAction::Nothing if before != life => self.idle(),
            LifeAction::Nothing | LifeAction::Start | LifeAction::Stop(_) | LifeAction::Fail => {
                HelperAction::None
            }
        }
    }

    fn idle(&mut self) -> HelperAction {
        self.due = None;
        HelperAction::Idle
    }
}

#[cfg(test)]
mod tests {
    use super::super::backoff::FIRST;
    use super::*;

    fn at(millis: u64) -> Tick {
        Tick::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn one_that_dies_is_followed_by_another_later_and_later() {
        for (rules, resumed) in [
            (Rules::ROUTER, HelperAction::Start),
            (Rules::REPORTER, HelperAction::Idle),
        ] {
            let (mut helper, mut now, mut delays) = (Helper::new(rules, at(0)), at(0), Vec::new());
            for round in 0..12 {
                if rules.restart == Restart::Needed {
                    assert_eq!(helper.handle(Happened::Needed, now), HelperAction::Start);
                } else if round == 0 {
                    assert_eq!(helper.handle(Happened::Deadline, now), HelperAction::Start);
                }
                assert_eq!(helper.deadline(), None);
                assert_eq!(helper.handle(Happened::Deadline, now), HelperAction::None);
                let HelperAction::BackOff(delay) = helper.handle(Happened::Failed, now) else {
                    panic!("no delay");
                };
                delays.push(delay);
                assert_eq!(helper.handle(Happened::Needed, now), HelperAction::None);
                assert_eq!(helper.handle(Happened::Failed, now), HelperAction::None);
                now = helper.deadline().expect("a delay ends");
                assert_eq!(helper.handle(Happened::Deadline, now), resumed);
            }
            assert!(delays.windows(2).all(|pair| pair[0] <= pair[1]));
            assert_eq!(delays.last(), Some(&LONGEST));
        }
    }

    #[test]
    fn a_router_that_lived_long_is_followed_soon_however_it_ended() {
        let mut helper = Helper::new(Rules::ROUTER, at(0));
        for (start, end) in [
            (0, Happened::Ended),
            (100_000, Happened::Failed),
            (200_000, Happened::Ended),
        ] {
            assert_eq!(helper.handle(Happened::Deadline, at(start)), HelperAction::Start);
            assert_eq!(
                helper.handle(end, at(start + 60_000)),
                HelperAction::BackOff(FIRST)
            );
        }
    }

    #[test]
    fn a_reporter_that_left_is_started_when_it_is_needed() {
        let mut helper = Helper::new(Rules::REPORTER, at(0));
        assert_eq!(helper.deadline(), None);
        assert_eq!(helper.handle(Happened::Needed, at(0)), HelperAction::Start);
        assert_eq!(helper.handle(Happened::Needed, at(1)), HelperAction::None);
        assert_eq!(helper.handle(Happened::Ended, at(10_000)), HelperAction::Idle);
        assert_eq!(helper.handle(Happened::Ended, at(10_000)), HelperAction::None);
        assert_eq!(helper.handle(Happened::Needed, at(20_000)), HelperAction::Start);
        helper.handle(Happened::Failed, at(20_001));
        let leave = Happened::Leave(Duration::ZERO);
        assert_eq!(helper.handle(leave, at(20_002)), HelperAction::Idle);
        assert_eq!(helper.handle(Happened::Needed, at(20_003)), HelperAction::Start);
    }

    #[test]
    fn one_that_leaves_has_its_time_and_is_killed_after_it() {
        let leave = |seconds| Happened::Leave(Duration::from_secs(seconds));
        let mut helper = Helper::new(Rules::ROUTER, at(0));
        helper.handle(Happened::Deadline, at(0));
        assert!(!helper.is_leaving());
        assert_eq!(helper.handle(leave(60), at(0)), HelperAction::Ask);
        assert_eq!(helper.handle(leave(60), at(1)), HelperAction::None);
        assert_eq!(helper.deadline(), Some(at(61_000)));
        assert_eq!(helper.handle(leave(0), at(2_000)), HelperAction::None);
        assert_eq!(helper.deadline(), Some(at(3_000)), "never later");
        for round in 3..6 {
            assert_eq!(
                helper.handle(Happened::Deadline, at(round * 1_000)),
                HelperAction::Kill
            );
            assert_eq!(helper.deadline(), Some(at((round + 1) * 1_000)));
        }
        assert_eq!(helper.handle(Happened::Failed, at(6_001)), HelperAction::Idle);
        assert_eq!((helper.deadline(), helper.is_leaving()), (None, true));
    }

    #[test]
    fn one_that_is_not_there_leaves_at_once() {
        let mut helper = Helper::new(Rules::ROUTER, at(0));
        assert_eq!(
            helper.handle(Happened::Leave(Duration::ZERO), at(0)),
            HelperAction::Idle
        );
        assert_eq!(
            helper.handle(Happened::Leave(Duration::ZERO), at(1)),
            HelperAction::None
        );
        assert_eq!(helper.handle(Happened::Deadline, at(9)), HelperAction::None);
        assert!(helper.is_leaving());
    }
}
