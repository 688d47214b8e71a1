//! Where a journey is, and for whom.

use crate::spawn::event::Token;

/// For whom a journey is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::spawn) enum Purpose {
    /// Somebody wants the process.
    Wish(Token),
    /// It is the preloader of its application.
    Preloader,
}

/// Where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::spawn) enum Phase {
    /// The work directory is made.
    Preparing,
    /// The process is forked.
    Forking,
    /// The preloader is not up yet.
    Waiting,
    /// The preloader is connected to.
    Connecting,
    /// The command is sent to it.
    Sending,
    /// Its answer is awaited.
    Reading,
    /// The process that it named is looked at.
    Adopting,
    /// The process is to say that it is up.
    Handshaking,
    /// It did; what it says of itself is read.
    Checking,
    /// Something failed; last words are awaited.
    Flushing,
    /// What the process left behind is read.
    Examining,
    /// The process is killed.
    Killing,
    /// What it started is killed.
    Sweeping,
    /// Nothing more is done.
    Over,
}

/// What the machine has to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::spawn) enum Progress {
    /// Nothing.
    Nothing,
    /// A preloader is needed.
    NeedsPreloader,
    /// The preloader is lost, and another is needed.
    LostPreloader,
    /// It is up.
    Up,
    /// It failed, and nothing is left of it.
    Failed,
}

impl Phase {
    /// The process may yet come up: the time of the whole journey runs, and whatever fails begins the way back.
    pub(in crate::spawn) fn is_on_the_way(self) -> bool {
        match self {
            Phase::Preparing
            | Phase::Forking
            | Phase::Waiting
            | Phase::Connecting
            | Phase::Sending
            | Phase::Reading
            | Phase::Adopting
            | Phase::Handshaking
            | Phase::Checking => true,
            Phase::Flushing | Phase::Examining | Phase::Killing | Phase::Sweeping | Phase::Over => false,
        }
    }
}
