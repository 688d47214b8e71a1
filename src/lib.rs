//! forkyard: a FastCGI process manager.
//!
//! This crate is the daemon and its commands. What it is made of are crates below `crates/`, which are here by shorter names:
//!
//! * [`origin`], [`remedy`], [`tick`], [`timers`] (`crates/base`): plain values that every part knows.
//! * [`mod@fastcgi`] (`crates/fastcgi`): the protocol, bytes to values and back.
//! * [`sys`] (`crates/sys`): the only door to the kernel.
//! * [`config`] (`crates/config`): what the operator wrote, turned into what it means.
//! * [`applications`] (`crates/core`): the application pool's book. The process manager, which decides for [`master`], and the
//!   machine of the spawning kit are in that crate, too.
//! * [`scoreboard`], [`status`] (`crates/scoreboard`): what everybody can see of each worker, and the pages that show it.
//! * [`confine`], [`listen`], [`logs`] (`crates/host`): what a process has around it.
//! * [`spawn`] (`crates/spawn`): carries out the steps of an application's journey.
//! * [`worker`], [`runtime`], [`abi`], [`slowlog`] (`crates/worker`): a child that serves, and how requests are answered.
//! * [`router`], [`scout`] (`crates/router`): the processes of an application pool that are not workers.
//!
//! What is here:
//!
//! * [`master`]: makes processes, lets them go, reaps them.
//! * [`helper`]: what the daemon starts anew instead of forking it.
//! * [`reporter`]: answers status and ping at an address of their own, whatever the workers do.
//! * [`keeper`]: holds a master's descriptors and starts it again.
//! * [`estate`]: what a master leaves to the next one.
//! * [`control`]: orders for the running daemon, over a unix socket.
//! * [`cli`]: the command line.
//!
//! Of the parts that decide, only `run.rs` (world to events) and `effects` (actions to system calls) touch the world; the
//! rest is plain values and can be simulated.
#![deny(unsafe_code)]

pub mod cli;
pub mod control;
pub mod estate;
pub mod helper;
pub mod keeper;
pub mod master;
pub mod reporter;

pub use fastcgi;
pub use forkyard_base::{origin, remedy, tick, timers};
pub use forkyard_config as config;
pub use forkyard_core::{applications, life};
pub use forkyard_host::{confine, listen, logs};
pub use forkyard_router::{router, scout};
pub use forkyard_scoreboard as scoreboard;
pub use forkyard_scoreboard::status;
pub use forkyard_spawn as spawn;
pub use forkyard_sys as sys;
pub use forkyard_worker::{abi, runtime, slowlog, worker};
