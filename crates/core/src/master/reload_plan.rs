//! Plans the changes to each pool before any running pool changes. A failure aborts the reload. With
//! `on_error = "skip"` it only skips the pool, which continues unchanged if it runs.

use super::event::{GenerationId, PoolId};
use super::reload_diff::{Reason, ReloadScope};
use forkyard_protocol::skipped::Skipped;
use std::collections::HashSet;

/// A pool before anything is opened for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolFacts {
    /// Its settings are invalid; the old ones stay.
    pub goes_on: bool,
    pub runs: bool,
    /// Its socket's file is gone or leads elsewhere.
    pub has_lost_socket: bool,
}

impl PoolFacts {
    /// Whether the pool stays as it is.
    pub fn stays(self, extent: ReloadScope) -> bool {
        self.goes_on && self.runs && extent != ReloadScope::All && !self.has_lost_socket
    }
}

/// Whether to apply a configuration with this many usable pools, if some failed (`has_failed`) and `on_error` is
/// `"skip"` (`skips`).
pub fn is_applied(has_failed: bool, skips: bool, pools: usize) -> bool {
    !has_failed || (skips && pools > 0)
}

/// Whether a configuration that can't be applied gives up the sockets that it opened. At the start they stay open: the
/// previous configuration is tried next, and may want the same ones.
pub fn gives_up_sockets(is_first: bool) -> bool {
    !is_first
}

/// The plan for a usable pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Keep(GenerationId),
    /// Gets a new generation for this reason.
    Replace(Reason),
    Add,
}

impl Next {
    /// `kept`: for a known pool, the generation that can stay, or why none can.
    pub fn of(kept: Option<Result<GenerationId, Reason>>) -> Next {
        match kept {
            Some(Ok(generation)) => Next::Keep(generation),
            Some(Err(reason)) => Next::Replace(reason),
            None => Next::Add,
        }
    }

    /// Whether the pool's new generation is tried before it takes over. `is_used`: requests are likely.
    pub fn is_tried(self, extent: ReloadScope, pool: PoolId, is_used: bool) -> bool {
        match (self, extent) {
            (Next::Replace(_), ReloadScope::One(asked)) => asked == pool,
            (Next::Replace(_), ReloadScope::Changed) => is_used,
            (Next::Replace(_), ReloadScope::All | ReloadScope::Settings) => false,
            (Next::Keep(_) | Next::Add, _) => false,
        }
    }
}

/// The changes by pool name.
#[derive(Debug, Default)]
pub struct Changes {
    pub added: Vec<(PoolId, GenerationId, String)>,
    /// Replaced, with the reason.
    pub replaced: Vec<(PoolId, GenerationId, String, Reason)>,
    pub kept: Vec<String>,
    /// Restarted, because their sockets' files were gone.
    pub bound_again: Vec<(PoolId, GenerationId, String)>,
    pub removed: Vec<String>,
    /// Unreachable, with the reason that the socket can't be bound.
    pub failed: Vec<(String, String)>,
    pub skipped: Vec<Skipped>,
}

/// Returns the pools to remove, without those that lost their socket to another.
pub fn removed(before: &[PoolId], wanted: &[PoolId], lost: &[PoolId]) -> Vec<PoolId> {
    let go_on: HashSet<&PoolId> = wanted.iter().chain(lost).collect();
    let ends = |id: &&PoolId| !go_on.contains(id);
    before.iter().filter(ends).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_whose_settings_are_wrong_goes_on_unless_everything_is_replaced_or_its_socket_is_lost() {
        let found = PoolFacts {
            goes_on: true,
            runs: true,
            has_lost_socket: false,
        };
        assert!(found.stays(ReloadScope::Changed) && found.stays(ReloadScope::Settings));
        assert!(!found.stays(ReloadScope::All));
        for other in [
            PoolFacts {
                goes_on: false,
                ..found
            },
            PoolFacts { runs: false, ..found },
            PoolFacts {
                has_lost_socket: true,
                ..found
            },
        ] {
            assert!(!other.stays(ReloadScope::Changed), "{other:?}");
        }
    }

    #[test]
    fn one_pool_that_fails_is_skipped_and_all_that_fail_are_an_error() {
        assert!(is_applied(false, false, 0) && is_applied(true, true, 1));
        assert!(!is_applied(true, true, 0) && !is_applied(true, false, 5));
    }

    #[test]
    fn a_replacement_is_tried_if_requests_are_likely_or_it_was_asked_for() {
        let (pool, next) = (PoolId(1), Next::Replace(Reason::Settings));
        let tried = |extent, is_used| next.is_tried(extent, pool, is_used);
        assert!(tried(ReloadScope::Changed, true) && !tried(ReloadScope::Changed, false));
        assert!(tried(ReloadScope::One(pool), false) && !tried(ReloadScope::One(PoolId(2)), true));
        assert!(!tried(ReloadScope::All, true) && !tried(ReloadScope::Settings, true));
        assert!(!Next::Add.is_tried(ReloadScope::One(pool), pool, true));
    }

    #[test]
    fn a_pool_that_only_lost_its_socket_does_not_end() {
        let [a, b, c] = [PoolId(1), PoolId(2), PoolId(3)];
        assert_eq!(removed(&[a, b, c], &[a, PoolId(4)], &[c]), [b]);
    }
}
