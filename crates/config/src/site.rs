//! Parses an application's own `forkyard.toml` and the equivalent part of `Passengerfile.json`.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use toml::de::DeTable;

use super::error::{Diagnostic, Errors, Kind, Location};
use super::flat_keys::{Field, FlatKeys};
use super::known::{self, Section};
use super::report::{Diagnostics, Report};
use super::source::Source;
use super::units::{self, Flag, Form, Size, Text, Time, Whole};
use super::value::{Parse, quoted};
use crate::application::{Listens, MOST_CONCURRENCY, MOST_THREADS};
use forkyard_protocol::inspector::{Handshake, Settings};
use forkyard_protocol::runtimes::{Kind as Runtime, RUNTIMES};

pub const MOST_BYTES: usize = 64 * 1024;
const MOST_MISTAKES: usize = 20;

const TYPES: [(&str, Runtime); 6] = [
    ("wsgi", Runtime::Wsgi),
    ("python", Runtime::Wsgi),
    ("rack", Runtime::Rack),
    ("ruby", Runtime::Rack),
    ("node", Runtime::Node),
    ("nodejs", Runtime::Node),
];

const MOST: i64 = 1_000_000_000;

/// Parses `forkyard.toml`. `path` is its name in messages.
///
/// # Errors
/// All errors, with place and fix.
pub fn parse(bytes: &[u8], path: &Path) -> Result<Settings, Errors> {
    let mut diagnostics = Diagnostics::at_most(MOST_MISTAKES);
    let settings = match std::str::from_utf8(bytes) {
        Ok(text) => read(&Source::new(path, 0, text), &mut diagnostics),
        Err(error) => {
            let reason = format!("byte {} is not UTF-8", error.valid_up_to() + 1);
            diagnostics.push(whole(path, Kind::Unreadable { reason }));
            None
        }
    };
    match settings {
        Some(settings) if !diagnostics.has_errors() => Ok(settings),
        _ => {
            let has_more = diagnostics.has_more();
            let mut diagnostics = diagnostics.into_sorted();
            if has_more {
                let problem = format!("has more than these {MOST_MISTAKES} mistakes");
                diagnostics.push(whole(path, Kind::rule(problem, "correct these first")));
            }
            Err(Errors { diagnostics })
        }
    }
}

fn whole(path: &Path, kind: Kind) -> Diagnostic {
    Diagnostic::error(Location::of_file(path), kind)
}

/// The keys, for documents.
pub fn keys() -> Vec<&'static str> {
    let source = Source::new(Path::new(""), 0, "");
    let mut flat_keys = FlatKeys::new(DeTable::new(), &source, None);
    settings(&mut flat_keys, &mut Report::plain(&mut Diagnostics::default()));
    flat_keys.known
}

fn read(source: &Source<'_>, diagnostics: &mut Diagnostics) -> Option<Settings> {
    let table = source.parse(diagnostics)?;
    let mut flat_keys = FlatKeys::new(table, source, None);
    let mut report = Report::plain(diagnostics);
    let settings = settings(&mut flat_keys, &mut report);
    flat_keys.finish(Section::Site, &mut report);
    Some(settings)
}

