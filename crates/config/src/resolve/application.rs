//! Resolves a pool's application.

use std::path::PathBuf;
use std::time::Duration;

use forkyard_protocol::runtimes::{Kind as Runtime, RUNTIMES};

use super::pool::{absolute, positive};
use super::{programs, started, worker_script};
use crate::application::{
    Application, Interface, OPCACHE_FILE_CACHE, Php, Preloading, RequestSettings, ScriptRoot,
};
use crate::draft::{CgiDraft, FastCgiDraft, HttpDraft, PhpDraft, PoolDraft, PoolText, WrappedDraft};
use crate::error::Kind;
use crate::flat_keys::{Field, FlatKeys, KeyEntry};
use crate::known;
use crate::php as versions;
use crate::report::{Report, WorldReport};
use crate::units::{IniValue, Routing, Text};
use crate::value::quoted;

pub(super) const DEFAULT_PRELOADER_IDLE_TIMEOUT: Duration = Duration::from_secs(300);
const DEFAULT_START_TIMEOUT: Duration = Duration::from_secs(30);
const DEFAULT_WARM_UP: u32 = 100;
const MOST_WARM_UP: i64 = 1000;
const DEFAULT_WARM_UP_TIME: Duration = Duration::from_secs(5);
/// For application pools without a PHP version.
const WRITE: &str = "[pool.NAME.application] with runtime = \"php\" and version = \"8.2\"";

#[derive(Debug)]
pub(crate) enum ApplicationDraft {
    Absent,
    Wrong,
    Php(Box<PhpDraft>),
    Cgi(Box<CgiDraft>),
    Http(Box<HttpDraft>),
    Node(Box<HttpDraft>),
    FastCgi(Box<FastCgiDraft>),
    Wrapped(Interface, Box<WrappedDraft>),
    Rust,
}

fn kinds() -> String {
    let mut names = RUNTIMES.iter().map(|runtime| quoted(runtime.name));
    let last = names.next_back().unwrap_or_default();
    format!("it can be {} or {last}", names.collect::<Vec<_>>().join(", "))
}

/// Reads `[pool.NAME.application]`. The keys depend on the runtime.
pub(super) fn read(
    draft: &PoolDraft,
    flat_keys: &mut FlatKeys<'_>,
    report: &mut Report<'_>,
) -> ApplicationDraft {
    let is_routed = (draft.routing.written()).is_some_and(|written| written.value == Routing::Application);
    if is_routed {
        return for_each(draft, flat_keys, report);
    }
    let Some(runtime) = draft.runtime.written() else {
        if !draft.runtime.is_absent() {
            return ApplicationDraft::Wrong;
        }
        let Some(location) = flat_keys.first_location("application") else {
            return ApplicationDraft::Absent;
        };
        report.missing(&location, "application.runtime", "runtime = \"php\"");
        return ApplicationDraft::Wrong;
    };
    let name = runtime.value.0.as_str();
    let Some(kind) = Runtime::named(name) else {
        let names: Vec<&str> = RUNTIMES.iter().map(|runtime| runtime.name).collect();
        let remedy = known::suggestion(name, &names, &kinds());
        report.rule(runtime, format!("{} is no known runtime", quoted(name)), remedy);
        return ApplicationDraft::Wrong;
    };
    match kind {
        Runtime::Php => ApplicationDraft::Php(Box::new(PhpDraft::read(flat_keys, report))),
        Runtime::Cgi => ApplicationDraft::Cgi(Box::new(CgiDraft::read(flat_keys, report))),
        Runtime::Fastcgi => ApplicationDraft::FastCgi(Box::new(FastCgiDraft::read(flat_keys, report))),
        Runtime::Http => ApplicationDraft::Http(Box::new(HttpDraft::read(flat_keys, report))),
        Runtime::Node => ApplicationDraft::Node(Box::new(HttpDraft::read(flat_keys, report))),
        Runtime::Wsgi => wrapped(Interface::Wsgi, flat_keys, report),
        Runtime::Asgi => wrapped(Interface::Asgi, flat_keys, report),
        Runtime::Rack => wrapped(Interface::Rack, flat_keys, report),
        Runtime::Rust => ApplicationDraft::Rust,
    }
}

