//! The keeper: a small parent of the master that holds its descriptors and restarts it after a crash.
//!
//! It acts as a service manager with a descriptor store, like systemd, with the same messages (sd_notify(3)) and
//! variables. It reads only the log settings of the stored configuration, so that it logs to the master's log.

pub mod core;
mod event_loop;
pub mod shelf;

pub use event_loop::{KeeperSettings, run};
