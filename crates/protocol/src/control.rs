//! What is asked and answered.

use crate::changes::Changes;
use crate::counters::PoolCounters;
use crate::jobs::Stats;
use crate::last_reload::LastReload;
use crate::logs::{DaemonLog, PoolLog};
use crate::program::Program;
use crate::skipped::Skipped;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The longest line that the daemon reads, bytes.
pub const LONGEST_REQUEST: usize = 64 * 1024;

/// What the daemon can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Whether it lives. Answered with [`Answer::Pong`].
    Ping {},
    /// What there is. Answered with [`Answer::Status`].
    Status {},
    /// Why an application could not be started. Answered with [`Answer::Report`].
    Error {
        /// The report's id; nothing: the last one of all.
        #[serde(default)]
        id: Option<String>,
        /// How it is wanted.
        #[serde(default)]
        format: Format,
    },
    /// Say that it is not ready, and go on serving, so that load balancers send no more. Answered with [`Answer::Done`].
    Drain {
        /// It is ready again.
        #[serde(default)]
        end: bool,
    },
    /// Open all logs anew, after they were moved away. Answered with [`Answer::Done`].
    #[serde(rename = "reopen-logs")]
    ReopenLogs {},
    /// Let the program that is on disk now take the daemon's place, if it can. Answered with [`Answer::Upgrading`] right
    /// before it does; the conversation ends then.
    Upgrade {},
    /// Read the configuration again. Answered with [`Answer::Reloaded`] once everything that is new serves, or has
    /// failed to.
    Reload {
        /// Replace every pool, whether anything changed or not.
        #[serde(default)]
        all: bool,
        /// Only say what would change. Answered with [`Answer::Changes`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        dry_run: bool,
    },
    /// Give an application new instances with new code. Answered with [`Answer::Done`] when that has begun.
    Restart {
        /// Its root, links resolved.
        application: PathBuf,
        /// One instance after the other; nothing: as its settings say.
        #[serde(default)]
        rolling: Option<bool>,
        /// Start one that has no instance, and answer when it serves or has failed to.
        #[serde(default)]
        start: bool,
    },
    /// Give a pool new processes, as a reload that replaces it does. Answered with [`Answer::Reloaded`] once they serve, or
    /// have failed to, or with [`Answer::Done`] when that has begun.
    #[serde(rename = "restart-pool")]
    RestartPool {
        /// Its name, or the root of its application.
        pool: String,
        /// Answer when it is over.
        #[serde(default)]
        wait: bool,
    },
    /// End the request of a worker, of several the one that has taken longest; its client is answered 504.
    Terminate { pid: i32 },
    /// Take an instance out of service: it ends after its request.
    Detach { pid: i32 },
    /// Give an instance no more requests, and let it live.
    Disable { pid: i32 },
    /// Give it requests again.
    Enable { pid: i32 },
    /// Change the most instances of a pool, until the configuration says another number.
    Resize {
        /// The pool's name.
        pool: String,
        /// At least 1.
        max: u32,
    },
    /// Have an instance for oneself. Answered with its process id and a lease, which ends with the conversation.
    Take {
        /// An application's root, or the name of a group.
        of: String,
        /// How long to wait for one; nothing: not at all.
        #[serde(default)]
        wait_ms: Option<u64>,
    },
    /// Give it back.
    Return {
        lease: u64,
        /// It is not well: it is replaced.
        #[serde(default)]
        failed: bool,
    },
    /// Begin the pools of a file, until the daemon reads its own configuration again. Answered with [`Answer::Reloaded`].
    #[serde(rename = "pool-add")]
    PoolAdd {
        /// The file, absolute.
        file: PathBuf,
    },
    /// Close a pool, until the daemon reads its configuration again. Answered with [`Answer::Reloaded`].
    #[serde(rename = "pool-remove")]
    PoolRemove {
        name: String,
        /// End its requests now.
        #[serde(default)]
        immediate: bool,
        /// End them after this time.
        #[serde(default)]
        deadline_ms: Option<u64>,
    },
}

/// How a report is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For programs.
    #[default]
    Json,
    /// For a terminal.
    Text,
    Html,
}

/// What the daemon is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DaemonMode {
    /// It serves.
    #[default]
    Serving,
    /// It serves, and load balancers are to send it nothing more.
    Draining,
    /// It was told to end.
    Ending,
}

/// What the daemon says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "lowercase")]
pub enum Answer {
    /// It lives.
    Pong {
        /// The master's process id.
        pid: u32,
        version: String,
        /// Whether new requests are to be sent here.
        #[serde(default)]
        mode: DaemonMode,
        /// The last reload, if the configuration that is written is not in force since; owners of applications are not told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_reload: Option<LastReload>,
        /// The program that runs; the same.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        program: Option<Box<Program>>,
    },
    Status(Box<Status>),
    /// Why an application could not be started.
    Report {
        /// An object for the format `json`, a text for the others.
        report: serde_json::Value,
    },
    /// The new program takes over now, and replaces every pool.
    Upgrading {},
    /// It was carried out.
    Done {
        /// The result.
        value: serde_json::Value,
    },
    /// The configuration was read and applied.
    Reloaded(Box<Reloaded>),
    /// What a reload would change.
    Changes(Box<Changes>),
    /// The request was not carried out.
    Error {
        message: String,
        /// What is wrong in the configuration, where it is that.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        errors: Vec<Complaint>,
    },
}

