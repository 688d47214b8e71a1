//! Draws a frame: turns values into cells of a terminal.

mod details;
mod draw;
mod rows;
mod table;
mod theme;
mod units;

pub(crate) use details::details;
pub(crate) use draw::{Pane, draw, plain, remark};
pub(crate) use rows::table;
pub(crate) use table::{Row, Table};
pub(crate) use theme::Theme;

/// A table of a frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum View {
    /// Pools, and requests in flight below them
    #[default]
    Pools,
    /// Workers, programs' processes and instances
    Workers,
    /// Requests in flight
    Requests,
    /// Routes
    Routes,
    /// What was slow or failed
    Failures,
    /// Applications of application pools, and instances that start
    Applications,
    /// Queues of background jobs
    Jobs,
}

impl View {
    pub(crate) const ALL: [View; 7] = [
        View::Pools,
        View::Workers,
        View::Requests,
        View::Routes,
        View::Failures,
        View::Applications,
        View::Jobs,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            View::Pools => "pools",
            View::Workers => "workers",
            View::Requests => "requests",
            View::Routes => "routes",
            View::Failures => "failures",
            View::Applications => "applications",
            View::Jobs => "jobs",
        }
    }
}

/// The subject of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Pool(String),
    Process(Process),
    Route {
        pool: String,
        route: String,
    },
    Failure {
        pool: String,
        at: usize,
        id: Option<String>,
    },
    Application {
        pool: String,
        name: String,
    },
    Queue(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pool: String,
    pub(crate) application: Option<String>,
    pub(crate) pid: i32,
    /// The finished requests: another number is another request.
    pub(crate) requests: u64,
    pub(crate) is_busy: bool,
}

impl Target {
    /// Whether both are about the same thing, at two moments.
    pub(crate) fn is_same(&self, other: &Target) -> bool {
        match (self, other) {
            (Target::Process(one), Target::Process(other)) => one.pid == other.pid && one.pool == other.pool,
            (one, other) => one == other,
        }
    }
}
