//! The master: carries out what the process manager decides.
//!
//! The core ([`Manager`]) turns events into actions; `run` turns the world into events and `effects` turns actions into
//! system calls.

mod commands;
mod effects;
mod orders;
mod run;

pub use effects::{ApplyError, Handlers, RunError};
pub(crate) use effects::{REHEARSAL_ANSWER, REHEARSAL_OPTION, needed_programs};
pub use forkyard_core::master::{Headcount, Manager, action, event};
use forkyard_core::master::{heartbeat, ledger, manager, program};
pub use run::{Persona, ReadConfig, run};
pub(crate) use run::{run_with, say_findings};
