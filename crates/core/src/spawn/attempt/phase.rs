//! Where a journey is.

/// Where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::spawn) enum Phase {
    /// The work directory is made.
    Preparing,
    /// The process is forked.
    Forking,
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
pub(in crate::spawn) enum AttemptProgress {
    /// Nothing.
    Nothing,
    /// It is up.
    Up,
    /// It failed, and nothing is left of it.
    Failed,
}

impl Phase {
    /// The process may yet come up: the time of the whole journey runs, and whatever fails begins the way back.
    pub(in crate::spawn) fn is_on_the_way(self) -> bool {
        match self {
            Phase::Preparing | Phase::Forking | Phase::Handshaking | Phase::Checking => true,
            Phase::Flushing | Phase::Examining | Phase::Killing | Phase::Sweeping | Phase::Over => false,
        }
    }
}
