//! Messages of workers and preloaders on a generation's accept-notify pipe. Each is one word of 32 bits:
//!
//! ```text
//! bit     31  30  29..27  26..0
//! Accepted 0   0    0     slot
//! Up       1   0    0     slot
//! Candidate 0  1    0     slot
//! Restart  0   0  reason  time
//! Crowded  0   0    7     slot
//! Busy     1   0    7     slot
//! Restart  0   1    7     time, because the release is gone
//! ```

use forkyard_base::tick::Tick;
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptNotice {
    /// The worker in this slot has accepted a connection.
    Accepted(u32),
    /// The worker in this slot has called accept for the first time.
    Up(u32),
    /// A preloader may be made from the worker in this slot.
    Candidate(u32),
    /// The worker in this slot sees all workers busy and connections that wait.
    Crowded(u32),
    /// The worker in this slot sees more busy workers than the autopilot wants to know of.
    Busy(u32),
    /// The pool needs new processes.
    Restart {
        reason: RestartReason,
        /// The [`timestamp`] of the cause.
        since: u32,
    },
}

const UP: u32 = 1 << 31;
const CANDIDATE: u32 = 1 << 30;
const REASON: u32 = 0b111 << TIMESTAMP_BITS;
const CROWDED: u32 = REASON;
/// [`RestartReason::ReleaseGone`] and Crowded have the same number, so another bit distinguishes them.
const RELEASE_GONE: u32 = CANDIDATE | REASON;
const SLOT: u32 = !(UP | CANDIDATE | REASON);

/// Low bits of the monotonic clock in milliseconds. They wrap after 37 hours, and compare times up to half of that apart.
const TIMESTAMP_BITS: u32 = 27;
const TIMESTAMP: u64 = (1 << TIMESTAMP_BITS) - 1;

impl AcceptNotice {
    pub fn encode(self) -> [u8; 4] {
        let word = match self {
            AcceptNotice::Accepted(slot) => slot,
            AcceptNotice::Up(slot) => slot | UP,
            AcceptNotice::Candidate(slot) => slot | CANDIDATE,
            AcceptNotice::Crowded(slot) => slot | CROWDED,
            AcceptNotice::Busy(slot) => slot | CROWDED | UP,
            AcceptNotice::Restart {
                reason: RestartReason::ReleaseGone,
                since,
            } => since | RELEASE_GONE,
            AcceptNotice::Restart { reason, since } => since | reason.bits() << TIMESTAMP_BITS,
        };
        word.to_ne_bytes()
    }

    pub fn decode(bytes: [u8; 4]) -> AcceptNotice {
        let word = u32::from_ne_bytes(bytes);
        let slot = word & SLOT;
        match RestartReason::from_bits((word & REASON) >> TIMESTAMP_BITS) {
            Some(reason) if word & RELEASE_GONE == RELEASE_GONE => {
                AcceptNotice::Restart { reason, since: slot }
            }
            _ if word & CANDIDATE != 0 => AcceptNotice::Candidate(slot),
            _ if word & (REASON | UP) == CROWDED | UP => AcceptNotice::Busy(slot),
            _ if word & REASON == CROWDED => AcceptNotice::Crowded(slot),
            Some(reason) => AcceptNotice::Restart { reason, since: slot },
            None if word & UP != 0 => AcceptNotice::Up(slot),
            None => AcceptNotice::Accepted(slot),
        }
    }
}

/// Why a worker asks to restart its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartReason {
    /// `tmp/restart.txt` changed since the generation started.
    RestartFile,
    /// A process of its program has served `max_requests`.
    MaxRequests,
    /// It exceeds `memory_limit`.
    Memory,
    /// An application that boots once called `opcache_reset()`.
    CodeReset,
    /// OPcache of an application that boots once is full.
    CodeFull,
    /// A file in `watch` of an application that boots once changed.
    Watched,
    /// The directory of its release was removed.
    ReleaseGone,
}

impl RestartReason {
    pub const ALL: [RestartReason; 7] = [
        RestartReason::RestartFile,
        RestartReason::MaxRequests,
        RestartReason::Memory,
        RestartReason::CodeReset,
        RestartReason::CodeFull,
        RestartReason::Watched,
        RestartReason::ReleaseGone,
    ];

    /// As a nonzero number of three bits.
    pub fn bits(self) -> u32 {
        self as u32 + 1
    }

    /// The reason with this number.
    pub fn from_bits(bits: u32) -> Option<RestartReason> {
        RestartReason::ALL.into_iter().find(|it| it.bits() == bits)
    }
}

/// Returns a timestamp for a message.
pub fn timestamp(at: Tick) -> u32 {
    ((at.as_nanos() / 1_000_000) & TIMESTAMP) as u32
}

/// Whether a generation started before this timestamp.
pub fn is_older(began: Tick, of: u32) -> bool {
    let after = u64::from(of).wrapping_sub(u64::from(timestamp(began))) & TIMESTAMP;
    after <= TIMESTAMP / 2
}

impl fmt::Display for RestartReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RestartReason::RestartFile => "tmp/restart.txt has changed",
            RestartReason::MaxRequests => "its program has had max_requests",
            RestartReason::Memory => "its program uses more than memory_limit",
            RestartReason::CodeReset => "opcache_reset() was called",
            RestartReason::CodeFull => "its OPcache has no memory left for new code",
            RestartReason::Watched => "a watched file has changed",
            RestartReason::ReleaseGone => "the directory of its release is gone",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_notice_is_read_as_it_was_written() {
        let restart = |reason| AcceptNotice::Restart {
            reason,
            since: TIMESTAMP as u32,
        };
        let slots = [0, 1, SLOT].into_iter();
        let notices = slots.flat_map(|slot| {
            [
                AcceptNotice::Accepted(slot),
                AcceptNotice::Up(slot),
                AcceptNotice::Candidate(slot),
                AcceptNotice::Crowded(slot),
                AcceptNotice::Busy(slot),
            ]
        });
        for notice in notices.chain(RestartReason::ALL.map(restart)) {
            assert_eq!(AcceptNotice::decode(notice.encode()), notice);
        }
        assert_eq!(RestartReason::from_bits(0), None);
        assert_eq!(RestartReason::from_bits(8), None);
    }

    #[test]
    fn timestamps_are_compared_within_a_day() {
        let at = |ms: u64| Tick::from_nanos(ms * 1_000_000);
        for began in [100_000_000, u64::from(u32::MAX), (5 << TIMESTAMP_BITS) - 1] {
            for after in [0, 1, 86_400, 36_000_000] {
                assert!(is_older(at(began), timestamp(at(began + after))));
            }
            for before in [1, 86_400, 36_000_000] {
                assert!(!is_older(at(began), timestamp(at(began - before))));
            }
        }
    }
}
