//! Effects of one part of the executor on others.

use super::helper_id::{HelperId, HelperStep};
use crate::control::protocol::Answer;
use crate::master::event::PoolId;
use serde_json::Value;

/// A part pushes it to `Services::effects`; [`super::Executor::settle`] routes it.
#[derive(Debug)]
pub(super) enum Effect {
    Helper(HelperId, HelperStep),
    /// A client's request has its answer.
    Answered(u64, Answer),
    /// The routers' views for a client's status have come, or their time is over.
    StatusDue(u64, Vec<(PoolId, Value)>),
    /// The last pool of this name has closed.
    PoolEnded(String),
}
