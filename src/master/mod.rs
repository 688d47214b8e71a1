//! The master: keeps every pool's workers, within its limits, whatever happens.
//!
//! [`event`] and [`action`] are the contract between the pure core and the world: read them first. The core
//! (`manager`, `pool`, `policy`, …) turns events into actions and never sees a clock, a descriptor or a system
//! call; `run` turns the world into events and `effects` turns actions into system calls. The core knows no
//! request, no protocol and no runtime.

pub mod action;
mod effects;
pub mod event;
mod manager;
mod run;

pub use effects::{ApplyError, Handlers};
pub use run::{RunError, run};
