//! `forkyard names`: the completions of the next word, from the running daemon or the configuration.

use super::CONFIG;
use super::control::{Daemon, answer};
use super::health;
use forkyard_config as config;
use forkyard_protocol::control::{Answer, PoolStatus, Request, Status};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Prints the names, one per line. `words` are the words between `forkyard` and the completed one.
pub(super) fn names(words: &[String]) -> ExitCode {
    let Some(kind) = kind(words) else {
        return ExitCode::SUCCESS;
    };
    let config = option(words, &["-c", "--config"]).map_or_else(|| CONFIG.into(), PathBuf::from);
    let socket = option(words, &["--socket"]).map(PathBuf::from);
    let daemon = Daemon::new(config.clone(), socket);
    let names = match health::answer(&daemon, Request::Status { caches: false }) {
        Ok(Answer::Status(status)) => of_daemon(kind, &status),
        _ => of_file(kind, &config),
    };
    for name in names.iter().filter(|name| is_plain(name)) {
        println!("{name}");
    }
    ExitCode::SUCCESS
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pools,
    ApplicationPools,
    Both,
    Applications,
    /// Application processes.
    Instances,
    Errors,
    /// Workers with a request.
    Busy,
}

/// Returns the kind of the next word; `None` if it has no completions.
fn kind(words: &[String]) -> Option<Kind> {
    let last = words.last()?.as_str();
    if ["--pool", "--to"].contains(&last) {
        return Some(Kind::Pools);
    }
    // An option's value.
    if [
        "-c",
        "--config",
        "--socket",
        "--sort",
        "--wait",
        "--deadline",
        "--since",
    ]
    .contains(&last)
    {
        return None;
    }
    let mut given = Vec::new();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "-c" | "--config" | "--socket" | "--sort" | "--deadline" | "--to" | "--since" => _ = words.next(),
            _ if word.starts_with('-') => {}
            _ => given.push(word),
        }
    }
    match given.as_slice() {
        ["status" | "logs" | "advise", ..]
        | ["routes" | "events" | "opcache" | "deploy" | "rollback" | "releases"]
        | ["pool", "remove"]
        | ["crashes"] => Some(Kind::Pools),
        ["resize"] => Some(Kind::ApplicationPools),
        ["restart"] => Some(Kind::Both),
        ["take"] => Some(Kind::Applications),
        ["detach" | "disable" | "enable"] => Some(Kind::Instances),
        ["error" | "replay"] => Some(Kind::Errors),
        ["terminate"] => Some(Kind::Busy),
        _ => None,
    }
}

fn option<'w>(words: &'w [String], names: &[&str]) -> Option<&'w str> {
    let at = words.iter().position(|word| names.contains(&word.as_str()));
    match at {
        Some(at) => words.get(at + 1).map(String::as_str),
        None => words.iter().find_map(|word| {
            names
                .iter()
                .find_map(|name| word.strip_prefix(name)?.strip_prefix('='))
        }),
    }
}

fn of_daemon(kind: Kind, status: &Status) -> Vec<String> {
    let named = |pool: &PoolStatus| pool.name.clone();
    let pools = status.pools.iter();
    match kind {
        Kind::Pools => pools.map(named).collect(),
        Kind::ApplicationPools => pools
            .filter(|pool| pool.applications.is_some())
            .map(named)
            .collect(),
        Kind::Both => pools
            .filter(|pool| pool.applications.is_none())
            .map(named)
            .chain(applications(status).filter_map(root))
            .collect(),
        Kind::Applications => applications(status).filter_map(root).collect(),
        Kind::Instances => applications(status)
            .filter_map(|application| application["instances"].as_array())
            .flatten()
            .filter_map(|instance| instance["pid"].as_i64())
            .map(|pid| pid.to_string())
            .collect(),
        Kind::Busy => pools
            .flat_map(|pool| &pool.generations)
            .flat_map(|generation| &generation.workers)
            .filter(|worker| worker.stage != "Idle")
            .filter_map(|worker| Some(worker.pid?.to_string()))
            .collect(),
        Kind::Errors => pools
            .flat_map(|pool| {
                let own = pool.last_error.iter().map(|error| error.id.clone());
                let others = pool.applications.iter().flat_map(|it| &it.errors);
                own.chain(others.map(|error| error.id.clone()))
            })
            .collect(),
    }
}

