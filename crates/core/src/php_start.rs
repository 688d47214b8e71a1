//! What follows a failed start of PHP. In php-fpm's place, PHP starts again without settings that may prevent its start,
//! because php-fpm serves such a pool. With forkyard's own configuration the failed start is an error.

use crate::spawn::error::Category;

/// The process that starts PHP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starter {
    Zygote,
    /// A preloader of one generation.
    Preloader {
        is_ending: bool,
        /// PHP has started with the same settings before.
        is_proven: bool,
    },
}

#[derive(Debug, Clone, Copy)]
pub struct FailedStart {
    pub starter: Starter,
    pub category: Category,
    pub speaks_as_fpm: bool,
    /// Whether there are settings that can be left out.
    pub has_settings: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStart {
    /// None: the failure is an error.
    Nothing,
    /// The same preloader, without the suspected setting.
    Again,
    /// Each of the zygote's pools searches for the setting with its own preloader.
    OwnPreloaders,
}

impl FailedStart {
    /// Returns the start that follows.
    pub fn next(self) -> NextStart {
        let is_phps_end = matches!(self.category, Category::Internal | Category::Timeout);
        match self.starter {
            _ if !self.speaks_as_fpm || !is_phps_end || !self.has_settings => NextStart::Nothing,
            Starter::Zygote => NextStart::OwnPreloaders,
            Starter::Preloader {
                is_ending: false,
                is_proven: false,
            } => NextStart::Again,
            // Settings that PHP has started with before get a second start.
            Starter::Preloader { .. } => NextStart::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: FailedStart = FailedStart {
        starter: Starter::Preloader {
            is_ending: false,
            is_proven: false,
        },
        category: Category::Internal,
        speaks_as_fpm: true,
        has_settings: true,
    };

    #[test]
    fn a_new_preloader_starts_again_and_a_zygote_s_pools_start_their_own() {
        let late = FailedStart {
            category: Category::Timeout,
            ..FIRST
        };
        let zygote = FailedStart {
            starter: Starter::Zygote,
            ..FIRST
        };
        let found = [FIRST, late, zygote].map(FailedStart::next);
        assert_eq!(
            found,
            [NextStart::Again, NextStart::Again, NextStart::OwnPreloaders]
        );
    }

    #[test]
    fn a_failure_is_an_error_where_no_setting_of_php_fpm_can_be_its_cause() {
        for starter in [FIRST.starter, Starter::Zygote] {
            let start = FailedStart { starter, ..FIRST };
            for other in [
                FailedStart {
                    speaks_as_fpm: false,
                    ..start
                },
                FailedStart {
                    has_settings: false,
                    ..start
                },
                FailedStart {
                    category: Category::FileSystem,
                    ..start
                },
            ] {
                assert_eq!(other.next(), NextStart::Nothing, "{other:?}");
            }
        }
    }

    #[test]
    fn a_preloader_that_ends_or_is_proven_does_not_start_again() {
        for (is_ending, is_proven) in [(true, false), (false, true)] {
            let starter = Starter::Preloader { is_ending, is_proven };
            assert_eq!(FailedStart { starter, ..FIRST }.next(), NextStart::Nothing);
        }
    }
}
