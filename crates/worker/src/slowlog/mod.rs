//! The log of slow requests: what a worker is busy with, written down without disturbing it.
//!
//! A worker that is slow runs, sleeps, or waits in a system call; a debugger would stop it. The master starts a **tracer**,
//! a process that becomes the pool's user before it looks at anything ([`write()`]), so that nothing a hostile worker has put
//! there is looked at with any right that it has not itself. How the tracer finds out depends on the runtime ([`Means`]):
//!
//! * PHP: the worker's memory is read from outside while it goes on. Where in it PHP keeps its calls PHP itself says, as a
//!   [`StackSource`], when its preloader is ready. The master opens the memory (it may) and passes it on.
//! * Python and Ruby: the worker is asked over a socket that it was given for this, and tells in lines of text. Python can't
//!   answer while it computes: there a signal comes, whose handler is faulthandler's, in C. It is sent only to a worker that
//!   keeps its end of the socket open and, as the kernel says, has a handler for it.
//! * CGI: what the worker has started is looked up.
//!
//! `php` follows PHP's calls, `told` reads what workers tell, `text` has php-fpm's words; they know no process.

mod effects;
mod family;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod job;
mod memory;
mod php;
pub mod run;
mod stack_text;
mod text;

pub use effects::{Descriptors, TraceError, open_memory, write};
pub use forkyard_protocol::stack::{Layout as PhpLayout, StackSource};
pub use job::{Asking, Job, Means, Stack};
pub use text::heading;

/// The option with which forkyard-php is a tracer.
pub const OPTION: &str = "--trace";
/// The hidden subcommand with which forkyard is one.
pub const COMMAND: &str = "trace";
/// The descriptors that a tracer is started with, beside its job on standard input: the log, opened for append,
pub const LOG: i32 = 3;
/// lines for the daemon's log,
pub const MESSAGES: i32 = 4;
/// the worker's memory, if the master could open it,
pub const MEMORY: i32 = 5;
/// the master's end of the socket over which it is asked,
pub const QUESTIONS: i32 = 6;
/// and its process, as a descriptor (pidfd_open(2)).
pub const PROCESS: i32 = 7;
