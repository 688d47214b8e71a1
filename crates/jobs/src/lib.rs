//! forkyard-jobs, a program of its own: keeps background jobs, and has pools run them.
//!
//! `core` decides, `store` keeps, `run` turns the world into events and what is decided into requests. The master starts the
//! program, and tells it what there is; it holds no database, and waits for none.

mod answer;
mod backup;
mod call;
mod client;
mod commands;
pub mod core;
mod failures;
mod figures;
mod foreign;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod lease;
mod master;
mod requests;
mod run;
#[cfg(any(test, fuzzing))]
mod sample;
mod start;
pub mod store;
mod tcp;

pub use backup::back_up;
pub use start::{main, node, serve_on};
