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

pub use crate::context::apply_error::ApplyError;
pub use crate::context::apply_error::PoolFault;
pub use crate::context::failure::RunError;
pub use crate::context::required_programs::programs as needed_programs;
pub use crate::context::services::Handlers;
pub use crate::handover::upgrade::ANSWER as REHEARSAL_ANSWER;
pub use crate::handover::upgrade::OPTION as REHEARSAL_OPTION;
pub use crate::workers::env_file::fault as env_file_fault;
pub use frontend::Frontend;
pub use frontend::log_diagnostics;
pub use start::run;
