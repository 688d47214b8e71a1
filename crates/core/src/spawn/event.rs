//! What the machine is told.

use super::error::{Ended, Fault};
use super::handshake::response::{Complaint, Response};
use super::plan::Plan;
use super::step::Step;
use std::sync::Arc;

/// Names a request for a process; chosen by whoever asks.
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
    /// Whoever wants it has waited for long enough: as if its time were over. The answer still comes.
    Expire(Token),
    /// An application's preloader is to go.
    Retire {
        /// Whose.
        group: String,
    },
    /// Every preloader is to go, and every journey is called off.
    Shutdown,
    /// News of a journey, or of the preloader that it led to.
    Happened(JourneyId, News),
}

/// News of a journey.
#[derive(Debug, Clone)]
pub enum News {
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
    /// The preloader took the connection.
    Connected,
    /// The command was sent.
    Sent,
    /// The preloader answered: a line, or all that it wrote before it closed.
    Answered(Vec<u8>),
    /// So many wait to be taken by the preloader that another try has to be made later.
    Busy,
    /// The preloader could not be spoken to.
    Lost(Fault),
    /// The process that the preloader named is its own; it is watched.
    Adopted,
    /// It can't be, and why.
    NotAdopted(String),
    /// `response/finish`: a byte, or its end.
    Finish(Option<u8>),
    /// It could not be read.
    FinishUnreadable(Fault),
    /// What it said of its failure by another way than the work directory, which counts if nothing is found there.
    Told(Box<Complaint>),
    /// The port was connected to, and the process that listens is the application's.
    Pinged,
    /// Nobody listens there.
    Silent,
    /// Somebody else listens there.
    Taken,
    /// Standard output and error were closed by all who had them.
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

/// The steps of ours during which the preloader may be lost.
pub(super) const PRELOADER_STEPS: [Step; 3] = [
    Step::KitConnectToPreloader,
    Step::KitSendCommandToPreloader,
    Step::KitReadResponseFromPreloader,
];
