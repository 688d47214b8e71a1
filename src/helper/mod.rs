//! What `forkyard` becomes when the daemon starts it as a helper: router, inspector of directories, reporter, or a worker
//! whose runtime is part of the program (CGI, FastCGI and HTTP programs).
//!
//! A helper is a program of its own and no copy of the daemon. So it begins with nothing of the daemon's memory, which
//! holds every pool's environment and settings. It is given a document ([`HelperStart`]) and descriptors, both by number, and
//! knows no master.

mod run;
mod start;

pub use run::run;
pub use start::{DOCUMENT, FIRST, HelperStart, Role, WorkerStart};

/// The hidden command of `forkyard` that becomes a helper.
pub const COMMAND: &str = "helper";
