//! What the workers of a pool run, as the configuration means it.

use super::model::Address;
use crate::path_pattern::PathPattern;
pub use forkyard_protocol::inspector::Preload;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the workers of a pool run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant, reason = "there is one for each pool")]
pub enum Application {
    /// PHP, in process, through libphp.
    Php(Php),
    /// A CGI program for each request.
    Cgi(Cgi),
    /// A program that speaks HTTP and is there already.
    Http(Http),
    /// A program that speaks HTTP and is started for the pool.
    Program(Program),
    /// A program that speaks FastCGI, one for each worker.
    FastCgi(FastCgi),
    /// An application in another language, loaded by a wrapper that forks workers from itself.
    Wrapped(Wrapped),
    /// A Rust handler that the embedding program registered under the pool's name.
    Rust,
}

impl Application {
    /// The directory that the application is in, if the configuration names one.
    pub fn root(&self) -> Option<&Path> {
        match self {
            Application::Wrapped(wrapped) => Some(&wrapped.root),
            Application::Program(program) => Some(&program.root),
            Application::Cgi(cgi) => cgi.root.as_deref(),
            Application::FastCgi(fastcgi) => fastcgi.root.as_deref(),
            Application::Php(_) | Application::Http(_) | Application::Rust => None,
        }
    }
}

/// Settings of a CGI application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgi {
    /// The program that answers every request; `None`: the one that the web server names.
    pub script: Option<PathBuf>,
    /// What the web server names must lie below this directory.
    pub root: Option<PathBuf>,
    /// Give a query without `=` to the program as arguments (RFC 3875 section 4.4).
    pub search_arguments: bool,
    /// Parameters that programs get beside CGI's own.
    #[serde(default)]
    pub parameters: Vec<String>,
}

/// Settings of an HTTP application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Http {
    /// Where the program listens.
    pub address: Address,
}

/// Settings of a program that speaks HTTP and is started for the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The application's directory, in which it is started.
    pub root: PathBuf,
    /// What starts it, as `/bin/sh` reads it after `exec`.
    pub start_command: String,
    /// Where it listens, and how that is known.
    pub listens: Listens,
    /// How many processes are started of it, at least 1.
    pub instances: u32,
    /// `production`, `development`.
    pub app_env: String,
    /// Let the user's login shell set the environment first.
    pub load_shell_envvars: bool,
    /// Resource limits.
    pub rlimits: Vec<ResourceLimit>,
    /// File mode creation mask.
    pub umask: Option<u32>,
    /// How long one of its processes may take to be up.
    pub start_timeout: Duration,
    /// It is stopped when its pool has had no worker for this long.
    pub preloader_idle_timeout: Duration,
}

/// Where a program listens, and how that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Listens {
    /// On `$PORT` of this machine, where every local user can reach it.
    Port,
    /// Where it says itself: it speaks the handshake of the spawning kit.
    Handshake,
    /// On the unix socket `$SOCKET`, in a directory of its own.
    Socket,
    /// There, too: a program of Node.js, whose first server is put there whatever it asks for.
    Node,
}

/// A resource limit (setrlimit(2)).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimit {
    /// Which: in lower case and without the prefix, `nofile`.
    pub name: String,
    /// Soft limit, in the resource's unit; `None`: there is none.
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}

/// Settings of a FastCGI program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FastCgi {
    /// What is executed.
    pub command: StartCommand,
    /// Where it works; `None`: where the worker does.
    pub root: Option<PathBuf>,
    /// How long it may take until it reads what it is sent.
    pub start_timeout: Duration,
    /// How long it may go on with a request whose client has left.
    pub abort_timeout: Duration,
    /// Parameters that it gets beside CGI's own.
    #[serde(default)]
    pub parameters: Vec<String>,
    /// Scripts that it may be given are below this directory, links resolved; `None`: anywhere.
    #[serde(default)]
    pub script_root: Option<ScriptRoot>,
}

/// Where scripts may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptRoot {
    /// The directory.
    pub path: PathBuf,
    /// Parameters by which requests name it.
    pub names: Vec<String>,
}

/// How a program is executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartCommand {
    /// By `/bin/sh -c "exec ..."`.
    Shell(String),
    /// By itself.
    Program {
        /// Absolute path of the executable.
        path: PathBuf,
        /// Its arguments, without its name.
        arguments: Vec<String>,
    },
}

/// What a wrapper loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Interface {
    /// Python's WSGI (PEP 3333).
    Wsgi,
    Asgi,
    Rack,
}

