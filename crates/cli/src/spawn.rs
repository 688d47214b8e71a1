//! `forkyard spawn`: starts an application like the daemon and reports the result. Also the env setupper.

use clap::Args;
use forkyard_spawn::action::{SpawnOutcome, Up};
use forkyard_spawn::driver::{self, Driver};
use forkyard_spawn::effects::{self, Process};
use forkyard_spawn::event::{Event, Token};
use forkyard_spawn::plan::{Kind, Plan};
use forkyard_spawn::report::Report;
use forkyard_spawn::setupper::{self, Pass};
use forkyard_sys::{self as sys, clock, identity, pidfd, socket};
use nix::sys::signal::Signal;
use serde_json::json;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The timeout after closing standard input, and again after SIGTERM.
const TIMEOUT: Duration = Duration::from_secs(5);
/// EX_USAGE of sysexits.h.
const EXIT_USAGE: u8 = 64;
/// EX_SOFTWARE of sysexits.h.
const EXIT_SOFTWARE: u8 = 70;

#[derive(Debug, Args)]
pub(super) struct Spawn {
    /// Command that starts the application; run by a shell
    #[arg(long, value_name = "COMMAND")]
    start_command: String,
    /// Directory of the application
    #[arg(long, value_name = "DIR")]
    app_root: PathBuf,
    /// The application speaks forkyard's handshake; otherwise it has to listen on $PORT
    #[arg(long)]
    native: bool,
    /// How many processes are started, all at once
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    processes: u32,
    /// User to run it as
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Group to run it as
    #[arg(long, value_name = "NAME", requires = "user")]
    group: Option<String>,
    /// `production`, `development`
    #[arg(long, value_name = "NAME", default_value = "production")]
    app_env: String,
    /// Variable of its environment
    #[arg(long = "env", value_name = "NAME=VALUE")]
    environment: Vec<String>,
    /// Let the user's login shell set the environment
    #[arg(long)]
    load_shell_envvars: bool,
    /// Directory for unix sockets
    #[arg(long, value_name = "DIR")]
    socket_dir: Option<PathBuf>,
    /// Parent directory of the work directory
    #[arg(long, value_name = "DIR")]
    spawn_dir: Option<PathBuf>,
    /// Seconds that it may take
    #[arg(long, value_name = "SECONDS", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    start_timeout: u32,
    /// Keep the work directory
    #[arg(long)]
    debug_work_dir: bool,
    /// Print JSON instead of text
    #[arg(long, conflicts_with = "html")]
    json: bool,
    /// Print an HTML page if it fails
    #[arg(long)]
    html: bool,
}

#[derive(Debug, Args)]
pub(super) struct EnvSetupper {
    work_directory: PathBuf,
    #[arg(long)]
    before: bool,
    #[arg(long, conflicts_with = "before", required_unless_present = "before")]
    after: bool,
}

/// Prepares the environment and executes the application.
pub(super) fn env_setupper(arguments: &EnvSetupper) -> ExitCode {
    let pass = if arguments.before {
        Pass::Before
    } else {
        Pass::After
    };
    setupper::run(&arguments.work_directory, pass)
}

