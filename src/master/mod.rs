//! The master: keeps every pool's workers, within its limits, whatever happens.
//!
//! [`event`] and [`action`] are the contract between the pure core and the world: read them first. The core
//! (`manager`, `pool`, `policy`, …) turns events into actions and never sees a clock, a descriptor or a system
//! call; `run` turns the world into events and `effects` turns actions into system calls. The core knows no
//! request, no protocol and no runtime.

mod adoption;
mod backoff;
mod budget;
mod census;
mod children;
mod commands;
mod companions;
mod departure;
mod emergency;
mod generation;
mod growth;
mod heartbeat;
mod inspection;
mod invariants;
mod leave;
mod ledger;
mod manager;
mod ordered;
mod overdue;
mod phase;
mod policy;
mod pool;
mod preloader;
mod preloading;
mod program;
mod quota;
mod refork;
mod reforking;
mod reload;
mod reporters;
mod slots;
mod source;
mod spare;
mod standing;
mod timers;
mod watchdog;

#[cfg(test)]
mod tests;

pub mod action;
mod effects;
pub mod event;
mod orders;
mod run;

pub use effects::{ApplyError, Handlers, RunError};
pub(crate) use effects::{REHEARSAL_ANSWER, REHEARSAL_OPTION, needed_programs};
pub use manager::{Headcount, Manager};
pub use run::{Persona, ReadConfig, run};
pub(crate) use run::{run_with, say_findings};
