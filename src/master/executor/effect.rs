//! Effects of one part of the executor on others.

/// A part pushes it to `Services::effects`; [`super::Executor::settle`] routes it.
#[derive(Debug)]
pub(super) enum Effect {
    /// The last pool of this name has closed.
    PoolEnded(String),
}
