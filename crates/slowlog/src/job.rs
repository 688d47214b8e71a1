//! A tracer's job and its results.

use super::memory::Memory;
use super::php;
use forkyard_protocol::stack::StackSource;
use forkyard_sys::identity::Identity;
use serde::{Deserialize, Serialize};

/// How to ask a worker over its socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Asking {
    /// Python: by a signal, whose handler writes the calls.
    Signal,
    /// asyncio: by the signal, and by the request's id, which the event loop answers with its tasks.
    Loop,
    /// Ruby: by the request's id, which a separate thread answers.
    Thread,
    /// Threads: as [`Asking::Thread`], with a list of threads as the answer, the request's thread first.
    Threads,
}

/// How to read a worker's present calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "means", rename_all = "lowercase")]
pub enum Means {
    /// Reads its memory.
    Memory {
        /// The source of the calls.
        source: StackSource,
        /// Device and inode of its executable. A worker that runs another one is not traced.
        executable: (u64, u64),
    },
    /// Asks the worker. Its socket and pidfd come with the job.
    Asked {
        /// How.
        asking: Asking,
        /// The request's id in the worker; 0: it has only one.
        request: u64,
    },
    /// Lists the programs that it has started.
    Programs,
}

/// One trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The entry's first lines.
    pub heading: String,
    /// The worker.
    pub pid: i32,
    /// The most calls to report.
    pub depth: u32,
    /// How to find them.
    pub means: Means,
    /// The user to switch to before reading anything; `None`: no change.
    pub identity: Option<Identity>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) address: u64,
    pub(super) function: Vec<u8>,
    pub(super) file: Vec<u8>,
    pub(super) line: u32,
}

/// A worker's calls, innermost first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stack {
    pub(super) calls: Vec<Call>,
    pub(super) is_whole: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TracedProgram {
    pub(super) pid: i32,
    pub(super) state: char,
    pub(super) waits_in: Vec<u8>,
    pub(super) command: Vec<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    Calls(Stack),
    Tasks(Vec<(Vec<u8>, Stack)>),
    Programs(Vec<TracedProgram>),
}

pub(super) fn read(source: &StackSource, memory: &dyn Memory, depth: u32) -> Stack {
    match source {
        StackSource::Php(layout) => php::read(layout, memory, depth),
    }
}
