//! The job of a tracer.

use super::memory::Memory;
use super::php;
use crate::sys::identity::Identity;
use forkyard_protocol::stack::StackSource;
use serde::{Deserialize, Serialize};

/// How a worker is asked over its socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Asking {
    /// By a signal, whose handler writes the calls: Python.
    Signal,
    /// By that signal, and by the number of the request, which the event loop answers with its tasks: asyncio.
    Loop,
    /// By the number of the request, which a thread of its own answers: Ruby.
    Thread,
    /// The same, of several that serve: a list of them, first the one that has this request.
    Threads,
}

/// How it is found out what a worker is busy with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "means", rename_all = "lowercase")]
pub enum Means {
    /// Its memory is read.
    Memory {
        /// Where its calls are.
        source: StackSource,
        /// The executable that it runs, device and inode. A worker that runs another one is not looked into.
        executable: (u64, u64),
    },
    /// It is asked. Its socket and its process come with the job.
    Asked {
        /// How.
        asking: Asking,
        /// By what number the worker knows the request; 0: it has only one.
        request: u64,
    },
    /// The programs that it has started are looked at.
    Programs,
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
    /// How they are found.
    pub means: Means,
    /// The user that the tracer becomes before it reads anything; `None`: it changes no user.
    pub identity: Option<Identity>,
}

/// A call that a worker is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    /// Where the runtime keeps it; 0 where it does not say.
    pub(super) address: u64,
    /// What is called.
    pub(super) function: Vec<u8>,
    /// Where it was called from, or, of a worker that was asked, where it is; empty: unknown.
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

/// A program that a worker has started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TracedProgram {
    pub(super) pid: i32,
    /// As ps(1) has it.
    pub(super) state: char,
    /// The function of the kernel that it waits in; empty: in none.
    pub(super) waits_in: Vec<u8>,
    /// Its arguments, the first one first.
    pub(super) command: Vec<Vec<u8>>,
}

/// What a worker is busy with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    /// It is in these calls.
    Calls(Stack),
    /// It waits for its tasks, which are in these; with their names.
    Tasks(Vec<(Vec<u8>, Stack)>),
    /// It waits for these.
    Programs(Vec<TracedProgram>),
}

/// Reads the calls that a worker is in, at most so many.
pub(super) fn read(source: &StackSource, memory: &dyn Memory, depth: u32) -> Stack {
    match source {
        StackSource::Php(layout) => php::read(layout, memory, depth),
    }
}
