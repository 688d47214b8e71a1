//! `forkyard reload`, `upgrade`, `status` and `error`: requests to the running daemon.

use super::metrics_form::MetricsForm;
use super::overview::{Sort, bounded, table};
use super::status::{Use, details};
use super::table::json;
use super::{CONFIG, EXIT_CONFIG, EXIT_SOFTWARE};
use super::{colour, output};
use clap::Args;
use forkyard_base::text::is_control;
use forkyard_config::{self as config, Skipped};
use forkyard_host::control::{AskError, Conversation};
use forkyard_protocol::control::{Answer, Complaint, Format, Reloaded, Request, Status};
use forkyard_sys::{process, terminal};
use std::cell::Cell;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Once;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// EX_UNAVAILABLE of sysexits.h: no daemon answers.
pub(super) const EXIT_UNAVAILABLE: u8 = 69;

/// The timeout and the poll interval for the new program's first answer.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(30);
const TAKEOVER_LOOK: Duration = Duration::from_millis(50);

/// The timeout of a daemon's first answer: a suspended one does not answer. The status of thousands of pools needs less.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The timeout for reading a process's memory, and the one after a first timeout.
const MEMORY_WAIT: Duration = Duration::from_secs(1);
const MEMORY_WAIT_AGAIN: Duration = Duration::from_millis(50);

/// Which daemon is asked.
#[derive(Debug, Args)]
pub(super) struct Daemon {
    /// Its configuration file, which names its control socket
    #[arg(short, long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
    /// Its control socket
    #[arg(long, value_name = "PATH", conflicts_with = "config")]
    socket: Option<PathBuf>,
}

impl Daemon {
    pub(super) fn new(config: PathBuf, socket: Option<PathBuf>) -> Daemon {
        Daemon { config, socket }
    }
}

/// A command's output and exit code.
#[derive(Debug)]
pub(super) struct CommandOutcome {
    pub(super) output: String,
    pub(super) errors: String,
    pub(super) code: u8,
}

/// `Err` if the command can't go on.
pub(super) type CommandResult = Result<CommandOutcome, CommandOutcome>;

impl CommandOutcome {
    pub(super) fn success(output: String) -> CommandOutcome {
        CommandOutcome {
            output,
            errors: String::new(),
            code: 0,
        }
    }

    /// `errors`: whole lines.
    pub(super) fn failure(code: u8, errors: String) -> CommandOutcome {
        CommandOutcome {
            output: String::new(),
            errors,
            code,
        }
    }
}

pub(super) fn reload(daemon: &Daemon, all: bool, dry_run: bool) -> ExitCode {
    let answer = answer(daemon, &Request::Reload { all, dry_run });
    tell(answer.and_then(|answer| match answer {
        Answer::Changes(changes) => Ok(super::dry_run::outcome(&changes)),
        other => reloaded(other),
    }))
}

/// Returns the results for all pools.
pub(super) fn reloaded(answer: Answer) -> CommandResult {
    let Answer::Reloaded(report) = answer else {
        return Err(unexpected(answer));
    };
    Ok(CommandOutcome {
        code: match (report.failed.is_empty(), report.skipped.is_empty()) {
            (_, false) => EXIT_CONFIG,
            (false, true) => EXIT_SOFTWARE,
            (true, true) => 0,
        },
        errors: failures(&report),
        output: done(&report),
    })
}

/// Starts the upgrade and waits until the new program answers.
pub(super) fn upgrade(daemon: &Daemon) -> ExitCode {
    let begun = socket(daemon).and_then(|path| match answer_at(&path, &Request::Upgrade {})? {
        Answer::Upgrading {} => new_daemon(&path),
        other => Err(unexpected(other)),
    });
    tell(begun)
}

/// Waits for the first answer after an upgrade.
fn new_daemon(socket: &Path) -> CommandResult {
    let end = Instant::now() + TAKEOVER_TIMEOUT;
    loop {
        match answer_at(socket, &Request::Ping {}) {
            Ok(Answer::Pong { pid, version, .. }) => {
                let output = format!("forkyard {version} has taken over, pid {pid}\n");
                return Ok(CommandOutcome::success(output));
            }
            Err(_) if Instant::now() < end => std::thread::sleep(TAKEOVER_LOOK),
            other => return Err(unexpected(other?)),
        }
    }
}

