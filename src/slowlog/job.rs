//! What a tracer is told to do.

use super::memory::Memory;
use super::php;
use crate::sys::identity::Identity;
use serde::{Deserialize, Serialize};

/// Where in a worker's memory its runtime keeps the calls that it is in. A preloader says it: it may be wrong on purpose,
/// which shows its own pool something wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "runtime", rename_all = "lowercase")]
pub enum StackSource {
    /// PHP's engine.
    Php(php::Layout),
}

/// One trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The entry's first lines.
    pub heading: String,
    /// The worker.
    pub pid: i32,
    /// Calls that are written down at most.
    pub depth: u32,
    /// Where they are.
    pub source: StackSource,
    /// Whom the tracer becomes before it reads anything; `None`: it stays who it is.
    pub identity: Option<Identity>,
    /// The worker's memory comes with the job.
    pub has_memory: bool,
}

/// A call that a worker is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    /// Where the runtime keeps it.
    pub(super) address: u64,
    /// What is called.
    pub(super) function: Vec<u8>,
    /// Where it was called from; empty: nobody knows.
    pub(super) file: Vec<u8>,
    pub(super) line: u32,
}

/// The calls that a worker is in, the innermost first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stack {
    pub(super) calls: Vec<Call>,
    /// All of them could be read, as far as they were wanted.
    pub(super) is_whole: bool,
}

impl StackSource {
    /// Reads the calls, at most so many.
    pub(super) fn read(&self, memory: &dyn Memory, depth: u32) -> Stack {
        match self {
            StackSource::Php(layout) => php::read(layout, memory, depth),
        }
    }
}
