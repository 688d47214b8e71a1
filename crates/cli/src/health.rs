//! `forkyard ping`, `health`, `drain` and `reopen-logs`: commands for service managers, probes and log rotation. They
//! don't query workers, and wait at most [`TIMEOUT`].

use super::EXIT_SOFTWARE;
use super::connect::{self, ConnectError};
use super::control::{
    CommandOutcome, CommandResult, Daemon, EXIT_UNAVAILABLE, lost, printable, quick_socket, tell, unexpected,
};
use super::last_reload::trouble;
use super::status::remarks;
use clap::Args;
use forkyard_config as config;
use forkyard_host::control::{AskError, ask, late};
use forkyard_protocol::control::{Answer, DaemonMode, PoolStatus, Request, Status};
use forkyard_protocol::health::{Trouble, trouble as trouble_of};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The daemon runs, but a check failed.
const EXIT_UNWELL: u8 = 1;
const TIMEOUT: Duration = Duration::from_secs(1);

/// What is asked.
#[derive(Debug, Args)]
pub(super) struct Health {
    #[command(flatten)]
    daemon: Daemon,
    /// Fail unless every pool serves, and the daemon is not drained or ending
    #[arg(long, group = "how")]
    ready: bool,
    /// As --ready, and fail if a pool has all its workers busy and connections wait
    #[arg(long, group = "how")]
    busy: bool,
    /// Fail if the user of the web server can't connect to each pool's socket; USER: another one's
    #[arg(long, group = "how", value_name = "USER", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    web_server: Option<String>,
    /// Also fail for warnings: the last reload was refused, or was not done for all pools
    #[arg(long)]
    strict: bool,
    /// Look at this pool alone; may be given several times
    #[arg(long, value_name = "POOL", requires = "how")]
    pool: Vec<String>,
}

/// Options of `forkyard ping`.
#[derive(Debug, Args)]
pub(super) struct Ping {
    #[command(flatten)]
    daemon: Daemon,
    /// Print nothing; only set the exit code
    #[arg(short, long)]
    quiet: bool,
}

