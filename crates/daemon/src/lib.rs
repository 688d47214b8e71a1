//! The daemon: the master, and the processes and sockets that it keeps beside its workers.
//!
//! * [`master`]: the loop, and the executor of the core's actions.
//! * [`control`]: the control socket.
//! * [`handover`]: the state for the next master.
//! * [`helper`]: a fresh execution of `forkyard` in a role.
//! * [`keeper`]: starts another master when one is killed.
//! * [`background`]: starts the daemon, in the background if configured.
#![deny(unsafe_code)]
#![allow(
    unreachable_pub,
    reason = "`pub` marks the parts of the daemon that other parts use"
)]

/// The version, with the commit if it is known.
pub const VERSION: &str = env!("FORKYARD_VERSION");

pub mod background;
pub mod control;
pub mod handover;
pub mod helper;
pub mod keeper;
pub mod master;
