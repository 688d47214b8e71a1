//! forkyard-jobs-postgresql, a program of its own: forkyard-jobs on a database of PostgreSQL, which several machines may use.
//!
//! What the store does is written once, in forkyard-jobs. Here is how the server is reached, and what it has beside the tables of
//! every store: the machines, what they tell each other, and a function by which an application pushes a job in its own
//! transaction. A program apart, so that no other needs its client.

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

/// Runs until the master has gone or says so, and no job is under way.
pub fn main() -> ExitCode {
    forkyard_jobs::serve_on(|jobs| match &jobs.store {
        JobsStore::Postgresql(server) => {
            let node = forkyard_jobs::node(&jobs.listen);
            Ok(Box::new(Postgresql::open(server, &node)?))
        }
        JobsStore::File(path) => Err(StoreError::Foreign(path.display().to_string())),
    })
}
