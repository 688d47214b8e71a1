//! The router and the directory inspector of an application pool.
//!
//! * [`router`]: chooses each request's application and instance.
//! * [`inspector`]: examines applications' directories.
#![forbid(unsafe_code)]

#[cfg(any(test, fuzzing))]
#[path = "../fuzz/targets.rs"]
pub mod fuzz;
pub mod inspector;
pub mod router;

#[cfg(test)]
#[path = "../../../tests/skip/mod.rs"]
mod skip;
