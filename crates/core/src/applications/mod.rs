//! The application pool: which instance of which application answers which request.
//!
//! [`event`] and [`action`] are the contract between the pool and the world: read them first. [`ApplicationPool`] is a
//! plain value; `handle` takes what happened and the time, and adds what is to be done. It knows no socket, no process,
//! no file and no clock: the owner of the pool looks at files, starts programs and passes requests on. The rules in
//! words are in `docs/reference/application-pool.md`.

pub mod action;
mod adoption;
mod application;
mod capacity;
mod departure;
pub mod event;
mod index;
mod instance;
pub mod instance_state;
mod invariants;
mod options;
mod pool;
mod removal;
mod restart;
mod serving;
mod spawning;
mod timers;
mod upkeep;
mod users;
mod view;

#[cfg(test)]
mod tests;

pub use options::{Options, RestartMethod};
pub use pool::ApplicationPool;
pub use restart::{FileState, RestartFiles, restart_directory};
pub use view::{ApplicationView, InstanceView, View};
