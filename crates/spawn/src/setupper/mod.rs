//! The env setupper: what the new process executes before it is the application.
//!
//! After a fork only a few system calls are safe, so the new process executes forkyard's own program first, which then
//! has all the time and all of Rust. Two passes, with the user's login shell between them where that is asked for:
//!
//! * `--before`, still with the kit's rights: a session of its own, limits, user and groups, the directory.
//! * `--after`, with the application's rights: undoes what the shell's start-up files did to directory and limits, sets
//!   the environment, and executes the application.
//!
//! What goes wrong is written into the work directory, as an application would.

mod access;
pub mod command;
mod dump;
mod effects;
mod environment;
mod notes;

pub use access::{Barrier, barrier};
pub use effects::{Pass, run};
pub use notes::{Notes, SetupComplaint, forget_mark, mark};
