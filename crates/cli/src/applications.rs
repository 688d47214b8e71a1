//! Commands for applications, instances and single pools.

use super::control::{
    CommandOutcome, CommandResult, Daemon, PATIENCE, answer, ask_status, failures, lost, reloaded, socket,
    tell, unexpected,
};
use super::names::{directory, real};
use super::{EXIT_CONFIG, EXIT_SOFTWARE};
use clap::{Args, Subcommand};
use forkyard_config::units::duration;
use forkyard_host::control::Conversation;
use forkyard_protocol::control::{Answer, Request};
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// `forkyard restart`.
#[derive(Debug, Args)]
pub(super) struct Restart {
    #[command(flatten)]
    daemon: Daemon,
    /// A pool of one application, or an application's root
    what: PathBuf,
    /// One instance after the other; a pool of one application is always restarted without a gap
    #[arg(long, conflicts_with = "blocking")]
    rolling: bool,
    /// All instances at once
    #[arg(long)]
    blocking: bool,
    /// Wait until new processes serve or have failed; an application without a process is started
    #[arg(long)]
    wait: bool,
}

/// `forkyard detach`, `disable`, `enable`.
#[derive(Debug, Args)]
pub(super) struct InstanceArguments {
    #[command(flatten)]
    daemon: Daemon,
    /// The instance's process id
    pid: i32,
}

/// `forkyard terminate`.
#[derive(Debug, Args)]
pub(super) struct Terminate {
    #[command(flatten)]
    daemon: Daemon,
    /// The worker's process id, which `forkyard status POOL` shows
    pid: i32,
}

/// `forkyard resize`.
#[derive(Debug, Args)]
pub(super) struct Resize {
    #[command(flatten)]
    daemon: Daemon,
    /// The application pool's name
    pool: String,
    /// Most instances
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    max: u32,
}

/// `forkyard take`.
#[derive(Debug, Args)]
pub(super) struct Take {
    #[command(flatten)]
    daemon: Daemon,
    /// An application's root, or the name of a group
    of: String,
    /// How long to wait for an instance, such as 500ms, 10s or 5m
    #[arg(long, value_parser = time)]
    wait: Option<Duration>,
}

/// `forkyard return`.
#[derive(Debug, Args)]
pub(super) struct Return {
    #[command(flatten)]
    daemon: Daemon,
    /// The lease that `take` named
    lease: u64,
    /// The instance is not well: replace it
    #[arg(long)]
    fail: bool,
}

/// `forkyard pool`.
#[derive(Debug, Subcommand)]
pub(super) enum PoolArguments {
    /// Begin the pools of a file, until the daemon reads its own configuration again
    Add {
        #[command(flatten)]
        daemon: Daemon,
        /// A TOML file with pools
        file: PathBuf,
    },
    /// Close a pool, until the daemon reads its configuration again
    Remove {
        #[command(flatten)]
        daemon: Daemon,
        /// Its name
        name: String,
        /// End its requests now
        #[arg(long)]
        immediate: bool,
        /// End its requests after this time, such as 10s
        #[arg(long, value_parser = time, conflicts_with = "immediate")]
        deadline: Option<Duration>,
    },
}

#[derive(Debug, thiserror::Error)]
#[error("{0} is no duration; write 500ms, 10s or 5m")]
struct NoDuration(String);

