//! The daemon: the master, and the processes and sockets that it keeps beside its workers.
//!
//! * [`master`]: the loop, and the executor of the core's actions.
//! * `context`: the state that the executor's parts share: pools, generations, processes, helpers and services.
//! * `workers`, `preloaders`, `programs`, `applications`, `pools`, `releases`, `reload`, `autopilot`, `helpers` and
//!   `status`: the executor's parts.
//! * [`control`]: the control socket.
//! * [`handover`]: the state for the next master.
//! * [`roles`]: a fresh execution of `forkyard` in a role.
//! * [`keeper`]: starts another master when one is killed.
//! * [`background`]: starts the daemon, in the background if configured.
#![deny(unsafe_code)]
#![allow(
    unreachable_pub,
    reason = "`pub` marks the parts of the daemon that other parts use"
)]

/// The version, with the commit if it is known.
pub const VERSION: &str = env!("FORKYARD_VERSION");

/// The process title in place of php-fpm.
pub(crate) const FPM_TITLE: &str = "php-fpm";

mod applications;
mod autopilot;
pub mod background;
mod context;
pub mod control;
pub mod handover;
mod helpers;
pub mod keeper;
pub mod master;
mod output;
mod pools;
mod preloaders;
mod programs;
mod releases;
mod reload;
pub mod roles;
mod status;
mod workers;
