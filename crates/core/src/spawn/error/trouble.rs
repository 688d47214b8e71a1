//! Causes of failed spawns.

use super::{Ended, Fault};
use crate::spawn::step::Step;

/// Why a spawn failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The plan is invalid.
    BadPlan(Vec<String>),
    /// The work directory, port or arguments could not be prepared.
    Preparation(Fault),
    Fork(Fault),
    /// A timeout in this step.
    Timeout(Step),
    /// The process exited before it was up.
    Exited(Ended),
    /// It reported a failure, or closed the FIFO.
    Aborted {
        /// The byte it wrote instead of `1`.
        byte: Option<u8>,
    },
    /// The FIFO could not be read.
    Finish(Fault),
    /// Its category is unknown.
    BadCategory(String),
    /// A step's state is unknown.
    BadStep(Step, String),
    /// Errors in its `properties.json`.
    Properties(Vec<String>),
    /// It wrote no `properties.json`.
    NoProperties,
    /// The request was canceled.
    Cancelled,
}
