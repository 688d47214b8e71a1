//! The resolved configuration. A `Config` is always valid.

use super::access::AccessLog;
use super::application::Application;
use super::skip::Skipped;
use super::start_settings::StartSetting;
use forkyard_base::origin::Origin;
pub use forkyard_core::config::{EmergencyRestart, ProcessManager};
pub use forkyard_protocol::address::Address;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// The file it came from, as named on the command line.
    pub path: PathBuf,
    pub global: Global,
    pub pools: Vec<Arc<Pool>>,
    /// Pools left out because of errors; only with [`OnError::Skip`].
    #[serde(default)]
    pub skipped: Vec<Skipped>,
    /// The file that each pool was included from, by pool name.
    #[serde(default)]
    pub included: BTreeMap<String, PathBuf>,
    /// Settings that PHP needs before it starts, by pool name. Pools without such settings have no entry.
    #[serde(default)]
    pub start_settings: BTreeMap<String, Vec<StartSetting>>,
    #[serde(default)]
    pub jobs: Option<Box<super::jobs::Jobs>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Global {
    pub pid: Option<PathBuf>,
    pub error_log: LogTarget,
    /// The lowest severity that is logged.
    pub log_level: LogLevel,
    pub log_format: LogFormat,
    /// Longest line of worker output and of the access log, in bytes with its newline.
    pub log_limit: usize,
    /// Interval of status reports to the service manager; `None`: never.
    pub systemd_interval: Option<Duration>,
    pub process_max: Option<u32>,
    /// The number of worker crashes within an interval that restarts all pools; `None`: never.
    pub emergency_restart: Option<EmergencyRestart>,
    pub process_priority: Option<i32>,
    pub process_control_timeout: Duration,
    pub daemonize: bool,
    /// `RLIMIT_NOFILE` of the master; `None`: as inherited, soft raised to hard.
    pub rlimit_files: Option<u64>,
    pub rlimit_core: Option<CoreLimit>,
    #[serde(default)]
    pub on_error: OnError,
    #[serde(default)]
    pub watch: Vec<PathBuf>,
    /// The unix socket over which the daemon takes commands; `None`: there is none.
    pub control: Option<PathBuf>,
    #[serde(default)]
    pub is_control_written: bool,
    #[serde(default)]
    pub on_sigterm: OnSigterm,
    /// The address that serves numbers over HTTP, if any.
    #[serde(default)]
    pub web: Option<Web>,
}

/// The numbers over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Web {
    pub address: Address,
    /// Names in lower case that a Host header may have, in addition to `localhost` and IP addresses.
    pub hosts: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnSigterm {
    #[default]
    Terminate,
    Finish,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnError {
    #[default]
    Fail,
    /// The other pools serve. The faulty pool is left out, or keeps its old configuration if it is running.
    Skip,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogTarget {
    Stderr,
    File(PathBuf),
    Syslog { ident: String, facility: u8 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogFormat {
    /// php-fpm's: `[20-Nov-2026 17:53:09] NOTICE: text`.
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LogLevel {
    Debug,
    Notice,
    Warning,
    Error,
    Alert,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CoreLimit {
    Bytes(u64),
    Unlimited,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReloadWhen {
    /// Replace the processes of pools with a change: in settings, PHP's files, or code that PHP doesn't recheck.
    #[default]
    Changed,
    Always,
}

/// One pool: workers that share a listening socket and one application. Large fields that few pools need are boxed,
/// because there may be ten thousand pools. The default has every setting off, empty or 0, and can't serve.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    pub name: String,
    pub title: String,
    pub listen: Listen,
    #[serde(default)]
    pub http_listen: Option<Box<Listen>>,
    pub pm: ProcessManager,
    #[serde(flatten)]
    pub account: Account,
    #[serde(flatten)]
    pub setup: ProcessSetup,
    #[serde(flatten)]
    pub environment: Environment,
    pub confine: Confine,
    #[serde(flatten)]
    pub serving: Serving,
    #[serde(flatten)]
    pub load: Load,
    /// `None`: its paths are used unchanged.
    #[serde(default)]
    pub release: Option<Box<super::release::Release>>,
    #[serde(flatten)]
    pub retirement: Retirement,
    #[serde(flatten)]
    pub replacement: Replacement,
    #[serde(flatten)]
    pub pages: Pages,
    #[serde(flatten)]
    pub logs: Logs,
    pub application: Application,
    /// `Some`: an application pool. The settings above then apply to each of its applications.
    pub applications: Option<Box<super::applications::Applications>>,
}

/// How the pool shares the machine, and what it does when work comes faster than it is done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The autopilot chooses the number of workers; `pm` has the most that it may choose.
    #[serde(default)]
    pub has_autopilot: bool,
    /// Its shares of CPU and memory, if `cgroup` doesn't set them.
    #[serde(default)]
    pub shares: Shares,
    #[serde(default)]
    pub overload: super::overload::Overload,
    /// Its lanes. `pm` includes their additional workers.
    #[serde(default)]
    pub lanes: Option<Box<super::lanes::Lanes>>,
}

/// The user of the workers. Only a root master uses it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// A name or a decimal id; `None`: the master's user.
    pub user: Option<String>,
    pub group: Option<String>,
}

/// The preparations of a process before it runs the application.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSetup {
    pub chdir: Option<PathBuf>,
    pub chroot: Option<PathBuf>,
    pub rlimit_files: Option<u64>,
    pub rlimit_core: Option<CoreLimit>,
    #[serde(default)]
    pub rlimit_data: Option<u64>,
    pub process_priority: Option<i32>,
    pub process_dumpable: bool,
    pub no_new_privs: bool,
    /// Identifies the files of an application in an application pool, so that its processes don't run files that
    /// replaced them. `None`: not such an application, or the owner of the files does not matter.
    #[serde(default)]
    pub origin: Option<Origin>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    pub clear_env: bool,
    /// The workers' environment, in the order written; a value `$NAME` is already expanded.
    pub env: Vec<(String, String)>,
    /// Variables from the file of an application in an application pool. Set only after a process has switched to the
    /// application's user: earlier, a variable such as `LD_PRELOAD` would take effect with the master's privileges.
    #[serde(default)]
    pub own_env: Vec<(String, String)>,
    #[serde(default)]
    pub env_file: Option<EnvFile>,
}

/// Limits of connections and requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    pub client_timeout: Duration,
    pub keepalive_timeout: Duration,
    /// The longest a request may run before its worker is stopped; `None`: unlimited.
    pub request_terminate_timeout: Option<Duration>,
    /// Whether `request_terminate_timeout` also covers the time after the application finished its response.
    #[serde(default)]
    pub request_terminate_timeout_track_finished: bool,
    /// Whether workers accept no connection while as many workers as there are CPUs are computing.
    #[serde(default)]
    pub wait_for_cpu: bool,
    pub limits: Limits,
}

/// When a worker retires.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retirement {
    /// A worker retires after this many requests; `None`: never.
    pub max_requests: Option<u64>,
    #[serde(default)]
    pub max_requests_jitter: u64,
    /// A worker that uses more memory retires after its request; bytes. `None`: never.
    #[serde(default)]
    pub memory_limit: Option<u64>,
    /// `memory_limit` of an application pool: workers report their memory to the router, which enforces the limit.
    #[serde(default)]
    pub told_memory_limit: Option<u64>,
}

/// When and how processes are replaced or stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    pub reload: ReloadWhen,
    /// The time between SIGTERM and SIGKILL when a worker or program is stopped.
    #[serde(default = "default_stop_timeout")]
    pub stop_timeout: Duration,
    #[serde(default)]
    pub drain_timeout: Option<Duration>,
}

