//! Connections of workers that only pass requests on are gathered by few of them.
//!
//! A worker that is awake already takes a request up for less than one that has to be woken, and what several have to say to it
//! it hears at once. The kernel wakes a worker for a connection if those before it are awake. It tells those, too. So a worker
//! without a connection leaves it to them for a moment, if enough of them have some.

use super::state::WorkerState;
use crate::tick::Tick;
use crate::worker::pool_view;
use std::num::NonZero;
use std::time::Duration;

/// For so long a worker leaves nothing to siblings once they have not taken what was left to them: the kernel may have told
/// none of them.
const PAUSE: Duration = Duration::from_secs(1);

/// When a worker leaves connections to siblings.
#[derive(Debug)]
pub(super) struct Gathering {
    /// So many workers with connections are enough; `None`: it is not for them to say.
    enough: Option<usize>,
    /// Not before then.
    from: Tick,
}

impl Gathering {
    /// `is_native`: the worker only passes requests on.
    pub(super) fn begin(is_native: bool) -> Gathering {
        let processors = || std::thread::available_parallelism().map_or(1, NonZero::get);
        Gathering {
            enough: is_native.then(|| enough(processors())),
            from: Tick::ZERO,
        }
    }

    /// The siblings did not take a connection that was left to them.
    pub(super) fn was_let_down(&mut self, now: Tick) {
        self.from = now + PAUSE;
    }

    /// Whether a connection is left to siblings, so many of which have some.
    fn leaves(&self, connected: impl FnOnce() -> usize, now: Tick) -> bool {
        self.from <= now && self.enough.is_some_and(|enough| connected() >= enough)
    }
}

/// How many workers can use the processors up, with the program and the web server, which have more to do for each request.
fn enough(processors: usize) -> usize {
    (processors / 2).max(1)
}

impl WorkerState {
    /// Whether a connection is left to siblings that have some.
    pub(super) fn leaves_to_connected(&self, now: Tick) -> bool {
        let has_none = self.clients.len() == self.free.len();
        let connected = || pool_view::connected(&self.board, self.notifier.slot());
        has_none && self.gathering.leaves(connected, now)
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
