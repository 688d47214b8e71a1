//! How a request finds its process: chooses one, connects to it, tries others, waits for one, gives up.

use super::super::table::ProcessEntry;
use super::links::{LinkState, Reuse, Unreachable};
use forkyard_base::tick::Tick;
use std::time::Duration;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(100);
/// Pauses (half a second in all) before asking a process again that closed a new connection without an answer: a killed
/// process accepts connections until the kernel closes its socket.
const PAUSES_FOR_END: u32 = 9;
const MOST_ASKED: u32 = 2;

/// A request's connection to a process, and earlier attempts.
#[derive(Debug, Default)]
pub(super) struct Upstream {
    pub(super) route: Route,
    pub(super) reuse: Reuse,
    pub(super) tried: Vec<ProcessEntry>,
    pub(super) asked: u32,
    pub(super) failed: Option<ProcessEntry>,
    pub(super) why: Option<Unreachable>,
    pub(super) until: Option<Tick>,
    pub(super) pauses: u32,
}

/// ```text
///   ┌──────────────────┐      the process is released, or the request ends
///   ▼                  │
/// Choosing ──► Taken (Connecting ──► New)
///   ▲ │        Taken (Kept)
///   │ ▼
/// Pausing
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Route {
    #[default]
    Choosing,
    Pausing,
    Taken(Taken),
}

/// A process that counts this request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    /// `None`: a process that forkyard did not start.
    pub(super) process: Option<ProcessEntry>,
    pub(super) link: Option<usize>,
    pub(super) state: LinkState,
}

impl Upstream {
    pub(super) fn taken(&self) -> Option<Taken> {
        match self.route {
            Route::Taken(taken) => Some(taken),
            Route::Choosing | Route::Pausing => None,
        }
    }

    pub(super) fn take(&mut self, taken: Taken) {
        self.tried.extend(taken.process);
        self.route = Route::Taken(taken);
    }

    /// Ends the connection to the process.
    pub(super) fn release(&mut self) -> Option<Taken> {
        let taken = self.taken();
        self.route = Route::Choosing;
        taken
    }

    /// Waits for a process. Returns the end of the pause, or why the request waits no longer.
    pub(super) fn pause(&mut self, now: Tick, most: Duration) -> Result<Tick, Unreachable> {
        self.tried.clear();
        let until = *self.until.get_or_insert(now + most);
        if until <= now {
            return Err(self.why.take().unwrap_or(Unreachable::NotUp));
        }
        self.pauses += 1;
        if self.pauses < PAUSES_FOR_END {
            self.tried.extend(self.failed);
        }
        self.route = Route::Pausing;
        let pause = FIRST_PAUSE * (1 << self.pauses.saturating_sub(1).min(5));
        Ok((now + pause.min(LAST_PAUSE)).min(until))
    }

    /// Whether the request may be sent again because a kept connection had more of an earlier answer.
    pub(super) fn may_leave_kept(&mut self) -> bool {
        self.taken().is_some_and(|taken| taken.state == LinkState::Kept) && self.may_ask_again()
    }

    /// Whether the request may be sent again after its process closed the connection without an answer. A kept
    /// connection may have been closed while the request was on its way.
    pub(super) fn may_ask_again(&mut self) -> bool {
        let Some(taken) = self.taken().filter(|_| self.reuse == Reuse::Any) else {
            return false;
        };
        if taken.state == LinkState::Kept {
            self.tried.clear();
            return true;
        }
        if self.asked + 1 >= MOST_ASKED {
            return false;
        }
        self.asked += 1;
        self.failed = taken.process;
        self.pauses = 0;
        true
    }
}
