//! A process's surroundings: listening sockets, event loop, log, confinement, the daemon's control socket.
#![deny(unsafe_code)]

pub mod confine;
pub mod control;
pub mod event_loop;
#[cfg(any(test, fuzzing))]
#[path = "../fuzz/targets.rs"]
pub mod fuzz;
pub mod listen;
pub mod logs;
pub mod secret;

#[cfg(test)]
#[path = "../../../tests/skip/mod.rs"]
mod skip;
