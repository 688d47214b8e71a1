//! The scoreboard: the workers' states in shared memory.
//!
//! Each generation of a pool has a sealed memfd: a header page, written by the master, and a page per slot, written by
//! its worker. Behind these pages, workers count: a gate page for all, and pages of numbers for each slot. Content of
//! workers' pages is untrusted and only displayed.
#![deny(unsafe_code)]

pub mod archive;
mod foreign;
pub mod gate;
pub mod header;
pub mod lanes;
pub mod layout;
pub mod load;
mod mapping;
pub mod minutes;
pub mod numbers;
pub mod refusals;
pub mod reserve;
pub mod routes;
mod row;
pub mod samples;
pub mod slot_reader;
pub mod slot_writer;
pub mod stage;
pub mod standing;
pub mod status;
pub mod stopwatch;
mod text;
pub mod turns;

pub use archive::Archive;
pub use gate::Gate;
pub use mapping::{Board, Counting, GatePage, LaneMapping, Reader, Slot, sender_offset};
pub use numbers::{Counters, FinishedRequest};
pub use stage::RequestStage;
