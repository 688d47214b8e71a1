//! The process manager: keeps every pool's workers, within its limits, whatever happens.
//!
//! [`event`] and [`action`] are the contract between this core and the world: read them first. `manager`, `fork`, `policy`, …
//! turn events into actions and never see a clock, a descriptor or a system call. The core knows no request, no protocol and
//! no runtime.

pub mod action;
mod adoption;
mod budget;
mod children;
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
pub mod instances;
mod invariants;
pub mod job_crash;
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
mod slots;
mod snapshot;
mod spawn_requests;
mod surplus;
mod timers;
mod trials;
mod unavailable;
mod watchdog;

#[cfg(test)]
mod tests;

pub use manager::{Headcount, Manager};
