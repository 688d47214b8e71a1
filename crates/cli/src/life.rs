//! The daemon's program, its age, its last upgrade, and the changes of a reload, in `forkyard status`.

use super::control::{Daemon, answer, printable};
use super::table::local;
use super::{dry_run, last_reload, texts, version};
use forkyard_config as config;
use forkyard_protocol::control::{Answer, Request, Status};
use forkyard_protocol::daemon_life::DaemonLife;
use forkyard_protocol::last_upgrade::{LastUpgrade, UpgradeResult};
use forkyard_sys::clock::epoch_seconds;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Times of files may be older by the kernel's tick than the clock at a change.
const TICK_MS: i128 = 10;
/// The most lines about the changes of a reload.
const MOST_LINES: usize = 10;

/// The first line of the overview.
pub(super) fn head(status: &Status) -> String {
    let life = status.daemon.as_deref();
    let program = life.and_then(|life| life.program.as_ref());
    let build = program.map_or(&status.version, |program| &program.build);
    let age = life.map(|life| {
        let age = epoch_seconds().saturating_sub(life.started);
        format!(", up {} since {}", in_words(age), local(life.started))
    });
    printable(&format!(
        "forkyard {build}, pid {}, {}{}",
        status.pid,
        status.config,
        age.unwrap_or_default()
    ))
}

/// The lines that follow, each with whether it reports a problem.
pub(super) fn lines(status: &Status) -> Vec<(String, bool)> {
    let mut lines = Vec::new();
    let life = status.daemon.as_deref();
    if let Some(last) = &status.last_reload {
        lines.extend(last_reload::line(last).map(|line| (line, !last.is_done())));
    }
    if let Some(last) = life.and_then(|life| life.last_upgrade.as_ref()) {
        lines.push((upgrade(last), last.result == UpgradeResult::Failed));
    }
    if status.replaced {
        lines.push((replaced(life), false));
    }
    let program = life.and_then(|life| life.program.as_ref());
    if let Some(program) = program.filter(|program| program.missing) {
        let path = printable(&program.path.display().to_string());
        lines.push((format!("{path} is {}", version::GONE), true));
    }
    let changes = life.and_then(|life| life.would_change.as_ref());
    if let Some(changes) = changes.filter(|changes| !changes.is_empty()) {
        let all = changes.iter().take(MOST_LINES);
        lines.extend(all.map(|change| (format!("a reload would change: {}", printable(change)), false)));
        if let Some(more) = changes.len().checked_sub(MOST_LINES).filter(|more| *more > 0) {
            lines.push((format!("and {more} more: forkyard reload --dry-run"), false));
        }
    }
    lines
}

fn upgrade(last: &LastUpgrade) -> String {
    let took = last.took_ms.unwrap_or_default();
    let took = format!("{}.{:03} s", took / 1000, took % 1000);
    let to = last.to.as_deref().unwrap_or("?");
    let result = match last.result {
        UpgradeResult::UnderWay => "under way".to_owned(),
        UpgradeResult::Done if *to == last.from => format!("done in {took}, {to} again"),
        UpgradeResult::Done => format!("done in {took}, from {} to {to}", last.from),
        UpgradeResult::Failed => {
            let error = last.error.as_deref().unwrap_or_default();
            format!("failed after {took}, {} goes on: {error}", last.from)
        }
    };
    let time = local(last.begun_ms / 1000);
    printable(&format!("last upgrade {time} {}: {result}", last.by.in_words()))
}

fn replaced(life: Option<&DaemonLife>) -> String {
    let program = life.and_then(|life| life.program.as_ref());
    match program.is_some_and(|program| version::is_own(&program.path)) {
        true => format!(
            "another program is on disk, forkyard {}: forkyard upgrade lets it take over",
            texts::VERSION
        ),
        false => "another program is on disk: forkyard version names it, forkyard upgrade lets it take over"
            .to_owned(),
    }
}

/// Asks for the changes of a reload. Returns at once if no file of the configuration has changed since the daemon read it,
/// because the daemon reads all files for the answer.
pub(super) fn ask_changes(daemon: &Daemon, status: &mut Status) {
    let (pid, path) = (status.pid, PathBuf::from(&status.config));
    let Some(life) = &mut status.daemon else { return };
    let path = match path.is_absolute() {
        true => path,
        // The daemon's directory, where it read the file.
        false => fs::read_link(format!("/proc/{pid}/cwd"))
            .unwrap_or_default()
            .join(path),
    };
    let places = config::written_places(&path);
    if !places.iter().any(|place| is_newer(place, life.read_ms)) {
        return;
    }
    let request = Request::Reload {
        all: false,
        dry_run: true,
    };
    let changes = match answer(daemon, &request) {
        Ok(Answer::Changes(changes)) => dry_run::in_brief(&changes),
        Ok(Answer::Error { errors, .. }) => {
            let first = errors.first().map_or("", |error| error.text.as_str());
            vec![format!("nothing, for the files have errors: {first}")]
        }
        Ok(_) | Err(_) => return,
    };
    life.would_change = Some(changes).filter(|changes| !changes.is_empty());
}

/// Whether a file or directory is gone, or was written, replaced or given other rights since then.
fn is_newer(place: &Path, read_ms: u64) -> bool {
    let Ok(data) = fs::metadata(place) else {
        return true;
    };
    let changed = i128::from(data.ctime()) * 1000 + i128::from(data.ctime_nsec()) / 1_000_000;
    changed + TICK_MS >= i128::from(read_ms)
}

fn in_words(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{minutes} min"),
        3_600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_protocol::last_upgrade::UpgradeCause;

    #[test]
    fn an_age_has_two_units() {
        for (seconds, words) in [
            (0, "0 s"),
            (59, "59 s"),
            (3_599, "59 min"),
            (7_500, "2 h 5 min"),
            (90_000, "1 d 1 h"),
        ] {
            assert_eq!(in_words(seconds), words);
        }
    }

    #[test]
    fn an_upgrade_is_told_with_its_result() {
        let begun = LastUpgrade::begun(0, UpgradeCause::Signal, "1.0.0");
        for (last, end) in [
            (begun.clone(), " by SIGUSR2: under way"),
            (
                begun.clone().done(1250, "1.1.0"),
                ": done in 1.250 s, from 1.0.0 to 1.1.0",
            ),
            (begun.clone().done(50, "1.0.0"), ": done in 0.050 s, 1.0.0 again"),
            (
                begun.failed(10, "no\u{1b}"),
                ": failed after 0.010 s, 1.0.0 goes on: no?",
            ),
        ] {
            let told = upgrade(&last);
            assert!(told.starts_with("last upgrade ") && told.ends_with(end), "{told}");
        }
    }

    #[test]
    fn much_that_would_change_is_cut() {
        let life = DaemonLife {
            program: None,
            started: 0,
            program_started: 0,
            last_upgrade: None,
            read_ms: 0,
            would_change: Some((0..12).map(|number| format!("pool {number}")).collect()),
        };
        let status = Status {
            daemon: Some(Box::new(life)),
            ..Status::default()
        };
        let lines = lines(&status);
        assert_eq!(lines.len(), MOST_LINES + 1);
        assert_eq!(lines[0].0, "a reload would change: pool 0");
        assert_eq!(lines[10].0, "and 2 more: forkyard reload --dry-run");
    }
}
