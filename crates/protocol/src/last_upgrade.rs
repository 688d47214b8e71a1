//! The last attempt to let another program take over.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastUpgrade {
    /// When it began, in milliseconds since 1970.
    pub begun_ms: u64,
    pub by: UpgradeCause,
    pub result: UpgradeResult,
    /// Version and, if known, commit of the program that ran.
    pub from: String,
    /// Version and commit of the program that took over.
    pub to: Option<String>,
    /// How long it took, in milliseconds. `None` while it is under way.
    pub took_ms: Option<u64>,
    /// Why it failed, in one line.
    pub error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpgradeCause {
    /// SIGUSR2, with another program on disk.
    Signal,
    /// `forkyard upgrade`.
    Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpgradeResult {
    UnderWay,
    Done,
    /// The program that ran before goes on.
    Failed,
}

impl UpgradeCause {
    /// Returns the cause as the end of a sentence.
    pub fn in_words(self) -> &'static str {
        match self {
            UpgradeCause::Signal => "by SIGUSR2",
            UpgradeCause::Command => "by forkyard upgrade",
        }
    }
}

impl LastUpgrade {
    pub fn begun(begun_ms: u64, by: UpgradeCause, from: &str) -> LastUpgrade {
        LastUpgrade {
            begun_ms,
            by,
            result: UpgradeResult::UnderWay,
            from: from.to_owned(),
            to: None,
            took_ms: None,
            error: None,
        }
    }

    #[must_use]
    pub fn done(self, now_ms: u64, to: &str) -> LastUpgrade {
        LastUpgrade {
            result: UpgradeResult::Done,
            to: Some(to.to_owned()),
            took_ms: Some(now_ms.saturating_sub(self.begun_ms)),
            ..self
        }
    }

    #[must_use]
    pub fn failed(self, now_ms: u64, error: &str) -> LastUpgrade {
        LastUpgrade {
            result: UpgradeResult::Failed,
            took_ms: Some(now_ms.saturating_sub(self.begun_ms)),
            error: Some(error.lines().next().unwrap_or_default().to_owned()),
            ..self
        }
    }

    pub fn is_under_way(&self) -> bool {
        self.result == UpgradeResult::UnderWay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_well_or_with_its_error() {
        let begun = LastUpgrade::begun(5000, UpgradeCause::Command, "1.0.0 (a)");
        assert!(begun.is_under_way());
        assert_eq!(
            serde_json::to_string(&begun.clone().done(5250, "1.1.0 (b)")).unwrap(),
            r#"{"begun_ms":5000,"by":"command","result":"done","from":"1.0.0 (a)","to":"1.1.0 (b)","took_ms":250}"#
        );
        let failed = begun.failed(4000, "no\nand more");
        assert_eq!((failed.took_ms, failed.error.as_deref()), (Some(0), Some("no")));
        assert!(!failed.is_under_way());
    }
}