/// OPcache's setting that `opcache_cache` stands for.
pub const OPCACHE_FILE_CACHE: &str = "opcache.file_cache";
/// Requests that one event loop has under way, where nothing else is said.
pub const DEFAULT_CONCURRENCY: u32 = 100;
/// Most that it can be told to have.
pub const MOST_CONCURRENCY: u32 = 10_000;
/// Most threads that a worker can have.
pub const MOST_THREADS: u32 = 256;

/// Settings of an application that a wrapper loads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wrapped {
    /// What the application speaks.
    pub interface: Interface,
    /// The application's directory, where it is loaded.
    pub root: PathBuf,
    /// What is loaded: `module:callable`, or the path of a file; `None`: the usual file in `root`.
    pub entry: Option<String>,
    /// The language's interpreter.
    pub interpreter: PathBuf,
    /// None is named: each start looks for the one of a virtual environment ([`Wrapped::interpreter_now`]).
    #[serde(default)]
    pub looks_for_interpreter: bool,
    /// How many requests one worker serves at a time, at least 1: on an event loop (ASGI), or in as many threads.
    #[serde(default = "one")]
    pub concurrency: u32,
    /// How long loading may take.
    pub start_timeout: Duration,
    /// A preloader whose pool has had no worker for this long is stopped.
    pub preloader_idle_timeout: Duration,
    /// After so many requests of one worker the next preloader is made from it: each number for the next one, the last
    /// for all that follow. Zero, or none: not at all.
    #[serde(default)]
    pub refork_after: Vec<u64>,
    /// The interpreter's code is put into huge pages.
    #[serde(default)]
    pub huge_code_pages: bool,
    /// Where the application is loaded.
    #[serde(default)]
    pub preload: Preload,
}

fn one() -> u32 {
    1
}

/// Whether a file is there; one that can't be reached is, so that the start says why.
fn is_there(path: &Path) -> bool {
    path.try_exists().unwrap_or(true)
}

/// The interpreter where none is named: of the virtual environment that lies in the application's directory, or the
/// system's.
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
    /// The interpreter for a start: a virtual environment may have been made, or removed, since the configuration was read.
    pub fn interpreter_now(&self) -> PathBuf {
        match self.looks_for_interpreter {
            true => usual_interpreter(self.interface, &self.root, is_there),
            false => self.interpreter.clone(),
        }
    }

    /// Whether a worker serves several requests at a time. Then it answers a request by itself whose time is up.
    pub fn is_concurrent(&self) -> bool {
        self.interface == Interface::Asgi || self.concurrency > 1
    }

    /// Whether preloaders are made from workers at all.
    pub fn reforks(&self) -> bool {
        self.refork_after.first().is_some_and(|requests| *requests > 0)
    }

    /// After how many requests of a worker the next preloader is made, where the present one is the last of so many that
    /// were made so. `None`: there is to be no further one.
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
    /// Lets each worker load it, if it is one in Python or Ruby.
    pub fn load_in_workers(&mut self) {
        if let Application::Wrapped(wrapped) = self {
            wrapped.preload = Preload::Never;
        }
    }

    /// Whether the status page has the most memory of a request: php-fpm's has it from PHP 8.4 on.
    pub fn has_memory_peak(&self) -> bool {
        matches!(self, Application::Php(php) if !super::php::is_before(&php.version, "8.4"))
    }
}

/// Settings of a PHP application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Php {
    /// PHP version (`8.2`): which libphp and which shim.
    pub version: String,
    /// libphp's absolute path; `None`: found from the version.
    pub library: Option<PathBuf>,
    /// php.ini or the directory it is in; `None`: `/etc/php/X.Y/fpm`, else `/etc/php/X.Y/embed`.
    pub php_ini: Option<PathBuf>,
    /// Start without php.ini and the files that are read after it.
    pub no_php_ini: bool,
    /// Where the files are that are read after php.ini, as `PHP_INI_SCAN_DIR` says it; `None`: the usual place.
    pub scan_dir: Option<String>,
    /// Compile scripts with the information that debuggers and profilers want.
    pub extended_info: bool,
    /// What scripts see as `PHP_BINARY`; `None`: PHP's command-line program of the version.
    pub binary: Option<PathBuf>,
    /// php.ini settings that stand over those of php.ini; a value is written as in php.ini.
    pub defines: Vec<(String, String)>,
    /// Script path endings that may be run; empty: any.
    pub limit_extensions: Vec<String>,
    /// Scripts that may be run are below this directory, links resolved; `None`: anywhere.
    #[serde(default)]
    pub script_root: Option<ScriptRoot>,
    /// Which php.ini settings a request may bring along (`PHP_VALUE`, `PHP_ADMIN_VALUE`).
    pub request_settings: RequestSettings,
    /// php.ini settings that scripts may change; applied in order.
    pub php_value: Vec<(String, String)>,
    /// php.ini settings that scripts may not change; applied in order.
    pub php_admin_value: Vec<(String, String)>,
    /// A preloader whose pool has had no worker for this long is stopped.
    pub preloader_idle_timeout: Duration,
    /// How long module start-up may take.
    pub start_timeout: Duration,
    /// At a reload, so many scripts that the old workers ran most are compiled before the new ones serve; 0: none.
    pub warm_up: u32,
    /// The most time for that.
    pub warm_up_time: Duration,
    /// Whose preloader makes the workers.
    pub preloading: Preloading,
    /// Where compiled scripts are kept, each user's in a directory of its own; `None`: nowhere.
    #[serde(default)]
    pub opcache_cache: Option<PathBuf>,
    /// The application boots once, by this script; `None`: each request runs the script that it names.
    #[serde(default)]
    pub worker: Option<Box<WorkerScript>>,
}

