//! The reporter: a process that answers status and ping at an address of their own (`status_listen`), also while every
//! worker of the pool is busy.
//!
//! There is one for a pool, started when a client connects, and gone after a while without one. It is a program of its
//! own, so that it begins with nothing of the master's memory, runs as the pool's user, and is given what a worker of
//! the pool may see too, and less: the scoreboard for reading, the listening sockets, a channel for log lines. It runs
//! no code of an application. The same program stands in for the workers of a pool whose application can't be started: at
//! the pool's own address it refuses every request but those for status and ping. [`Brief`] is what the master tells it,
//! `connection` one client, without a socket or a clock; `run` is the loop. It knows nothing of the master.

mod brief;
mod connection;
mod pages;
mod run;

pub use brief::{Brief, Refusal};
pub use run::run;
