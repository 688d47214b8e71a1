//! The command lines of `forkyard` and, in [`fpm`], of `forkyard-fpm`.

mod applications;
mod check;
mod control;
mod fpm;
mod import;
mod metrics;
mod overview;
mod php;
mod programs;
mod settings;
mod skipped;
mod spawn;
mod status;
mod suggestions;
mod takeover;

use crate::config::{self, Config, LogLevel, LogTarget};
use crate::control::protocol::Format;
use crate::daemon::{self, EXIT_SOFTWARE, program_directory};
use crate::estate::Heritage;
use crate::helper;
use crate::logs::{self, Log};
use crate::master::{self, Handlers, Persona, RunError};
use crate::runtime::wrapped;
use crate::slowlog;
use crate::sys::{invocation, title};
use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where the configuration is by default.
const CONFIG: &str = "/etc/forkyard/forkyard.toml";
/// sysexits.h, EX_CONFIG.
const EXIT_CONFIG: u8 = 78;

/// A FastCGI process manager.
#[derive(Debug, Parser)]
#[command(name = "forkyard", version, about)]
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
        /// Go to the background, whatever `daemonize` says
        #[arg(short = 'D', long, overrides_with = "nodaemonize")]
        daemonize: bool,
        /// Stay in the foreground, whatever `daemonize` says
        #[arg(short = 'F', long, overrides_with = "daemonize")]
        nodaemonize: bool,
        /// Stay above the daemon, hold its descriptors, and start it again if it is killed
        #[arg(long)]
        keeper: bool,
    },
    /// Turn a php-fpm configuration into forkyard's own
    Import(import::Import),
    /// Show what is made of the table of settings
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
    /// Write down what a worker is busy with; started by the daemon
    #[command(hide = true)]
    Trace,
    /// Check a configuration, and that what it names is there; PHP is started, and ends at once
    Check(check::Check),
    /// List the versions of PHP that can be run
    Php,
    /// Start an application as the daemon would, say how that went, and stop it
    Spawn(Box<spawn::Spawn>),
    /// What a new process executes before it is the application
    #[command(hide = true)]
    SpawnEnvSetupper(spawn::EnvSetupper),
    /// Let the running daemon read its configuration again, and wait until what changed is replaced
    Reload {
        #[command(flatten)]
        daemon: control::Daemon,
        /// Replace every pool, changed or not
        #[arg(long)]
        all: bool,
    },
    /// Let the program that is on disk now take the running daemon's place, without losing a request
    Upgrade {
        #[command(flatten)]
        daemon: control::Daemon,
    },
    /// Show why an application could not be started
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
    /// Give an application of an application pool new instances with new code
    Restart(applications::Restart),
    /// Take an instance out of service; it ends after its request
    Detach(applications::Instance),
    /// Give an instance no more requests, and let it live
    Disable(applications::Instance),
    /// Give a disabled instance requests again
    Enable(applications::Instance),
    /// Change the most instances of an application pool
    Resize(applications::Resize),
    /// Have an instance for oneself until standard input ends
    Take(applications::Take),
    /// Give a taken instance back
    Return(applications::Return),
    /// Begin or close pools of the running daemon
    #[command(subcommand)]
    Pool(applications::Pool),
    /// Show what the running daemon does
    Status {
        #[command(flatten)]
        daemon: control::Daemon,
        #[command(flatten)]
        wanted: control::Wanted,
    },
}

impl Command {
    /// It is not a process of a daemon.
    fn is_tool(&self) -> bool {
        !matches!(
            self,
            Command::Run { .. } | Command::Helper { .. } | Command::Trace | Command::SpawnEnvSetupper(_)
        )
    }
}

