//! The application pool: decides which instance of which application answers each request.
//!
//! Read [`event`] and [`action`] first. [`ApplicationPool`] does no I/O. `docs/reference/application-pool.md` has the
//! rules.

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
pub use restart::{FileState, RestartFiles};
pub use view::{ApplicationView, InstanceView, View};
