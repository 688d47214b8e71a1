//! The master: carries out what the process manager decides.
//!
//! The core ([`Manager`]) turns events into actions; `run` turns the world into events and `executor` turns actions into
//! system calls.

mod commands;
mod executor;
mod orders;
mod run;

pub use executor::{ApplyError, Handlers, RunError};
pub(crate) use executor::{REHEARSAL_ANSWER, REHEARSAL_OPTION, needed_programs};
pub use forkyard_core::master::{action, event};
use forkyard_core::master::{companions, heartbeat, ledger, manager, program, reporters};
pub use run::Persona;
pub(crate) use run::{run, say_findings};