/// Options of `forkyard drain`.
#[derive(Debug, Args)]
pub(super) struct Drain {
    #[command(flatten)]
    daemon: Daemon,
    /// Return after this time; new requests are served until then
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    for_: Option<Duration>,
    /// Take it back: the daemon is ready again
    #[arg(long, conflicts_with = "for_")]
    end: bool,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum HealthError {
    #[error("give a time such as 500ms, 8s or 1m")]
    Time,
    #[error("there is no pool {0}")]
    NoPool(String),
    #[error("there is no user of a web server; name one: --web-server=USER")]
    NoWebUser,
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// Parses a duration in the configuration's format.
pub(super) fn time(text: &str) -> Result<Duration, HealthError> {
    config::units::duration(text).ok_or(HealthError::Time)
}

pub(super) fn ping(arguments: &Ping) -> ExitCode {
    let answer = answer(&arguments.daemon, Request::Ping {});
    let outcome = answer.and_then(|answer| match answer {
        Answer::Pong { pid, version, .. } => Ok(CommandOutcome::success(format!(
            "forkyard {version}, pid {pid}\n"
        ))),
        other => Err(unexpected(other)),
    });
    match (arguments.quiet, outcome) {
        (true, Ok(outcome) | Err(outcome)) => ExitCode::from(outcome.code),
        (false, outcome) => tell(outcome),
    }
}

pub(super) fn health(arguments: &Health) -> ExitCode {
    tell(checked(arguments))
}

fn checked(arguments: &Health) -> CommandResult {
    let (mode, warning) = match answer(&arguments.daemon, Request::Ping {})? {
        Answer::Pong {
            mode, last_reload, ..
        } => (mode, trouble(last_reload.as_ref())),
        other => return Err(unexpected(other)),
    };
    let warned = |outcome: CommandOutcome| with_warning(outcome, warning, arguments.strict);
    if !arguments.ready && !arguments.busy && arguments.web_server.is_none() {
        return Ok(warned(CommandOutcome::success("the daemon answers\n".to_owned())));
    }
    let status = match answer(&arguments.daemon, Request::Status { caches: false })? {
        Answer::Status(status) => *status,
        other => return Err(unexpected(other)),
    };
    let found = problems(arguments, mode, &status);
    let (found, well) = match (found, &arguments.web_server) {
        (Ok(_), Some(user)) => match unreached(arguments, user, &status) {
            Ok((user, problems)) => (Ok(problems), format!("{user} can connect\n")),
            Err(why) => (Err(why), String::new()),
        },
        (found, _) => (found, "ready\n".to_owned()),
    };
    Ok(warned(match found {
        Err(why) => CommandOutcome::failure(
            EXIT_SOFTWARE,
            format!("forkyard: {}\n", printable(&why.to_string())),
        ),
        Ok(problems) if problems.is_empty() => CommandOutcome::success(well),
        Ok(problems) => {
            let lines = problems.into_iter().map(|problem| problem + "\n");
            CommandOutcome::failure(EXIT_UNWELL, lines.collect())
        }
    }))
}

/// Adds a warning to the outcome. `is_wrong` makes it a failure.
fn with_warning(outcome: CommandOutcome, warning: Option<String>, is_wrong: bool) -> CommandOutcome {
    let Some(warning) = warning else {
        return outcome;
    };
    let is_failure = outcome.code == 0 && is_wrong;
    CommandOutcome {
        output: if is_failure { String::new() } else { outcome.output },
        errors: format!("{}warning: {warning}\n", outcome.errors),
        code: if is_failure { EXIT_UNWELL } else { outcome.code },
    }
}

/// Returns the user, and the sockets that this user can't connect to.
fn unreached(asked: &Health, user: &str, status: &Status) -> Result<(String, Vec<String>), HealthError> {
    let user = match user {
        "" => connect::web_user().ok_or(HealthError::NoWebUser)?,
        named => named.to_owned(),
    };
    let is_asked = |pool: &&PoolStatus| asked.pool.is_empty() || asked.pool.contains(&pool.name);
    let pools: Vec<&PoolStatus> = status.pools.iter().filter(is_asked).collect();
    let problems = connect::problems(&user, &pools)?;
    Ok((user, problems.iter().map(|problem| printable(problem)).collect()))
}

/// Returns the problems that should keep requests away, one per line; `Err` if a pool doesn't exist.
fn problems(asked: &Health, mode: DaemonMode, status: &Status) -> Result<Vec<String>, HealthError> {
    let mut problems = Vec::new();
    match mode {
        DaemonMode::Serving => {}
        DaemonMode::Draining => problems.push("the daemon is drained".to_owned()),
        DaemonMode::Ending => problems.push("the daemon is ending".to_owned()),
    }
    let is_skipped = |name: &String| status.skipped.iter().any(|one| one.pool.as_ref() == Some(name));
    for name in &asked.pool {
        if !is_skipped(name) && status.pools.iter().all(|pool| pool.name != *name) {
            return Err(HealthError::NoPool(name.clone()));
        }
    }
    let is_asked = |name: &String| asked.pool.is_empty() || asked.pool.contains(name);
    for pool in status.pools.iter().filter(|pool| is_asked(&pool.name)) {
        problems
            .extend(problem_of(pool, asked.busy).map(|text| format!("{}: {text}", printable(&pool.name))));
    }
    for one in status.skipped.iter().filter(|one| !one.goes_on) {
        if one.pool.as_ref().is_none_or(is_asked) {
            problems.push(printable(&format!("{}: {}", one.name(), one.reasons.join("; "))));
        }
    }
    Ok(problems)
}

fn problem_of(pool: &PoolStatus, is_busy_wrong: bool) -> Option<String> {
    Some(match trouble_of(pool, is_busy_wrong)? {
        Trouble::State(state) => match remarks(pool).into_iter().next() {
            Some(why) => format!("{state}: {why}"),
            None => state.to_owned(),
        },
        full @ Trouble::Full { .. } => full.to_string(),
    })
}

pub(super) fn drain(arguments: &Drain) -> ExitCode {
    let outcome = order(&arguments.daemon, Request::Drain { end: arguments.end });
    if let (Ok(_), Some(time)) = (&outcome, arguments.for_) {
        thread::sleep(time);
    }
    tell(outcome)
}

pub(super) fn reopen_logs(daemon: &Daemon) -> ExitCode {
    tell(order(daemon, Request::ReopenLogs {}))
}

fn order(daemon: &Daemon, request: Request) -> CommandResult {
    match answer(daemon, request)? {
        Answer::Done { .. } => Ok(CommandOutcome::success(String::new())),
        other => Err(unexpected(other)),
    }
}

/// Sends a request with [`TIMEOUT`]: connect(2) to a socket with a full queue has no timeout.
pub(super) fn answer(daemon: &Daemon, request: Request) -> Result<Answer, CommandOutcome> {
    let socket = quick_socket(daemon)?;
    within(&socket, request, TIMEOUT).map_err(|error| match error {
        AskError::Lost(..) => CommandOutcome {
            code: EXIT_UNAVAILABLE,
            ..lost(&error)
        },
        error => lost(&error),
    })
}

fn within(socket: &Path, request: Request, timeout: Duration) -> Result<Answer, AskError> {
    let (sender, receiver) = mpsc::channel();
    let path: PathBuf = socket.to_owned();
    thread::spawn(move || {
        // The receiver is gone after the timeout.
        let _ = sender.send(ask(&path, &request));
    });
    let answer = receiver.recv_timeout(timeout);
    answer.unwrap_or_else(|_| Err(late(socket, timeout)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::tests::status;

    fn asked(busy: bool, pool: &[&str]) -> Health {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            health: Health,
        }
        let how = if busy { "--busy" } else { "--ready" };
        let pools = pool.iter().flat_map(|pool| ["--pool", pool]);
        let line: Line = clap::Parser::parse_from(["health", how].into_iter().chain(pools));
        line.health
    }

    #[test]
    fn a_pool_that_is_full_is_ready_and_busy() {
        let mut status = status();
        let pool = &mut status.pools[0];
        pool.limits.max_children = 2;
        pool.busy = 2;
        pool.queue = Some(3);
        let name = pool.name.clone();
        let count = |busy, status: &Status| {
            let found = problems(&asked(busy, &[&name]), DaemonMode::Serving, status);
            found.expect("the pool").len()
        };
        assert_eq!(count(false, &status), 0);
        assert_eq!(count(true, &status), 1);
        status.pools[0].queue = Some(0);
        assert_eq!(count(true, &status), 0);
    }

    #[test]
    fn a_daemon_that_is_drained_or_ending_is_not_ready() {
        let status = Status {
            pools: Vec::new(),
            ..status()
        };
        for (mode, count) in [
            (DaemonMode::Serving, 0),
            (DaemonMode::Draining, 1),
            (DaemonMode::Ending, 1),
        ] {
            let said = problems(&asked(false, &[]), mode, &status);
            assert_eq!(said.expect("all pools").len(), count, "{mode:?}");
        }
        let unknown = problems(&asked(false, &["no"]), DaemonMode::Serving, &status);
        assert!(matches!(unknown, Err(HealthError::NoPool(name)) if name == "no"));
    }
}
