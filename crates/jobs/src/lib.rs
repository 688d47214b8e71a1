//! The forkyard-jobs program: keeps background jobs and lets pools run them.
//!
//! `core` decides, `store` keeps, `process` connects both to clients, pools and the master. The master starts this program
//! and sends its settings; it opens no database and waits for none.

mod answer;
mod backup;
mod call;
mod client;
mod commands;
mod connections;
pub mod core;
mod failures;
mod figures;
mod foreign;
#[cfg(any(test, fuzzing))]
#[path = "../fuzz/targets.rs"]
pub mod fuzz;
mod heartbeat;
mod lease;
mod listener;
mod master;
mod process;
mod requests;
#[cfg(any(test, fuzzing))]
mod sample;
mod start;
pub mod store;
mod store_state;
mod tcp;

pub use backup::back_up;
pub use start::{main, node, serve_on};
