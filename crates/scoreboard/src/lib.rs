//! The scoreboard: what each worker does, in shared memory.
//!
//! One sealed memfd per generation of a pool: a header page that the master writes, then one page per slot that its
//! worker alone writes. [`layout`] says which word is what, [`slot_writer`] is the worker's pen, [`slot_reader`] reads, `effects`
//! maps. Nothing here knows processes or sockets; what is read from a slot may be nonsense and is only ever shown.
//! [`status`] renders the pages that show it.
#![deny(unsafe_code)]

mod effects;
pub mod header;
pub mod layout;
pub mod load;
pub mod refusals;
pub mod slot_reader;
pub mod slot_writer;
pub mod stage;
pub mod status;

pub use effects::{Board, Reader, Slot, sender_offset};
pub use forkyard_protocol::counters;
pub use stage::RequestStage;

use forkyard_base::tick;
use forkyard_sys as sys;