/// How the status is wanted.
#[derive(Debug, Args)]
pub(super) struct StatusArguments {
    /// Pools to show in full; without a name, all pools at a glance
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// As numbers for a monitoring system
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "openmetrics",
        conflicts_with = "json")]
    metrics: Option<MetricsForm>,
    /// What pools are put in order by
    #[arg(long, value_name = "BY", default_value = "name", conflicts_with_all = ["json", "metrics", "pools"])]
    sort: Sort,
    /// Refresh the view, every second by default
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1s",
        value_parser = super::health::time)]
    watch: Option<Duration>,
}

/// Prints the status.
pub(super) fn status(daemon: &Daemon, wanted: &StatusArguments) -> ExitCode {
    let look = || Ok(show(ask_wanted(daemon, wanted)?, wanted));
    match wanted.watch {
        None => tell(ask_wanted(daemon, wanted).map(|mut status| {
            if wanted.pools.is_empty() && wanted.metrics.is_none() {
                super::life::ask_changes(daemon, &mut status);
            }
            show(status, wanted)
        })),
        Some(interval) => watch(interval, look),
    }
}

/// Adds the last two weeks of named pools. An older daemon or an owner's socket can't report them.
fn ask_periods(daemon: &Daemon, wanted: &[String], status: &mut Status) {
    for pool in status.pools.iter_mut().filter(|pool| wanted.contains(&pool.name)) {
        let request = Request::Periods {
            pool: pool.name.clone(),
        };
        if let Ok(Answer::Periods { periods }) = answer(daemon, &request) {
            pool.periods = periods;
        }
    }
}

/// Prints the status repeatedly until the output is closed; in a terminal, at the same place. Retries if the daemon is
/// unreachable.
fn watch(interval: Duration, look: impl Fn() -> CommandResult) -> ExitCode {
    loop {
        let outcome = look().unwrap_or_else(|outcome| outcome);
        if output::show_anew(&(outcome.output + &outcome.errors)).is_err() {
            return ExitCode::SUCCESS;
        }
        std::thread::sleep(interval);
    }
}

fn show(mut status: Status, wanted: &StatusArguments) -> CommandOutcome {
    if !wanted.json {
        super::skipped::take_up(&mut status);
    }
    if let Some(missing) = missing(&status, &wanted.pools) {
        return missing;
    }
    if !wanted.pools.is_empty() {
        status.pools.retain(|pool| wanted.pools.contains(&pool.name));
        let is_wanted = |one: &Skipped| one.pool.as_ref().is_some_and(|name| wanted.pools.contains(name));
        status.skipped.retain(is_wanted);
    }
    let uses = Uses::default();
    super::status::look_at(&mut status, &|pid| uses.of(pid));
    if wanted.pools.is_empty() {
        if let Some(jobs) = &mut status.jobs {
            jobs.stats = super::jobs::stats(&jobs.socket);
        }
    }
    let columns = terminal::columns(&std::io::stdout());
    CommandOutcome::success(match (wanted.json, wanted.metrics) {
        (true, _) => json(&status),
        (false, Some(form)) => forkyard_web::metrics::metrics(&status, form.into()),
        (false, None) if wanted.pools.is_empty() => {
            let jobs = super::jobs::overview(&status);
            table(&status, wanted.sort, columns, colour::is_wanted()) + &bounded(&jobs, columns)
        }
        (false, None) => {
            let trouble = super::last_reload::trouble(status.last_reload.as_ref());
            let lines = trouble.map(|line| line + "\n").into_iter();
            let all: Vec<String> = lines.chain(status.pools.iter().map(details)).collect();
            bounded(&all.join("\n"), columns)
        }
    })
}

/// Returns an error if a wanted pool doesn't exist.
pub(super) fn missing(status: &Status, wanted: &[String]) -> Option<CommandOutcome> {
    let is_skipped = |name: &String| status.skipped.iter().any(|one| one.pool.as_ref() == Some(name));
    let is_missing =
        |name: &&String| !is_skipped(name) && status.pools.iter().all(|pool| pool.name != **name);
    let missing = wanted.iter().find(is_missing)?;
    let names: Vec<String> = status.pools.iter().map(|pool| printable(&pool.name)).collect();
    let others = match names.as_slice() {
        [] => "there is none".to_owned(),
        names => format!("there are {}", names.join(", ")),
    };
    let errors = format!("forkyard: there is no pool {}; {others}\n", printable(missing));
    Some(CommandOutcome::failure(EXIT_SOFTWARE, errors))
}

