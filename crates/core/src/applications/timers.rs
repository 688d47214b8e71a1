//! What can be due.

use super::application::AppId;
use super::event::{InstanceId, SessionId};

/// All timers.
pub(super) type Timers = crate::timers::Timers<Timer>;

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Timer {
    /// A waiter has waited for long enough.
    Waiter(SessionId),
    /// A session has lasted for long enough.
    Session(SessionId),
    /// An instance is not up, its work has not ended, it has not drained or not stopped.
    Instance(InstanceId),
    /// Instances may have been idle for long enough.
    Idle(AppId),
    /// The application may start instances again.
    Backoff(AppId),
    /// The application's failures are long past.
    Forgive(AppId),
    /// The application's removal becomes immediate.
    Removal(AppId),
    /// The shutdown becomes immediate.
    Shutdown,
}
