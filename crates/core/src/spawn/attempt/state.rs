//! Where a journey is.

/// Where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::spawn) enum AttemptState {
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

impl AttemptState {
    /// The process may yet come up: the time of the whole journey runs, and whatever fails begins the way back.
    pub(in crate::spawn) fn is_on_the_way(self) -> bool {
        match self {
            AttemptState::Preparing
            | AttemptState::Forking
            | AttemptState::Handshaking
            | AttemptState::Checking => true,
            AttemptState::Flushing
            | AttemptState::Examining
            | AttemptState::Killing
            | AttemptState::Sweeping
            | AttemptState::Over => false,
        }
    }
}
