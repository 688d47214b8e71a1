//! What the machine is told.

use super::error::{Ended, Fault};
use super::handshake::response::{Complaint, Response};
use super::plan::Plan;
use std::sync::Arc;

/// Names a request for a process; the caller chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// Names a journey, and the process that it led to; chosen by the machine, never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JourneyId(pub u64);

/// Something happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// A process is wanted. The answer is one `Deliver` with the same token.
    Spawn {
        /// Names the wish.
        token: Token,
        /// What is wanted.
        plan: Arc<Plan>,
    },
    /// It is not wanted any more. The answer still comes.
    Cancel(Token),
    /// The caller has waited for long enough: as if its time were over. The answer still comes.
    Expire(Token),
    /// Every journey is called off.
    Shutdown,
    /// What happened on a journey.
    Journey(JourneyId, JourneyEvent),
}

/// What happened on a journey.
#[derive(Debug, Clone)]
pub enum JourneyEvent {
    /// The work directory and all in it is there.
    Prepared,
    /// It could not be made.
    NotPrepared(Fault),
    /// The process was forked.
    Forked {
        /// Its pid.
        pid: i32,
    },
    /// It could not be.
    NotForked(Fault),
    /// `response/finish`: a byte, or its end.
    Finish(Option<u8>),
    /// It could not be read.
    FinishUnreadable(Fault),
    /// What it said of its failure by another way than the work directory, which counts if nothing is found there.
    Told(Box<Complaint>),
    /// The port was connected to, and the process that listens is the application's.
    Pinged,
    /// No process listens there.
    Silent,
    /// Another process listens there.
    Taken,
    /// Standard output and error were closed by all processes that had them.
    OutputEnded,
    /// The process ended.
    Exited(Ended),
    /// What it left in the work directory, and what it wrote.
    Loaded(Box<Response>),
    /// So many of its processes are still there.
    Swept {
        /// How many, as far as they were looked for.
        left: usize,
        /// All of our children have been looked at; otherwise there may be more.
        is_whole: bool,
    },
}
