//! forkyard: a FastCGI process manager, for programs that serve requests with their own functions.
//!
//! [`Server`] reads a configuration file, takes a function for each pool with `runtime = "rust"`, and runs the daemon:
//! it binds the sockets, then forks and replaces workers, as `forkyard run` does. The function receives a [`Request`],
//! reads its body and writes the answer.
//!
//! The rest of this crate is the daemon, and private. `docs/explain/architecture.md` describes it.
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

/// The entry point of the program `forkyard`.
#[doc(hidden)]
pub use cli::main;

/// For the fuzz target of the handover document.
#[doc(hidden)]
pub use handover::plan;
