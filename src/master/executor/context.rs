//! What every part of the executor works with.

use super::Handlers;
use super::sources::Sources;
use crate::logs::Log;
use crate::master::action::Outcome;
use crate::master::event::Event;
use std::collections::VecDeque;
use std::path::PathBuf;

/// What every part works with.
pub(in crate::master) struct Context {
    pub(super) log: &'static Log,
    pub(super) handlers: Handlers,
    /// The directory in which the preloaders' executables are.
    pub(super) libexec: PathBuf,
    pub(super) descriptor_limit: Option<(u64, u64)>,
    /// The log has php-fpm's words alone where it has any.
    pub(in crate::master) speaks_as_fpm: bool,
    pub(super) sources: Sources,
    /// What happened while actions were performed.
    pub(in crate::master) happened: VecDeque<Event>,
    /// How the daemon ends.
    pub(in crate::master) outcome: Option<Outcome>,
}