/// Runs `forkyard`, or `forkyard-fpm` if that is its name, with the arguments of this process.
pub fn main() -> ExitCode {
    invocation::remember();
    if fpm::is_meant() {
        return fpm::main();
    }
    let (arguments, rehearsal) = takeover::arguments();
    let arguments: Arguments = suggestions::parse(arguments);
    title::prepare();
    if arguments.command.is_tool() {
        logs::diagnose();
    }
    match arguments.command {
        Command::Reload { daemon, all } => control::reload(&daemon, all),
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
        Command::Status { daemon, wanted } => control::status(&daemon, &wanted),
        Command::Restart(arguments) => applications::restart(&arguments),
        Command::Detach(arguments) => applications::detach(&arguments),
        Command::Disable(arguments) => applications::disable(&arguments),
        Command::Enable(arguments) => applications::enable(&arguments),
        Command::Resize(arguments) => applications::resize(&arguments),
        Command::Take(arguments) => applications::take(&arguments),
        Command::Return(arguments) => applications::give_back(&arguments),
        Command::Pool(command) => applications::pool(&command),
        Command::Import(arguments) => import::run(&arguments),
        Command::Settings { part, write } => settings::run(part, write.as_deref()),
        Command::Interpreter {
            interpreter,
            arguments,
        } => {
            let code = wrapped::interpreter::run(&interpreter, &arguments);
            ExitCode::from(u8::try_from(code).unwrap_or(EXIT_SOFTWARE))
        }
        Command::Helper { .. } => ExitCode::from(u8::try_from(helper::run()).unwrap_or(EXIT_SOFTWARE)),
        Command::Trace => ExitCode::from(slowlog::run::run()),
        Command::Check(arguments) => check::run(&arguments),
        Command::Php => php::list(),
        Command::Spawn(arguments) => spawn::spawn(&arguments),
        Command::SpawnEnvSetupper(arguments) => spawn::env_setupper(&arguments),
        Command::Run {
            config,
            daemonize,
            nodaemonize,
            keeper,
        } => {
            let background = match (daemonize, nodaemonize) {
                (true, _) => Some(true),
                (false, true) => Some(false),
                (false, false) => None,
            };
            match rehearsal {
                None if keeper => takeover::keep(&config, background.unwrap_or(false)),
                None => run(&config, background),
                Some(document) => takeover::rehearse(document, || {
                    config::load(&config)
                        .map(|loaded| loaded.config)
                        .map_err(|errors| errors.to_string())
                }),
            }
        }
    }
}

fn run(path: &Path, background: Option<bool>) -> ExitCode {
    Log::install();
    let heritage = crate::estate::collect();
    let config = match config::load(path) {
        Ok(loaded) => {
            master::say_findings(&loaded.warnings);
            Some(loaded.config)
        }
        Err(errors) => {
            eprintln!("{errors}");
            None
        }
    };
    let Some(config) = takeover::or_before(config, &heritage) else {
        return ExitCode::from(EXIT_CONFIG);
    };
    let persona = Persona::forkyard(path.to_owned());
    let background = background.unwrap_or(config.global.daemonize);
    start(config, persona, background, heritage, |error| Failure {
        lines: vec![error.to_string()],
        code: EXIT_CONFIG,
    })
}

/// What is said when the daemon did not start, a line each, and how it exits then.
struct Failure {
    lines: Vec<String>,
    code: u8,
}

/// Becomes the daemon. `failure`: what becomes of an error.
fn start(
    config: Config,
    persona: Persona,
    background: bool,
    heritage: Heritage,
    failure: impl Fn(&RunError) -> Failure,
) -> ExitCode {
    let is_seen = config.global.error_log == LogTarget::Stderr;
    let programs = program_directory();
    match daemon::run(config, Handlers::new(), persona, background, &programs, heritage) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ RunError::Background(_)) => {
            log::error!("{error}");
            ExitCode::from(EXIT_SOFTWARE)
        }
        Err(error) => {
            let Failure { lines, code } = failure(&error);
            lines.iter().for_each(|line| log::error!("{line}"));
            // Where the log can't be opened, standard error has the lines already.
            if !is_seen && !matches!(error, RunError::Log(_)) {
                // The user who started it looks here first. Nothing is opened for it, so nothing can fail.
                let _ = Log::install().direct(&LogTarget::Stderr, LogLevel::Notice);
                lines.iter().for_each(|line| log::error!("{line}"));
            }
            ExitCode::from(code)
        }
    }
}