/// Reads the settings of all PHP applications in an application pool. Each application's own files determine its runtime.
fn for_each(draft: &PoolDraft, flat_keys: &mut FlatKeys<'_>, report: &mut Report<'_>) -> ApplicationDraft {
    if let Some(runtime) = draft.runtime.written().filter(|runtime| runtime.value.0 != "php") {
        let problem = "with routing = \"application\" each application states its runtime itself";
        report.rule(
            runtime,
            problem,
            "leave it out, or write \"php\" for what holds for PHP applications",
        );
        return ApplicationDraft::Wrong;
    }
    ApplicationDraft::Php(Box::new(PhpDraft::read(flat_keys, report)))
}

fn wrapped(interface: Interface, flat_keys: &mut FlatKeys<'_>, report: &mut Report<'_>) -> ApplicationDraft {
    ApplicationDraft::Wrapped(interface, Box::new(WrappedDraft::read(flat_keys, report)))
}

pub(super) fn resolve(text: &PoolText, report: &mut WorldReport<'_>) -> Option<Application> {
    match &text.application {
        ApplicationDraft::Absent => {
            report.missing(&text.location, "application", WRITE.replace("NAME", &text.name));
            None
        }
        ApplicationDraft::Wrong => None,
        ApplicationDraft::Rust => Some(Application::Rust),
        ApplicationDraft::Wrapped(interface, draft) => {
            programs::wrapped(text, *interface, draft, report).map(Application::Wrapped)
        }
        ApplicationDraft::Http(draft) => started::http(text, draft, report),
        ApplicationDraft::Node(draft) => started::node(text, draft, report).map(Application::Program),
        ApplicationDraft::FastCgi(draft) => programs::fastcgi(text, draft, report).map(Application::FastCgi),
        ApplicationDraft::Cgi(draft) => programs::cgi(text, draft, report).map(Application::Cgi),
        ApplicationDraft::Php(draft) => php(text, draft, report).map(Application::Php),
    }
}

fn php(text: &PoolText, draft: &PhpDraft, report: &mut WorldReport<'_>) -> Option<Php> {
    if draft.version.is_absent() && !text.is_routed() {
        report.missing(
            text.runtime_location(),
            "application.version",
            "version = \"8.2\", or the version that is installed",
        );
    }
    let version = draft.version.written().and_then(|written| {
        let version = &written.value.0;
        if versions::is_version(version) {
            return Some(version.clone());
        }
        let problem = format!("{} is not a PHP version", quoted(version));
        report.rule(
            written,
            problem,
            "write major and minor number, for example \"8.2\"",
        );
        None
    });
    let worker = worker_script::resolve(text, draft, report);
    let boots = !draft.worker.is_absent();
    Some(Php {
        library: file(&draft.library, report),
        no_php_ini: false,
        scan_dir: None,
        extended_info: false,
        // Scripts that start `PHP_BINARY` get a PHP that runs scripts. php-fpm's value is php-fpm itself.
        binary: None,
        defines: Vec::new(),
        php_ini: file(&draft.php_ini, report),
        limit_extensions: limit_extensions(draft, report),
        script_root: script_root(&draft.script_root, report),
        // Stricter than php-fpm: access to the socket must not be enough to run code. Settings that web servers usually
        // send are allowed.
        request_settings: draft.request_settings.or(RequestSettings::Harmless),
        php_value: settings(&draft.php_value, &draft.php_flag, report),
        php_admin_value: settings(&draft.php_admin_value, &draft.php_admin_flag, report),
        preloader_idle_timeout: draft.preloader_idle_timeout.or(DEFAULT_PRELOADER_IDLE_TIMEOUT),
        start_timeout: match boots {
            true => worker_script::boot_timeout(draft, report),
            false => positive(&draft.start_timeout, DEFAULT_START_TIMEOUT, report),
        },
        warm_up: match boots {
            true => 0,
            false => (report.range(&draft.warm_up, 0, MOST_WARM_UP)).unwrap_or(DEFAULT_WARM_UP),
        },
        warm_up_time: positive(&draft.warm_up_time, DEFAULT_WARM_UP_TIME, report),
        preloading: match boots {
            true => Preloading::Own,
            false => draft.preloader.or(Preloading::Own),
        },
        opcache_cache: opcache_cache(text, draft, report),
        worker: worker.map(Box::new),
        version: version.or_else(|| {
            let is_left_out = text.is_routed() && draft.version.is_absent();
            is_left_out.then(|| versions::newest().to_owned())
        })?,
    })
}

