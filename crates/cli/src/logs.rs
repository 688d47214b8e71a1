//! `forkyard logs`: prints the locations of logs, or follows them.

use super::control::{CommandOutcome, Daemon, ask_status, missing, printable, tell};
use super::table::aligned;
use super::{EXIT_SOFTWARE, names};
use clap::Args;
use forkyard_protocol::control::{PoolStatus, Status};
use forkyard_protocol::logs::{DaemonLog, PoolLog};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// What is asked.
#[derive(Debug, Args)]
pub(super) struct Logs {
    #[command(flatten)]
    daemon: Daemon,
    /// Pools to show; all by default
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
    /// Follow the files with tail(1) until interrupted
    #[arg(short, long)]
    follow: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Place {
    of: String,
    about: String,
    at: At,
}

#[derive(Debug, PartialEq, Eq)]
enum At {
    File(PathBuf),
    /// Not a file: the command that reads it.
    Elsewhere(String),
}

pub(super) fn run(arguments: &Logs) -> ExitCode {
    let places = ask_status(&arguments.daemon).and_then(|status| match missing(&status, &arguments.pools) {
        Some(missing) => Err(missing),
        None => Ok(places(&status, &arguments.pools)),
    });
    match places {
        Ok(places) if arguments.follow => follow(&places),
        places => tell(places.map(|places| CommandOutcome::success(table(&places)))),
    }
}

/// Prints tail(1)'s output. Tenants can write to the files, so control characters are escaped.
fn follow(places: &[Place]) -> ExitCode {
    let files = places.iter().filter_map(|place| match &place.at {
        At::File(path) => Some(path),
        At::Elsewhere(how) => {
            eprintln!("forkyard: {} ({}) is no file: {how}", place.of, place.about);
            None
        }
    });
    let mut files: Vec<&PathBuf> = files.collect();
    files.sort();
    files.dedup();
    if files.is_empty() {
        eprintln!("forkyard: there is no file to follow");
        return ExitCode::from(EXIT_SOFTWARE);
    }
    let mut tail = Command::new("tail");
    tail.arg("-F").arg("--").args(files).stdout(Stdio::piped());
    let shown = tail.spawn().and_then(|mut child| {
        child.stdout.take().map_or(Ok(()), show_all)?;
        child.wait()
    });
    if let Err(error) = shown {
        eprintln!("forkyard: can't run tail: {error}");
    }
    ExitCode::from(EXIT_SOFTWARE)
}

/// Prints text on arrival, except for the bytes of an incomplete character.
fn show_all(mut text: impl Read) -> io::Result<()> {
    let (mut buffer, mut pending) = ([0; 8192], Vec::new());
    loop {
        let count = text.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        pending.extend_from_slice(&buffer[..count]);
        let whole = match std::str::from_utf8(&pending) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => pending.len(),
        };
        let rest = pending.split_off(whole);
        print!("{}", String::from_utf8_lossy(&pending));
        pending = rest;
    }
}

fn places(status: &Status, wanted: &[String]) -> Vec<Place> {
    let is_wanted = |pool: &&PoolStatus| wanted.is_empty() || wanted.contains(&pool.name);
    let pools = status.pools.iter().filter(is_wanted);
    let of_pools = pools.flat_map(|pool| pool.logs.iter().flat_map(|log| of_pool(pool, log)));
    let daemon = status.log.as_ref().map(|log| Place {
        of: "daemon".to_owned(),
        about: "its own log, and output of applications without one".to_owned(),
        at: of_daemon(log, status.pid),
    });
    let mut places: Vec<Place> = Vec::new();
    for place in of_pools.chain(daemon) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

fn of_pool(pool: &PoolStatus, log: &PoolLog) -> Vec<Place> {
    let place = |path: PathBuf| Place {
        of: format!("pool {}", pool.name),
        about: log.kind.in_words().to_owned(),
        at: At::File(path),
    };
    if log.path.is_absolute() {
        return vec![place(log.path.clone())];
    }
    // Each application has its own log.
    let roots = names::roots(pool);
    roots
        .map(|root| place(Path::new(&root).join(&log.path)))
        .collect()
}

fn of_daemon(log: &DaemonLog, pid: u32) -> At {
    match log {
        DaemonLog::File(path) => At::File(path.clone()),
        DaemonLog::Syslog(ident) => At::Elsewhere(format!(
            "the system's log: journalctl -t {ident}, or /var/log/syslog"
        )),
        DaemonLog::Stderr => match fs::read_link(format!("/proc/{pid}/fd/2")) {
            Ok(path) if path.is_absolute() && path.is_file() => At::File(path),
            Ok(path) if path.to_string_lossy().starts_with("socket:") => {
                At::Elsewhere(format!("the journal: journalctl {}", unit(pid)))
            }
            _ => At::Elsewhere(format!(
                "standard error of process {pid}: docker logs, or the terminal that started it"
            )),
        },
    }
}

/// Returns the journal's filter for a process.
fn unit(pid: u32) -> String {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mut units = groups
        .lines()
        .filter_map(|line| line.rsplit('/').find(|part| part.ends_with(".service")));
    let unit = units.next_back().map(|unit| format!("-u {unit}"));
    unit.unwrap_or_else(|| format!("_PID={pid}"))
}

fn table(places: &[Place]) -> String {
    let lines = places.iter().map(|place| {
        let at = match &place.at {
            At::File(path) => format!("{}, {}", path.display(), size(path)),
            At::Elsewhere(how) => how.clone(),
        };
        [&place.of, &place.about, &at].map(|cell| printable(cell)).into()
    });
    aligned(lines, 0)
}

fn size(path: &Path) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let mut bytes = match fs::metadata(path) {
        Ok(file) => file.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return "not there yet".to_owned(),
        Err(error) => return error.to_string(),
    };
    let mut unit = 0;
    while bytes >= 10 * 1024 && unit + 1 < UNITS.len() {
        bytes /= 1024;
        unit += 1;
    }
    format!("{bytes} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_a_line_with_its_size() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(&file, vec![b'x'; 20 * 1024]).expect("write");
        let place = |of: &str, at| Place {
            of: of.to_owned(),
            about: "requests".to_owned(),
            at,
        };
        let path = file.path().to_owned();
        let said = table(&[
            place("pool www", At::File(path.clone())),
            place("daemon", At::Elsewhere("the journal".to_owned())),
            place("pool b", At::File("/nonexistent/x\u{1b}".into())),
        ]);
        assert_eq!(
            said,
            format!(
                "pool www  requests  {}, 20 KiB\ndaemon    requests  the journal\npool b    requests  /nonexistent/x?, not there yet\n",
                path.display()
            )
        );
    }
}
