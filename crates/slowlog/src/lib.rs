//! The log of slow requests: records what a worker is doing without stopping it.
//!
//! The master starts a **tracer**, a process that switches to the pool's user first ([`write()`]), so that a hostile
//! worker gains no rights through it. The method depends on the runtime ([`Means`]):
//!
//! * PHP: reads the memory of the running worker. The preloader reports where PHP keeps its calls ([`StackSource`]);
//!   the master opens the memory, because only it may.
//! * Python and Ruby: asks the worker over a socket; it answers in lines of text. Python can't answer while it
//!   computes, so a signal runs faulthandler's C handler. The signal is sent only if the worker keeps its socket open
//!   and has a handler for it.
//! * CGI: lists the programs that the worker has started.
//!
//! `php`, `told` and `text` are independent of processes.

mod family;
#[cfg(any(test, fuzzing))]
#[path = "../fuzz/targets.rs"]
pub mod fuzz;
mod job;
mod memory;
mod php;
pub mod process;
mod stack_text;
mod text;
mod tracer_effects;

pub use forkyard_protocol::stack::{Layout as PhpLayout, StackSource};
pub use job::{Asking, Job, Means, Stack};
pub use text::heading;
pub use tracer_effects::{Descriptors, TraceError, open_memory, write};

/// The option that runs forkyard-php as a tracer.
pub const OPTION: &str = "--trace";
/// The hidden subcommand that runs forkyard as a tracer.
pub const COMMAND: &str = "trace";
/// The descriptor of the log, opened for append.
pub const LOG: i32 = 3;
/// The descriptor for lines of the daemon's log.
pub const MESSAGES: i32 = 4;
/// The descriptor of the worker's memory, if the master could open it.
pub const MEMORY: i32 = 5;
/// The descriptor of the master's end of the worker's socket.
pub const QUESTIONS: i32 = 6;
/// The descriptor of the worker's process (pidfd_open(2)).
pub const PROCESS: i32 = 7;
/// The descriptor of a file for a copy of the calls, of at most [`MOST_COPIED`] bytes.
pub const COPY: i32 = 8;
pub const MOST_COPIED: usize = 8 << 10;
