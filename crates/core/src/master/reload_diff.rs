//! Decides which pools a reload replaces, and why ([`Reason`]).

use super::event::{GenerationId, PoolId};
use std::fmt;

/// The scope of a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadScope {
    Changed,
    All,
    /// Pools with changed settings or user ids; ignores files and code.
    Settings,
    /// As `Settings`, and this pool in any case.
    One(PoolId),
}

/// Why a pool is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// `reload = "always"`, or all pools are replaced.
    Always,
    /// A command requested it.
    Asked,
    Settings,
    /// Its user's ids or groups changed.
    Identity,
    /// forkyard-php, libphp, php.ini, its directory, or an extension changed.
    Files,
    /// Its processes cache the code without checking it.
    Code,
    /// Its workers failed, which may be over.
    Trouble,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Always => "it is always replaced",
            Reason::Asked => "a restart was requested",
            Reason::Settings => "its settings changed",
            Reason::Identity => "its user or group changed",
            Reason::Files => "files that PHP starts from changed",
            Reason::Code => "its code may have changed, and nothing else looks",
            Reason::Trouble => "its workers could not be made",
        })
    }
}

/// A generation compared with the new settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison {
    pub pool: PoolId,
    /// The user has the same ids and groups.
    pub is_same_user: bool,
    /// The settings are equivalent for its workers.
    pub has_same_settings: bool,
    /// `reload = "always"`.
    pub is_always_replaced: bool,
    /// It failed to start processes, without a success since.
    pub has_failed: bool,
    /// Its processes don't check the code again.
    pub is_code_cached: bool,
}

impl Comparison {
    /// Why the generation is replaced; `None`: it stays. `have_files_changed` reads files and is called last.
    pub fn difference(
        &self,
        extent: ReloadScope,
        have_files_changed: impl FnOnce() -> bool,
    ) -> Option<Reason> {
        if !self.is_same_user {
            return Some(Reason::Identity);
        }
        if !self.has_same_settings {
            return Some(Reason::Settings);
        }
        match extent {
            ReloadScope::One(pool) if pool == self.pool => return Some(Reason::Asked),
            ReloadScope::One(_) | ReloadScope::Settings => return None,
            ReloadScope::All => return Some(Reason::Always),
            ReloadScope::Changed if self.is_always_replaced => return Some(Reason::Always),
            ReloadScope::Changed => {}
        }
        if self.has_failed {
            return Some(Reason::Trouble);
        }
        if self.is_code_cached {
            return Some(Reason::Code);
        }
        have_files_changed().then_some(Reason::Files)
    }
}

/// Returns the first of a pool's generations that can stay.
///
/// # Errors
/// None can; the first one's reason.
pub fn kept(
    generations: impl IntoIterator<Item = (GenerationId, Option<Reason>)>,
) -> Result<GenerationId, Reason> {
    let mut first = None;
    for (id, reason) in generations {
        match reason {
            None => return Ok(id),
            Some(reason) => _ = first.get_or_insert(reason),
        }
    }
    Err(first.unwrap_or(Reason::Settings))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAME: Comparison = Comparison {
        pool: PoolId(1),
        is_same_user: true,
        has_same_settings: true,
        is_always_replaced: false,
        has_failed: false,
        is_code_cached: false,
    };

    #[test]
    fn a_pool_of_which_nothing_changed_goes_on() {
        assert_eq!(SAME.difference(ReloadScope::Changed, || false), None);
        assert_eq!(
            SAME.difference(ReloadScope::Changed, || true),
            Some(Reason::Files)
        );
        assert_eq!(SAME.difference(ReloadScope::All, || false), Some(Reason::Always));
        assert_eq!(
            SAME.difference(ReloadScope::One(PoolId(1)), || false),
            Some(Reason::Asked)
        );
        assert_eq!(SAME.difference(ReloadScope::One(PoolId(2)), || true), None);
        assert_eq!(
            SAME.difference(ReloadScope::Settings, || unreachable!("files are not looked at")),
            None
        );
    }

    #[test]
    fn each_difference_has_its_reason_and_the_first_counts() {
        let mut now = SAME;
        let mut reasons = Vec::new();
        for step in 0..5 {
            match step {
                0 => now.is_code_cached = true,
                1 => now.has_failed = true,
                2 => now.is_always_replaced = true,
                3 => now.has_same_settings = false,
                _ => now.is_same_user = false,
            }
            reasons.extend(now.difference(ReloadScope::Changed, || unreachable!("files are looked at last")));
        }
        let expected = [
            Reason::Code,
            Reason::Trouble,
            Reason::Always,
            Reason::Settings,
            Reason::Identity,
        ];
        assert_eq!(reasons, expected);
    }

    #[test]
    fn other_settings_count_whatever_the_extent() {
        let now = Comparison {
            has_same_settings: false,
            ..SAME
        };
        for extent in [ReloadScope::Changed, ReloadScope::All, ReloadScope::Settings] {
            assert_eq!(now.difference(extent, || false), Some(Reason::Settings));
        }
    }

    #[test]
    fn the_generation_that_serves_goes_on_if_the_one_that_comes_does_not() {
        let (coming, serving) = (GenerationId(2), GenerationId(1));
        let files = Some(Reason::Files);
        assert_eq!(kept([(coming, None), (serving, None)]), Ok(coming));
        assert_eq!(kept([(coming, files), (serving, None)]), Ok(serving));
        assert_eq!(
            kept([(coming, files), (serving, Some(Reason::Code))]),
            Err(Reason::Files)
        );
        assert_eq!(kept([]), Err(Reason::Settings));
    }
}
