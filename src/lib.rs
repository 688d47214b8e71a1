//! forkyard: a FastCGI process manager, for programs that serve requests with their own functions.
//!
//! [`Server`] reads a configuration file, takes a function for each pool with `runtime = "rust"`, and runs the daemon:
//! it binds the sockets, then forks and replaces workers, as `forkyard run` does. The function receives a [`Request`],
//! reads its body and writes the answer.
//!
//! The daemon is in the crates that `docs/explain/architecture.md` describes.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod server;

pub use server::{Error, Request, Server};

/// The entry point of the program `forkyard`.
#[doc(hidden)]
pub use forkyard_cli::main;