/// The script of a PHP application that boots once: it runs in the preloader up to its first request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerScript {
    /// Its absolute path.
    pub path: PathBuf,
    /// What a request leaves to the next.
    pub mode: WorkerMode,
    /// How a worker gets rid of a request with `worker_mode = "snapshot"`.
    #[serde(default)]
    pub isolation: Isolation,
    /// Paths that are asked for before the first worker is made.
    pub warm_up_requests: Vec<String>,
    /// What the boot and these requests find in `$_SERVER`, besides what they have anyway or in its place.
    pub warm_up_server: Vec<(String, String)>,
    /// What becomes of connections that the boot leaves open.
    pub boot_connections: BootConnections,
    /// Files whose change means that the application is to boot again.
    #[serde(default)]
    pub watch: Vec<PathPattern>,
}

/// What a request of a worker script leaves to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerMode {
    /// Everything but what PHP and forkyard know to be the request's own.
    Loop,
    /// Nothing: each begins with what has booted.
    Snapshot,
}

/// How a worker gets rid of what a request has left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Isolation {
    /// It is put back, where the kernel can; elsewhere each request boots the application.
    #[default]
    Auto,
    /// It is put back; the pool does not start where the kernel can't.
    Rewind,
}

impl WorkerMode {
    /// What a word stands for.
    pub fn from_word(word: &str) -> Option<WorkerMode> {
        [WorkerMode::Loop, WorkerMode::Snapshot]
            .into_iter()
            .find(|mode| mode.word() == word)
    }

    /// As the configuration has it.
    pub fn word(self) -> &'static str {
        match self {
            WorkerMode::Loop => "loop",
            WorkerMode::Snapshot => "snapshot",
        }
    }
}

impl Isolation {
    /// What a word stands for.
    pub fn from_word(word: &str) -> Option<Isolation> {
        [Isolation::Auto, Isolation::Rewind]
            .into_iter()
            .find(|isolation| isolation.word() == word)
    }

    /// As the configuration has it.
    pub fn word(self) -> &'static str {
        match self {
            Isolation::Auto => "auto",
            Isolation::Rewind => "rewind",
        }
    }
}

/// What becomes of connections that the boot leaves open, which all workers would share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BootConnections {
    /// Each worker finds them closed by the other side.
    Cut,
    /// The boot has failed.
    Refuse,
    /// They are shared.
    Keep,
}

/// Whose preloader makes a pool's workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Preloading {
    /// The pool's own.
    Own,
    /// One process for pools of any user, that has started PHP; each pool has an OPcache of its own.
    Zygote,
}

impl Preloading {
    /// What a word stands for.
    pub fn from_word(word: &str) -> Option<Preloading> {
        match word {
            "own" => Some(Preloading::Own),
            "zygote" => Some(Preloading::Zygote),
            _ => None,
        }
    }

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Preloading::Own => "own",
            Preloading::Zygote => "zygote",
        }
    }
}

/// Which php.ini settings a request may bring along.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestSettings {
    /// Every one, as in php-fpm.
    All,
    /// Those that web servers usually send and that decide neither what code runs nor which files are written; and none
    /// that the pool's `php_admin_value` has.
    Harmless,
    Only(Vec<String>),
    None,
}

impl RequestSettings {
    /// The rule that a word stands for.
    pub fn from_word(word: &str) -> Option<RequestSettings> {
        match word {
            "all" => Some(RequestSettings::All),
            "harmless" => Some(RequestSettings::Harmless),
            "none" => Some(RequestSettings::None),
            _ => None,
        }
    }
}