impl Answer {
    /// A request is not carried out, for a reason that is not the configuration's.
    pub fn refusal(message: String) -> Answer {
        Answer::Error {
            message,
            errors: Vec::new(),
        }
    }
}

/// What a reload did, by pools' names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    pub added: Vec<String>,
    /// Pools that got new workers, which serve.
    pub replaced: Vec<Cause>,
    /// Pools that went on as they were.
    pub kept: Vec<String>,
    /// Pools that are closed; what runs in them is finished.
    pub removed: Vec<String>,
    /// Pools whose new workers did not come up. The old ones serve; the new ones are tried again.
    pub failed: Vec<Cause>,
    /// Pools that can't be had as they are written now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
}

/// A pool and a reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// The pool's name.
    pub pool: String,
    pub reason: String,
}

/// Something wrong in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Complaint {
    /// The file, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line, counted from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Column, in characters, counted from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    /// The whole message, place included.
    pub text: String,
}

impl Complaint {
    /// A complaint about no place in particular.
    pub fn text(text: impl Into<String>) -> Complaint {
        Complaint {
            file: None,
            line: None,
            column: None,
            text: text.into(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The master's process id.
    pub pid: u32,
    pub version: String,
    /// The configuration's file.
    pub config: String,
    /// The pools, by name.
    pub pools: Vec<Pool>,
    /// Pools that can't be had as they are written; some may go on as they were.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
    /// When the configuration was read last, and what became of that; owners of applications are not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reload: Option<LastReload>,
    /// Its log; the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<DaemonLog>,
    /// Another program is on disk than the one that runs; the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replaced: bool,
    /// Background jobs, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Box<JobsStatus>>,
}

/// Background jobs, as far as the status goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobsStatus {
    /// Where the process listens that keeps them.
    pub socket: PathBuf,
    /// Its figures. Filled in by the client, which asks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<Stats>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Pool {
    pub name: String,
    pub listen: String,
    /// Why it is not as it should be, in a line, whatever its generations do; nothing where all is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Whether clients don't reach its socket.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreachable: bool,
    /// By what its shares of the machine are kept, in a line; nothing where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<String>,
    /// Its own logs; owners of applications are not told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<PoolLog>,
    /// Connections that wait; nothing where that can't be told.
    pub queue: Option<u32>,
    /// How many connections may wait; the same.
    #[serde(default)]
    pub queue_limit: Option<u32>,
    /// How many workers it may have.
    #[serde(default)]
    pub limits: WorkerLimits,
    /// Workers with a request, of all generations.
    #[serde(default)]
    pub busy: u32,
    /// Workers without a request.
    #[serde(default)]
    pub idle: u32,
    /// Workers that are not able to serve yet.
    #[serde(default)]
    pub starting: u32,
    /// What was counted since the pool was begun.
    #[serde(default)]
    pub counts: PoolCounters,
    /// Memory (PSS) of its workers, programs and preloaders, bytes. Filled in by the client, which may read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Processor time of its workers so far, of those that are gone as well, milliseconds.
    #[serde(default)]
    pub cpu_ms: u64,
    /// Processes that workers which are gone have started, and that are still there.
    #[serde(default)]
    pub orphans: u32,
    /// Why its application could not be started, the last time that it could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// How often its application could not be started, since this daemon's program was started.
    #[serde(default)]
    pub failed_starts: u64,
    /// What it has of applications, if it has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applications: Option<Applications>,
    /// The one that serves, and those that come or leave, oldest first.
    pub generations: Vec<Generation>,
}

/// How many workers a pool may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WorkerLimits {
    /// Most workers, or instances.
    pub max_children: u32,
    /// Fewest idle ones; nothing where `pm` is not `dynamic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_spare_servers: Option<u32>,
    /// Most idle ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_spare_servers: Option<u32>,
}

/// A start that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastError {
    /// The id of its report.
    pub id: String,
    /// When, in seconds since 1970.
    pub time: u64,
    /// What went wrong, in a line.
    pub summary: String,
    /// Requests are refused because of it.
    pub refusing: bool,
    /// The pool has been started since, and serves.
    #[serde(default)]
    pub is_over: bool,
}

/// What a pool of many applications has beside its generations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Applications {
    /// The process id of its router; nothing while there is none.
    pub router: Option<i32>,
    /// The process id of what inspects its directories.
    #[serde(alias = "scout")]
    pub inspector: Option<i32>,
    /// Most instances.
    pub max: u32,
    /// Instances that the master makes and the router can't be asked about.
    pub starting: Vec<Starting>,
    /// Why applications could not be started when that was last tried.
    pub errors: Vec<StartError>,
    /// The pool as its router sees it, in the router's own words; nothing as long as it has not answered.
    #[serde(rename = "book")]
    pub view: Option<serde_json::Value>,
}

