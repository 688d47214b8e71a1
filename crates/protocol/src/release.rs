//! Releases of pools, and their deployments.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::path::PathBuf;

/// The releases of a pool that has the key `release`.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolReleases {
    pub pool: String,
    /// The link, as the configuration names it.
    pub link: PathBuf,
    /// The release in service. `None`: the link could not be read when the pool began.
    pub release: Option<PathBuf>,
    /// The user id of the workers.
    pub uid: u32,
    pub under_way: Option<UnderWay>,
    /// The result of the last deployment since the pool's start.
    pub last: Option<Deployment>,
    /// Requests for a script in no release, in the generations that have workers.
    #[serde(default)]
    pub outside: u64,
    /// The releases with workers, each once.
    pub workers: Vec<ReleaseWorkers>,
}

/// The workers of a release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseWorkers {
    pub release: PathBuf,
    pub workers: u32,
}

/// A deployment that has not ended.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnderWay {
    pub release: PathBuf,
    /// The new release's percentage of the requests. 0 during its trial.
    pub percent: u8,
    /// Requests that the new release has answered in this step, while the old release answered others for comparison.
    pub compared: u64,
    /// The release of the deployment that waits for this one.
    pub waiting: Option<PathBuf>,
    /// When it began, in seconds since 1970.
    #[serde(default)]
    pub since: u64,
    /// The old release's answers since the new one gets requests.
    #[serde(default)]
    pub old: Answered,
    /// The new release's answers.
    #[serde(default)]
    pub new: Answered,
}

/// The requests of a release in a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answered {
    pub requests: u64,
    /// Requests with a status of 500 or above, without an answer, or with a worker that died.
    pub failures: u64,
}

/// The result of a deployment.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    pub pool: String,
    pub release: PathBuf,
    /// The old release.
    pub before: Option<PathBuf>,
    pub outcome: Outcome,
    /// Why the old release stays, with figures.
    pub why: Option<String>,
    /// Other decisions during the deployment, such as a step without enough requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    pub took_ms: u64,
    /// When it was decided, in seconds since 1970.
    #[serde(default)]
    pub time: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The new release gets all requests. Old workers may still finish theirs.
    Deployed,
    /// The new release did not start. The release before serves.
    Failed,
    /// The new release got requests and was taken back. The release before serves.
    RolledBack,
    /// A newer deployment replaced it.
    Replaced,
}

impl Outcome {
    pub const ALL: [Outcome; 4] = [
        Outcome::Deployed,
        Outcome::Failed,
        Outcome::RolledBack,
        Outcome::Replaced,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Outcome::Deployed => "deployed",
            Outcome::Failed => "failed",
            Outcome::RolledBack => "rolled-back",
            Outcome::Replaced => "replaced",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_has_one_name() {
        for outcome in Outcome::ALL {
            let written = serde_json::to_string(&outcome).unwrap();
            assert_eq!(written, format!("\"{}\"", outcome.name()));
        }
    }
}
