//! The application pool's book: which instance of which application answers which request.
//!
//! [`event`] and [`action`] are the contract between the book and the world: read them first. [`Book`] is a plain value;
//! `handle` takes what happened and the time, and adds what is to be done. It knows no socket, no process, no file and
//! no clock: files are looked at, programs started and requests passed on by whoever owns the book. The rules in words
//! are in `docs/reference/application-pool.md`.

pub mod action;
mod adoption;
mod application;
mod book;
mod capacity;
mod departure;
pub mod event;
mod index;
mod instance;
mod invariants;
pub mod life;
mod options;
mod removal;
mod restart;
mod serving;
mod sight;
mod spawning;
mod timers;
mod upkeep;
mod view;

#[cfg(test)]
mod tests;

pub use book::Book;
pub use options::{Options, RestartMethod};
pub use sight::{Sight, Stamp, restart_directory};
pub use view::{ApplicationView, InstanceView, View};
