//! The web process: it answers with the numbers of all pools over HTTP, even if every worker is busy.
//!
//! It asks the master for [`Numbers`], which name no request, and keeps them for a moment. It runs as a user of its own,
//! opens no file and starts no program.

mod answer;
mod connection;
mod event_loop;
mod health;
mod hosts;
pub mod metrics;
mod numbers;
mod pages;
mod request;
mod source;

pub use event_loop::{WebStart, run};
pub use numbers::{Numbers, PoolPage};
