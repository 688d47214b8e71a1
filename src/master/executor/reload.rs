//! The configuration in force, and the reload that brought it.

use super::{reloads, starts};
use crate::config::Config;

/// The configuration in force, and what becomes of the reload that brought it.
#[derive(Debug)]
pub(in crate::master) struct Reload {
    pub(super) config: Config,
    /// What PHP was started from at the daemon's start or its last reload.
    pub(super) starts: starts::Starts,
    /// The last reload, as long as it is not done.
    pub(super) under_way: Option<reloads::Progress>,
    /// How often a configuration was prepared.
    pub(super) count: u64,
}

impl Reload {
    /// Nothing was prepared yet.
    pub(super) fn new(config: Config) -> Reload {
        Reload {
            config,
            starts: starts::Starts::default(),
            under_way: None,
            count: 0,
        }
    }
}