/// Prints an error report.
pub(super) fn error(daemon: &Daemon, id: Option<String>, format: Format) -> ExitCode {
    let answer = answer(daemon, &Request::Error { id, format });
    tell(answer.and_then(|answer| match answer {
        Answer::Report { report } => Ok(CommandOutcome::success(match report {
            serde_json::Value::String(text) => text,
            report => json(&report),
        })),
        other => Err(unexpected(other)),
    }))
}

pub(super) fn tell(outcome: CommandResult) -> ExitCode {
    let outcome = outcome.unwrap_or_else(|outcome| outcome);
    print!("{}", outcome.output);
    eprint!("{}", outcome.errors);
    ExitCode::from(outcome.code)
}

pub(super) fn answer(daemon: &Daemon, request: &Request) -> Result<Answer, CommandOutcome> {
    answer_at(&socket(daemon)?, request)
}

pub(super) fn ask_status(daemon: &Daemon) -> Result<Status, CommandOutcome> {
    match answer(daemon, &Request::Status { caches: false })? {
        Answer::Status(status) => Ok(*status),
        other => Err(unexpected(other)),
    }
}

/// Asks for the status. Programs that read it also get the caches of PHP, and JSON has the periods of named pools.
fn ask_wanted(daemon: &Daemon, wanted: &StatusArguments) -> Result<Status, CommandOutcome> {
    let has_caches = wanted.json || wanted.metrics.is_some();
    let mut status = match has_caches.then(|| answer(daemon, &Request::Status { caches: true })) {
        Some(Ok(Answer::Status(status))) => *status,
        Some(Err(error)) => return Err(error),
        // An older daemon refuses to read the caches.
        Some(Ok(_)) | None => ask_status(daemon)?,
    };
    if wanted.json {
        ask_periods(daemon, &wanted.pools, &mut status);
    }
    Ok(status)
}

fn answer_at(socket: &Path, request: &Request) -> Result<Answer, CommandOutcome> {
    let daemon = Conversation::begin(socket);
    let daemon = daemon.and_then(|daemon| match request {
        Request::Status { .. } => daemon.with_patience(PATIENCE),
        // What other requests want may take any time.
        _ => daemon.awake_within(PATIENCE),
    });
    let answer = daemon.and_then(|mut daemon| daemon.ask(request));
    answer.map_err(|error| lost(&error))
}

/// Returns the path of the control socket.
pub(super) fn socket(daemon: &Daemon) -> Result<PathBuf, CommandOutcome> {
    match &daemon.socket {
        Some(path) => Ok(path.clone()),
        None => named_in(daemon),
    }
}

/// Returns the message for an unreachable daemon.
pub(super) fn lost(error: &AskError) -> CommandOutcome {
    let code = match error.is_silence() {
        true => EXIT_UNAVAILABLE,
        false => EXIT_SOFTWARE,
    };
    CommandOutcome::failure(code, format!("forkyard: {error}\n"))
}

/// Returns the path of the control socket, for frequent calls: reads the configuration only up to the socket's name.
pub(super) fn quick_socket(daemon: &Daemon) -> Result<PathBuf, CommandOutcome> {
    let named = daemon.socket.clone();
    named
        .or_else(|| config::control_socket(&daemon.config))
        .map_or_else(|| named_in(daemon), Ok)
}

