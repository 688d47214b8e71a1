//! What `[jobs]` means: background jobs, their queues and their schedules.

use crate::model::{Address, LogLevel, Pool};
use crate::postgresql::PostgresqlServer;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The user that a package makes for the process that keeps jobs.
pub const JOBS_USER: &str = "forkyard-jobs";
/// The program that keeps jobs, beside forkyard's others.
pub const JOBS_PROGRAM: &str = "forkyard-jobs";
/// The one that keeps them in a database of PostgreSQL.
pub const JOBS_POSTGRESQL_PROGRAM: &str = "forkyard-jobs-postgresql";

/// The variable of workers' environment that says where jobs are pushed.
pub const JOBS_VARIABLE: &str = "FORKYARD_JOBS";

/// The one that says how long a push may take, milliseconds.
pub const PUSH_TIMEOUT_VARIABLE: &str = "FORKYARD_JOBS_TIMEOUT";

impl Pool {
    /// Whether its applications are told where jobs are pushed.
    pub fn pushes_jobs(&self) -> bool {
        self.env.iter().any(|(name, _)| name == JOBS_VARIABLE)
    }
}

/// Background jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jobs {
    /// Where they are kept.
    pub store: JobsStore,
    /// What a push waits for.
    pub durability: Durability,
    /// How long a push may take.
    pub push_timeout: Duration,
    /// How long a machine may be silent until the others that use the store start its jobs again.
    pub machine_timeout: Duration,
    /// Whom the process that keeps them runs as; `None`: the daemon's user. Only used by a root master.
    pub user: Option<String>,
    /// Where it listens for commands: a unix socket.
    pub listen: PathBuf,
    /// Where it listens for commands over TCP.
    #[serde(default)]
    pub tcp: Option<JobsTcp>,
    /// Jobs that are done are forgotten after this time.
    pub keep_done: Duration,
    /// Jobs that failed or are quarantined are forgotten after this time.
    #[serde(default = "keep_failed")]
    pub keep_failed: Duration,
    /// Most bytes of a job's payload.
    pub max_payload: u64,
    /// Most bytes that are kept of what a job answers, and of what it writes to its error stream.
    pub max_result: u64,
    /// Where jobs wait, by name.
    pub queues: Vec<Queue>,
    /// What is pushed at certain times.
    pub schedules: Vec<Schedule>,
}

/// How long jobs that failed are kept unless it is said otherwise.
pub fn keep_failed() -> Duration {
    Duration::from_secs(30 * 24 * 3600)
}

/// A TCP socket for commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobsTcp {
    /// Where it listens: an address of this machine that no other can reach.
    pub address: SocketAddr,
    /// The file with what a client has to know.
    pub secret_file: PathBuf,
}

/// What a client has to know. Nothing shows it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// How long one is, in bytes.
    pub const LENGTHS: std::ops::RangeInclusive<usize> = 16..=255;

    /// The secret in a file's text: its only line. `None`: it is too short or too long, or has characters that can't be seen.
    pub fn read(text: &str) -> Option<Secret> {
        let word = text.trim_ascii_end();
        let is_plain = word.bytes().all(|byte| byte.is_ascii_graphic());
        (is_plain && Secret::LENGTHS.contains(&word.len())).then(|| Secret(word.to_owned()))
    }

    /// The word itself, to be sent.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether this is it. How long that takes says nothing of where the two differ.
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

/// Where jobs are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobsStore {
    /// In a file, by SQLite.
    File(PathBuf),
    /// In a database of a PostgreSQL server, which several machines may use.
    Postgresql(PostgresqlServer),
}

impl JobsStore {
    /// The program that keeps jobs there, beside forkyard's others.
    pub fn program(&self) -> &'static str {
        match self {
            JobsStore::File(_) => JOBS_PROGRAM,
            JobsStore::Postgresql(_) => JOBS_POSTGRESQL_PROGRAM,
        }
    }
}

/// What a push waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Durability {
    /// Until the job is on the disk.
    Full,
    /// Until the kernel has it: the last moments may be lost when power fails, and not when a process does.
    Normal,
}

/// Where jobs wait, and how they are run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Its name, unique.
    pub name: String,
    /// The pool that runs its jobs.
    pub pool: String,
    /// Where that listens.
    pub address: Address,
    /// How many requests the pool works on at once.
    pub workers: u32,
    /// The users, beside root and the daemon's, that may push into it.
    pub users: Vec<u32>,
    /// What is asked for: SCRIPT_FILENAME. `None`: the pool's application knows.
    pub script: Option<PathBuf>,
    /// Most jobs of this queue at once.
    pub max_running: u32,
    /// Its groups' share beside those of the pool's other queues, at least 1.
    pub weight: u32,
    /// Keep a tenth of the pool's workers for groups with nothing running.
    pub reserve: bool,
    /// A job, or a step of one, may take this long.
    pub timeout: Duration,
    /// Starts that ended in failure until the job has failed, at least 1.
    pub attempts: u32,
    /// Workers that died under a job in a row until it is quarantined, at least 1.
    pub crashes: u32,
    /// What a job waits after a failure.
    pub backoff: Backoff,
    /// Most starts in a time; `None`: no limit.
    pub rate: Option<Rate>,
}

/// What a job waits after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// After the first.
    pub first: Duration,
    /// So many times as long after each further one, at least 1.
    pub factor: u32,
    /// Never longer.
    pub most: Duration,
    /// Up to this part of the time more or less, percent.
    pub jitter_percent: u32,
}

/// Most starts in a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// Starts, at least 1.
    pub jobs: u32,
    /// In this time, above zero.
    pub per: Duration,
}

/// What is pushed at certain times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Its name, unique.
    pub name: String,
    /// Where its jobs wait.
    pub queue: String,
    /// What they are.
    pub kind: String,
    /// When: crontab(5).
    pub cron: String,
    /// In which time zone.
    pub timezone: String,
    /// What becomes of times at which the daemon did not run.
    pub missed: Missed,
    /// What if the job before it is not over.
    pub overlap: Overlap,
    /// What the job is given.
    pub payload: String,
}

/// What becomes of times at which the daemon did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missed {
    /// Nothing.
    Skip,
    /// One job for all of them.
    Once,
    /// A job for each, the latest hundred at most.
    All,
}

/// What if the job before is not over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// No other is pushed.
    Skip,
    /// Another waits until it is over.
    Queue,
    /// Another runs beside it.
    Allow,
}

/// What the daemon tells the process that keeps jobs at its start, together with the user that it becomes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobsStart {
    /// The process' title.
    pub title: String,
    /// What is less severe is not said.
    pub log_level: LogLevel,
    /// What it keeps.
    pub jobs: Jobs,
    /// What a client has to know that comes over TCP; the socket is passed, too.
    pub secret: Option<Secret>,
}

/// What it is told later: what it keeps, and what a client has to know that comes over TCP.
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
