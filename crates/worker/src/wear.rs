//! A worker's requests and memory. After `max_requests` or `memory_limit` the master replaces it.

use super::context::Settings;
use super::memory::{Occasion, Scale};
use forkyard_base::spread;
use forkyard_base::tick::Tick;
use forkyard_config::{Application, Pool};
use forkyard_sys::clock;
use forkyard_sys::process::peak_memory_bytes;

const REQUESTS_A_LOOK: u64 = 16;

#[derive(Debug)]
pub(super) struct Wear {
    pub(super) served: u64,
    /// Requests until the worker exits.
    pub(super) most: Option<u64>,
    /// Requests between its offers to become a preloader.
    refork_at: Option<u64>,
    pub(super) scale: Option<Scale>,
    /// The process of the last request, or the backend; 0: none.
    pub(super) program: i32,
    /// The runtime wants the worker to exit, or it uses too much memory.
    pub(super) is_over: bool,
    /// The application runs in this process, so its memory counts for requests.
    counts_memory: bool,
    peak_bytes: u64,
}

impl Wear {
    pub(super) fn new(settings: &Settings) -> Wear {
        let pool = &settings.pool;
        Wear {
            served: 0,
            most: most_requests(pool),
            refork_at: settings.refork_at.filter(|requests| *requests > 0),
            scale: Scale::new(pool),
            program: 0,
            is_over: false,
            counts_memory: matches!(pool.application, Application::Wrapped(_)),
            peak_bytes: 0,
        }
    }

    /// Whether the worker may become a preloader: after each `refork_at` requests.
    pub(super) fn is_candidate(&self) -> bool {
        self.refork_at.is_some_and(|requests| self.served % requests == 0)
    }

    /// Whether the worker exits before its next request, and the master replaces it (`exited` in
    /// `crates/core/src/master/departure.rs`). HTTP programs count in `crates/runtimes/src/http/gateway/links.rs`. In an
    /// application pool the router counts (`crates/core/src/applications/serving.rs`).
    pub(super) fn is_worn_out(&self) -> bool {
        self.is_over || self.has_served_all()
    }

    pub(super) fn has_served_all(&self) -> bool {
        self.most.is_some_and(|most| self.served >= most)
    }

    /// The memory in MiB if it exceeds the limit.
    pub(super) fn beyond_limit(&mut self, occasion: Occasion) -> Option<u64> {
        self.scale.as_mut()?.beyond_limit(self.program, occasion)
    }

    /// The bytes to report to a router ([`Scale::news`]).
    pub(super) fn news(&mut self, occasion: Occasion) -> Option<u64> {
        self.scale.as_mut()?.news(self.program, occasion)
    }

    pub(super) fn due(&self) -> Option<Tick> {
        self.scale.as_ref().map(Scale::due)
    }

    /// The last measured peak of memory, in bytes.
    pub(super) fn known_peak(&self) -> Option<u64> {
        Some(self.peak_bytes).filter(|bytes| *bytes > 0)
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

/// How many requests a worker serves; random per process if the pool has a jitter.
fn most_requests(pool: &Pool) -> Option<u64> {
    let seed = clock::now().as_nanos() ^ (u64::from(std::process::id()) << 40);
    let jitter = spread::within(seed, pool.retirement.max_requests_jitter);
    let most = pool.retirement.max_requests;
    most.map(|most| most.saturating_add(jitter))
}
