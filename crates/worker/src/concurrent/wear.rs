//! A worker's requests and memory. After `max_requests` or `memory_limit` the master replaces it.

use super::super::memory::{Occasion, Scale};
use super::super::sequential::most_requests;
use super::state::has_program;
use forkyard_base::tick::Tick;
use forkyard_config::{Application, Pool};
use forkyard_sys::process::peak_memory_bytes;

const REQUESTS_A_LOOK: u64 = 16;

#[derive(Debug)]
pub(super) struct Wear {
    served: u64,
    most: Option<u64>,
    scale: Option<Scale>,
    /// The process of the last request; 0: none.
    pub program: i32,
    /// The application runs in this process, so its memory counts for requests.
    counts_memory: bool,
    peak_bytes: u64,
}

impl Wear {
    pub(super) fn new(pool: &Pool) -> Wear {
        Wear {
            served: 0,
            most: most_requests(pool).filter(|_| !has_program(pool)),
            scale: Scale::new(pool),
            program: 0,
            counts_memory: matches!(pool.application, Application::Wrapped(_)),
            peak_bytes: 0,
        }
    }

    pub(super) fn has_served(&mut self) {
        self.served += 1;
    }

    /// Whether the worker may become a preloader: after each `refork_at` requests.
    pub(super) fn is_candidate(&self, refork_at: Option<u64>) -> bool {
        refork_at.is_some_and(|requests| requests > 0 && self.served % requests == 0)
    }

    pub(super) fn is_worn_out(&self) -> bool {
        self.most.is_some_and(|most| self.served >= most)
    }

    /// The memory in MiB if it exceeds the limit. Measured once a second.
    pub(super) fn beyond_limit(&mut self) -> Option<u64> {
        self.scale.as_mut()?.beyond_limit(self.program, Occasion::Second)
    }

    pub(super) fn due(&self) -> Option<Tick> {
        self.scale.as_ref().map(Scale::due)
    }

    pub(super) fn scale(&mut self) -> Option<&mut Scale> {
        self.scale.as_mut()
    }

    /// The peak of memory that the next request starts with, and whether it was measured now.
    pub(super) fn peak(&mut self) -> (u64, bool) {
        let is_due = self.counts_memory && self.served % REQUESTS_A_LOOK == 0;
        if is_due {
            self.peak_bytes = peak_memory_bytes();
        }
        (self.peak_bytes, is_due)
    }
}