/// Returns an application's directory in the daemon's form. A link to the release in service stays; others are resolved.
pub(super) fn directory(daemon: &Daemon, path: &Path) -> PathBuf {
    release_link(daemon, path).unwrap_or_else(|| real(path))
}

/// Returns the path with its links resolved.
pub(super) fn real(path: &Path) -> PathBuf {
    // The path stays if the user may not resolve it.
    path.canonicalize()
        .or_else(|_| std::path::absolute(path))
        .unwrap_or_else(|_| path.to_owned())
}

/// Returns the link that the daemon knows at this path.
fn release_link(daemon: &Daemon, path: &Path) -> Option<PathBuf> {
    // A slash at the end would lead to the link's target.
    let path: PathBuf = std::path::absolute(path).ok()?.components().collect();
    if !path.is_symlink() {
        return None;
    }
    let place = |link: &Path| Some((real(link.parent()?), link.file_name()?.to_owned()));
    let wanted = place(&path)?;
    let Ok(Answer::Releases { releases }) = answer(daemon, &Request::Releases { pool: None }) else {
        return None;
    };
    let mut links = releases.into_iter().map(|application| application.link);
    links.find(|link| link.file_name() == Some(&wanted.1) && place(link).as_ref() == Some(&wanted))
}

fn applications(status: &Status) -> impl Iterator<Item = &Value> {
    status.pools.iter().flat_map(listed)
}

fn listed(pool: &PoolStatus) -> impl Iterator<Item = &Value> {
    let view = pool.applications.as_ref().and_then(|it| it.view.as_ref());
    let listed = view.and_then(|view| view["applications"].as_array());
    listed.into_iter().flatten()
}

pub(super) fn roots(pool: &PoolStatus) -> impl Iterator<Item = String> {
    listed(pool).filter_map(root)
}

fn root(application: &Value) -> Option<String> {
    application["name"].as_str().map(str::to_owned)
}

/// Reads the names from the configuration.
fn of_file(kind: Kind, file: &Path) -> Vec<String> {
    let Ok(loaded) = config::load(file) else {
        return Vec::new();
    };
    let pools = loaded.config.pools.iter();
    let wanted = pools.filter(|pool| match kind {
        Kind::Pools => true,
        Kind::ApplicationPools => pool.applications.is_some(),
        Kind::Both => pool.applications.is_none(),
        Kind::Applications | Kind::Instances | Kind::Errors | Kind::Busy => false,
    });
    wanted.map(|pool| pool.name.clone()).collect()
}

/// Whether no shell interprets the name: users choose the names of application directories.
fn is_plain(name: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@,".contains(c);
    !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_next_word_is_a_name_where_the_command_takes_one() {
        for (line, expected) in [
            ("status", Some(Kind::Pools)),
            ("status www", Some(Kind::Pools)),
            ("status --socket", None),
            ("status --socket /x --json", Some(Kind::Pools)),
            ("restart", Some(Kind::Both)),
            ("restart www", None),
            ("pool", None),
            ("pool remove", Some(Kind::Pools)),
            ("health --ready --pool", Some(Kind::Pools)),
            ("crashes", Some(Kind::Pools)),
            ("replay", Some(Kind::Errors)),
            ("replay ab --to", Some(Kind::Pools)),
            ("replay --to www", Some(Kind::Errors)),
            ("health --ready", None),
            ("resize", Some(Kind::ApplicationPools)),
            ("resize sites", None),
            ("reload", None),
            ("", None),
        ] {
            assert_eq!(kind(&words(line)), expected, "{line}");
        }
    }

    #[test]
    fn options_are_found_in_both_forms() {
        assert_eq!(option(&words("status -c /a"), &["-c", "--config"]), Some("/a"));
        assert_eq!(option(&words("status --socket=/b"), &["--socket"]), Some("/b"));
        assert_eq!(option(&words("status"), &["--socket"]), None);
    }

    #[test]
    fn a_name_that_a_shell_would_carry_out_is_left_out() {
        assert!(is_plain("/srv/shop-1.example.org") && is_plain("www"));
        for name in ["/srv/$(id)", "a b", "a;b", "`id`", "-x", "", "a\nb", "a'b", "~x"] {
            assert!(!is_plain(name), "{name}");
        }
    }
}
