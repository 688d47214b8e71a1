//! The resolved settings of a pool's application.

use super::model::Address;
use crate::path_pattern::PathPattern;
pub use forkyard_protocol::inspector::Preload;
pub use forkyard_protocol::runtimes::{Calls, Leaves, Requests, Workers};
use forkyard_protocol::runtimes::{Kind, RuntimeTraits};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant, reason = "there is one for each pool")]
pub enum Application {
    Php(Php),
    Cgi(Cgi),
    /// An HTTP server that forkyard doesn't start.
    Http(Http),
    /// An HTTP server started for the pool.
    Program(Program),
    /// A FastCGI server, one per worker.
    FastCgi(FastCgi),
    /// An application in another language, loaded by a wrapper that forks workers.
    Wrapped(Wrapped),
    #[default]
    Rust,
}

/// The place of a job's script in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobScript {
    Required,
    Optional,
    /// The application has no scripts.
    Refused,
}

/// How long a preloader or program may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartTimes {
    pub start_timeout: Duration,
    /// It stops after the pool has had no worker for this long.
    pub idle_timeout: Duration,
}

impl Application {
    pub fn traits(&self) -> &'static RuntimeTraits {
        let kind = match self {
            Application::Php(_) => Kind::Php,
            Application::Cgi(_) => Kind::Cgi,
            Application::FastCgi(_) => Kind::Fastcgi,
            Application::Program(program) if program.listens == Listens::Node => Kind::Node,
            Application::Http(_) | Application::Program(_) => Kind::Http,
            Application::Wrapped(wrapped) => match wrapped.interface {
                Interface::Wsgi => Kind::Wsgi,
                Interface::Asgi => Kind::Asgi,
                Interface::Rack => Kind::Rack,
            },
            Application::Rust => Kind::Rust,
        };
        kind.traits()
    }

    pub fn root(&self) -> Option<&Path> {
        match self {
            Application::Wrapped(wrapped) => Some(&wrapped.root),
            Application::Program(program) => Some(&program.root),
            Application::Cgi(cgi) => cgi.root.as_deref(),
            Application::FastCgi(fastcgi) => fastcgi.root.as_deref(),
            Application::Php(_) | Application::Http(_) | Application::Rust => None,
        }
    }

    /// The times of its preloader or program. `None`: the daemon starts neither before the workers.
    pub fn start_times(&self) -> Option<StartTimes> {
        let (start_timeout, idle_timeout) = match self {
            Application::Php(php) => (php.start_timeout, php.preloader_idle_timeout),
            Application::Wrapped(wrapped) => (wrapped.start_timeout, wrapped.preloader_idle_timeout),
            Application::Program(program) => (program.start_timeout, program.preloader_idle_timeout),
            Application::Cgi(_) | Application::FastCgi(_) | Application::Http(_) | Application::Rust => {
                return None;
            }
        };
        Some(StartTimes {
            start_timeout,
            idle_timeout,
        })
    }

    pub(crate) fn job_script(&self) -> JobScript {
        match self {
            Application::Php(_) => JobScript::Required,
            Application::Cgi(cgi) if cgi.script.is_none() => JobScript::Required,
            Application::FastCgi(_) => JobScript::Optional,
            Application::Cgi(_)
            | Application::Http(_)
            | Application::Program(_)
            | Application::Wrapped(_)
            | Application::Rust => JobScript::Refused,
        }
    }

    /// The requests that a worker serves at once.
    pub fn concurrency(&self) -> u32 {
        match (self.traits().requests, self.wrapped()) {
            (Requests::Threads | Requests::Loop, Some(wrapped)) => wrapped.concurrency.max(1),
            (Requests::Forwarded, _) => u32::MAX,
            (Requests::One | Requests::Threads | Requests::Loop, _) => 1,
        }
    }

    /// Whether a worker can serve several requests at once. It then ends overdue requests itself.
    pub fn is_concurrent(&self) -> bool {
        self.traits().serves_http() || self.concurrency() > 1
    }

    pub fn php(&self) -> Option<&Php> {
        match self {
            Application::Php(php) => Some(php),
            _ => None,
        }
    }

    pub fn php_mut(&mut self) -> Option<&mut Php> {
        match self {
            Application::Php(php) => Some(php),
            _ => None,
        }
    }

    pub fn fastcgi(&self) -> Option<&FastCgi> {
        match self {
            Application::FastCgi(fastcgi) => Some(fastcgi),
            _ => None,
        }
    }

    /// An HTTP server started for the pool.
    pub fn program(&self) -> Option<&Program> {
        match self {
            Application::Program(program) => Some(program),
            _ => None,
        }
    }

    pub fn wrapped(&self) -> Option<&Wrapped> {
        match self {
            Application::Wrapped(wrapped) => Some(wrapped),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgi {
    /// The program for every request. `None`: the one named by the web server.
    pub script: Option<PathBuf>,
    /// The directory that must contain the named program.
    pub root: Option<PathBuf>,
    /// Pass a query without `=` as arguments (RFC 3875 section 4.4).
    pub search_arguments: bool,
    #[serde(default)]
    pub parameters: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Http {
    pub address: Address,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    pub root: PathBuf,
    /// The command that `/bin/sh` runs with `exec`.
    pub start_command: String,
    pub listens: Listens,
    pub instances: u32,
    pub app_env: String,
    pub load_shell_envvars: bool,
    pub rlimits: Vec<ResourceLimit>,
    pub umask: Option<u32>,
    pub start_timeout: Duration,
    /// Stop the program after the pool has had no worker for this long.
    pub preloader_idle_timeout: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Listens {
    /// `$PORT` on localhost, which every local user can reach.
    Port,
    /// The address reported through the spawning kit's handshake.
    Handshake,
    /// The unix socket `$SOCKET` in a private directory.
    Socket,
    /// Like `Socket`, for a Node.js program: its first server is redirected to the socket.
    Node,
}

/// A resource limit (setrlimit(2)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimit {
    /// The name in lower case without prefix, such as `nofile`.
    pub name: String,
    /// The soft limit in the resource's unit, or `None` for unlimited.
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FastCgi {
    pub command: StartCommand,
    /// The working directory. `None`: the worker's.
    pub root: Option<PathBuf>,
    /// How long the program may take to read its first request.
    pub start_timeout: Duration,
    /// How long a request may continue after its client disconnects.
    pub abort_timeout: Duration,
    #[serde(default)]
    pub parameters: Vec<String>,
    /// The directory that must contain the script, with links resolved.
    #[serde(default)]
    pub script_root: Option<ScriptRoot>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptRoot {
    pub path: PathBuf,
    pub names: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartCommand {
    /// `/bin/sh -c "exec ..."`.
    Shell(String),
    Program {
        path: PathBuf,
        arguments: Vec<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interface {
    Wsgi,
    Asgi,
    Rack,
}

/// The OPcache setting behind `opcache_cache`.
pub const OPCACHE_FILE_CACHE: &str = "opcache.file_cache";
pub const DEFAULT_CONCURRENCY: u32 = 100;
pub const MOST_CONCURRENCY: u32 = 10_000;
pub const MOST_THREADS: u32 = 256;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wrapped {
    pub interface: Interface,
    pub root: PathBuf,
    /// `module:callable` or a file's path. `None`: the usual file in `root`.
    pub entry: Option<String>,
    pub interpreter: PathBuf,
    /// Search for a virtual environment at each start ([`Wrapped::interpreter_now`]).
    #[serde(default)]
    pub looks_for_interpreter: bool,
    /// Concurrent requests per worker, at least 1: on an event loop (ASGI) or in threads.
    #[serde(default = "one")]
    pub concurrency: u32,
    pub start_timeout: Duration,
    /// Stop the preloader after the pool has had no worker for this long.
    pub preloader_idle_timeout: Duration,
    /// A worker becomes the next preloader after this number of requests. One number per preloader; the last repeats. Zero or
    /// empty: never.
    #[serde(default)]
    pub refork_after: Vec<u64>,
    #[serde(default)]
    pub huge_code_pages: bool,
    #[serde(default)]
    pub preload: Preload,
}

fn one() -> u32 {
    1
}

/// Unreachable files count as existing, so that the start reports the error.
fn is_there(path: &Path) -> bool {
    path.try_exists().unwrap_or(true)
}

/// The default interpreter: a virtual environment's in the application's directory, or the system's.
pub(crate) fn usual_interpreter(
    interface: Interface,
    root: &Path,
    exists: impl Fn(&Path) -> bool,
) -> PathBuf {
    match interface {
        Interface::Wsgi | Interface::Asgi => [".venv/bin/python", "venv/bin/python"]
            .iter()
            .map(|location| root.join(location))
            .find(|path| exists(path))
            .unwrap_or_else(|| PathBuf::from("/usr/bin/python3")),
        Interface::Rack => PathBuf::from("/usr/bin/ruby"),
    }
}

impl Wrapped {
    /// The interpreter for a start, since virtual environments may come and go.
    pub fn interpreter_now(&self) -> PathBuf {
        match self.looks_for_interpreter {
            true => usual_interpreter(self.interface, &self.root, is_there),
            false => self.interpreter.clone(),
        }
    }

    pub fn reforks(&self) -> bool {
        self.refork_after.first().is_some_and(|requests| *requests > 0)
    }

    /// The requests that a worker serves before it is promoted, given `promotions` earlier promotions. `None`: it never
    /// is.
    pub fn refork_at(&self, promotions: usize) -> Option<u64> {
        if self.preload == Preload::Never {
            return None;
        }
        let until = self.refork_after.iter().position(|requests| *requests == 0);
        let wanted = &self.refork_after[..until.unwrap_or(self.refork_after.len())];
        match wanted.get(promotions) {
            Some(requests) => Some(*requests),
            None if until.is_some() => None,
            None => wanted.last().copied(),
        }
    }
}

impl Application {
    pub fn load_in_workers(&mut self) {
        if let Application::Wrapped(wrapped) = self {
            wrapped.preload = Preload::Never;
        }
    }

    /// Whether the status page shows peak memory per request: php-fpm's does from PHP 8.4 on.
    pub fn has_memory_peak(&self) -> bool {
        matches!(self, Application::Php(php) if !super::php::is_before(&php.version, "8.4"))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Php {
    /// The PHP version (`8.2`), which selects libphp and the shim.
    pub version: String,
    /// libphp's path. `None`: derived from the version.
    pub library: Option<PathBuf>,
    /// php.ini or its directory. `None`: `/etc/php/X.Y/fpm` or `/etc/php/X.Y/embed`.
    pub php_ini: Option<PathBuf>,
    pub no_php_ini: bool,
    /// The directories of further ini files, as in `PHP_INI_SCAN_DIR`. `None`: the default.
    pub scan_dir: Option<String>,
    pub extended_info: bool,
    /// `PHP_BINARY`. `None`: the version's command-line program.
    pub binary: Option<PathBuf>,
    pub defines: Vec<(String, String)>,
    pub limit_extensions: Vec<String>,
    /// The directory that must contain the script, with links resolved.
    #[serde(default)]
    pub script_root: Option<ScriptRoot>,
    /// The php.ini settings allowed in requests (`PHP_VALUE`, `PHP_ADMIN_VALUE`).
    pub request_settings: RequestSettings,
    /// php.ini settings that scripts may change, in order.
    pub php_value: Vec<(String, String)>,
    /// php.ini settings that scripts can't change, in order.
    pub php_admin_value: Vec<(String, String)>,
    /// Stop the preloader after the pool has had no worker for this long.
    pub preloader_idle_timeout: Duration,
    pub start_timeout: Duration,
    /// The number of most-used scripts compiled before new workers serve after a reload.
    pub warm_up: u32,
    pub warm_up_time: Duration,
    pub preloading: Preloading,
    /// The parent directory of each user's file cache.
    #[serde(default)]
    pub opcache_cache: Option<PathBuf>,
    #[serde(default)]
    pub worker: Option<Box<WorkerScript>>,
}

/// The script of a PHP application that boots once. It runs in the preloader up to its first request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerScript {
    pub path: PathBuf,
    pub mode: WorkerMode,
    #[serde(default)]
    pub isolation: Isolation,
    pub warm_up_requests: Vec<String>,
    /// Additions to `$_SERVER` for the boot and warm-up requests.
    pub warm_up_server: Vec<(String, String)>,
    pub boot_connections: BootConnections,
    /// Files that require a new boot after a change.
    #[serde(default)]
    pub watch: Vec<PathPattern>,
}

/// The state that a worker script's request leaves for the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerMode {
    /// Everything except PHP's and forkyard's own request state.
    Loop,
    /// Nothing: each request starts from the booted state.
    Snapshot,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Isolation {
    /// Rewind if the kernel supports it; otherwise boot for each request.
    #[default]
    Auto,
    /// Rewind. The pool fails to start if the kernel doesn't support it.
    Rewind,
}

impl WorkerMode {
    pub fn as_str(self) -> &'static str {
        match self {
            WorkerMode::Loop => "loop",
            WorkerMode::Snapshot => "snapshot",
        }
    }
}

impl Isolation {
    pub fn as_str(self) -> &'static str {
        match self {
            Isolation::Auto => "auto",
            Isolation::Rewind => "rewind",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BootConnections {
    /// Workers see them closed by the peer.
    Cut,
    Refuse,
    Keep,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Preloading {
    #[default]
    Own,
    /// A process with PHP started, shared by pools of any user. Each pool has a separate OPcache.
    Zygote,
}

impl Preloading {
    pub fn from_word(word: &str) -> Option<Preloading> {
        match word {
            "own" => Some(Preloading::Own),
            "zygote" => Some(Preloading::Zygote),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Preloading::Own => "own",
            Preloading::Zygote => "zygote",
        }
    }
}

/// The php.ini settings allowed in requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestSettings {
    All,
    /// Settings that web servers usually send, except settings in `php_admin_value` and settings that select code or files to
    /// write.
    Harmless,
    Only(Vec<String>),
    #[default]
    None,
}

impl RequestSettings {
    pub fn from_word(word: &str) -> Option<RequestSettings> {
        match word {
            "all" => Some(RequestSettings::All),
            "harmless" => Some(RequestSettings::Harmless),
            "none" => Some(RequestSettings::None),
            _ => None,
        }
    }
}
