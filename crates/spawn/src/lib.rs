//! Carries out the spawning kit's decisions: `effects` carries out what its machine decides, [`run`] is a loop around both, and
//! [`setupper`] is what the new process is before it is the application.
#![forbid(unsafe_code)]

pub mod effects;
pub mod run;
pub mod setupper;
mod workdir;

use forkyard_core::spawn::capture;
pub use forkyard_core::spawn::{
    action, alone, error, event, handshake, journey, letter, machine, plan, report, step, under_way, user,
};
pub use workdir::parent as work_directories;

use forkyard_base::tick;
use forkyard_sys as sys;
