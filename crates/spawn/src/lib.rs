//! Executes the spawning kit's decisions. [`driver`] is an event loop around `effects` and the kit's state machine;
//! [`setupper`] runs in the new process before the application.
#![forbid(unsafe_code)]

pub mod driver;
pub mod effects;
pub mod setupper;
pub mod source;
mod workdir;

pub use forkyard_core::spawn::capture;
pub use forkyard_core::spawn::{
    action, error, event, handshake, journey, machine, plan, report, self_spawn, start_failure, step,
    under_way, user,
};
pub use workdir::parent as work_directories;

/// The script that Node.js applications preload ([`plan::OwnSocket::Preloaded`]).
pub const NODE_SCRIPT: &str = include_str!("node.js");
