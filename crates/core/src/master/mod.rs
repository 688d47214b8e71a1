//! The process manager: keeps every pool's workers, within its limits, whatever happens.
//!
//! [`event`] and [`action`] are the contract between this core and the world: read them first. `manager`, `pool`, `policy`, …
//! turn events into actions and never see a clock, a descriptor or a system call. The core knows no request, no protocol and
//! no runtime.

pub mod action;
mod adoption;
mod budget;
mod census;
mod children;
mod departure;
mod emergency;
pub mod event;
pub mod failed_starts;
mod generation;
mod growth;
pub mod heartbeat;
mod inspection;
mod invariants;
mod leave;
pub mod ledger;
pub mod lifecycle;
pub mod manager;
mod ordered;
mod overdue;
mod phase;
mod policy;
mod pool;
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
mod source;
mod spare;
mod standing;
pub mod tallies;
mod timers;
mod watchdog;

#[cfg(test)]
mod tests;

pub use manager::{Headcount, Manager};