fn settings(flat_keys: &mut FlatKeys<'_>, report: &mut Report<'_>) -> Settings {
    Settings {
        runtime: runtime(&flat_keys.take("runtime", report), report),
        entry: text(&flat_keys.take("entry", report), report),
        start_command: text(&flat_keys.take("start_command", report), report),
        env: env(flat_keys, report),
        max_per_app: number(&flat_keys.take("max_per_app", report), 1, MOST, report),
        min_instances: number(&flat_keys.take("min_instances", report), 0, MOST, report),
        max_requests: number(&flat_keys.take("max_requests", report), 1, MOST, report),
        concurrency: number(
            &flat_keys.take("concurrency", report),
            0,
            MOST_CONCURRENCY.into(),
            report,
        ),
        threads: number(&flat_keys.take("threads", report), 1, MOST_THREADS.into(), report),
        instances: number(&flat_keys.take("instances", report), 1, MOST, report),
        handshake: get::<units::Handshake>("handshake", flat_keys, report).map(where_it_listens),
        preload: get::<units::PreloadRule>("preload", flat_keys, report),
        max_idle_time: time(&flat_keys.take("max_idle_time", report), report),
        max_request_time: time(&flat_keys.take("max_request_time", report), report),
        max_request_queue_size: number(&flat_keys.take("max_request_queue_size", report), 1, MOST, report),
        memory_limit: size(&flat_keys.take("memory_limit", report), report),
        start_timeout: time(&flat_keys.take("start_timeout", report), report),
        rolling_restarts: get::<Flag>("rolling_restarts", flat_keys, report),
        app_log: file(&flat_keys.take("app_log", report), "log/app.log", report),
        env_file: file(&flat_keys.take("env_file", report), ".env", report),
    }
}

fn get<F: Form + Parse>(
    key: &'static str,
    flat_keys: &mut FlatKeys<'_>,
    report: &mut Report<'_>,
) -> Option<F::Value> {
    flat_keys.take::<F>(key, report).get()
}

fn where_it_listens(listens: Listens) -> Handshake {
    match listens {
        Listens::Handshake => Handshake::Spoken,
        Listens::Socket => Handshake::Socket,
        Listens::Port | Listens::Node => Handshake::Usual,
    }
}

fn runtime(field: &Field<Text>, report: &mut Report<'_>) -> Option<Runtime> {
    let written = field.written()?;
    let name = written.value.0.as_str();
    match Runtime::named(name) {
        Some(runtime) if runtime.traits().is_for_many => return Some(runtime),
        Some(runtime) => {
            let remedy = "give the program that embeds forkyard a pool with this runtime";
            let problem = format!("{} needs its own pool", runtime.traits().title);
            report.rule(written, problem, remedy);
        }
        None => {
            let known = RUNTIMES.iter().filter(|runtime| runtime.is_for_many);
            let words: Vec<&str> = known.map(|runtime| runtime.name).collect();
            let remedy = known::suggestion(name, &words, &format!("it can be one of {}", words.join(", ")));
            report.rule(written, format!("{} is no known runtime", quoted(name)), remedy);
        }
    }
    None
}

fn text(field: &Field<Text>, report: &mut Report<'_>) -> Option<String> {
    let written = field.written()?;
    if written.value.0.is_empty() {
        report.rule(written, "is empty", "leave it out");
    }
    Some(written.value.0.clone())
}

fn file(field: &Field<Text>, example: &str, report: &mut Report<'_>) -> Option<String> {
    let written = field.written()?;
    let text = written.value.0.as_str();
    if !is_below(Path::new(text)) {
        let problem = format!("{} is no file below the application's root", quoted(text));
        let remedy = format!("give its path from there, for example {}", quoted(example));
        report.rule(written, problem, remedy);
        return None;
    }
    Some(text.to_owned())
}

/// Whether a relative path stays below its directory.
pub fn is_below(path: &Path) -> bool {
    let is_plain = |component| matches!(component, Component::Normal(_));
    path.file_name().is_some() && path.components().all(is_plain)
}

fn number(field: &Field<Whole>, least: i64, most: i64, report: &mut Report<'_>) -> Option<u32> {
    report.range(field, least, most)
}

/// A timeout. Rejects 0, which would disable the operator's limit.
fn time(field: &Field<Time>, report: &mut Report<'_>) -> Option<Duration> {
    let written = field.written()?;
    if written.value.0.is_zero() {
        report.rule(
            written,
            "is 0, which is no time at all",
            "give a time such as \"30s\", or leave it out",
        );
        return None;
    }
    Some(written.value.0)
}

fn size(field: &Field<Size>, report: &mut Report<'_>) -> Option<u64> {
    let written = field.written()?;
    if written.value.0 == 0 {
        report.rule(
            written,
            "is 0, and every process takes more",
            "give a size such as \"200M\", or leave it out",
        );
        return None;
    }
    Some(written.value.0)
}

