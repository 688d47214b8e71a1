//! What a process of forkyard's has around it: its listening sockets, its log, and what of the system is closed to it.
#![deny(unsafe_code)]

pub mod confine;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod listen;
pub mod logs;
pub mod secret;

use forkyard_base::{remedy, tick};
use forkyard_config as config;
use forkyard_sys as sys;

#[cfg(test)]
#[path = "../../../tests/skip/mod.rs"]
mod skip;
