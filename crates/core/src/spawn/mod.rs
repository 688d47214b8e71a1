//! The spawning kit: brings an application's process to life, or says why not.
//!
//! [`machine`] decides: [`event`]s and the time go in, [`action`]s come out; it sees no clock, no descriptor and no
//! system call, and a hundred journeys may be under way in it at once.
//!
//! The documents are `docs/reference/spawning.md` for operators and application authors.

pub mod action;
mod attempt;
pub mod capture;
pub mod error;
pub mod event;
pub mod handshake;
pub mod journey;
pub mod machine;
pub mod plan;
pub mod report;
pub mod self_spawn;
#[cfg(test)]
mod simulation_tests;
pub mod start_failure;
pub mod step;
pub mod under_way;
pub mod user;
