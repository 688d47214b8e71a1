//! States of a journey.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::spawn) enum AttemptState {
    /// The work directory is created.
    Preparing,
    /// The process is forked.
    Forking,
    /// The kit waits for the process.
    Handshaking,
    /// The response is read.
    Checking,
    /// After a failure: waits for output.
    Flushing,
    /// After a failure: reads the response.
    Examining,
    /// The process is killed.
    Killing,
    /// Its other processes are killed.
    Sweeping,
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::spawn) enum AttemptProgress {
    Nothing,
    Up,
    Failed,
}

impl AttemptState {
    /// Whether it may still start: the journey's timeout applies, and a failure starts the cleanup.
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