fn env(flat_keys: &mut FlatKeys<'_>, report: &mut Report<'_>) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    for entry in flat_keys.take_entries::<Text>("env", report) {
        let name = entry.name.join(".");
        if is_name(&name) {
            env.insert(name, entry.value.0);
        } else {
            let problem = format!("{} can't be the name of a variable", quoted(&name));
            report.rule_entry(&entry, problem, "leave out = and what can't be seen");
        }
    }
    env
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains('=') && !name.chars().any(char::is_control)
}

#[derive(Debug, Default, Deserialize)]
struct Passengerfile {
    app_type: Option<String>,
    startup_file: Option<String>,
    app_start_command: Option<String>,
    #[serde(default)]
    envvars: BTreeMap<String, String>,
    min_instances: Option<u32>,
    max_requests: Option<u32>,
}

#[derive(Debug, thiserror::Error)]
pub enum PassengerfileError {
    #[error("{}:{}:{}: error: not valid JSON", file.display(), error.line(), error.column())]
    Json { file: PathBuf, error: serde_json::Error },
    #[error(
        "{}:{}:{}: error: a value of another type than Passenger documents",
        file.display(),
        error.line(),
        error.column()
    )]
    Type { file: PathBuf, error: serde_json::Error },
    #[error(
        "{}: error: app_type: {} can't be run; it can be one of wsgi, python, rack, ruby, node, nodejs",
        file.display(),
        quoted(name)
    )]
    Runtime { file: PathBuf, name: String },
    #[error("{}: error: envvars: {} can't be the name of a variable", file.display(), quoted(name))]
    Variable { file: PathBuf, name: String },
    #[error("{}: error: a text has NUL in it; leave it out", .0.display())]
    Nul(PathBuf),
}

/// Parses `Passengerfile.json`. Returns `None` if it doesn't name the application's type.
///
/// # Errors
/// The problem, with its line.
pub fn passengerfile(bytes: &[u8], path: &Path) -> Result<Option<Settings>, PassengerfileError> {
    let at = || path.to_owned();
    let file: Passengerfile = serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => PassengerfileError::Type { file: at(), error },
        _ => PassengerfileError::Json { file: at(), error },
    })?;
    let runtime = match (&file.app_start_command, &file.app_type) {
        (Some(_), _) => Some(Runtime::Http),
        (None, Some(name)) => {
            let Some((_, runtime)) = TYPES.iter().find(|(word, _)| word == name) else {
                let name = name.clone();
                return Err(PassengerfileError::Runtime { file: at(), name });
            };
            Some(*runtime)
        }
        (None, None) => None,
    };
    if let Some(name) = file.envvars.keys().find(|name| !is_name(name)) {
        let name = name.clone();
        return Err(PassengerfileError::Variable { file: at(), name });
    }
    let mut texts = file
        .envvars
        .values()
        .chain(&file.startup_file)
        .chain(&file.app_start_command);
    if texts.any(|text| text.contains('\0')) {
        return Err(PassengerfileError::Nul(at()));
    }
    Ok(runtime.map(|runtime| Settings {
        runtime: Some(runtime),
        entry: file.startup_file,
        start_command: file.app_start_command,
        env: file.envvars,
        min_instances: file.min_instances,
        max_requests: file.max_requests.filter(|most| *most > 0),
        ..Settings::default()
    }))
}

pub fn start_script(bytes: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Package {
        scripts: Option<BTreeMap<String, serde_json::Value>>,
    }
    let package: Package = serde_json::from_slice(bytes).ok()?;
    let start = package.scripts?.remove("start")?;
    start
        .as_str()
        .filter(|command| !command.is_empty() && !command.contains('\0'))
        .map(str::to_owned)
}

#[cfg(test)]
#[path = "site_tests.rs"]
mod tests;
