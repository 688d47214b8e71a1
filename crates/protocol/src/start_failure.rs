//! The facts of a failed start, from the worker that started the program to the master, which makes the report. They are
//! untrusted and bounded; only output and system errors become text.

use forkyard_base::ended::Ended;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The longest encoding in bytes.
pub const MOST_BYTES: usize = 192 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartFailure {
    /// The error id.
    pub id: u32,
    pub pid: Option<i32>,
    pub fall: Fall,
    /// Monotonic nanoseconds.
    pub started: u64,
    pub prepared: Option<u64>,
    pub executed: Option<u64>,
    pub ended: u64,
    pub output: String,
    pub envvars: Option<String>,
}

impl StartFailure {
    /// Encodes it in at most [`MOST_BYTES`]: shortens the output and drops the environment if needed.
    pub fn encode(&self) -> Vec<u8> {
        let mut start_failure = self.clone();
        loop {
            // Serializing plain values can't fail.
            let bytes = serde_json::to_vec(&start_failure).unwrap_or_default();
            if bytes.len() <= MOST_BYTES {
                return bytes;
            }
            match start_failure.envvars.take() {
                Some(_) => {}
                None if start_failure.output.is_empty() => return Vec::new(),
                None => start_failure.output = last_half(&start_failure.output).to_owned(),
            }
        }
    }

    /// Decodes it; `None`: invalid.
    pub fn decode(bytes: &[u8]) -> Option<StartFailure> {
        let start_failure: StartFailure = serde_json::from_slice(bytes).ok()?;
        let has_pid = start_failure.pid.is_none_or(|pid| pid > 1);
        let ended = match start_failure.fall {
            Fall::Exited(ended, ..) | Fall::Left(ended, _) => ended,
            _ => Ended::Unknown,
        };
        let has_end = match ended {
            Ended::Signal { number, .. } => (1..=64).contains(&number),
            Ended::Code(code) => (0..=255).contains(&code),
            Ended::Unknown => true,
        };
        (has_pid && has_end).then_some(start_failure)
    }
}

/// Why a program failed to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fall {
    /// A resource could not be created.
    Preparation(Fault),
    Fork(Fault),
    /// The execution failed; with the check of the command.
    Exec(Fault, CommandCheck),
    /// It exited; with the check of the command, and whether the OOM killer was active.
    Exited(Ended, CommandCheck, bool),
    /// It exited idle after it was up; and whether the OOM killer was active.
    Left(Ended, bool),
    /// It exceeded the timeout.
    Timeout,
    /// Its answer was invalid.
    Stranger(String),
}

/// A failed system call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct Fault {
    /// The text: `mkdtemp /run/x: No space left on device (28)`.
    pub text: String,
    /// The error number (errno(3)), or 0.
    pub errno: i32,
}

/// The env setupper's check of the command.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CommandCheck {
    /// The command's first word.
    pub word: String,
    pub path: Option<PathBuf>,
    /// Its error, if any.
    pub fault: Option<String>,
    pub remedy: Option<String>,
}

fn last_half(text: &str) -> &str {
    let middle = (text.len() / 2 + 1..=text.len()).find(|at| text.is_char_boundary(*at));
    &text[middle.unwrap_or(text.len())..]
}
