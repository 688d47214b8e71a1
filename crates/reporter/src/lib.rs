//! The reporter: a process that answers status and ping at a separate address (`status_listen`) while all workers are
//! busy.
//!
//! The master starts one for a pool when a client connects; it exits when idle. It runs as the pool's user, in a
//! program of its own without the master's memory, and never runs application code. The same program answers 503 at the
//! pool's address when the application can't start.

mod brief;
mod connection;
mod event_loop;
mod pages;

pub use brief::{Brief, Refusal};
pub use event_loop::run;
