//! Requests and answers of the control socket.

mod limits;
mod overview;
mod reloaded;

use crate::changes::Changes;
use crate::code_cache::{LastCaches, PoolCaches};
use crate::counters::PoolCounters;
use crate::daemon_life::DaemonLife;
use crate::history::Period;
use crate::jobs::Stats;
use crate::lanes::Lanes;
use crate::last_reload::LastReload;
use crate::logs::{DaemonLog, PoolLog};
use crate::numbers::PoolNumbers;
use crate::past_event::PastEvent;
use crate::program::Program;
use crate::release::{Deployment, PoolReleases};
use crate::routes::RouteStatus;
use crate::skipped::Skipped;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::path::PathBuf;

pub use limits::{Advice, WorkerLimits};
pub use reloaded::{Cause, CrashLine, Reloaded};

pub const LONGEST_REQUEST: usize = 64 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Checks that the daemon runs. Answered with [`Answer::Pong`].
    Ping {},
    /// Answered with [`Answer::Status`].
    Status {
        /// Has old states of the caches of PHP read, for a later status. For root.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        caches: bool,
    },
    /// Requests the routes of a pool. Answered with [`Answer::Routes`].
    Routes {
        /// The pool's name or its application's root.
        pool: String,
    },
    /// Requests the last two weeks of a pool. Answered with [`Answer::Periods`].
    Periods { pool: String },
    /// Requests what happened to the daemon and its pools. Answered with [`Answer::Events`].
    Events {},
    /// Requests the state of the caches of PHP. Answered with [`Answer::Caches`].
    Opcache {
        /// A pool, or an application pool with all of its applications. `None`: all.
        #[serde(default)]
        pool: Option<String>,
    },
    /// Requests the report of a failed start or a crash. Answered with [`Answer::Report`].
    Error {
        /// The report's id, or `None` for the latest report.
        #[serde(default)]
        id: Option<String>,
        #[serde(default)]
        format: Format,
    },
    /// Requests the kept crashes, the latest first. Answered with [`Answer::Crashes`].
    Crashes {
        #[serde(default)]
        pool: Option<String>,
    },
    /// Reports the daemon as not ready but keeps serving, so that load balancers stop sending requests. Answered with
    /// [`Answer::Done`].
    Drain {
        #[serde(default)]
        end: bool,
    },
    /// Reopens all log files after rotation. Answered with [`Answer::Done`].
    #[serde(rename = "reopen-logs")]
    ReopenLogs {},
    /// Replaces the daemon with the program on disk. Answered with [`Answer::Upgrading`] just before the takeover,
    /// which ends the connection.
    Upgrade {},
    /// Reloads the configuration. Answered with [`Answer::Reloaded`] once all new pools serve or have failed.
    Reload {
        #[serde(default)]
        all: bool,
        /// Returns [`Answer::Changes`] and changes nothing.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        dry_run: bool,
    },
    /// Gives an application new instances with new code. Answered with [`Answer::Done`] when the restart begins.
    Restart {
        /// The application's root, with links resolved.
        application: PathBuf,
        /// Restarts one instance at a time. `None`: as in the application's settings.
        #[serde(default)]
        rolling: Option<bool>,
        /// Starts an instance if there is none, and waits for the result.
        #[serde(default)]
        start: bool,
    },
    /// Replaces a pool's processes, as a reload does. Answered with [`Answer::Reloaded`] once the new processes serve
    /// or have failed, or with [`Answer::Done`] when the restart begins.
    #[serde(rename = "restart-pool")]
    RestartPool {
        /// The pool's name or its application's root.
        pool: String,
        #[serde(default)]
        wait: bool,
    },
    /// Gives a pool another release. Answered with [`Answer::Deployed`] once the new release gets all requests or none.
    Deploy {
        /// The pool's name, its application's root or its link.
        pool: String,
        /// A directory, with links resolved.
        release: PathBuf,
        /// `None`: as in the pool's settings.
        #[serde(default)]
        gradual: Option<bool>,
    },
    /// Takes back the deployment that is under way. Answered with [`Answer::Done`].
    Rollback {
        pool: String,
        /// Only a deployment of this release, which may also wait.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        release: Option<PathBuf>,
    },
    /// Requests the releases of pools. Answered with [`Answer::Releases`].
    Releases {
        /// The pool's name, its application's root or its link. `None`: all pools that have the key `release`.
        #[serde(default)]
        pool: Option<String>,
    },
    /// Ends a worker's longest-running request. Its client receives a 504.
    Terminate { pid: i32 },
    /// Stops an instance after its current request.
    Detach { pid: i32 },
    /// Sends an instance no more requests.
    Disable { pid: i32 },
    /// Sends requests to a disabled instance again.
    Enable { pid: i32 },
    /// Changes a pool's maximum of instances until the configuration changes that number.
    Resize { pool: String, max: u32 },
    /// Leases an instance. The answer contains its process id and a lease, which ends with the connection.
    Take {
        /// An application's root or a group's name.
        of: String,
        /// The longest wait, or `None` to fail immediately.
        #[serde(default)]
        wait_ms: Option<u64>,
    },
    Return {
        lease: u64,
        #[serde(default)]
        failed: bool,
    },
    /// Starts the pools of a file until the next reload of the daemon's configuration. Answered with
    /// [`Answer::Reloaded`].
    #[serde(rename = "pool-add")]
    PoolAdd {
        /// An absolute path.
        file: PathBuf,
    },
    /// Closes a pool until the next reload of the daemon's configuration. Answered with [`Answer::Reloaded`].
    #[serde(rename = "pool-remove")]
    PoolRemove {
        name: String,
        #[serde(default)]
        immediate: bool,
        /// The time until remaining requests are ended.
        #[serde(default)]
        deadline_ms: Option<u64>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    #[default]
    Json,
    Text,
    Html,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DaemonMode {
    #[default]
    Serving,
    /// Serving, but reported to load balancers as not ready.
    Draining,
    Ending,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "lowercase")]