/// The pages that forkyard answers itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pages {
    pub status_path: Option<String>,
    pub status_listen: Option<Box<Listen>>,
    pub ping_path: Option<String>,
    pub ping_response: String,
    pub friendly_error_pages: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Logs {
    pub access: Option<AccessLog>,
    /// The log of slow requests and their least time; `None`: no slow request is logged.
    pub slow_log: Option<SlowLog>,
    pub app_log: Option<AppLog>,
    pub catch_workers_output: bool,
    pub decorate_workers_output: bool,
}

/// The default for a pool of one application.
pub(crate) const DEFAULT_STOP_TIMEOUT: Duration = Duration::from_secs(10);

fn default_stop_timeout() -> Duration {
    DEFAULT_STOP_TIMEOUT
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confine {
    pub apparmor_hat: Option<String>,
    /// The only paths that may be used (Landlock); `None`: all.
    pub paths: Option<Paths>,
    /// Whether to deny system calls that web applications don't need and kernel exploits use (seccomp).
    pub deny_system_calls: bool,
    pub private_tmp: bool,
    pub cgroup: Option<Cgroup>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paths {
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shares {
    /// The CPU weight, 1 to 10000. A pool without one has 100.
    pub cpu_weight: Option<u32>,
    pub memory_max: Option<u64>,
}

impl Shares {
    /// The nice(2) value closest to the weight. One step changes the CPU time by about a quarter.
    pub fn nice(self) -> Option<i32> {
        let weight = f64::from(self.cpu_weight?);
        let steps = (100.0 / weight).ln() / 1.25_f64.ln();
        Some((steps.round() as i32).clamp(-20, 19))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    /// An existing control group. The pool's group is created in it, with the pool's name.
    pub parent: PathBuf,
    pub memory_max: Option<u64>,
    /// `cpu.max`, in percent of one CPU.
    pub cpu_percent: Option<u32>,
    pub pids_max: Option<u32>,
    #[serde(default)]
    pub cpu_weight: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvFile {
    /// The file. In an application pool, relative to each application's root.
    pub path: PathBuf,
    /// Whether the file may be missing, because the pool names it for all its applications.
    pub is_optional: bool,
    /// Whether the application names it instead of the operator. The file then has to belong to the application's user,
    /// not root.
    #[serde(default)]
    pub is_owners: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppLog {
    pub path: PathBuf,
    /// Whether the application's owner controls the path. Only a file of the application's user is then written to.
    pub is_owners: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowLog {
    pub path: PathBuf,
    pub timeout: Duration,
    /// The most calls to log, from the innermost; at least 1.
    pub trace_depth: u32,
}

/// The only entry of a list that permits no TCP peer: no peer has this address.
pub const NOT_ONE_CLIENT: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listen {
    pub address: Address,
    pub backlog: i32,
    pub owner: Option<String>,
    pub group: Option<String>,
    pub mode: u32,
    pub allowed_clients: Vec<IpAddr>,
    /// Invalid addresses from php-fpm's file. The workers log them.
    #[serde(default)]
    pub wrong_clients: Vec<String>,
    /// Users (names or decimal ids) that may connect to the unix socket. If this or `acl_groups` is set, `owner` and
    /// `group` are ignored.
    pub acl_users: Vec<String>,
    pub acl_groups: Vec<String>,
}

impl Listen {
    /// Errors in the list of permitted peers, in php-fpm's words.
    pub fn client_complaints(&self) -> Vec<String> {
        let wrong = self.wrong_clients.iter();
        let mut said: Vec<String> = wrong
            .map(|item| format!("Wrong IP address '{item}' in listen.allowed_clients"))
            .collect();
        if self.allowed_clients == [NOT_ONE_CLIENT] {
            said.push("There are no allowed addresses".to_owned());
        }
        said
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub params_bytes: usize,
    pub params_count: usize,
}
