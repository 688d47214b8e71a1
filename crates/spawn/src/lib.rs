//! Carries out the spawning kit's decisions: `effects` carries out what its machine decides, [`run`] is a loop around both, and
//! [`setupper`] is what the new process is before it is the application.
#![forbid(unsafe_code)]

pub mod effects;
pub mod run;
pub mod setupper;
pub mod source;
mod workdir;

pub use forkyard_core::spawn::capture;
pub use forkyard_core::spawn::{
    action, error, event, handshake, journey, machine, plan, report, self_spawn, start_failure, step,
    under_way, user,
};
pub use workdir::parent as work_directories;

/// What every process of a Node.js application loads first ([`plan::OwnSocket::Preloaded`]).
pub const NODE_SCRIPT: &str = include_str!("node.js");

use forkyard_base::tick;
use forkyard_sys as sys;
