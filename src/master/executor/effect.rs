//! Effects of one part of the executor on others.

use crate::control::protocol::Answer;

/// A part pushes it to `Services::effects`; [`super::Executor::settle`] routes it.
#[derive(Debug)]
pub(super) enum Effect {
    /// The last pool of this name has closed.
    PoolEnded(String),
    /// The answer to a request on the control socket.
    Answer(u64, Box<Answer>),
    /// A control session has ended.
    SessionEnded(u64),
}
