//! The forkyard-jobs-postgresql program: forkyard-jobs on a PostgreSQL database, which several machines may share.
//!
//! The store's operations are in forkyard-jobs. This crate has the connection to the server, the tables of machines,
//! their notices, and a function with which an application pushes a job in its own transaction. It is a separate
//! program, so that no other needs the client.

mod connection;
mod listen;
mod schema;
mod server;
mod session;
#[cfg(test)]
mod tests;
mod tls;

pub use connection::Postgresql;

use forkyard_config::JobsStore;
use forkyard_jobs::store::StoreError;
use std::process::ExitCode;

/// Runs until the master is gone or sends a stop, and no job runs.
pub fn main() -> ExitCode {
    forkyard_jobs::serve_on(|jobs| match &jobs.store {
        JobsStore::Postgresql(server) => {
            let node = forkyard_jobs::node(&jobs.listen);
            Ok(Box::new(Postgresql::open(server, &node)?))
        }
        JobsStore::File(path) => Err(StoreError::Foreign(path.display().to_string())),
    })
}
