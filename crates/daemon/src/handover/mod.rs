//! The state that a master passes to the next one: pools, generations, workers and descriptors.
//!
//! A master passes it on in an upgrade, and stores it with a keeper or a service manager with a descriptor store, to
//! recover from a crash. Both use the same [document](forkyard_protocol::handover::document) inside a
//! [frame](forkyard_protocol::handover::frame); [`plan`] decides which parts are valid.

pub(crate) mod adoption;
pub(crate) mod document;
mod effects;
pub mod plan;
pub(crate) mod upgrade;

pub use effects::{InheritedState, UnreadableState, VARIABLES, collect, publish, rehearse};
