//! The inspector of an application pool: looks at applications' directories for the router and the master.
//!
//! Directories belong to sites, and a look at one may take for ever (a network file system) or meet something that was put
//! there to be read. So neither the master, which must not block or trust, nor the router, which has no rights there, looks
//! itself: a process of its own does, that can read (`CAP_DAC_READ_SEARCH`, if the daemon runs as root) and nothing else.
//! It answers over a socket of type `SOCK_SEQPACKET`, one for the router and one for the master; JSON, one value a message.
//!
//! * [`protocol`]: question and answer.
//! * [`queue`]: which child looks at what; looks that hang.
//! * [`find`]: a look at a directory.
//! * [`pool`]: what the master makes of an answer.

mod ancestors;
pub mod find;
pub(crate) mod own_settings;
pub mod pool;
pub mod queue;
mod run;
pub mod signs;
pub mod users;

pub use forkyard_protocol::inspector as protocol;
pub use pool::{Refused, pool_of};
pub use run::run;
