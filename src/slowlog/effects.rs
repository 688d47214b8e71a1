//! In a tracer: becomes the pool's user, reads, writes the entry.

use super::job::{Job, Stack};
use super::memory::Memory;
use super::text::entry;
use crate::sys::identity;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

/// A tracer that takes longer is ended by the kernel, seconds: its log may be on a disk that does not answer.
const PATIENCE_SECONDS: u32 = 10;

/// Why there is no trace.
#[derive(Debug)]
pub enum TraceError {
    /// The tracer can't become the pool's user.
    Identity(crate::sys::Error),
    /// The worker's memory can't be opened.
    Memory(i32, io::Error),
    /// The log can't be written to.
    Write(io::Error),
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Identity(error) => error.fmt(f),
            TraceError::Memory(pid, error) => write!(f, "failed to trace child {pid}: {error}"),
            TraceError::Write(error) => write!(f, "unable to write the slow log: {error}"),
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TraceError::Identity(error) => Some(error),
            TraceError::Memory(_, error) | TraceError::Write(error) => Some(error),
        }
    }
}

/// Writes one entry, with one write. `memory`: the worker's, as the master has opened it; `None`: the master was not
/// allowed to, and the pool's user may be.
///
/// # Errors
/// What went wrong. An entry without calls is written nevertheless, unless it can't be.
pub fn write(job: &Job, memory: Option<File>, log: &mut File) -> Result<(), TraceError> {
    nix::unistd::alarm::set(PATIENCE_SECONDS);
    if let Some(identity) = job.identity.as_ref().filter(|_| identity::is_root()) {
        identity::become_user(identity).map_err(TraceError::Identity)?;
    }
    let memory = match memory {
        Some(memory) => Ok(memory),
        None => File::open(format!("/proc/{}/mem", job.pid)),
    };
    let (stack, result) = match memory {
        Ok(memory) => (job.source.read(&Process(memory), job.depth), Ok(())),
        Err(error) => (Stack::default(), Err(TraceError::Memory(job.pid, error))),
    };
    log.write_all(entry(&job.heading, Some(&stack)).as_bytes())
        .map_err(TraceError::Write)?;
    result
}

/// The memory of a process (proc(5), /proc/PID/mem).
struct Process(File);

impl Memory for Process {
    fn read(&self, address: u64, to: &mut [u8]) -> Option<()> {
        // Beyond this an offset of a file is negative.
        i64::try_from(address).ok()?;
        self.0.read_exact_at(to, address).ok()
    }
}
