//! The roles of `forkyard` as a helper of the daemon: router, inspector, reporter, or a worker for CGI, FastCGI or HTTP
//! programs.
//!
//! A helper is executed, not only forked, so that it has no copy of the daemon's memory with every pool's environment
//! and settings. It receives a document ([`HelperStart`]) and descriptors at fixed numbers.

mod run;
mod start;

pub use run::run;
pub use start::{DOCUMENT, FIRST, HelperStart, Role, WorkerStart};

/// The hidden command of `forkyard` that becomes a helper.
pub const COMMAND: &str = "helper";
