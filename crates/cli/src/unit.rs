//! Checks pools' stop timeouts against the limit in the daemon's systemd unit.

use forkyard_config::{Diagnostic, Kind, Loaded, Severity};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The packaged unit, used if none is installed.
const PACKAGED: &str = include_str!("../../../conf/forkyard.service");
const NAME: &str = "forkyard.service";
/// systemd's unit directories; the first with the unit wins (systemd.unit(5)).
const DIRECTORIES: [&str; 5] = [
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];
/// Unit settings that limit a stop.
const KEYS: [&str; 2] = ["TimeoutStopSec", "TimeoutSec"];

/// The stop limit and its file.
#[derive(Debug, PartialEq, Eq)]
struct StopLimit {
    limit: Duration,
    said_by: String,
}

/// Returns a warning for each pool that may stop later than systemd allows.
pub(super) fn stops_late(loaded: &Loaded) -> Vec<Diagnostic> {
    let Some(stop) = limit(Path::new("/")) else {
        return Vec::new();
    };
    let control = loaded.config.global.process_control_timeout;
    let late =
        |pool: &&std::sync::Arc<forkyard_config::Pool>| control + pool.replacement.stop_timeout > stop.limit;
    let pools = loaded.config.pools.iter().filter(late);
    let warnings = pools.filter_map(|pool| {
        let key = match pool.applications {
            Some(_) => "applications.stop_timeout",
            None => "stop_timeout",
        };
        Some(Diagnostic {
            severity: Severity::Warning,
            location: loaded.locations.get(&pool.name)?.clone(),
            pool: Some(pool.name.clone()),
            key: Some(key.to_owned()),
            kind: Kind::Rule {
                problem: format!(
                    "with process_control_timeout a stop may take {} s, and systemd kills the remaining \
                     processes after {} s (TimeoutStopSec in {})",
                    (control + pool.replacement.stop_timeout).as_secs_f64(),
                    stop.limit.as_secs_f64(),
                    stop.said_by
                ),
                remedy: format!(
                    "make one of the two shorter, or TimeoutStopSec longer (systemctl edit {NAME})"
                ),
            },
        })
    });
    warnings.collect()
}

/// Returns the limit of the unit installed below `root`, with its drop-ins. `None` if there is no limit.
fn limit(root: &Path) -> Option<StopLimit> {
    let directories = || DIRECTORIES.iter().map(|directory| root.join(directory));
    let main = directories().map(|directory| directory.join(NAME));
    let installed = main
        .into_iter()
        .find_map(|path| Some((fs::read_to_string(&path).ok()?, path.display().to_string())));
    let (text, path) = installed.unwrap_or_else(|| (PACKAGED.to_owned(), format!("the packaged {NAME}")));
    // The first drop-in of each name wins; all are read in the order of their names.
    let mut added: BTreeMap<std::ffi::OsString, PathBuf> = BTreeMap::new();
    for directory in directories() {
        let entries = fs::read_dir(directory.join(format!("{NAME}.d")));
        for path in entries.into_iter().flatten().flatten().map(|entry| entry.path()) {
            let is_one = path.extension().is_some_and(|extension| extension == "conf");
            if let (true, Some(name)) = (is_one, path.file_name()) {
                added.entry(name.to_owned()).or_insert(path);
            }
        }
    }
    let added = added
        .into_values()
        .filter_map(|path| Some((fs::read_to_string(&path).ok()?, path.display().to_string())));
    let said = std::iter::once((text, path)).chain(added);
    let last = said
        .filter_map(|(text, path)| Some((last_value(&text)?, path)))
        .next_back();
    let (value, said_by) = last?;
    Some(StopLimit {
        limit: time_span(&value)?,
        said_by,
    })
}

/// Returns the last stop limit in a unit's text.
fn last_value(text: &str) -> Option<String> {
    let lines = text.lines().filter_map(|line| line.trim().split_once('='));
    let values = lines.filter(|(key, _)| KEYS.contains(&key.trim_end()));
    values.map(|(_, value)| value.trim().to_owned()).next_back()
}

/// Parses a time span of systemd.time(7). `None` if it is infinite or invalid.
fn time_span(text: &str) -> Option<Duration> {
    let mut seconds = 0.0;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'));
        let (number, after) = rest.split_at(end.unwrap_or(rest.len()));
        let number: f64 = number.parse().ok()?;
        let after = after.trim_start();
        let end = after.find(|c: char| !c.is_ascii_alphabetic());
        let (unit, after) = after.split_at(end.unwrap_or(after.len()));
        seconds += number
            * match unit {
                "" | "s" | "sec" | "second" | "seconds" => 1.0,
                "us" | "usec" => 1e-6,
                "ms" | "msec" => 1e-3,
                "m" | "min" | "minute" | "minutes" => 60.0,
                "h" | "hr" | "hour" | "hours" => 3600.0,
                "d" | "day" | "days" => 86_400.0,
                "w" | "week" | "weeks" => 604_800.0,
                _ => return None,
            };
        rest = after.trim_start();
    }
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|span| !span.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_spans_are_systemd_s() {
        let seconds = |text| time_span(text).map(|span| span.as_secs_f64());
        for (text, expected) in [
            ("90", Some(90.0)),
            ("1min 30s", Some(90.0)),
            ("2min20s", Some(140.0)),
            ("500ms", Some(0.5)),
            ("1.5 h", Some(5400.0)),
            ("infinity", None),
            ("0", None),
            ("", None),
            ("soon", None),
            ("5 years of waiting", None),
            ("1e999", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn the_unit_in_etc_wins_and_what_is_added_wins_over_it() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let seconds = || limit(root.path()).map(|stop| stop.limit.as_secs());
        let packaged = time_span(&last_value(PACKAGED).unwrap()).unwrap();
        assert_eq!(seconds(), Some(packaged.as_secs()));
        write(
            "usr/lib/systemd/system/forkyard.service",
            "[Service]\nTimeoutStopSec=20\n",
        );
        assert_eq!(seconds(), Some(20));
        write(
            "etc/systemd/system/forkyard.service",
            "[Service]\nTimeoutSec = 1min\n#TimeoutStopSec=3\n",
        );
        assert_eq!(seconds(), Some(60));
        write(
            "run/systemd/system/forkyard.service.d/b.conf",
            "[Service]\nTimeoutStopSec=5min\n",
        );
        write(
            "etc/systemd/system/forkyard.service.d/a.conf",
            "[Service]\nTimeoutStopSec=7\n",
        );
        assert_eq!(seconds(), Some(300));
        assert!(
            limit(root.path())
                .unwrap()
                .said_by
                .ends_with("run/systemd/system/forkyard.service.d/b.conf")
        );
        write(
            "etc/systemd/system/forkyard.service.d/b.conf",
            "[Service]\nTimeoutStopSec=infinity\n",
        );
        assert_eq!(seconds(), None);
    }

    #[test]
    fn the_packaged_unit_waits_for_what_pools_may_take_by_default() {
        let stop = limit(Path::new("/nowhere")).unwrap();
        assert!(stop.limit >= Duration::from_secs(60 + 60), "{stop:?}");
    }
}
