//! The scoreboard: what each worker does, in shared memory.
//!
//! One sealed memfd per generation of a pool: a header page that the master writes, then one page per slot that its
//! worker alone writes. [`layout`] says which word is what, [`stamp`] is the worker's pen, [`census`] reads, `effects`
//! maps. Nothing here knows processes or sockets; what is read from a slot may be nonsense and is only ever shown.
//! [`status`] renders the pages that show it.
#![deny(unsafe_code)]

pub mod census;
mod effects;
pub mod header;
pub mod layout;
pub mod stage;
pub mod stamp;
pub mod status;

pub use effects::{Board, Reader, Slot};
pub use forkyard_protocol::tally;
pub use stage::Stage;

use forkyard_base::tick;
use forkyard_sys as sys;
