//! What went wrong, as the machine finds it.

use super::exit::Ended;
use crate::spawn::step::Step;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A system call that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What failed and why: `mkdtemp /run/x: No space left on device (28)`.
    pub text: String,
    /// The error number (errno(3)); 0 where there is none.
    pub errno: i32,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a spawn failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The plan lacks something.
    BadPlan(Vec<String>),
    /// The work directory, the port or the arguments could not be made.
    Preparation(Fault),
    /// No process could be made.
    Fork(Fault),
    /// The time is over; in which of forkyard's steps.
    Timeout(Step),
    /// The new process ended before it was up.
    Exited(Ended),
    /// It said that it failed, or closed the FIFO without a word.
    Aborted {
        /// The byte that it wrote instead of `1`.
        byte: Option<u8>,
    },
    /// The FIFO could not be read.
    Finish(Fault),
    /// It named a category that there is none of.
    BadCategory(String),
    /// It gave a step a state that there is none of.
    BadStep(Step, String),
    /// What is wrong with its `properties.json`.
    Properties(Vec<String>),
    /// It wrote no `properties.json`.
    NoProperties,
    /// It is not wanted any more.
    Cancelled,
}
