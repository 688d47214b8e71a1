//! The deciding part of forkyard: events and the time go in, actions come out. It does no I/O, so all of it runs in
//! simulations with injected faults.
//!
//! * [`master`]: the process manager.
//! * [`applications`]: the application pool.
//! * [`spawn`]: starts of application processes and reports of failures.
//! * [`life`]: the life of a helper process.
//! * [`zygotes`]: which process forks the workers of a generation.
//! * [`php_start`]: what follows a failed start of PHP.
//! * [`release`]: the paths of a release, and the steps of a deployment.
//! * [`config`]: the settings for decisions.
#![forbid(unsafe_code)]

pub mod applications;
pub mod autopilot;
pub mod config;
pub mod life;
pub mod master;
pub mod php_start;
pub mod release;
pub mod spawn;
pub mod zygotes;
