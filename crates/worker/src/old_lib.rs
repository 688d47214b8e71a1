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
