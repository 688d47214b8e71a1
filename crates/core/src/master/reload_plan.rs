//! What becomes of each pool of a configuration that is to be applied.
//!
//! What a pool needs is opened before anything of a running pool changes. One that can't be had ends the attempt and leaves
//! everything as it was; or, with `on_error = "skip"`, it is left out, or goes on as it was if it runs.

use super::event::{GenerationId, PoolId};
use super::reload_diff::{Reason, ReloadScope};
use forkyard_protocol::skipped::Skipped;
use std::collections::HashSet;

/// What is known of a pool before anything is opened for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolFacts {
    /// Its settings can't be had; those of before stand in.
    pub goes_on: bool,
    /// It runs.
    pub runs: bool,
    /// The file of its socket is gone, or leads to something else.
    pub has_lost_socket: bool,
}

impl PoolFacts {
    /// Whether the pool goes on as it is, and nothing is opened for it. When everything is replaced, its processes are made
    /// anew if that is possible; a socket that is lost is bound again.
    pub fn stays(self, extent: ReloadScope) -> bool {
        self.goes_on && self.runs && extent != ReloadScope::All && !self.has_lost_socket
    }
}

/// Whether a configuration is applied if this many of its pools can be made. `has_failed`: at least one can't. `skips`:
/// `on_error = "skip"`.
pub fn is_applied(has_failed: bool, skips: bool, pools: usize) -> bool {
    !has_failed || (skips && pools > 0)
}

/// What a pool that has what it needs is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It keeps this generation.
    Keep(GenerationId),
    /// It gets a new generation beside the old one, for this reason.
    Replace(Reason),
    /// It begins.
    Add,
}

impl Next {
    /// `kept`: of a pool that is known, the generation that can go on, or why none can.
    pub fn of(kept: Option<Result<GenerationId, Reason>>) -> Next {
        match kept {
            Some(Ok(generation)) => Next::Keep(generation),
            Some(Err(reason)) => Next::Replace(reason),
            None => Next::Add,
        }
    }
}

/// What becomes of each pool, by name.
#[derive(Debug, Default)]
pub struct Changes {
    /// They begin.
    pub added: Vec<(PoolId, GenerationId, String)>,
    /// They get new workers, and why.
    pub replaced: Vec<(PoolId, GenerationId, String, Reason)>,
    /// They go on as they are.
    pub kept: Vec<String>,
    /// They begin anew, because the files of their sockets were gone.
    pub bound_again: Vec<(PoolId, GenerationId, String)>,
    /// They end.
    pub removed: Vec<String>,
    /// Their socket can't be reached any more; and why it can't be bound again.
    pub failed: Vec<(String, String)>,
    /// They can't be had.
    pub skipped: Vec<Skipped>,
}

/// The pools that end: those that ran, are not in the configuration any more, and have not merely lost their socket to
/// another.
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
    fn a_pool_that_only_lost_its_socket_does_not_end() {
        let [a, b, c] = [PoolId(1), PoolId(2), PoolId(3)];
        assert_eq!(removed(&[a, b, c], &[a, PoolId(4)], &[c]), [b]);
    }
}
