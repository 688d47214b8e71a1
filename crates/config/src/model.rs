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
    /// What could not be had of the pools; with [`OnError::Skip`] alone.
    #[serde(default)]
    pub skipped: Vec<Skipped>,
    /// The files that pools were included from, by the pools' names.
    #[serde(default)]
    pub included: BTreeMap<String, PathBuf>,
    /// The settings that PHP has to know before it starts, by the pools' names; pools without any are not in it.
    #[serde(default)]
    pub start_settings: BTreeMap<String, Vec<StartSetting>>,
    #[serde(default)]
    pub jobs: Option<Box<super::jobs::Jobs>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Global {
    pub pid: Option<PathBuf>,
    pub error_log: LogTarget,
    /// The least severe lines that are still logged.
    pub log_level: LogLevel,
    pub log_format: LogFormat,
    /// Longest line of workers' output and of the access log, with its newline; bytes.
    pub log_limit: usize,
    /// How often the service manager is told what the pools do; `None`: never.
    pub systemd_interval: Option<Duration>,
    pub process_max: Option<u32>,
    /// So many crashed workers in so short a time give every pool new processes; `None`: never.
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
    /// They serve, and the pool is left out; or goes on as it was, if it runs.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReloadWhen {
    /// Those that find something changed: settings, PHP's files, or code that PHP does not look at again by itself.
    Changed,
    Always,
}

/// One pool: workers that share a listening socket and one application. There may be ten thousand, so what is large and few pools
/// have is in boxes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    pub name: String,
    pub title: String,
    pub listen: Listen,
    /// User the workers run as (name or decimal id); `None`: the master's user. Only used by a root master.
    pub user: Option<String>,
    pub group: Option<String>,
    pub pm: ProcessManager,
    /// A worker retires after this many requests; `None`: never.
    pub max_requests: Option<u64>,
    #[serde(default)]
    pub max_requests_jitter: u64,
    /// A worker that uses more memory retires after its request; bytes. `None`: never.
    #[serde(default)]
    pub memory_limit: Option<u64>,
    /// A request that runs longer is ended together with its worker; `None`: never.
    pub request_terminate_timeout: Option<Duration>,
    /// `request_terminate_timeout` also counts after the application has ended its answer.
    #[serde(default)]
    pub request_terminate_timeout_track_finished: bool,
    /// From SIGTERM to SIGKILL, when a worker or a program is stopped.
    #[serde(default = "default_stop_timeout")]
    pub stop_timeout: Duration,
    /// Where and when a slow request is written down; `None`: it isn't.
    pub slow_log: Option<SlowLog>,
    pub client_timeout: Duration,
    pub keepalive_timeout: Duration,
    /// New connections stay in the listening socket while as many workers compute as there are processors.
    #[serde(default)]
    pub wait_for_cpu: bool,
    pub limits: Limits,
    pub chdir: Option<PathBuf>,
    pub chroot: Option<PathBuf>,
    pub clear_env: bool,
    /// The workers' environment, in the order written; a value `$NAME` is already replaced.
    pub env: Vec<(String, String)>,
    /// What an application of an application pool adds to that in its own file. It is set only in a process that has become
    /// the application's user: before, a variable such as `LD_PRELOAD` would be followed with the master's rights.
    #[serde(default)]
    pub own_env: Vec<(String, String)>,
    #[serde(default)]
    pub env_file: Option<EnvFile>,
    /// What an application of an application pool is made of; its processes run nothing that has taken its place. `None`: the
    /// pool belongs to no such application, or the owner of its files does not matter.
    #[serde(default)]
    pub origin: Option<Origin>,
    /// The limit of an application pool: workers tell their router how much memory they use, and it decides.
    #[serde(default)]
    pub told_memory_limit: Option<u64>,
    pub rlimit_files: Option<u64>,
    pub rlimit_core: Option<CoreLimit>,
    pub process_priority: Option<i32>,
    pub process_dumpable: bool,
    pub no_new_privs: bool,
    pub confine: Confine,
    /// What it has of the machine beside other pools, where control groups do not say it.
    #[serde(default)]
    pub shares: Shares,
    #[serde(default)]
    pub rlimit_data: Option<u64>,
    pub status_path: Option<String>,
    pub status_listen: Option<Box<Listen>>,
    #[serde(default)]
    pub http_listen: Option<Box<Listen>>,
    pub ping_path: Option<String>,
    pub ping_response: String,
    pub catch_workers_output: bool,
    pub decorate_workers_output: bool,
    pub app_log: Option<AppLog>,
    pub friendly_error_pages: bool,
    pub reload: ReloadWhen,
    #[serde(default)]
    pub drain_timeout: Option<Duration>,
    pub access: Option<AccessLog>,
    pub application: Application,
    /// `Some`: requests go to many applications; what is said of one is then what holds for each.
    pub applications: Option<Box<super::applications::Applications>>,
}

/// From SIGTERM to SIGKILL in a pool of one application that does not say it.
pub(crate) const DEFAULT_STOP_TIMEOUT: Duration = Duration::from_secs(10);

fn default_stop_timeout() -> Duration {
    DEFAULT_STOP_TIMEOUT
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confine {
    pub apparmor_hat: Option<String>,
    /// The only paths that may be used (Landlock); `None`: all.
    pub paths: Option<Paths>,
    /// Refuse system calls that no web application needs and that attacks on the kernel begin with (seccomp).
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
    /// Of processor time, 1 to 10000; 100 is a pool's without it.
    pub cpu_weight: Option<u32>,
    pub memory_max: Option<u64>,
}

impl Shares {
    /// nice(2) value that comes nearest to the weight: a step is a quarter more or less.
    pub fn nice(self) -> Option<i32> {
        let weight = f64::from(self.cpu_weight?);
        let steps = (100.0 / weight).ln() / 1.25_f64.ln();
        Some((steps.round() as i32).clamp(-20, 19))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    /// An existing group, in which the pool's own is made under the pool's name.
    pub parent: PathBuf,
    pub memory_max: Option<u64>,
    /// `cpu.max`, hundredths of one processor's time.
    pub cpu_percent: Option<u32>,
    pub pids_max: Option<u32>,
    #[serde(default)]
    pub cpu_weight: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvFile {
    /// The file. Of an application pool's template: as seen from each application's root.
    pub path: PathBuf,
    /// An application need not have it: the pool names it for all of its applications.
    pub is_optional: bool,
    /// The application names it, not the operator: it is the application user's own, and no file of root's.
    #[serde(default)]
    pub is_owners: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppLog {
    pub path: PathBuf,
    /// The way there is the application owner's: nothing is written to but what belongs to its user.
    pub is_owners: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowLog {
    pub path: PathBuf,
    pub timeout: Duration,
    /// Calls that are written down at most, from the innermost on; at least 1.
    pub trace_depth: u32,
}

/// The one address in the list of a pool that not one peer may connect to over TCP: no peer has it.
pub const NOT_ONE_CLIENT: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listen {
    pub address: Address,
    pub backlog: i32,
    pub owner: Option<String>,
    pub group: Option<String>,
    pub mode: u32,
    pub allowed_clients: Vec<IpAddr>,
    /// What stands among them in php-fpm's file and is no address. Its workers say so.
    #[serde(default)]
    pub wrong_clients: Vec<String>,
    /// Users (names or decimal ids) that may connect to the unix socket; with one of these two, `owner` and `group` are
    /// not used.
    pub acl_users: Vec<String>,
    pub acl_groups: Vec<String>,
}

impl Listen {
    /// What is wrong with the peers that may connect, in php-fpm's words.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub params_bytes: usize,
    pub params_count: usize,
}