pub enum Answer {
    /// The daemon is running.
    Pong {
        pid: u32,
        version: String,
        /// Whether load balancers should send requests.
        #[serde(default)]
        mode: DaemonMode,
        /// The last reload, if it didn't fully apply the configuration. Not shown to owners of applications.
        last_reload: Option<LastReload>,
        /// The running program. Not shown to owners of applications.
        program: Option<Box<Program>>,
    },
    Status(Box<Status>),
    Routes {
        /// By busy time; the last one may be all others.
        routes: Vec<RouteStatus>,
    },
    Periods {
        /// Hours, then the tens of minutes of the last day, each in order. Times without a request are absent.
        periods: Vec<Period>,
    },
    /// The caches of pools and applications that run with PHP, by name.
    Caches {
        caches: Vec<PoolCaches>,
    },
    Events {
        /// Oldest first. An owner of applications receives those of own processes.
        events: Vec<PastEvent>,
    },
    Report {
        /// A JSON object for `json`, text otherwise.
        report: serde_json::Value,
    },
    Crashes {
        crashes: Vec<CrashLine>,
    },
    /// The new program takes over now and replaces every pool.
    Upgrading {},
    Done {
        value: serde_json::Value,
    },
    Reloaded(Box<Reloaded>),
    Deployed(Box<Deployment>),
    Releases {
        releases: Vec<PoolReleases>,
    },
    Changes(Box<Changes>),
    Error {
        message: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        errors: Vec<Complaint>,
    },
}

impl Answer {
    pub fn refusal(message: String) -> Answer {
        Answer::Error {
            message,
            errors: Vec::new(),
        }
    }
}

