//! The command lines of `forkyard` and, in `fpm`, `forkyard-fpm`.

// Must be first: its macros replace Rust's in the modules below.
#[macro_use]
mod output;

mod advise;
mod applications;
mod boot;
mod check;
mod colour;
mod connect;
mod control;
mod crashes;
mod dry_run;
mod events;
mod fpm;
mod full;
mod guide;
mod health;
mod import;
mod init;
mod jobs;
mod last_reload;
mod life;
mod logs;
mod metrics_form;
mod names;
mod numbers;
mod opcache;
mod overview;
mod owners;
mod php;
mod php_start;
mod programs;
mod reach;
mod release_link;
mod releases;
mod replay;
mod routes;
mod settings;
mod skipped;
mod spawn;
mod status;
mod suggestions;
mod table;
mod takeover;
mod texts;
mod top;
mod unit;
mod version;

use clap::{Parser, Subcommand};
use forkyard_config::{self as config, Config, LogLevel, LogTarget};
use forkyard_daemon::background::{self, EXIT_SOFTWARE, look_for_php, program_directory};
use forkyard_daemon::handover::InheritedState;
use forkyard_daemon::master::{self, Frontend, Handlers, RunError};
use forkyard_daemon::roles;
use forkyard_host::logs::{self as log_files, Log};
use forkyard_protocol::control::Format;
use forkyard_runtimes::wrapped;
use forkyard_sys::{identity, invocation, title};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const CONFIG: &str = config::SYSTEM;
/// sysexits.h, EX_CONFIG.
const EXIT_CONFIG: u8 = 78;

