//! The log of slow requests: what a worker is busy with, written down without disturbing it.
//!
//! A worker that is slow runs, sleeps, or waits in a system call; a signal would cut that short, a debugger would stop
//! it. So its memory is read from outside while it goes on. Where in it a runtime keeps its calls the runtime itself
//! says, as a [`StackSource`], when its preloader is ready. The master opens the memory (it may) and starts a **tracer**
//! with that descriptor and the log's: a process that becomes the pool's user and then reads ([`write`]), so that nothing
//! a hostile worker has put there is looked at with any right that it has not itself.
//!
//! `php` follows PHP's calls, `text` has php-fpm's words; both know no process. Another runtime is another variant of
//! [`StackSource`] and a file beside `php`.

mod effects;
mod job;
mod memory;
mod php;
mod text;

pub use effects::{TraceError, write};
pub use job::{Job, Stack, StackSource};
pub use php::Layout as PhpLayout;
pub use text::{entry, heading};

/// The option with which a runtime's executable is a tracer.
pub const OPTION: &str = "--trace";
/// The descriptors that a tracer is started with, beside its job on standard input: the log, opened for append,
pub const LOG: i32 = 3;
/// lines for the daemon's log,
pub const MESSAGES: i32 = 4;
/// and the worker's memory, if the master could open it.
pub const MEMORY: i32 = 5;
