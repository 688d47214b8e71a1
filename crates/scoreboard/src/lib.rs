//! The scoreboard: the workers' states in shared memory.
//!
//! Each generation of a pool has a sealed memfd: a header page, written by the master, and a page per slot, written by
//! its worker. Content of slots is untrusted and only displayed.
#![deny(unsafe_code)]

pub mod header;
pub mod layout;
pub mod load;
mod mapping;
pub mod refusals;
pub mod slot_reader;
pub mod slot_writer;
pub mod stage;
pub mod status;

pub use mapping::{Board, Reader, Slot, sender_offset};
pub use stage::RequestStage;
