//! The spawning kit: starts application processes, or reports failures. [`machine`] turns [`event`]s into [`action`]s
//! without I/O. `docs/reference/spawning.md` describes it.

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