fn time(text: &str) -> Result<Duration, NoDuration> {
    duration(text).ok_or_else(|| NoDuration(text.to_owned()))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The poll interval during a restart.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

pub(super) fn restart(arguments: &Restart) -> ExitCode {
    tell(restarted(arguments))
}

/// A name without a slash is a pool, otherwise a directory.
fn restarted(arguments: &Restart) -> CommandResult {
    let Restart {
        daemon, what, wait, ..
    } = arguments;
    let application = directory(daemon, what);
    let name = match what.to_str() {
        Some(name) if !name.contains('/') => name.to_owned(),
        _ => application.display().to_string(),
    };
    let request = Request::RestartPool {
        pool: name.clone(),
        wait: *wait,
    };
    match answer(daemon, &request)? {
        Answer::Done { .. } => Ok(CommandOutcome::success(format!(
            "pool {name} gets new processes\n"
        ))),
        Answer::Reloaded(report) if report.failed.is_empty() => Ok(CommandOutcome::success(format!(
            "pool {name} is restarted: the new processes serve\n"
        ))),
        Answer::Reloaded(report) => Err(CommandOutcome::failure(EXIT_SOFTWARE, failures(&report))),
        refusal if !application.is_dir() && application.to_str() != what.to_str() => Err(unexpected(refusal)),
        _ => restart_application(arguments, application),
    }
}

fn restart_application(arguments: &Restart, application: PathBuf) -> CommandResult {
    let daemon = &arguments.daemon;
    let rolling = match (arguments.rolling, arguments.blocking) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    };
    let name = application.display().to_string();
    let request = Request::Restart {
        application,
        rolling,
        start: arguments.wait,
    };
    let value = match answer(daemon, &request)? {
        Answer::Done { value } if value.get("started").and_then(Value::as_bool) == Some(true) => {
            return Ok(CommandOutcome::success(format!(
                "{name} is started: a new instance serves\n"
            )));
        }
        Answer::Done { value } => value,
        Answer::Error { message, .. } if arguments.wait && !message.contains(&name) => {
            return Err(failed(&name, &message));
        }
        other => return Err(unexpected(other)),
    };
    let is_rolling = value.get("rolling").and_then(Value::as_bool) == Some(true);
    if !arguments.wait {
        let how = match is_rolling {
            true => "its instances are replaced one after the other",
            false => "its instances end, and new ones come with the next requests",
        };
        return Ok(CommandOutcome::success(format!("{name}: {how}\n")));
    }
    // The status has the directory of the release, which the daemon names.
    let restarted = value.get("applications").and_then(Value::as_array);
    let mut restarted: Vec<&str> = restarted
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if restarted.is_empty() {
        restarted.push(&name);
    }
    let is_restarted = |it: &&Value| {
        let name = it.get("name").and_then(Value::as_str);
        name.is_some_and(|name| restarted.contains(&name))
    };
    loop {
        let status = ask_status(daemon)?;
        let views = status
            .pools
            .iter()
            .filter_map(|pool| pool.applications.as_ref()?.view.as_ref());
        let known = views
            .filter_map(|view| view.get("applications")?.as_array())
            .flatten()
            .filter(is_restarted);
        // Several pools may run the application.
        match known.map(progress).reduce(RestartProgress::and) {
            Some(RestartProgress::Over(instances)) => {
                let now = match instances {
                    0 => "new instances come with the next requests".to_owned(),
                    _ => format!("{instances} new instances serve"),
                };
                return Ok(CommandOutcome::success(format!("{name} is restarted: {now}\n")));
            }
            // No instance runs, so none is old.
            None => {
                return Ok(CommandOutcome::success(format!(
                    "{name} is restarted: new instances come with the next requests\n"
                )));
            }
            Some(RestartProgress::Failed(why)) => return Err(failed(&name, &why)),
            Some(RestartProgress::UnderWay) => std::thread::sleep(LOOK_AGAIN),
        }
    }
}

fn failed(name: &str, why: &str) -> CommandOutcome {
    CommandOutcome::failure(EXIT_SOFTWARE, format!("forkyard: {name}: {why}\n"))
}

enum RestartProgress {
    UnderWay,
    /// The number of new instances; no old one is left.
    Over(usize),
    /// The reason, and what continues to run.
    Failed(String),
}

impl RestartProgress {
    /// Combines the progress in two pools.
    fn and(self, other: RestartProgress) -> RestartProgress {
        match (self, other) {
            (RestartProgress::Failed(why), _) | (_, RestartProgress::Failed(why)) => {
                RestartProgress::Failed(why)
            }
            (RestartProgress::UnderWay, _) | (_, RestartProgress::UnderWay) => RestartProgress::UnderWay,
            (RestartProgress::Over(one), RestartProgress::Over(other)) => RestartProgress::Over(one + other),
        }
    }
}

/// Reads the progress from an application's status.
fn progress(application: &Value) -> RestartProgress {
    let is = |key: &str| application.get(key).and_then(Value::as_bool) == Some(true);
    if is("resisting") || is("in_trouble") {
        let said = application.get("last_error").and_then(Value::as_str);
        let said = said.unwrap_or("an instance could not be started");
        let old = if is("resisting") {
            ", the old ones go on"
        } else {
            ""
        };
        return RestartProgress::Failed(format!("{said}{old}; see forkyard error"));
    }
    let wanted = application.get("restarts").and_then(Value::as_u64);
    let none = Vec::new();
    let instances = application
        .get("instances")
        .and_then(Value::as_array)
        .unwrap_or(&none);
    let is_new = |one: &&Value| one.get("restarts").and_then(Value::as_u64) == wanted;
    let is_starting = application.get("starting").and_then(Value::as_u64).unwrap_or(0) > 0;
    match instances.iter().all(|one| is_new(&one)) && !is_starting && !is("restarting") {
        true => RestartProgress::Over(instances.len()),
        false => RestartProgress::UnderWay,
    }
}

