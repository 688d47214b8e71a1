//! The router of an application pool: which application a request is for, and which instance gets its connection.
//!
//! An unprivileged process for each pool with `routing = "application"`. It accepts the pool's connections, looks at the
//! beginning of each request until it knows the application's root, asks the [pool](crate::applications) for an instance,
//! and passes the connection on to that. A request's body and answer never come by here. Between two requests a kept
//! connection is the router's again, since the next request may be for another application.
//!
//! ```text
//!  nginx ──▶ listening socket ──▶ router ══ channel, one for each instance ══▶ worker
//!                                  │  ▲      (`channel`: connections there, "done" back)
//!                                   │  │ ToRouter: instances, commands
//!              ToMaster: spawn,    ▼  │
//!              stop               master ──▶ preloaders, workers: a pool of its own for each application
//!                                  │
//!                    router, master ──▶ inspector (`crate::inspector`): what is in a directory?
//! ```
//!
//! The router is not trusted: the master starts nothing for it that the pool's configuration and the directory itself do
//! not allow. If it dies the master starts another, which is told what runs.

mod answer;
mod app_index;
mod client;
mod connections;
mod counters;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod gathered;
mod groups;
mod instances;
mod master;
mod memory;
pub mod messages;
mod reading;
mod request;
mod run;
mod serving;
mod settings;
mod shortage;
mod start;
mod start_requests;
mod state;
mod view;

pub use forkyard_protocol::channel;
pub use start::{RouterStart, run, serve};
