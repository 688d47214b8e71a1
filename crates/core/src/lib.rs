//! What decides, and does nothing itself: events and the time go in, actions come out.
//!
//! Nothing here sees a clock, a descriptor or a system call, so all of it runs in simulations, with faults put in.
//!
//! * [`master`]: the process manager; how many workers a pool has, and what becomes of each.
//! * [`applications`]: the application pool; which instance of which application answers which request.
//! * [`spawn`]: the journey on which an application's process comes to life, or the report of why it did not.
//! * [`life`]: what becomes of a helper process, whatever it is for.
//! * [`config`]: the settings that these go by.
#![forbid(unsafe_code)]

pub mod applications;
pub mod config;
pub mod life;
pub mod master;
pub mod spawn;

use forkyard_base::{indexed, origin, tick, timers};
