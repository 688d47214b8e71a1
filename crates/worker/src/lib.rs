//! The worker process and the runtimes that answer its requests.
//!
//! * [`worker`]: the loop of a worker.
//! * [`runtime`]: one runtime per kind of application.
//! * [`abi`]: the worker as a C ABI, for runtimes in other languages.
//! * [`slowlog`]: the log of slow requests.
#![deny(unsafe_code)]

#[expect(unsafe_code, reason = "a C ABI takes raw pointers")]
pub mod abi;
#[cfg(any(test, fuzzing))]
#[path = "../fuzz/targets.rs"]
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