/// Starts the application, prints the result and stops it.
pub(super) fn spawn(arguments: &Spawn) -> ExitCode {
    let plan = match plan(arguments) {
        Ok(plan) => plan,
        Err(error) => {
            eprintln!("forkyard: {error}");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    match start(arguments, plan) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("forkyard: {error}");
            ExitCode::from(EXIT_SOFTWARE)
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum PlanError {
    #[error("{path}: {1}", path = .0.display())]
    Path(PathBuf, io::Error),
    #[error(transparent)]
    Account(#[from] sys::Error),
    #[error("only root can run an application as another user")]
    NotRoot,
    #[error("--env {0} has no '='")]
    NoValue(String),
}

fn plan(arguments: &Spawn) -> Result<Plan, PlanError> {
    let absolute =
        |path: &PathBuf| std::path::absolute(path).map_err(|error| PlanError::Path(path.clone(), error));
    let root = absolute(&arguments.app_root)?;
    let account = match &arguments.user {
        Some(user) => effects::account(user, arguments.group.as_deref())?,
        None => effects::own_account(),
    };
    let mut plan = Plan::new("spawn", root, &arguments.start_command, account);
    plan.switch_user = arguments.user.is_some() && identity::is_root();
    if arguments.user.is_some() && !plan.switch_user && plan.account.uid != effects::own_account().uid {
        return Err(PlanError::NotRoot);
    }
    if arguments.native {
        (plan.kind, plan.app_type) = (Kind::Native, "native".to_owned());
    }
    for variable in &arguments.environment {
        let Some((name, value)) = variable.split_once('=') else {
            return Err(PlanError::NoValue(variable.clone()));
        };
        plan.environment.insert(name.to_owned(), value.to_owned());
    }
    plan.app_env.clone_from(&arguments.app_env);
    plan.load_shell_envvars = arguments.load_shell_envvars;
    plan.socket_dir = arguments.socket_dir.as_ref().map(absolute).transpose()?;
    plan.start_timeout = Duration::from_secs(u64::from(arguments.start_timeout));
    plan.debug_work_dir = arguments.debug_work_dir;
    Ok(plan)
}

fn start(arguments: &Spawn, plan: Plan) -> io::Result<ExitCode> {
    let mut context = driver::context(std::env::current_exe()?);
    if let Some(directory) = &arguments.spawn_dir {
        context.spawn_dir.clone_from(directory);
    }
    if let Err(error) = sys::process::become_subreaper() {
        eprintln!("forkyard: {error}: processes that go to the background can't be ended");
    }
    let mut driver = Driver::new(context, Box::new(|_, _| {}))?;
    for _ in 0..arguments.processes {
        driver.spawn(plan.clone());
    }
    let mut code = ExitCode::SUCCESS;
    let mut processes = Vec::new();
    for _ in 0..arguments.processes {
        match driver.wait()? {
            (token, SpawnOutcome::Up(up)) => {
                print_up(arguments, token, &up);
                processes.extend(driver.take(up.id));
            }
            (_, SpawnOutcome::Failed(report)) => {
                print_failure(arguments, &report);
                code = ExitCode::from(EXIT_SOFTWARE);
            }
        }
    }
    for process in processes {
        stop(process).map_err(|error| io::Error::other(error.to_string()))?;
    }
    driver.tell(Event::Shutdown);
    driver.finish()?;
    Ok(code)
}

fn print_up(arguments: &Spawn, token: Token, up: &Up) {
    let took = up.ended.since(up.started).as_secs_f64();
    if arguments.json {
        let document = json!({
            "token": token.0,
            "pid": up.pid,
            "sockets": up.sockets,
            "duration": took,
            "journey": up.journey.to_json(up.started),
        });
        println!("{document}");
        return;
    }
    println!("The application is up after {took:.3} s: process {}", up.pid);
    for socket in &up.sockets {
        println!("  {} ({})", socket.address, socket.protocol);
    }
    for record in up.journey.records() {
        if let Some(duration) = up.journey.duration(record.step) {
            println!("  {:<48} {:.3} s", record.step.name(), duration.as_secs_f64());
        }
    }
}

fn print_failure(arguments: &Spawn, report: &Report) {
    if arguments.json {
        println!("{}", report.json(clock::epoch_seconds()));
    } else if arguments.html {
        println!("{}", report.html());
    } else {
        print!("{}", report.text());
    }
}

/// Closes standard input, then sends SIGTERM, then SIGKILL.
fn stop(mut process: Process) -> sys::Result<()> {
    let handle = process.handle;
    let gone = || socket::wait(handle.as_fd(), socket::Readiness::Readable, TIMEOUT);
    process.input = None;
    // A short timeout: many applications ignore standard input.
    let asked = socket::wait(
        handle.as_fd(),
        socket::Readiness::Readable,
        Duration::from_millis(500),
    )?;
    if !asked {
        pidfd::send_signal(handle.as_fd(), Signal::SIGTERM)?;
        if !gone()? {
            pidfd::send_signal(handle.as_fd(), Signal::SIGKILL)?;
            gone()?;
        }
    }
    let _ = pidfd::reap(handle.as_fd());
    Ok(())
}