/// A refusal.
impl From<String> for Answer {
    fn from(message: String) -> Answer {
        Answer::refusal(message)
    }
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Complaint {
    pub file: Option<String>,
    /// Line, from 1.
    pub line: Option<usize>,
    /// Column in characters, from 1.
    pub column: Option<usize>,
    pub text: String,
}

impl Complaint {
    pub fn text(text: impl Into<String>) -> Complaint {
        Complaint {
            file: None,
            line: None,
            column: None,
            text: text.into(),
        }
    }
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub pid: u32,
    pub version: String,
    pub config: String,
    pub pools: Vec<PoolStatus>,
    /// Pools with configuration errors. Some run with their old settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
    /// The last reload. Not shown to owners of applications.
    pub last_reload: Option<LastReload>,
    /// The daemon's log. Not shown to owners of applications.
    pub log: Option<DaemonLog>,
    /// Another program replaced the running one on disk. Not shown to owners of applications.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replaced: bool,
    /// The program and its times. Not shown to owners of applications.
    pub daemon: Option<Box<DaemonLife>>,
    /// `None` if background jobs are disabled.
    pub jobs: Option<Box<JobsStatus>>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobsStatus {
    pub socket: PathBuf,
    /// Added by the client, which queries the job process.
    pub stats: Option<Stats>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PoolStatus {
    pub name: String,
    pub listen: String,
    /// The pool's problem in one line, or `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Clients can't reach the pool's socket.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreachable: bool,
    /// How the pool's resource shares are enforced, in one line. `None` without shares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<String>,
    /// The pool's logs. Not shown to owners of applications.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<PoolLog>,
    /// Waiting connections, or `None` if unknown.
    pub queue: Option<u32>,
    /// The queue's limit, or `None` if unknown.
    #[serde(default)]
    pub queue_limit: Option<u32>,
    #[serde(default)]
    pub limits: WorkerLimits,
    /// Workers with a request, in all generations.
    #[serde(default)]
    pub busy: u32,
    #[serde(default)]
    pub idle: u32,
    #[serde(default)]
    pub starting: u32,
    /// Counters since the pool started.
    #[serde(default)]
    pub counts: PoolCounters,
    /// Busy time and histograms. Not shown to owners of applications.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numbers: Option<Box<PoolNumbers>>,
    /// The caches of PHP, at most 5 minutes old; `None` if nobody has asked for them, and for owners of an application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caches: Option<Box<LastCaches>>,
    /// The last two weeks. Added by the client, for named pools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub periods: Vec<Period>,
    /// What the autopilot would choose. `None` for application pools, and for owners of an application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<Box<Advice>>,
    /// `None`: it has no lanes. Not shown to owners of an application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes: Option<Box<Lanes>>,
    /// `None`: it has no key `release`. Not shown to owners of an application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub releases: Option<Box<PoolReleases>>,
    /// Memory (PSS) of workers, programs and preloaders, in bytes. Added by the client, which may read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Processor time of present and past workers, in milliseconds.
    #[serde(default)]
    pub cpu_ms: u64,
    /// Processes left by workers that have exited.
    #[serde(default)]
    pub orphans: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// Failed starts since the daemon's program started.
    #[serde(default)]
    pub failed_starts: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applications: Option<Applications>,
    /// The serving generation and those starting or leaving, oldest first.
    pub generations: Vec<GenerationStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastError {
    pub id: String,
    pub time: u64,
    pub summary: String,
    /// Requests are refused because of the error.
    pub refusing: bool,
    /// The pool has since started and serves.
    #[serde(default)]
    pub is_over: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Applications {
    pub router: Option<i32>,
    #[serde(alias = "scout")]
    pub inspector: Option<i32>,
    pub max: u32,
    /// Instances that the master is starting, which the router can't report.
    pub starting: Vec<Starting>,
    /// The latest failed start of each application.
    pub errors: Vec<StartError>,
    /// The router's own status, or `None` before its first answer.
    #[serde(rename = "book")]
    pub view: Option<serde_json::Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Starting {
    pub instance: u64,
    pub application: String,
    /// `looked at` (its directory is being inspected), `ordered` (queued), the spawning kit's step for its preloader or
    /// program, or `made` (its worker is starting).
    pub step: String,
    /// Time in this step, in milliseconds.
    #[serde(default)]
    pub step_for_ms: u64,
    /// Time since the router's request, in milliseconds.
    #[serde(default)]
    pub for_ms: u64,
    #[serde(default)]
    pub pid: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartError {
    pub application: String,
    /// The error id, also shown in the log and to visitors.
    pub id: String,
    pub message: String,
    #[serde(default)]
    pub time: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Its place in the generation, or its worker's slot.
    pub place: u32,
    pub pid: Option<i32>,
    /// `starting`, `up`, `waiting` (for its next start), `stopping` or `stopped`.
    pub state: String,
    /// Time since it came up, in milliseconds.
    pub uptime_ms: Option<u64>,
    /// Completed requests.
    pub requests: u64,
    /// Current requests.
    pub sessions: u64,
    /// Earlier processes in this place that came up.
    pub restarts: u64,
    /// Memory (PSS), in bytes. Added by the client, which may read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Processor time, in milliseconds. Added by the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
}

pub fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// One configuration of a pool and its processes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GenerationStatus {
    /// Later generations have higher ids.
    pub id: u32,
    /// `serving`, `coming` or `leaving`.
    pub state: String,
    /// `static`, `dynamic` or `ondemand`.
    pub pm: String,
    pub started: u64,
    pub preloader: Option<i32>,
    /// A PHP pool's preloader: `own` or `zygote`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preloading: Option<String>,
    /// Why the pool can't use a zygote, as configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfit: Option<String>,
    /// Settings left out because PHP fails to start with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// The boot of an application that boots once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<Boot>,
    /// Servers that the application connected to in the preloader. Each worker then loads the application itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected_to: Option<String>,
    /// Processes of the program by place, or by slot of the worker that starts them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ProcessStatus>,
    pub workers: Vec<WorkerStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LeftOut {
    /// As written in php-fpm's files: `php_admin_value[NAME]`.
    pub key: String,
    pub value: String,
    pub file: String,
    pub line: usize,
    /// PHP's message or the exit of its process.
    pub reason: String,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Boot {
    /// The mode in use: `loop`, `snapshot` or `ordinary` (each request boots the application).
    pub mode: String,
    /// How a snapshot worker discards a request: `rewind` or `fork`. `None` until known.
    pub isolation: Option<String>,
    /// Why the mode differs from `worker_mode`.
    pub because: Option<String>,
    /// Boot time, in milliseconds. `None` during the boot and after an upgrade.
    pub took_ms: Option<u64>,
    /// Warm-up requests. Empty during the boot and after an upgrade.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warm_up: Vec<WarmUp>,
    /// Requests since the boot.
    pub requests: u64,
    pub rewound: Option<RewoundTotals>,
}

/// The cost of rewinding all workers of a boot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RewoundTotals {
    pub requests: u64,
    /// Total time, in microseconds.
    pub micros: u64,
    /// Copied memory pages.
    pub pages: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WarmUp {
    pub path: String,
    pub took_ms: u64,
}

/// A worker. It runs the application, so the data it reports may be wrong.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WorkerStatus {
    pub slot: u32,
    /// The process id, or `None` during the start.
    pub pid: Option<i32>,
    /// The state, in the status page's words.
    pub stage: String,
    /// Time in this state, in milliseconds.
    pub for_ms: u64,
    /// Answered requests.
    pub requests: u64,
    /// Idle keep-alive connections.
    pub kept: u64,
    /// Current requests, for workers with several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u32>,
    /// Requests in progress whose streams are idle. They don't count against `concurrency`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_streams: Option<u32>,
    /// The worker has its maximum of requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<bool>,
    pub script: String,
    /// The current or last request's method, URI and query string.
    #[serde(default)]
    pub method: String,
    #[serde(default)]
    pub uri: String,
    #[serde(default)]
    pub query: String,
    /// The route of its current request; `None` for workers with several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// Memory (PSS), in bytes. Added by the client, which may read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    #[serde(default)]
    pub cpu_ms: u64,
}

#[cfg(test)]
mod tests;