/// Returns the configured control socket. The configuration may be invalid: the daemon keeps running with the previous
/// one.
fn named_in(daemon: &Daemon) -> Result<PathBuf, CommandOutcome> {
    // In a container, the pools are configured elsewhere.
    if let Some(path) = config::control_variable() {
        return Ok(path);
    }
    let failed = |errors| CommandOutcome::failure(EXIT_CONFIG, errors);
    let file = daemon.config.display();
    let errors = match config::load(&daemon.config) {
        Ok(loaded) => {
            // Only root's daemon has a default socket.
            let control = loaded.config.global.control;
            return control.or_else(|| config::control_socket(&daemon.config)).ok_or_else(|| {
                failed(format!(
                    "forkyard: {file} names no control socket; write control = \"/run/forkyard.sock\" in [global] and \
                     send the daemon SIGUSR2, or name its socket with --socket\n"
                ))
            });
        }
        Err(errors) => errors,
    };
    let path = config::control_socket(&daemon.config).ok_or_else(|| {
        failed(format!(
            "{errors}\nforkyard: no control socket is known; name the daemon's with --socket\n"
        ))
    })?;
    // A command may ask twice.
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        eprintln!(
            "forkyard: {file} is not valid (see forkyard check -c {file}); asking the daemon at {}",
            path.display()
        );
    });
    Ok(path)
}

pub(super) fn unexpected(answer: Answer) -> CommandOutcome {
    let (message, errors) = match answer {
        Answer::Error { message, errors } => (message, errors),
        _ => ("the daemon answers something else".to_owned(), Vec::new()),
    };
    let code = if errors.is_empty() {
        EXIT_SOFTWARE
    } else {
        EXIT_CONFIG
    };
    let lines = errors.iter().map(|Complaint { text, .. }| format!("{text}\n"));
    CommandOutcome::failure(code, lines.collect::<String>() + "forkyard: " + &message + "\n")
}

pub(super) fn done(report: &Reloaded) -> String {
    let mut text = String::new();
    for cause in &report.replaced {
        let _ = writeln!(text, "replaced {}: {}", cause.pool, cause.reason);
    }
    for (what, pools) in [
        ("added", &report.added),
        ("removed", &report.removed),
        ("kept", &report.kept),
    ] {
        for pool in pools {
            let _ = writeln!(text, "{what} {pool}");
        }
    }
    text
}

pub(super) fn failures(report: &Reloaded) -> String {
    let lines = report
        .failed
        .iter()
        .map(|cause| format!("failed {}: {}\n", cause.pool, cause.reason));
    let mut text: String = lines.collect();
    super::skipped::lines(&report.skipped, &mut text);
    text
}

/// Resource usage of processes, as the calling user can read it.
#[derive(Debug, Default)]
struct Uses {
    /// A read has timed out: use the short timeout.
    has_waited: Cell<bool>,
}

impl Uses {
    fn of(&self, pid: i32) -> Use {
        Use {
            memory: self.memory(pid),
            cpu_ms: cpu_ms(pid),
        }
    }

    /// Reads in a thread: a process can hold the kernel's lock for `smaps_rollup` (proc(5)) forever.
    fn memory(&self, pid: i32) -> Option<u64> {
        let (tell, heard) = mpsc::channel();
        let read = move || tell.send(process::proportional_memory_bytes(Some(pid)));
        std::thread::Builder::new().spawn(read).ok()?;
        let limit = if self.has_waited.get() {
            MEMORY_WAIT_AGAIN
        } else {
            MEMORY_WAIT
        };
        match heard.recv_timeout(limit) {
            Ok(memory) => memory,
            Err(_) => {
                self.has_waited.set(true);
                None
            }
        }
    }
}

/// proc(5): fields 14 and 15, in hundredths of a second. The text after the command starts with field 3.
fn cpu_ms(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some((ticks(11)? + ticks(12)?) * 10)
}

/// Removes control characters from a worker's text.
pub(super) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if is_control(c) { '?' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_protocol::control::Cause;

    #[test]
    fn what_was_done_is_said_line_by_line() {
        let report = Reloaded {
            added: vec!["new".into()],
            replaced: vec![Cause {
                pool: "www".into(),
                reason: "its settings changed".into(),
            }],
            kept: vec!["a".into(), "b".into()],
            ..Reloaded::default()
        };
        assert_eq!(
            done(&report),
            "replaced www: its settings changed\nadded new\nkept a\nkept b\n"
        );
        assert_eq!(failures(&report), "");
    }

    #[test]
    fn a_worker_can_not_command_the_terminal() {
        assert_eq!(printable("/a\u{1b}[2J\n.php"), "/a?[2J?.php");
    }
}
