//! The result of the last reload, for the status and the next master.

use crate::control::{Complaint, Reloaded};
use crate::skipped::Skipped;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The last time the daemon read its configuration.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastReload {
    /// End time, in seconds since 1970.
    pub time: u64,
    pub by: ReloadCause,
    pub result: ReloadResult,
    /// The first error in one line, or `None` on success.
    pub error: Option<String>,
    /// The time until every new worker was up or had failed, in milliseconds.
    pub took_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReloadCause {
    Start,
    /// A new master found a changed configuration.
    Takeover,
    /// SIGUSR2.
    Signal,
    /// `forkyard reload`.
    Command,
    /// `forkyard reload --all`.
    CommandAll,
    /// A new program failed to take over; the old one continues.
    Upgrade,
    Files,
}

impl ReloadCause {
    /// Returns the cause as the end of a sentence.
    pub fn in_words(self) -> &'static str {
        match self {
            ReloadCause::Start => "at the start",
            ReloadCause::Takeover => "by a new master",
            ReloadCause::Signal => "by SIGUSR2",
            ReloadCause::Command => "by forkyard reload",
            ReloadCause::CommandAll => "by forkyard reload --all",
            ReloadCause::Upgrade => "after an upgrade that failed",
            ReloadCause::Files => "because files of pools changed",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReloadResult {
    /// Applied to every pool.
    Done,
    /// Applied to some pools only.
    Incomplete,
    /// Rejected; nothing changed.
    Refused,
}

impl ReloadResult {
    pub fn in_words(self) -> &'static str {
        match self {
            ReloadResult::Done => "done",
            ReloadResult::Incomplete => "not done for all pools",
            ReloadResult::Refused => "refused, the old configuration stays in force",
        }
    }
}

impl LastReload {
    pub fn refused(time: u64, by: ReloadCause, errors: &[Complaint]) -> LastReload {
        LastReload {
            time,
            by,
            result: ReloadResult::Refused,
            error: errors.first().map(|error| first_line(&error.text)),
            took_ms: None,
        }
    }

    /// An applied configuration, with the pools that have errors.
    pub fn applied(time: u64, by: ReloadCause, skipped: &[Skipped]) -> LastReload {
        let error = skipped.first().map(|one| {
            let reason = one.reasons.first().map_or("", String::as_str);
            first_line(&format!("{}: {reason}", one.name()))
        });
        LastReload {
            time,
            by,
            result: match error {
                Some(_) => ReloadResult::Incomplete,
                None => ReloadResult::Done,
            },
            error,
            took_ms: None,
        }
    }

    pub fn over(time: u64, by: ReloadCause, report: &Reloaded) -> LastReload {
        let applied = LastReload::applied(time, by, &report.skipped);
        match report.failed.first() {
            Some(cause) if applied.error.is_none() => LastReload {
                result: ReloadResult::Incomplete,
                error: Some(first_line(&format!("[pool {}]: {}", cause.pool, cause.reason))),
                ..applied
            },
            _ => applied,
        }
    }

    /// Adds how long it took.
    #[must_use]
    pub fn lasting(self, took_ms: u64) -> LastReload {
        LastReload {
            took_ms: Some(took_ms),
            ..self
        }
    }

    /// Returns whether every pool runs the written configuration.
    pub fn is_done(&self) -> bool {
        self.result == ReloadResult::Done
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Cause;

    #[test]
    fn the_first_thing_that_is_wrong_is_kept() {
        let skipped = Skipped {
            pool: Some("a".to_owned()),
            file: "/a.toml".into(),
            reasons: vec!["/a.toml:2:1: x\ny".to_owned(), "z".to_owned()],
            goes_on: false,
        };
        let failed = Cause {
            pool: "b".to_owned(),
            reason: "exit 1\nand more".to_owned(),
        };
        let report = |failed: &[Cause], skipped: &[Skipped]| Reloaded {
            failed: failed.to_vec(),
            skipped: skipped.to_vec(),
            ..Reloaded::default()
        };
        let (skipped, failed) = (&[skipped][..], &[failed][..]);
        let of_skipped = Some("[pool a]: /a.toml:2:1: x");
        for (report, result, error) in [
            (report(&[], &[]), ReloadResult::Done, None),
            (report(&[], skipped), ReloadResult::Incomplete, of_skipped),
            (
                report(failed, &[]),
                ReloadResult::Incomplete,
                Some("[pool b]: exit 1"),
            ),
            (report(failed, skipped), ReloadResult::Incomplete, of_skipped),
        ] {
            let last = LastReload::over(7, ReloadCause::Command, &report);
            assert_eq!((last.result, last.error.as_deref()), (result, error));
            assert_eq!(last.is_done(), error.is_none());
        }
        let complaints = [Complaint::text("/a.toml:1:1: q\nw"), Complaint::text("e")];
        let last = LastReload::refused(7, ReloadCause::CommandAll, &complaints);
        assert_eq!(
            serde_json::to_string(&last).unwrap(),
            r#"{"time":7,"by":"command-all","result":"refused","error":"/a.toml:1:1: q"}"#
        );
    }
}
