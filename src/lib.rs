//! forkyard: a FastCGI process manager, for programs that serve requests with functions of their own.
//!
//! [`Server`] reads a configuration file, takes a function for each pool with `runtime = "rust"`, and runs the daemon: it
//! binds the sockets, forks workers, and replaces them, as `forkyard run` does. A function is given a [`Request`], whose body
//! it reads and whose answer it writes.
//!
//! All else in this crate is the daemon itself, and private. `docs/explain/architecture.md` is its map.
#![deny(unsafe_code)]
#![warn(missing_docs)]
#![allow(
    unreachable_pub,
    reason = "`pub` marks the parts of the daemon that other parts use; the crate's interface is this file"
)]

mod cli;
mod control;
mod daemon;
mod handover;
mod helper;
mod keeper;
mod master;
mod reporter;
mod server;

pub use server::{Error, Request, Server};

/// For the program `forkyard`.
#[doc(hidden)]
pub use cli::main;

/// For the fuzz target of the hand-over document.
#[doc(hidden)]
pub use handover::plan;

use forkyard_core::life;
use forkyard_protocol::jobs;

// The workspace's crates by shorter names, for this crate, its tests and benchmarks.
#[doc(hidden)]
pub use fastcgi;
#[doc(hidden)]
pub use forkyard_base::{base64, indexed, origin, remedy, tick, timers};
#[doc(hidden)]
pub use forkyard_config as config;
#[doc(hidden)]
pub use forkyard_core::applications;
#[doc(hidden)]
pub use forkyard_host::{confine, listen, logs, secret};
#[doc(hidden)]
pub use forkyard_router::{inspector, router};
#[doc(hidden)]
pub use forkyard_scoreboard as scoreboard;
#[doc(hidden)]
pub use forkyard_scoreboard::status;
#[doc(hidden)]
pub use forkyard_spawn as spawn;
#[doc(hidden)]
pub use forkyard_sys as sys;
#[doc(hidden)]
pub use forkyard_worker::{abi, runtime, slowlog, worker};
