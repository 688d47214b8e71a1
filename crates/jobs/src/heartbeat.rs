//! The lookups of other processes' jobs in the store. With several machines they are also this one's heartbeat.

use forkyard_protocol::control::millis;
use std::time::Duration;

/// ```text
///            sent               reply
/// Due(when) ──────> Sent(when) ───────> Due(later), or Off
///     ^                 │ the reply is lost
///     └─────────────────┘
/// ```
#[derive(Debug, Clone, Copy)]
enum Lookup {
    Off,
    Due(u64),
    Sent(u64),
}

#[derive(Debug)]
pub(crate) struct Heartbeat {
    lookup: Lookup,
    /// The time of the last lookup that had a reply.
    heard_ms: u64,
    is_cut_off: bool,
}

impl Heartbeat {
    pub(crate) fn new(now_ms: u64) -> Heartbeat {
        Heartbeat {
            lookup: Lookup::Due(0),
            heard_ms: now_ms,
            is_cut_off: false,
        }
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        match self.lookup {
            Lookup::Due(due) => Some(due),
            Lookup::Off | Lookup::Sent(_) => None,
        }
    }

    pub(crate) fn sent(&mut self, now_ms: u64) {
        self.lookup = Lookup::Sent(now_ms);
    }

    /// A reply came; no other lookup is due yet.
    pub(crate) fn heard(&mut self) {
        if let Lookup::Sent(sent_ms) = self.lookup {
            self.heard_ms = sent_ms;
        }
        self.lookup = Lookup::Off;
        self.is_cut_off = false;
    }

    pub(crate) fn lost(&mut self) {
        if matches!(self.lookup, Lookup::Sent(_)) {
            self.lookup = Lookup::Due(0);
        }
    }

    pub(crate) fn due_before(&mut self, latest_ms: u64) {
        self.lookup = match self.lookup {
            Lookup::Due(due) => Lookup::Due(due.min(latest_ms)),
            Lookup::Off => Lookup::Due(latest_ms),
            sent @ Lookup::Sent(_) => sent,
        };
    }

    /// The store was silent for so long that other machines may start jobs that run here: they are aborted.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    pub(crate) fn cut_off_at(&self, machine_timeout: Duration) -> Option<u64> {
        (!self.is_cut_off).then(|| self.heard_ms.saturating_add(millis(machine_timeout) / 4 * 3))
    }

    pub(crate) fn cut_off(&mut self) {
        self.is_cut_off = true;
    }
}
