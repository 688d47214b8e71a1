//! Runs `forkyard` as one of the daemon's helpers: router, inspector, reporter, or a worker with a built-in runtime
//! (CGI, FastCGI and HTTP programs).
//!
//! A helper is a separate execution of the program, not a fork, so it has none of the daemon's memory with every pool's
//! environment and settings. It gets a document ([`HelperStart`]) and descriptors, both by number.

mod role;
mod start;

pub use role::run;
pub use start::{DOCUMENT, FIRST, HelperStart, Role, WorkerStart};

/// The hidden command of `forkyard` that becomes a helper.
pub const COMMAND: &str = "helper";
