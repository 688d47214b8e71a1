//! What forkyard's own processes say to each other, and the document that a master leaves to the next one.
//!
//! Plain values that serde writes and reads; nothing here knows a descriptor or a system call.
//!
//! * [`preloader`]: master and preloader. [`stack`]: what a preloader says of its workers' memory.
//! * [`channel`]: router and worker.
//! * [`inspector`]: router or master, and the inspector of directories.
//! * [`control`]: the daemon and the clients that command it. [`skipped`], [`counters`], [`last_reload`], [`refusals`]: what its answers and the
//!   document have in common.
//! * [`keeper`]: a master and its keeper.
//! * [`upgrade`]: `forkyard dev` and workers, of a WebSocket.
//! * [`handover`]: a master and the next one. [`address`]: where a pool of it listens.
#![forbid(unsafe_code)]

pub mod address;
pub mod changes;
pub mod channel;
pub mod control;
pub mod counters;
pub mod handover;
pub mod inspector;
pub mod jobs;
pub mod keeper;
pub mod last_reload;
pub mod logs;
pub mod preloader;
pub mod program;
pub mod refusals;
pub mod skipped;
pub mod stack;
pub mod startup;
pub mod upgrade;
