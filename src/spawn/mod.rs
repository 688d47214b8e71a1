//! The spawning kit: brings an application's process to life, or says why not.
//!
//! [`machine`] decides: [`event`]s and the time go in, [`action`]s come out; it sees no clock, no descriptor and no
//! system call, and a hundred journeys may be under way in it at once. `effects` carries actions out, [`run`] is a loop
//! around both. `setupper` is what the new process is before it is the application.
//!
//! The documents are `docs/spawning.md` for operators and application authors.

pub mod action;
pub mod alone;
mod attempt;
mod backoff;
mod capture;
pub mod effects;
pub mod error;
pub mod event;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub mod handshake;
pub mod journey;
pub mod letter;
pub mod machine;
pub mod plan;
mod preloader;
pub mod report;
pub mod run;
pub mod setupper;
#[cfg(test)]
mod simulation_tests;
pub mod step;
pub mod under_way;
pub mod user;
mod workdir;

pub use workdir::parent as work_directories;
