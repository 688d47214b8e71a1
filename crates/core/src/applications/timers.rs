//! Timers of the application pool.

use super::application::AppId;
use super::event::{InstanceId, SessionId};

pub(super) type Timers = forkyard_base::timers::Timers<Timer>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Timer {
    Waiter(SessionId),
    Session(SessionId),
    /// A start, its work, draining or stopping.
    Instance(InstanceId),
    Idle(AppId),
    Backoff(AppId),
    Forgive(AppId),
}
