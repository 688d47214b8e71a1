//! The inspector of an application pool. It examines applications' directories for the router and the master.
//!
//! Access to a site's directory can block forever (on a network file system) or meet planted files. The master must not
//! block, and the router has no access. The inspector is therefore a separate process with only the right to read
//! (`CAP_DAC_READ_SEARCH`, if the daemon runs as root). Router and master each have a `SOCK_SEQPACKET` socket to it,
//! with one JSON value per message.
//!
//! * [`protocol`]: questions and answers.
//! * [`queue`]: assigns inspections to child processes and handles blocked ones.
//! * [`find`]: inspects a directory.
//! * `releases`: finds the link to the release in service.
//! * [`pool`]: derives an application's pool from an answer.

mod ancestors;
pub mod find;
mod find_error;
pub(crate) mod own_settings;
pub mod pool;
mod process;
pub mod queue;
mod releases;
#[cfg(test)]
pub(crate) mod sample;
pub mod signs;
pub mod users;

pub use find_error::FindError;
pub use forkyard_protocol::inspector as protocol;
pub(crate) use pool::name as pool_name;
pub use pool::{Refused, pool_of};
pub use process::run;