/// The directory of compiled scripts. Their paths are as the pool's workers see them.
fn opcache_cache(text: &PoolText, draft: &PhpDraft, report: &mut Report<'_>) -> Option<PathBuf> {
    let written = draft.opcache_cache.written()?;
    let problem = match text.draft.chroot.written() {
        Some(_) => "a pool with chroot can't keep compiled scripts",
        None if is_set(OPCACHE_FILE_CACHE, draft) => "opcache.file_cache is set as well",
        None => return absolute(written, report),
    };
    report.rule(written, problem.to_owned(), "leave out one of the two");
    None
}

fn is_set(name: &str, draft: &PhpDraft) -> bool {
    let mut entries = draft.php_value.iter().chain(&draft.php_admin_value);
    entries.any(|entry| entry.name.join(".") == name)
}

pub(super) fn script_root(field: &Field<Text>, report: &mut WorldReport<'_>) -> Option<ScriptRoot> {
    let path = file(field, report)?;
    let names = Vec::new();
    Some(ScriptRoot { path, names })
}

pub(super) fn file(field: &Field<Text>, report: &mut WorldReport<'_>) -> Option<PathBuf> {
    let written = field.written()?;
    let path = absolute(written, report)?;
    if !report.is_php_fpm() && !report.world.exists(&path) {
        let problem = format!("{} does not exist", quoted(&written.value.0));
        report.rule(written, problem, "install it, or give another path");
        return None;
    }
    Some(path)
}

fn limit_extensions(draft: &PhpDraft, report: &mut Report<'_>) -> Vec<String> {
    let Some(written) = draft.limit_extensions.written() else {
        return vec![".php".to_owned(), ".phar".to_owned()];
    };
    for ending in &written.value.0 {
        if !ending.starts_with('.') || ending.len() < 2 || ending.contains(['/', ' ']) {
            let problem = format!("{} is not an extension", quoted(ending));
            report.rule(written, problem, "write a dot and the name, for example \".php\"");
        }
    }
    written.value.0.clone()
}

fn settings(
    values: &[KeyEntry<IniValue>],
    flags: &[KeyEntry<IniValue>],
    report: &mut Report<'_>,
) -> Vec<(String, String)> {
    if report.is_php_fpm() {
        let setting = |entry: &KeyEntry<IniValue>| (entry.name.join("."), entry.value.0.clone());
        return values.iter().map(setting).collect();
    }
    let mut settings: Vec<(&KeyEntry<IniValue>, String, String)> = Vec::new();
    for entry in values.iter().chain(flags) {
        let name = entry.name.join(".");
        let value = if entry.table.ends_with("_flag") {
            flag(entry, &name, report)
        } else {
            entry.value.0.clone()
        };
        if name.is_empty() || name.contains(['=', '\0', '\n', '\r', ' ']) {
            let problem = format!("{} can't be the name of a setting", quoted(&name));
            report.rule_entry(entry, problem, "write it as in php.ini");
            continue;
        }
        if let Some((other, ..)) = settings.iter().find(|(_, other, _)| *other == name) {
            let problem = format!("it is already set at {}", other.location);
            let key = format!("{}.{name}", entry.table);
            report.error(&entry.location, &key, Kind::rule(problem, "set it once"));
            continue;
        }
        settings.push((entry, name, value));
    }
    settings.sort_by_key(|(entry, ..)| (entry.location.line, entry.location.column));
    settings
        .into_iter()
        .map(|(_, name, value)| (name, value))
        .collect()
}

/// A flag's value in any spelling.
fn flag(entry: &KeyEntry<IniValue>, name: &str, report: &mut Report<'_>) -> String {
    match entry.value.0.to_ascii_lowercase().as_str() {
        "1" | "on" | "yes" | "true" => "1".to_owned(),
        "0" | "off" | "no" | "false" | "none" | "" => "0".to_owned(),
        _ => {
            let found = quoted(&entry.value.0);
            let expected = "a flag; write true or false without quotes".to_owned();
            report.error(
                &entry.location,
                &format!("{}.{name}", entry.table),
                Kind::Value { found, expected },
            );
            String::new()
        }
    }
}
