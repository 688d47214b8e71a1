//! The env setupper: forkyard's own program, executed in the new process before the application.
//!
//! Only a few system calls are safe after a fork, so the new process first executes this program. It has two passes. If
//! configured, the user's login shell runs between them.
//!
//! * `--before`, with the kit's permissions: creates a session and sets limits, user, groups and directory.
//! * `--after`, with the application's permissions: restores directory and limits after the shell's start-up files,
//!   sets the environment and executes the application.
//!
//! Errors are written to the work directory, as an application's would be.

mod access;
pub mod command;
mod dump;
mod environment;
mod notes;
mod passes;

pub use access::{Barrier, barrier};
pub use notes::{Notes, SetupComplaint, forget_mark, mark};
pub use passes::{Pass, run};
