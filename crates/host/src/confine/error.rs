//! Confinement errors.

/// A confinement setting that can't be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct ConfineError {
    /// The setting's name in the configuration.
    pub key: &'static str,
    /// The problem and its solution, to end a sentence.
    pub reason: String,
}

impl ConfineError {
    pub(super) fn new(key: &'static str, reason: impl Into<String>) -> ConfineError {
        ConfineError {
            key,
            reason: reason.into(),
        }
    }
}
