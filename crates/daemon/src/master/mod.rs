//! The master carries out the decisions of the process manager.
//!
//! The core ([`Manager`](forkyard_core::master::manager::Manager)) turns events into actions; `event_loop` turns input into events and `executor` turns
//! actions into system calls. [`Lifecycle`](forkyard_core::master::lifecycle::Lifecycle) decides between serving, an upgrade and the end.

mod control_requests;
mod deployments;
mod event_loop;
mod executor;
mod frontend;
mod pool_requests;
mod service;
mod signals;
mod site_deployments;
mod start;

pub use executor::{ApplyError, Handlers, PoolFault, RunError};
pub use executor::{REHEARSAL_ANSWER, REHEARSAL_OPTION, needed_programs};
pub use frontend::Frontend;
pub use frontend::log_diagnostics;
pub use start::run;
