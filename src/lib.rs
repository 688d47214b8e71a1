//! forkyard: a FastCGI process manager.
//!
//! The map of the crate. A part is a folder. Of the parts that decide, only `run.rs` (world to events) and `effects`
//! (actions to system calls) touch the world; the rest is plain values and can be simulated. `tests/tidy.rs` says
//! which these are, and which part may know which.
//!
//! * [`applications`]: the application pool's book; which instance of which application answers which request.
//! * [`router`]: which application a request is for, and which instance gets its connection.
//! * [`scout`]: looks at applications' directories.
//! * [`cli`]: the command line.
//! * [`config`]: what the operator wrote, turned into what it means.
//! * [`confine`]: what is closed to a pool beyond the rights of its user.
//! * [`control`]: orders for the running daemon, over a unix socket.
//! * [`estate`]: what a master leaves to the next one.
//! * [`fastcgi`]: the protocol, bytes to values and back; knows only `std`.
//! * `fuzz`: what every parser of others' bytes has to keep to; there in tests alone.
//! * [`master`]: manages processes; the policy of static, dynamic and ondemand pools.
//! * [`scoreboard`]: what everybody can see of each worker, in shared memory.
//! * [`worker`]: a child that serves: accept, stages, runtime, finish, account, again or retire.
//! * [`runtime`]: how a request is answered.
//! * [`keeper`]: holds a master's descriptors and starts it again.
//! * [`reporter`]: answers status and ping at an address of their own, whatever the workers do.
//! * [`listen`]: listening sockets.
//! * [`spawn`]: the spawning kit: brings an application's process to life, or says why not.
//! * [`status`]: a snapshot of a pool, rendered.
//! * [`logs`]: the daemon's own log.
//! * [`slowlog`]: what a slow worker is busy with, read from its memory and written down.
//! * [`abi`]: the worker contract as a C ABI.
//! * [`sys`]: the only door to the kernel.
//! * [`remedy`]: what to do about a file or a socket that can't be had.
//! * [`tick`]: monotonic time as a value.
//! * [`timers`]: when something is due.
#![deny(unsafe_code)]

#[expect(unsafe_code, reason = "a C ABI takes raw pointers")]
pub mod abi;
pub mod applications;
pub mod cli;
pub mod config;
pub mod confine;
pub mod control;
pub mod estate;
pub mod fastcgi;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod helper;
pub mod keeper;
pub mod listen;
pub mod logs;
pub mod master;
pub mod origin;
pub mod remedy;
pub mod reporter;
pub mod router;
pub mod runtime;
pub mod scoreboard;
pub mod scout;
pub mod slowlog;
pub mod spawn;
pub mod status;
#[expect(unsafe_code, reason = "the only door to the kernel")]
pub mod sys;
pub mod tick;
pub mod timers;
pub mod worker;
