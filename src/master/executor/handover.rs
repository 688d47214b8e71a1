//! What came from the master before this one, and what is left to the next.

use super::{fd_store, upgrade};
use crate::listen::Inherited;
use crate::master::action::Action;

/// What came from the master before this one, and what is left to the next.
#[derive(Debug, Default)]
pub(in crate::master) struct Handover {
    /// Listening sockets that the daemon was started with.
    pub(in crate::master) inherited: Inherited,
    /// What is to be done about what was taken over.
    pub(in crate::master) todo: Vec<Action>,
    /// What is left with the service manager, if there is one that keeps descriptors.
    pub(super) fd_store: Option<fd_store::FdStore>,
    /// The new program is trying whether it could take over.
    pub(in crate::master) rehearsal: Option<upgrade::Rehearsal>,
}
