//! Messages between forkyard's processes, and the hand-over document between masters. Plain serde values without
//! descriptors or system calls.
//!
//! * [`preloader`]: master and preloader. [`stack`]: where workers keep their call stacks.
//! * [`channel`]: router and worker.
//! * [`inspector`]: router or master, and directory inspector. [`runtimes`]: what differs between the runtimes.
//! * [`control`]: daemon and its clients. [`skipped`], [`counters`], [`last_reload`] and [`refusals`] are shared with
//!   the hand-over document.
//! * [`keeper`]: master and keeper.
//! * [`upgrade`]: `forkyard dev` and workers, for WebSocket.
//! * [`handover`]: old and new master. [`address`]: listening addresses.
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
pub mod runtimes;
pub mod skipped;
pub mod stack;
pub mod startup;
pub mod upgrade;