/// A FastCGI process manager.
#[derive(Debug, Parser)]
#[command(name = "forkyard", version = texts::VERSION, about = "A FastCGI process manager: php-fpm's whole job, a spawning kit and an application pool")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon
    Run {
        /// Configuration file (TOML)
        #[arg(short, long, value_name = "FILE", default_value = CONFIG)]
        config: PathBuf,
        /// Go to the background; overrides `daemonize`
        #[arg(short = 'D', long, overrides_with = "nodaemonize")]
        daemonize: bool,
        /// Stay in the foreground; overrides `daemonize`
        #[arg(short = 'F', long, overrides_with = "daemonize")]
        nodaemonize: bool,
        /// Stay above the daemon, hold its descriptors, and start it again if it is killed
        #[arg(long)]
        keeper: bool,
        /// End when the process ends that started this one
        #[arg(long, hide = true, conflicts_with_all = ["daemonize", "keeper"])]
        with_parent: bool,
    },
    /// Serve the application in a directory, and reload it on changes
    #[command(disable_help_flag = true)]
    Dev {
        /// DIR, --port, --host; --help describes them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Write a pool and a site of nginx for an application, to begin with
    Init(init::Init),
    /// Turn a php-fpm configuration into forkyard's own
    Import(import::Import),
    /// Show the files that are generated from the table of settings
    #[command(hide = true)]
    Settings {
        /// Which part
        #[arg(required_unless_present = "write")]
        part: Option<settings::Shown>,
        /// Bring the samples and documents of a source tree up to date instead
        #[arg(long, value_name = "DIRECTORY", conflicts_with = "part")]
        write: Option<PathBuf>,
    },
    /// Become the interpreter of a pool's application; started by the daemon
    #[command(hide = true)]
    Interpreter {
        /// Its path
        interpreter: std::ffi::OsString,
        /// Its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Become a router, an inspector, a reporter or a worker; started by the daemon
    #[command(hide = true)]
    Helper {
        /// Room for the process' title
        #[arg(hide = true)]
        room: Option<String>,
    },
    /// Record a worker's calls; started by the daemon
    #[command(hide = true)]
    Trace,
    /// Check a configuration, and that its files and users exist
    ///
    /// PHP is started, and ends at once.
    Check(check::Check),
    /// List the versions of PHP that can be run
    Php,
    /// Try to start an application, say how that went, and stop it
    Spawn(Box<spawn::Spawn>),
    /// Prepare a new process before it becomes the application
    #[command(hide = true)]
    SpawnEnvSetupper(spawn::EnvSetupper),
    /// Read the configuration again, and replace changed pools
    ///
    /// The command returns when everything new serves.
    Reload {
        #[command(flatten)]
        daemon: control::Daemon,
        /// Replace every pool, changed or not
        #[arg(long)]
        all: bool,
        /// Show what would change, and change nothing: exit code 1 if the file differs from the running configuration
        #[arg(long)]
        dry_run: bool,
    },
    /// Let the program that is on disk take over, and lose no request
    Upgrade {
        #[command(flatten)]
        daemon: control::Daemon,
    },
    /// List the workers that died at work
    Crashes(crashes::Crashes),
    /// Send the request of a crash again, to a pool for a trial
    ///
    /// Only GET and HEAD. The request has the report's method, path, query and script, but no cookies, no
    /// authorization and no other header: it carries no session.
    Replay(replay::Replay),
    /// Show why an application did not start, or a worker died at work
    Error {
        #[command(flatten)]
        daemon: control::Daemon,
        /// The error's id, from the log or from `forkyard status`; the last error if there is none
        id: Option<String>,
        /// As JSON
        #[arg(long, conflicts_with = "html")]
        json: bool,
        /// As an HTML page
        #[arg(long)]
        html: bool,
    },
    /// Show what happened to the daemon and its pools
    ///
    /// The last 200 reloads, upgrades, deaths of processes, failed starts and limits that were met are kept, also over upgrades.
    Events(events::Events),
    /// Show how full OPcache and APCu of PHP pools are
    ///
    /// A short-lived process of the pool reads them, so that no worker and no request is needed.
    Opcache(opcache::OpcacheArguments),
    /// Give a pool another release, and move its link at the end
    ///
    /// The link in the pool's key release is moved when the release is in service. If it can't serve, the present one stays.
    Deploy(releases::Deploy),
    /// Take a deployment back, or deploy the release before
    Rollback(releases::Rollback),
    /// Show the releases of pools
    Releases(releases::Releases),
    /// Give a pool or an application new processes with new code
    Restart(applications::Restart),
    /// End the request that a worker is busy with
    ///
    /// Its client is answered 504, as after request_terminate_timeout. Of several requests it is the one that has taken longest, and
    /// the worker goes on with the others.
    Terminate(applications::Terminate),
    /// Take an instance out of service; it ends after its request
    Detach(applications::InstanceArguments),
    /// Give an instance no more requests, and let it live
    Disable(applications::InstanceArguments),
    /// Give a disabled instance requests again
    Enable(applications::InstanceArguments),
    /// Change the most instances of an application pool
    Resize(applications::Resize),
    /// Have an instance for oneself until standard input ends
    Take(applications::Take),
    /// Give a taken instance back
    Return(applications::Return),
    /// Begin or close pools of the running daemon
    #[command(subcommand)]
    Pool(applications::PoolArguments),
    /// Ask whether the daemon answers
    Ping(health::Ping),
    /// Ask whether the daemon is well, for probes
    ///
    /// No worker is asked, and it takes a second at most.
    Health(health::Health),
    /// Show the routes of a pool with the most busy time
    Routes(routes::Routes),
    /// Say how many workers pools should have, and why
    Advise(advise::Advise),
    /// Show where the logs of pools and of the daemon are
    Logs(logs::Logs),
    /// Say which program runs, and which is on disk
    Version {
        #[command(flatten)]
        daemon: control::Daemon,
    },
    /// Say that the daemon is not ready, and go on serving
    Drain(health::Drain),
    /// Open the logs again after they were moved
    ReopenLogs {
        #[command(flatten)]
        daemon: control::Daemon,
    },
    /// Write the completions of a shell to standard output
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write the configuration's JSON schema to standard output
    Schema,
    /// Write the pages of the manual below a directory
    #[command(hide = true)]
    Manual {
        /// Where
        directory: PathBuf,
    },
    /// Print what completions propose for the next word
    #[command(hide = true)]
    Names {
        /// The words before it
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Push background jobs, and look after them
    Jobs(Box<jobs::JobsArguments>),
    /// Show the running daemon's state
    Status {
        #[command(flatten)]
        daemon: control::Daemon,
        #[command(flatten)]
        wanted: control::StatusArguments,
    },
    /// Show pools, workers and requests as they change
    ///
    /// In a terminal; the key ? describes the keys. An owner sees his own applications.
    Top(top::Top),
}

impl Command {
    /// Whether the command is a tool, not a process of a daemon.
    fn is_tool(&self) -> bool {
        !matches!(
            self,
            Command::Run { .. } | Command::Helper { .. } | Command::Trace | Command::SpawnEnvSetupper(_)
        )
    }
}

/// Runs `forkyard`, or `forkyard-fpm` if called by that name, with this process's arguments.
pub fn main() -> ExitCode {
    invocation::remember();
    look_for_php();
    if fpm::is_meant() {
        return fpm::main();
    }
    let (arguments, rehearsal) = takeover::arguments();
    if arguments.get(1).is_some_and(|argument| argument == "--version") {
        return texts::version();
    }
    let arguments: Arguments = suggestions::parse(texts::command_line(), arguments);
    title::prepare();
    if arguments.command.is_tool() {
        log_files::diagnose();
    }
    match arguments.command {
        Command::Reload { daemon, all, dry_run } => control::reload(&daemon, all, dry_run),
        Command::Upgrade { daemon } => control::upgrade(&daemon),
        Command::Error {
            daemon,
            id,
            json,
            html,
        } => {
            let format = match (json, html) {
                (true, _) => Format::Json,
                (false, true) => Format::Html,
                (false, false) => Format::Text,
            };
            control::error(&daemon, id, format)
        }
        Command::Crashes(arguments) => crashes::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Events(arguments) => events::run(&arguments),
        Command::Opcache(arguments) => opcache::run(&arguments),
        Command::Ping(arguments) => health::ping(&arguments),
        Command::Health(arguments) => health::health(&arguments),
        Command::Routes(arguments) => routes::run(&arguments),
        Command::Advise(arguments) => advise::run(&arguments),
        Command::Logs(arguments) => logs::run(&arguments),
        Command::Version { daemon } => version::version(&daemon),
        Command::Drain(arguments) => health::drain(&arguments),
        Command::ReopenLogs { daemon } => health::reopen_logs(&daemon),
        Command::Completions { shell } => texts::completions(shell),
        Command::Schema => texts::schema(),
        Command::Names { words } => names::names(&words),
        Command::Manual { directory } => texts::manual(&directory),
        Command::Top(arguments) => top::run(&arguments),
        Command::Status { daemon, wanted } => control::status(&daemon, &wanted),
        Command::Jobs(arguments) => jobs::run(*arguments),
        Command::Deploy(arguments) => releases::deploy(&arguments),
        Command::Rollback(arguments) => releases::rollback(&arguments),
        Command::Releases(arguments) => releases::releases(&arguments),
        Command::Restart(arguments) => applications::restart(&arguments),
        Command::Terminate(arguments) => applications::terminate(&arguments),
        Command::Detach(arguments) => applications::detach(&arguments),
        Command::Disable(arguments) => applications::disable(&arguments),
        Command::Enable(arguments) => applications::enable(&arguments),
        Command::Resize(arguments) => applications::resize(&arguments),
        Command::Take(arguments) => applications::take(&arguments),
        Command::Return(arguments) => applications::give_back(&arguments),
        Command::Pool(command) => applications::pool(&command),
        Command::Init(arguments) => init::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Settings { part, write } => settings::run(part, write.as_deref()),
        Command::Interpreter {
            interpreter,
            arguments,
        } => {
            let code = wrapped::interpreter::run(&interpreter, &arguments);
            ExitCode::from(u8::try_from(code).unwrap_or(EXIT_SOFTWARE))
        }
        Command::Helper { .. } => ExitCode::from(u8::try_from(roles::run()).unwrap_or(EXIT_SOFTWARE)),
        Command::Trace => ExitCode::from(forkyard_slowlog::process::run()),
        Command::Check(arguments) => check::run(&arguments),
        Command::Dev { arguments } => dev(&arguments),
        Command::Php => php::list(),
        Command::Spawn(arguments) => spawn::spawn(&arguments),
        Command::SpawnEnvSetupper(arguments) => spawn::env_setupper(&arguments),
        Command::Run {
            config,
            daemonize,
            nodaemonize,
            keeper,
            with_parent,
        } => {
            if with_parent {
                // The kernel supports this signal. Without it, the daemon would outlive its parent.
                let _ = identity::die_with_parent();
            }
            let background = match (daemonize, nodaemonize) {
                (true, _) => Some(true),
                (false, true) => Some(false),
                (false, false) => None,
            };
            match rehearsal {
                None if keeper => takeover::keep(&config, background.unwrap_or(false)),
                None => run(&config, background),
                Some(document) => {
                    takeover::rehearse(document, || config::load(&config).map(|loaded| loaded.config))
                }
            }
        }
    }
}

/// Executes `forkyard-dev`, the only program that speaks HTTP to clients.
fn dev(arguments: &[std::ffi::OsString]) -> ExitCode {
    let program = program_directory().join("forkyard-dev");
    let error = std::process::Command::new(&program).args(arguments).exec();
    eprintln!(
        "forkyard: can't run {}: {error}; install it next to forkyard",
        program.display()
    );
    ExitCode::from(EXIT_SOFTWARE)
}

fn run(path: &Path, background: Option<bool>) -> ExitCode {
    Log::install();
    let inherited = forkyard_daemon::handover::collect();
    let config = match config::load(path) {
        Ok(loaded) => {
            master::log_diagnostics(&loaded.warnings);
            Some(loaded.config)
        }
        Err(errors) => {
            eprintln!("{errors}");
            None
        }
    };
    let Some(config) = takeover::or_before(config, &inherited) else {
        return ExitCode::from(EXIT_CONFIG);
    };
    let frontend = Frontend::forkyard(path.to_owned());
    let background = background.unwrap_or(config.global.daemonize);
    start(config, frontend, background, inherited, |error| RunFailure {
        lines: vec![error.to_string()],
        code: EXIT_CONFIG,
    })
}

/// The error lines and the exit code of a failed start.
struct RunFailure {
    lines: Vec<String>,
    code: u8,
}

/// Becomes the daemon. `failure` formats an error.
fn start(
    config: Config,
    frontend: Frontend,
    background: bool,
    inherited: InheritedState,
    failure: impl Fn(&RunError) -> RunFailure,
) -> ExitCode {
    let is_seen = config.global.error_log == LogTarget::Stderr;
    let programs = program_directory();
    match background::run(
        config,
        Handlers::new(),
        frontend,
        background,
        &programs,
        inherited,
    ) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ RunError::Background(_)) => {
            log::error!("{error}");
            ExitCode::from(EXIT_SOFTWARE)
        }
        Err(error) => {
            let RunFailure { lines, code } = failure(&error);
            lines.iter().for_each(|line| log::error!("{line}"));
            // If the log can't be opened, standard error has the lines already.
            if !is_seen && !matches!(error, RunError::Log(_)) {
                // Also report to the user on standard error. This opens no file, so it can't fail.
                let _ = Log::install().direct(&LogTarget::Stderr, LogLevel::Notice);
                lines.iter().for_each(|line| log::error!("{line}"));
            }
            ExitCode::from(code)
        }
    }
}
