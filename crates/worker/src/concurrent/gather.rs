//! Concentrates connections on few workers, where workers only pass requests on.
//!
//! Waking a worker costs more than giving a request to one that is awake. The kernel also notifies awake workers
//! registered before the one it wakes, so a worker without connections leaves new ones to them briefly, if enough of
//! them have some.

use super::state::WorkerState;
use crate::pool_view;
use forkyard_base::tick::Tick;
use std::num::NonZero;
use std::time::Duration;

/// After siblings did not take a connection, leave none to them for this time: the kernel may not have notified them.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Gathering {
    enough: Option<usize>,
    from: Tick,
}

impl Gathering {
    pub(super) fn begin(is_native: bool) -> Gathering {
        let processors = || std::thread::available_parallelism().map_or(1, NonZero::get);
        Gathering {
            enough: is_native.then(|| enough(processors())),
            from: Tick::ZERO,
        }
    }

    pub(super) fn was_let_down(&mut self, now: Tick) {
        self.from = now + PAUSE;
    }

    fn leaves(&self, connected: impl FnOnce() -> usize, now: Tick) -> bool {
        self.from <= now && self.enough.is_some_and(|enough| connected() >= enough)
    }
}

/// Half of the processors, because the program and web server do more work per request.
fn enough(processors: usize) -> usize {
    (processors / 2).max(1)
}

impl WorkerState {
    pub(super) fn leaves_to_connected(&self, now: Tick) -> bool {
        let has_none = self.clients.held() == 0;
        let connected = || pool_view::connected(&self.page.board, self.page.own);
        has_none && self.accepting.gathering.leaves(connected, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_processors_pass_on_what_the_others_answer() {
        let enough = [1, 2, 3, 4, 16].map(enough);
        assert_eq!(enough, [1, 1, 1, 2, 8]);
    }

    #[test]
    fn a_worker_that_was_let_down_takes_connections_for_a_while() {
        let mut gathering = Gathering {
            enough: Some(2),
            from: Tick::ZERO,
        };
        let now = Tick::from_nanos(1);
        let leaves = [1, 2, 3].map(|connected| gathering.leaves(|| connected, now));
        assert_eq!(leaves, [false, true, true]);
        gathering.was_let_down(now);
        assert!(!gathering.leaves(|| 3, now));
        assert!(gathering.leaves(|| 2, now + PAUSE));
        assert!(!Gathering::begin(false).leaves(|| 3, now));
    }
}
