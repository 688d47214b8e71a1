//! The keeper: a small process above the master that holds its descriptors and starts it again when it is killed.
//!
//! To the master it is a service manager with a descriptor store, as systemd is: the same messages (sd_notify(3)), the same
//! variables. It knows nothing of pools and workers. Of what it holds it looks into the configuration alone, and there at
//! where the log goes, so that its own lines stand among the master's. [`core`] decides when a master is started,
//! [`message`] understands what it says, [`shelf`] holds what it leaves; `run` is the rest.

pub mod core;
mod run;
pub mod shelf;

pub use forkyard_protocol::keeper as message;
pub use run::{KeeperSettings, run};
