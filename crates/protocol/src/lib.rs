//! What forkyard's own processes say to each other, and the document that a master leaves to the next one.
//!
//! Plain values that serde writes and reads; nothing here knows a descriptor or a system call.
//!
//! * [`preloader`]: master and preloader. [`stack`]: what a preloader says of its workers' memory.
//! * [`channel`]: router and worker.
//! * [`look`]: router or master, and the inspector of directories.
//! * [`control`]: the daemon and who gives it orders. [`skipped`], [`tally`]: what its answers and the document have in common.
//! * [`keeper`]: a master and its keeper.
//! * [`estate`]: a master and the next one. [`address`]: where a pool of it listens.
#![forbid(unsafe_code)]

pub mod address;
pub mod channel;
pub mod control;
pub mod estate;
pub mod keeper;
pub mod look;
pub mod preloader;
pub mod skipped;
pub mod stack;
pub mod startup;
pub mod tally;
