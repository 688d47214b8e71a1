//! The process manager: keeps every pool's workers within its limits.
//!
//! Read [`event`] and [`action`] first. The core does no I/O and has no clock; requests, protocols and runtimes are
//! unknown to it.

pub mod action;
mod adoption;
mod budget;
mod children;
mod choice;
pub mod crash;
pub mod crash_cause;
pub mod debounce;
pub mod departed;
mod departure;
mod dynamic;
mod emergency;
pub mod event;
pub mod exit_causes;
pub mod failed_starts;
mod fork;
mod generation;
pub mod heartbeat;
pub mod history;
pub mod instances;
mod invariants;
mod leave;
pub mod lifecycle;
pub mod manager;
mod manager_state;
mod ondemand;
mod overdue;
mod policy;
mod pool;
pub mod pool_restart;
mod preloading;
pub mod program;
mod quota;
mod refork;
mod reforking;
mod reload;
pub mod reload_diff;
pub mod reload_plan;
pub mod reload_progress;
pub mod resting;
pub mod saturation;
pub mod secrets;
mod slots;
mod snapshot;
mod spawn_requests;
mod surplus;
mod timers;
mod trials;
mod turns;
mod unavailable;
mod watchdog;

#[cfg(test)]
mod tests;

pub use manager::{Headcount, Manager};