pub(super) fn detach(arguments: &InstanceArguments) -> ExitCode {
    say_done(&arguments.daemon, &Request::Detach { pid: arguments.pid })
}

pub(super) fn terminate(arguments: &Terminate) -> ExitCode {
    say_done(&arguments.daemon, &Request::Terminate { pid: arguments.pid })
}

pub(super) fn disable(arguments: &InstanceArguments) -> ExitCode {
    say_done(&arguments.daemon, &Request::Disable { pid: arguments.pid })
}

pub(super) fn enable(arguments: &InstanceArguments) -> ExitCode {
    say_done(&arguments.daemon, &Request::Enable { pid: arguments.pid })
}

pub(super) fn resize(arguments: &Resize) -> ExitCode {
    let Resize { daemon, pool, max } = arguments;
    let pool = pool.clone();
    say_done(daemon, &Request::Resize { pool, max: *max })
}

pub(super) fn give_back(arguments: &Return) -> ExitCode {
    let Return { daemon, lease, fail } = arguments;
    let request = Request::Return {
        lease: *lease,
        failed: *fail,
    };
    say_done(daemon, &request)
}

/// Leases an instance until standard input ends.
pub(super) fn take(arguments: &Take) -> ExitCode {
    leased(arguments).unwrap_or_else(|outcome| tell(Err(outcome)))
}

fn leased(arguments: &Take) -> Result<ExitCode, CommandOutcome> {
    let request = Request::Take {
        of: match arguments.of.contains('/') {
            true => (directory(&arguments.daemon, Path::new(&arguments.of)).display()).to_string(),
            false => arguments.of.clone(),
        },
        wait_ms: arguments.wait.map(millis),
    };
    let failed = |error| lost(&error);
    let conversation = Conversation::begin(&socket(&arguments.daemon)?);
    let mut conversation = conversation
        .and_then(|daemon| daemon.awake_within(PATIENCE))
        .map_err(failed)?;
    let lease = match conversation.ask(&request).map_err(failed)? {
        Answer::Done { value } => {
            println!("{value}");
            value.get("lease").and_then(serde_json::Value::as_u64)
        }
        other => return Err(unexpected(other)),
    };
    let Some(lease) = lease else {
        return Ok(ExitCode::from(EXIT_SOFTWARE));
    };
    // If this command is killed here, the daemon treats the instance as failed.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    let request = Request::Return { lease, failed: false };
    match conversation.ask(&request).map_err(failed)? {
        // The error: another command has returned the lease.
        Answer::Done { .. } | Answer::Error { .. } => Ok(ExitCode::SUCCESS),
        other => Err(unexpected(other)),
    }
}

pub(super) fn pool(command: &PoolArguments) -> ExitCode {
    let (daemon, request) = match command {
        PoolArguments::Add { daemon, file } => {
            let file = real(file);
            if let Err(error) = std::fs::metadata(&file) {
                eprintln!("forkyard: {}: {error}", file.display());
                return ExitCode::from(EXIT_CONFIG);
            }
            (daemon, Request::PoolAdd { file })
        }
        PoolArguments::Remove {
            daemon,
            name,
            immediate,
            deadline,
        } => {
            let request = Request::PoolRemove {
                name: name.clone(),
                immediate: *immediate,
                deadline_ms: deadline.map(millis),
            };
            (daemon, request)
        }
    };
    tell(answer(daemon, &request).and_then(reloaded))
}

fn say_done(daemon: &Daemon, request: &Request) -> ExitCode {
    tell(answer(daemon, request).and_then(|answer| match answer {
        Answer::Done { value: Value::Null } => Ok(CommandOutcome::success(String::new())),
        Answer::Done { value } => Ok(CommandOutcome::success(format!("{value}\n"))),
        other => Err(unexpected(other)),
    }))
}
