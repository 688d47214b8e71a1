//! Why a process of ours refused something, in words for the operator.

use serde::{Deserialize, Serialize};

/// A sentence without a full stop. It names the path or the pool, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(transparent)]
#[error("{0}")]
pub struct Reason(pub String);

impl From<String> for Reason {
    fn from(text: String) -> Reason {
        Reason(text)
    }
}
