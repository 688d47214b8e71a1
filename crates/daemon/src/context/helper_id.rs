use forkyard_core::master::event::PoolId;
use std::fmt;
use std::time::Duration;

/// A kind of helper process, of a pool or of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HelperId {
    Reporter(PoolId),
    /// Refuses requests with 503.
    Responder(PoolId),
    // Before the router, which asks it at once.
    Inspector(PoolId),
    Router(PoolId),
    Jobs,
    /// Serves the numbers of all pools over HTTP.
    Web,
}

/// A step of a helper, which its part performs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HelperStep {
    Start,
    /// Tells it to stop within this time.
    Ask(Duration),
    /// It is gone until it is needed.
    Idle,
    /// Its process, with this number, has ended.
    Gone(i32),
}

impl fmt::Display for HelperId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HelperId::Reporter(_) => "reporter",
            HelperId::Responder(_) => "503 responder",
            HelperId::Inspector(_) => "inspector",
            HelperId::Router(_) => "router",
            HelperId::Jobs => "process that keeps them",
            HelperId::Web => "web process",
        })
    }
}