/// An instance that is being started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Starting {
    pub instance: u64,
    /// Its application's root.
    pub application: String,
    /// What is being done: its directory is `looked at`; it is `ordered` and waits for its turn; the step of the spawning kit that
    /// its preloader or program is at; its worker is `made`.
    pub step: String,
    /// For how long, milliseconds.
    #[serde(default)]
    pub step_for_ms: u64,
    /// How long ago the router asked for it, milliseconds.
    #[serde(default)]
    pub for_ms: u64,
    /// The process that is at it.
    #[serde(default)]
    pub pid: Option<i32>,
}

/// Why an application could not be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartError {
    /// Its root.
    pub application: String,
    /// The error's name, which visitors and the log have been told, too.
    pub id: String,
    /// What happened.
    pub message: String,
    /// When, in seconds since 1970.
    #[serde(default)]
    pub time: u64,
}

/// A process of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its place among those of its generation, or its worker's slot.
    pub place: u32,
    /// Its process id; nothing while there is none.
    pub pid: Option<i32>,
    /// `starting`, `up`, `waiting` (for its next start), `stopping`, `stopped`.
    pub state: String,
    /// How long it has been up, milliseconds.
    pub uptime_ms: Option<u64>,
    /// Requests that it is done with.
    pub requests: u64,
    /// Requests that it has now.
    pub sessions: u64,
    /// How often another came up in its place before it.
    pub restarts: u64,
    /// Its share of memory (PSS), bytes. Filled in by the client, which may read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Processor time so far, milliseconds. The same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
}

/// A time in milliseconds.
pub fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// One configuration of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Generation {
    /// Its number; later ones are higher.
    pub id: u32,
    /// `serving`, `coming` or `leaving`.
    pub state: String,
    /// `static`, `dynamic` or `ondemand`.
    pub pm: String,
    /// When it began, seconds since 1970.
    pub started: u64,
    /// The process id of its preloader, if it has one.
    pub preloader: Option<i32>,
    /// What kind of preloader a pool of PHP has: `own` or `zygote`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preloading: Option<String>,
    /// Why it has one of its own and no workers of a zygote, which it should have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfit: Option<String>,
    /// The settings that were left out because PHP does not start with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// Of an application that boots once: how, and what came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<Boot>,
    /// Each worker loads the application, because it had connected to these servers when it was loaded before the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected_to: Option<String>,
    /// The processes of its program, by place; of programs that workers start, by their workers' slots.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<Process>,
    /// Its workers, by slot.
    pub workers: Vec<Worker>,
}

/// A setting that PHP does not start with.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LeftOut {
    /// As it is written in php-fpm's files: `php_admin_value[NAME]`.
    pub key: String,
    /// Its value.
    pub value: String,
    /// The file that it is written in.
    pub file: String,
    /// The line of the file.
    pub line: usize,
    /// PHP's message, or how its process ended.
    pub reason: String,
}

/// The boot of an application that boots once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Boot {
    /// What runs: `loop`, `snapshot`, or `ordinary`, where each request boots the application.
    pub mode: String,
    /// Of a snapshot, how a worker gets rid of a request: `rewind` or `fork`. Nothing as long as that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// Why the mode is not that of `worker_mode`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// How long it took, milliseconds; nothing as long as it goes on, and after an upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// The warm-up requests, likewise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warm_up: Vec<WarmUp>,
    /// Requests that were taken up since.
    pub requests: u64,
    /// What it has cost to put workers back after them, if that is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rewound: Option<RewoundTotals>,
}

/// What all workers of a boot together have been put back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RewoundTotals {
    /// How often.
    pub requests: u64,
    /// How long all of it took, microseconds.
    pub micros: u64,
    /// Pages of memory that were copied.
    pub pages: u64,
}

/// A warm-up request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WarmUp {
    /// What was asked for.
    pub path: String,
    /// How long the answer took, milliseconds.
    pub took_ms: u64,
}

/// A worker. What it says of itself may be wrong: it runs the application.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Worker {
    /// Its slot of the scoreboard.
    pub slot: u32,
    /// Its process id; nothing as long as it is being made.
    pub pid: Option<i32>,
    /// What it does, in the words of the status page.
    pub stage: String,
    /// For how long, milliseconds.
    pub for_ms: u64,
    /// Requests that it has answered.
    pub requests: u64,
    /// Idle kept connections that it holds.
    pub kept: u64,
    /// Requests that it serves now, where that may be several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u32>,
    /// Those of them whose answers have begun and from which nothing comes; they do not count against `concurrency`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_streams: Option<u32>,
    /// It has as many as it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<bool>,
    /// The script that it runs, or ran last.
    pub script: String,
    /// The request's method, URI and query string; of the last one if it is idle.
    #[serde(default)]
    pub method: String,
    #[serde(default)]
    pub uri: String,
    #[serde(default)]
    pub query: String,
    /// Its share of memory (PSS), bytes. Filled in by the client, which may read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Processor time so far, milliseconds.
    #[serde(default)]
    pub cpu_ms: u64,
}

#[cfg(test)]
mod tests;
