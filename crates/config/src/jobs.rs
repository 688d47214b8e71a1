//! Resolved settings of `[jobs]`: background jobs, queues and schedules.

use crate::model::{Address, LogLevel, Pool};
use crate::postgresql::PostgresqlServer;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub const JOBS_USER: &str = "forkyard-jobs";
pub const JOBS_PROGRAM: &str = "forkyard-jobs";
pub const JOBS_POSTGRESQL_PROGRAM: &str = "forkyard-jobs-postgresql";

/// The environment variable with the job socket.
pub const JOBS_VARIABLE: &str = "FORKYARD_JOBS";

/// The environment variable with the push timeout, in milliseconds.
pub const PUSH_TIMEOUT_VARIABLE: &str = "FORKYARD_JOBS_TIMEOUT";

impl Pool {
    pub fn pushes_jobs(&self) -> bool {
        self.environment.env.iter().any(|(name, _)| name == JOBS_VARIABLE)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jobs {
    pub store: JobsStore,
    pub durability: Durability,
    pub push_timeout: Duration,
    /// How long a machine may be silent before others restart its jobs.
    pub machine_timeout: Duration,
    /// The job process's user. `None`: the daemon's. Only used by a root master.
    pub user: Option<String>,
    pub listen: PathBuf,
    #[serde(default)]
    pub tcp: Option<JobsTcp>,
    pub keep_done: Duration,
    /// How long failed or quarantined jobs are kept.
    #[serde(default = "keep_failed")]
    pub keep_failed: Duration,
    pub max_payload: u64,
    /// Bytes kept of a job's answer and error output.
    pub max_result: u64,
    pub queues: Vec<Queue>,
    pub schedules: Vec<Schedule>,
}

impl Jobs {
    pub fn queue(&self, name: &str) -> Option<&Queue> {
        self.queues.iter().find(|queue| queue.name == name)
    }
}

pub fn keep_failed() -> Duration {
    Duration::from_secs(30 * 24 * 3600)
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobsTcp {
    /// An address that other machines can't reach.
    pub address: SocketAddr,
    pub secret_file: PathBuf,
}

/// A shared secret, never displayed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub const LENGTHS: std::ops::RangeInclusive<usize> = 16..=255;

    /// Reads the only line of a file. Returns `None` if its length or characters are invalid.
    pub fn read(text: &str) -> Option<Secret> {
        let word = text.trim_ascii_end();
        let is_plain = word.bytes().all(|byte| byte.is_ascii_graphic());
        (is_plain && Secret::LENGTHS.contains(&word.len())).then(|| Secret(word.to_owned()))
    }

    /// Returns the secret, for sending.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Compares in constant time.
    pub fn is(&self, word: &str) -> bool {
        let (own, other) = (self.0.as_bytes(), word.as_bytes());
        let differences = own
            .iter()
            .zip(other)
            .fold(0, |all, (own, other)| std::hint::black_box(all | (own ^ other)));
        own.len() == other.len() && differences == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobsStore {
    /// A SQLite file.
    File(PathBuf),
    /// A PostgreSQL database, possibly shared by several machines.
    Postgresql(PostgresqlServer),
}

impl JobsStore {
    pub fn program(&self) -> &'static str {
        match self {
            JobsStore::File(_) => JOBS_PROGRAM,
            JobsStore::Postgresql(_) => JOBS_POSTGRESQL_PROGRAM,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Durability {
    /// The job is on disk.
    Full,
    /// The kernel has the data. A power failure may lose the latest jobs; a process failure doesn't.
    Normal,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    pub name: String,
    pub pool: String,
    pub address: Address,
    pub workers: u32,
    /// Users who may push, besides root and the daemon's.
    pub users: Vec<u32>,
    /// Descriptions of job kinds.
    #[serde(default)]
    pub kinds: BTreeMap<String, String>,
    /// SCRIPT_FILENAME. `None`: the application decides.
    pub script: Option<PathBuf>,
    pub max_running: u32,
    /// The weight of its groups against the pool's other queues, at least 1.
    pub weight: u32,
    /// Reserve a tenth of the pool's workers for groups with nothing running.
    pub reserve: bool,
    /// The timeout of a job or step.
    pub timeout: Duration,
    /// Failed starts before a job fails, at least 1.
    pub attempts: u32,
    /// Consecutive worker deaths before a job is quarantined, at least 1.
    pub crashes: u32,
    pub backoff: Backoff,
    pub rate: Option<Rate>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    pub first: Duration,
    pub factor: u32,
    pub most: Duration,
    pub jitter_percent: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// At least 1.
    pub jobs: u32,
    pub per: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    pub name: String,
    pub queue: String,
    pub kind: String,
    pub cron: String,
    pub timezone: String,
    pub missed: Missed,
    pub overlap: Overlap,
    pub payload: String,
}

/// What happens to times when the daemon was down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missed {
    Skip,
    Once,
    /// One job each, for the latest hundred.
    All,
}

/// What happens if the previous job isn't finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    Skip,
    Queue,
    Allow,
}

/// The daemon's first message to the job process, sent with the user to become.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobsStart {
    pub title: String,
    /// The minimum severity of log lines.
    pub log_level: LogLevel,
    pub jobs: Jobs,
    /// The shared secret for TCP clients. The socket is passed too.
    pub secret: Option<Secret>,
}

/// Later messages: settings and the shared secret.
pub type JobsTold = (Jobs, Option<Secret>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_one_word_and_never_shown() {
        for wrong in [
            "",
            "short",
            "0123456789abcde",
            "0123456789 abcdef",
            "0123456789abcdef\nmore",
        ] {
            assert_eq!(Secret::read(wrong), None, "{wrong}");
        }
        assert_eq!(Secret::read(&"x".repeat(256)), None);
        let secret = Secret::read("0123456789abcdef\r\n").expect("a secret");
        assert!(secret.is("0123456789abcdef"));
        for wrong in ["", "0123456789abcdeF", "0123456789abcde", "0123456789abcdef0"] {
            assert!(!secret.is(wrong), "{wrong}");
        }
        assert_eq!(format!("{secret:?}"), "Secret");
    }
}
