//! The result of a comparison, in a sentence.

use super::sums::{Counts, Pair};
use forkyard_base::text;
use std::fmt;
use std::time::Duration;

/// The difference between two generations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    Errors,
    Slower,
    Deaths,
    Refusals,
    FailedStarts,
}

/// Numbers of one generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Requests, or starts.
    pub of: u64,
    /// How many of them failed.
    pub failed: u64,
    /// The median of the times.
    pub median: Option<Duration>,
}

impl Figures {
    fn new(counts: &Counts) -> Figures {
        Figures {
            of: counts.requests,
            failed: counts.errors,
            median: counts
                .times
                .median()
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    GoOn,
    RollBack {
        /// `None`: all routes together.
        route: Option<String>,
        why: Why,
        figures: Pair<Figures>,
    },
}

impl Verdict {
    pub(super) fn roll_back(route: Option<&String>, why: Why, sums: &Pair<Counts>) -> Verdict {
        Verdict::RollBack {
            route: route.cloned(),
            why,
            figures: Pair {
                old: Figures::new(&sums.old),
                new: Figures::new(&sums.new),
            },
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict::RollBack { route, why, figures } = self else {
            return f.write_str("the new release is not worse than the one before");
        };
        let route = text::line(route.as_deref().unwrap_or("the new release"));
        let Pair { old, new } = figures;
        match why {
            Why::Errors => write!(
                f,
                "{route} failed in {} of {} requests, with the release before in {} of {}",
                new.failed, new.of, old.failed, old.of
            ),
            Why::Slower => {
                let millis = |figures: &Figures| figures.median.unwrap_or_default().as_secs_f64() * 1e3;
                write!(
                    f,
                    "{route} takes {:.1} ms, with the release before {:.1} ms (medians of {} and {} requests)",
                    millis(new),
                    millis(old),
                    new.of,
                    old.of
                )
            }
            Why::Deaths => write!(
                f,
                "{} workers died in {} requests, with the release before {} in {}",
                new.failed, new.of, old.failed, old.of
            ),
            Why::Refusals => write!(
                f,
                "{} of {} requests named a script that is missing or refused, with the release before {} of {}",
                new.failed, new.of, old.failed, old.of
            ),
            Why::FailedStarts => write!(f, "{} of {} starts of a worker failed", new.failed, new.of),
        }
    }
}
