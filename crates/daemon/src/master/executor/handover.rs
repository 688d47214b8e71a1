//! The state from the previous master and for the next.

use super::{fd_store, upgrade};
use forkyard_core::master::action::Action;
use forkyard_host::listen::Inherited;

#[derive(Debug, Default)]
pub(in crate::master) struct Handover {
    pub(in crate::master) inherited: Inherited,
    pub(in crate::master) todo: Vec<Action>,
    pub(super) fd_store: Option<fd_store::FdStore>,
    pub(in crate::master) rehearsal: Option<upgrade::Rehearsal>,
}
