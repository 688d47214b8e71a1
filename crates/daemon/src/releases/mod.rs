//! Releases: which one a generation serves, and deployments.

pub(crate) mod comparison;
pub(crate) mod deployments;
pub(crate) mod release;
