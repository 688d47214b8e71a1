//! Releases: the paths of a generation, the steps of a deployment, and the comparison of a new release with the one before.

pub mod compare;
pub mod reading;
pub mod steering;
pub mod steps;
