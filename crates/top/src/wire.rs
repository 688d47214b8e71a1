//! Answers that this program reads itself.

use serde::{Deserialize, Serialize};

/// A route of a pool: sums since the pool's start.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Route {
    pub(crate) route: String,
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) busy_seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) blocked_seconds: f64,
    /// In bytes.
    pub(crate) memory_growth: f64,
    /// In seconds, since the pool's start.
    pub(crate) p50: Option<f64>,
    pub(crate) p95: Option<f64>,
}

/// The answer to `routes`.
#[derive(Debug, Deserialize)]
pub(crate) struct Routes {
    pub(crate) routes: Vec<Route>,
}
