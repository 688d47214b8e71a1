//! Why a pool could not be confined.

use std::fmt;

/// Why a pool could not be confined: the setting and what is wrong with it, or missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfineError {
    /// The setting, as in the configuration.
    pub key: &'static str,
    /// What is wrong and what to do, as a sentence's end.
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

impl fmt::Display for ConfineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.reason)
    }
}

impl std::error::Error for ConfineError {}
