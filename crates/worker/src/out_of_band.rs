//! Out-of-band work: work of an application between two requests.
//!
//! An application asks for it during a request. In an application pool the router schedules it, one instance at a time
//! without requests. Other pools coordinate through the scoreboard: an idle worker marks its slot as working, checks
//! all others, and withdraws if another is marked. Each stores before it reads, so two never work at once; those that
//! withdraw retry after different delays.

use super::acceptor::Acceptor;
use super::service::Service;
use forkyard_base::tick::Tick;
use forkyard_scoreboard::{Reader, RequestStage, header, slot_reader};
use forkyard_sys::clock;
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_OF_SLOT: Duration = Duration::from_millis(1);
const SLOTS_APART: usize = 50;

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
}

impl Service {
    pub(super) fn begin_work(&mut self) {
        self.want = Want::Nothing;
        let now = clock::now();
        self.taken = now;
        self.slot_writer().working(now);
    }

    pub(super) fn end_work(&mut self) {
        let took = clock::now().since(self.taken);
        self.slot_writer().finished(took.as_micros() as u64, 0);
    }
}

impl Acceptor {
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

pub(super) fn is_alone(board: &Reader, slot: usize) -> bool {
    let words = board.header();
    let mut others = (0..board.slots()).filter(|index| *index != slot && header::used(words, *index));
    !others.any(|index| board.slot(index).map(slot_reader::stage) == Some(RequestStage::Working))
}

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
