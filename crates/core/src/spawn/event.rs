//! Events of the spawning kit.

use super::error::{Ended, Fault};
use super::handshake::response::{Complaint, Response};
use super::plan::Plan;
use std::sync::Arc;

/// Identifies a spawn request; assigned by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// Identifies a journey and its process; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JourneyId(pub u64);

#[derive(Debug, Clone)]
pub enum Event {
    /// Spawn a process. Answered with one `Deliver`.
    Spawn {
        token: Token,
        plan: Arc<Plan>,
    },
    /// The process is not needed. The answer still follows.
    Cancel(Token),
    /// The caller's timeout has passed. The answer still follows.
    Expire(Token),
    Shutdown,
    /// An event of a journey.
    Journey(JourneyId, JourneyEvent),
}

/// An event of a journey.
#[derive(Debug, Clone)]
pub enum JourneyEvent {
    /// The work directory is complete.
    Prepared,
    /// It could not be created.
    NotPrepared(Fault),
    /// The process was forked.
    Forked {
        pid: i32,
    },
    NotForked(Fault),
    /// A byte from `response/finish`, or its end.
    Finish(Option<u8>),
    /// It could not be read.
    FinishUnreadable(Fault),
    /// An error report from outside the work directory, used if the directory contains no report.
    Told(Box<Complaint>),
    /// The application's process accepted a connection.
    Pinged,
    /// No process listens on the port.
    Silent,
    /// Another process listens on the port.
    Taken,
    /// All processes closed standard output and error.
    OutputEnded,
    Exited(Ended),
    /// The work directory's response and the output.
    Loaded(Box<Response>),
    /// Remaining processes after a sweep.
    Swept {
        left: usize,
        /// Whether all children were checked.
        is_whole: bool,
    },
}
