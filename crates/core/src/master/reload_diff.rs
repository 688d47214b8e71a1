//! Which pools a reload replaces: those with a [`Reason`]. Every other one keeps its workers, its counters and its OPcache.

use super::event::{GenerationId, PoolId};
use std::fmt;

/// How much a reload replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadScope {
    /// Pools in which something changed.
    Changed,
    /// Every pool.
    All,
    /// Pools whose settings or ids changed; files and code are not looked at.
    Settings,
    /// The same, and this pool whether anything changed or not.
    One(PoolId),
}

/// Why a pool is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// `reload = "always"`, or everything is to be replaced.
    Always,
    /// A command asks for it.
    Asked,
    /// Its settings.
    Settings,
    /// The ids or groups of its user.
    Identity,
    /// forkyard-php, libphp, php.ini, a file beside it, or an extension.
    Files,
    /// Its processes do not look by themselves whether the code changed, so the reload is for that.
    Code,
    /// Its workers could not be made; that may be over.
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

/// A generation beside the settings that are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison {
    /// The pool that the generation belongs to.
    pub pool: PoolId,
    /// The user has the same ids and groups.
    pub is_same_user: bool,
    /// Its workers serve as well by the settings that are wanted.
    pub has_same_settings: bool,
    /// `reload = "always"`.
    pub is_always_replaced: bool,
    /// Its processes could not be made, and none was since.
    pub has_failed: bool,
    /// Its processes do not look at the code again.
    pub is_code_cached: bool,
}

impl Comparison {
    /// Why the generation is replaced; `None`: it goes on. `have_files_changed` looks at files, so it is asked last.
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

/// The first of a pool's generations that the changes allow to go on.
///
/// # Errors
/// None can: why the first of all can't.
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
        // From the last that is looked at to the first.
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
