//! Out-of-band work: what an application does between two requests, when no client waits for it.
//!
//! An application asks for it while it answers a request. In an application pool the router says when it is time: for
//! one instance of an application at a time, which gets no request meanwhile. In a pool of one application the workers
//! see to that themselves, by the scoreboard. A worker that finds nothing to do says in its own slot that it works,
//! looks at all others, and withdraws if one of them says the same. Each stores before it looks, so that both see both:
//! there are never two, and those that withdraw try again after times that differ.

use super::acceptor::Acceptor;
use super::service::Service;
use crate::scoreboard::{Reader, RequestStage, header, slot_reader};
use crate::sys::clock;
use crate::tick::Tick;
use std::time::Duration;

/// How long a worker waits that has seen another one work, and how much longer with each slot.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_OF_SLOT: Duration = Duration::from_millis(1);
const SLOTS_APART: usize = 50;

/// Whether an application has asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// It did not ask.
    Nothing,
    /// It did; no other process knows yet. Not before this time.
    Wanted(Tick),
    /// The router knows.
    Told,
}

impl Want {
    /// What it becomes when an application asks.
    pub(super) fn ask(self) -> Want {
        match self {
            // The router may not have heard it: what could not be delivered is not said again by itself.
            Want::Nothing | Want::Told => Want::Wanted(Tick::ZERO),
            Want::Wanted(_) => self,
        }
    }

    /// When a worker of a pool of one application is to try; `None`: not at all.
    pub(super) fn due(self) -> Option<Tick> {
        match self {
            Want::Wanted(due) => Some(due),
            Want::Nothing | Want::Told => None,
        }
    }
}

impl Service {
    /// The work begins. It is seen as what the worker does, like a request.
    pub(super) fn begin_work(&mut self) {
        self.want = Want::Nothing;
        let now = clock::now();
        self.taken = now;
        self.slot_writer().working(now);
    }

    /// It is over.
    pub(super) fn end_work(&mut self) {
        let took = clock::now().since(self.taken);
        self.slot_writer().finished(took.as_micros() as u64, 0);
    }
}

impl Acceptor {
    /// Nothing else is to be done: begins the work, if no sibling is at it. `false`: one is.
    pub(super) fn claims_work(&mut self, service: &mut Service) -> bool {
        if !is_alone(&service.board, self.slot()) {
            service.want = postponed(self.slot());
            return false;
        }
        self.take_up(service);
        service.begin_work();
        if is_alone(&service.board, self.slot()) {
            return true;
        }
        service.want = postponed(self.slot());
        service.slot_writer().idle(clock::now());
        false
    }
}

/// Whether no sibling works.
pub(super) fn is_alone(board: &Reader, slot: usize) -> bool {
    let words = board.header();
    let mut others = (0..board.slots()).filter(|index| *index != slot && header::used(words, *index));
    !others.any(|index| board.slot(index).map(slot_reader::stage) == Some(RequestStage::Working))
}

/// When to try again.
pub(super) fn postponed(slot: usize) -> Want {
    let apart = PAUSE_OF_SLOT.saturating_mul((slot % SLOTS_APART) as u32);
    Want::Wanted(clock::now() + PAUSE + apart)
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
