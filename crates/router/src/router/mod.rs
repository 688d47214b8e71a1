//! The router of an application pool: chooses each request's application and instance.
//!
//! One unprivileged process per pool with `routing = "application"`. It accepts connections, reads each request's
//! parameters to find the application's root, asks the [pool](forkyard_core::applications) for an instance and passes the
//! connection to it. Request bodies and answers do not pass through the router. A kept connection returns after each
//! request, since the next may be for another application.
//!
//! ```text
//!  nginx ──▶ listening socket ──▶ router ══ channel, one for each instance ══▶ worker
//!                                  │  ▲      (`channel`: connections there, "done" back)
//!                                   │  │ ToRouter: instances, commands
//!              ToMaster: spawn,    ▼  │
//!              stop               master ──▶ preloaders, workers: one pool for each application
//!                                  │
//!                    router, master ──▶ inspector (`crate::inspector`): application directories
//! ```
//!
//! The router is not trusted: the master starts only applications that the pool's configuration and the directory
//! allow. If the router dies, the master starts another and sends it the running instances.

mod acceptor;
mod admin_requests;
mod answer;
mod app_index;
mod client;
mod clients;
mod counters;
mod event_loop;
#[cfg(any(test, fuzzing))]
#[path = "../../fuzz/router.rs"]
pub(crate) mod fuzz;
mod gathered;
mod groups;
mod inspections;
mod instances;
mod left;
mod master;
mod master_link;
mod memory;
mod pool_actions;
mod pool_queue;
mod reading;
mod refusals;
mod releases;
mod request;
mod serving;
mod sessions;
mod settings;
mod shortage;
mod sites;
mod start;
mod state;
mod user_shares;
mod view;

pub use forkyard_protocol::channel;
pub use start::{RouterStart, run, serve};
