//! Out-of-band work: work of an application between two requests.
//!
//! An application asks for it during a request. In an application pool the router schedules it, one instance at a time
//! without requests. Other pools coordinate through the scoreboard: an idle worker marks its slot as working, checks
//! all others, and withdraws if another is marked. Each stores before it reads, so two never work at once; those that
//! withdraw retry after different delays.

use super::accept_notify::AcceptNotifier;
use super::page::Page;
use forkyard_base::tick::Tick;
use forkyard_scoreboard::{RequestStage, header, slot_reader};
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_OF_SLOT: Duration = Duration::from_millis(1);
const SLOTS_APART: usize = 50;

/// Why out-of-band work failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// The application's message.
    #[error("{0}")]
    Application(String),
    /// The runtime has no such work.
    #[error("the runtime can't do it")]
    Unsupported,
}

/// Logs a failure. Returns whether the work succeeded.
pub(super) fn report(outcome: Result<(), WorkError>) -> bool {
    outcome
        .inspect_err(|error| log::error!("out-of-band work failed: {error}"))
        .is_ok()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Nothing,
    /// Requested, and not reported; not before this time.
    Wanted(Tick),
    /// The router knows.
    Told,
}

impl Want {
    pub(super) fn ask(self) -> Want {
        match self {
            Want::Nothing | Want::Told => Want::Wanted(Tick::ZERO),
            Want::Wanted(_) => self,
        }
    }

    pub(super) fn due(self) -> Option<Tick> {
        match self {
            Want::Wanted(due) => Some(due),
            Want::Nothing | Want::Told => None,
        }
    }

    /// Shows the work as begun.
    pub(super) fn begin(&mut self, page: &Page, notifier: &mut AcceptNotifier, now: Tick) {
        *self = Want::Nothing;
        page.accepted(now);
        notifier.take_up(page, now);
        page.writer().working(now);
    }

    /// Begins the work unless another worker of the pool is working.
    pub(super) fn claims(&mut self, page: &Page, notifier: &mut AcceptNotifier, now: Tick) -> bool {
        if is_alone(page) {
            self.begin(page, notifier, now);
            if is_alone(page) {
                return true;
            }
            page.idle(now);
        }
        let apart = PAUSE_OF_SLOT.saturating_mul((page.own % SLOTS_APART) as u32);
        *self = Want::Wanted(now + PAUSE + apart);
        false
    }
}

fn is_alone(page: &Page) -> bool {
    let (board, words) = (&page.board, page.board.header());
    let mut others = (0..board.slots()).filter(|index| *index != page.own && header::used(words, *index));
    !others.any(|index| board.slot(index).map(slot_reader::stage) == Some(RequestStage::Working))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_was_set_stays_and_who_was_told_is_told_again() {
        let want = Want::Nothing.ask();
        assert_eq!(want.due(), Some(Tick::ZERO));
        let later = Want::Wanted(Tick::from_nanos(5));
        assert_eq!(later.ask(), later);
        assert_eq!(Want::Told.ask(), want);
        assert_eq!((Want::Told.due(), Want::Nothing.due()), (None, None));
    }
}
