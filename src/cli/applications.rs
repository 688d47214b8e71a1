//! Orders about applications, instances and single pools.

use super::control::{Daemon, Outcome, answer, done, failures, tell, unexpected};
use super::{EXIT_CONFIG, EXIT_SOFTWARE};
use crate::config::duration;
use crate::control::client::Conversation;
use crate::control::protocol::{Answer, Request};
use clap::{Args, Subcommand};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// `forkyard restart`.
#[derive(Debug, Args)]
pub(super) struct Restart {
    #[command(flatten)]
    daemon: Daemon,
    /// The application's root
    application: PathBuf,
    /// One instance after the other
    #[arg(long, conflicts_with = "blocking")]
    rolling: bool,
    /// All instances at once
    #[arg(long)]
    blocking: bool,
}

/// `forkyard detach`, `disable`, `enable`.
#[derive(Debug, Args)]
pub(super) struct Instance {
    #[command(flatten)]
    daemon: Daemon,
    /// The instance's process id
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
pub(super) enum Pool {
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

fn time(text: &str) -> Result<Duration, String> {
    duration(text).ok_or_else(|| format!("{text} is no duration; write 500ms, 10s or 5m"))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The path as the daemon knows it.
fn real(path: &Path) -> PathBuf {
    // A user who may not look there names it as it is.
    path.canonicalize()
        .or_else(|_| std::path::absolute(path))
        .unwrap_or_else(|_| path.to_owned())
}

pub(super) fn restart(arguments: &Restart) -> ExitCode {
    let rolling = match (arguments.rolling, arguments.blocking) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    };
    let application = real(&arguments.application);
    say_done(&arguments.daemon, &Request::Restart { application, rolling })
}

pub(super) fn detach(arguments: &Instance) -> ExitCode {
    say_done(&arguments.daemon, &Request::Detach { pid: arguments.pid })
}

pub(super) fn disable(arguments: &Instance) -> ExitCode {
    say_done(&arguments.daemon, &Request::Disable { pid: arguments.pid })
}

pub(super) fn enable(arguments: &Instance) -> ExitCode {
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

/// Takes an instance and keeps it until standard input ends.
pub(super) fn take(arguments: &Take) -> ExitCode {
    let request = Request::Take {
        of: match arguments.of.contains('/') {
            true => real(Path::new(&arguments.of)).display().to_string(),
            false => arguments.of.clone(),
        },
        wait_ms: arguments.wait.map(millis),
    };
    let path = match super::control::socket(&arguments.daemon) {
        Ok(path) => path,
        Err(outcome) => return tell(outcome),
    };
    let mut conversation = match Conversation::begin(&path) {
        Ok(conversation) => conversation,
        Err(error) => return tell(super::control::lost(&error)),
    };
    let lease = match conversation.ask(&request) {
        Ok(Answer::Done { value }) => {
            println!("{value}");
            value.get("lease").and_then(serde_json::Value::as_u64)
        }
        Ok(other) => return tell(unexpected(Ok(other))),
        Err(error) => return tell(super::control::lost(&error)),
    };
    let Some(lease) = lease else {
        return ExitCode::from(EXIT_SOFTWARE);
    };
    // A command that is killed here does not return it, and the daemon takes it for failed.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    match conversation.ask(&Request::Return { lease, failed: false }) {
        Ok(Answer::Done { .. }) => ExitCode::SUCCESS,
        // Another command has returned it.
        Ok(Answer::Error { .. }) => ExitCode::SUCCESS,
        Ok(other) => tell(unexpected(Ok(other))),
        Err(error) => tell(super::control::lost(&error)),
    }
}

pub(super) fn pool(command: &Pool) -> ExitCode {
    let (daemon, request) = match command {
        Pool::Add { daemon, file } => {
            let file = real(file);
            if let Err(error) = std::fs::metadata(&file) {
                eprintln!("forkyard: {}: {error}", file.display());
                return ExitCode::from(EXIT_CONFIG);
            }
            (daemon, Request::PoolAdd { file })
        }
        Pool::Remove {
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
    tell(match answer(daemon, &request) {
        Ok(Answer::Reloaded(report)) => Outcome {
            code: super::control::code(&report),
            errors: failures(&report),
            output: done(&report),
        },
        other => unexpected(other),
    })
}

fn say_done(daemon: &Daemon, request: &Request) -> ExitCode {
    tell(match answer(daemon, request) {
        Ok(Answer::Done { value }) => Outcome {
            output: match value {
                serde_json::Value::Null => String::new(),
                value => format!("{value}\n"),
            },
            errors: String::new(),
            code: 0,
        },
        other => unexpected(other),
    })
}
