//! A child that serves, and how requests are answered.
//!
//! * [`worker`]: accept, stages, runtime, finish, account, again or retire.
//! * [`runtime`]: how a request is answered, by each kind of application.
//! * [`abi`]: the worker contract as a C ABI, for runtimes in other languages.
//! * [`slowlog`]: what a slow worker is busy with, read from its memory and written down.
#![deny(unsafe_code)]

#[expect(unsafe_code, reason = "a C ABI takes raw pointers")]
pub mod abi;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod runtime;
pub mod slowlog;
pub mod worker;

use forkyard_base::tick;
use forkyard_config as config;
use forkyard_core::{life, master};
use forkyard_host::{confine, listen, logs};
use forkyard_scoreboard::{self as scoreboard, status};
use forkyard_spawn as spawn;
use forkyard_sys as sys;
