//! What a pool runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::pool::positive;
use super::{programs, started};
use crate::World;
use crate::application::{Application, Interface, Php, Preloading, RequestSettings, ScriptRoot};
use crate::draft::{
    ApplicationDraft, CgiDraft, FastCgiDraft, HttpDraft, PhpDraft, PoolDraft, PoolText, WrappedDraft,
};
use crate::error::Kind;
use crate::known;
use crate::leaves::{Entry, Field, Leaves};
use crate::php as versions;
use crate::report::Report;
use crate::units::{IniValue, Routing, Text};
use crate::value::quoted;

const RUNTIMES: &[&str] = &[
    "php", "cgi", "fastcgi", "http", "node", "wsgi", "asgi", "rack", "rust",
];
const KINDS: &str =
    "it can be \"php\", \"cgi\", \"fastcgi\", \"http\", \"node\", \"wsgi\", \"asgi\", \"rack\" or \"rust\"";
pub(super) const DEFAULT_PRELOADER_IDLE_TIMEOUT: Duration = Duration::from_secs(300);
const DEFAULT_START_TIMEOUT: Duration = Duration::from_secs(30);
const DEFAULT_WARM_UP: u32 = 100;
/// As many as a preloader names in one answer.
const MOST_WARM_UP: i64 = 1000;
const DEFAULT_WARM_UP_TIME: Duration = Duration::from_secs(5);
/// Of the PHP applications of a pool of many, which may have none.
const WRITE: &str = "[pool.NAME.application] with runtime = \"php\" and version = \"8.2\"";

/// Reads `[pool.NAME.application]`, whose keys depend on its runtime.
pub(super) fn read(draft: &PoolDraft, leaves: &mut Leaves<'_>, report: &mut Report<'_>) -> ApplicationDraft {
    let is_routed = (draft.routing.written()).is_some_and(|written| written.value == Routing::Application);
    if is_routed {
        return for_each(draft, leaves, report);
    }
    let Some(runtime) = draft.runtime.written() else {
        let nothing = draft.runtime.is_absent() && !leaves.contains("application");
        return if nothing {
            ApplicationDraft::Absent
        } else {
            without_runtime(draft, leaves, report)
        };
    };
    match runtime.value.0.as_str() {
        "php" => ApplicationDraft::Php(Box::new(PhpDraft::read(leaves, report))),
        "cgi" => ApplicationDraft::Cgi(Box::new(CgiDraft::read(leaves, report))),
        "fastcgi" => ApplicationDraft::FastCgi(Box::new(FastCgiDraft::read(leaves, report))),
        "http" => ApplicationDraft::Http(Box::new(HttpDraft::read(leaves, report))),
        "node" => ApplicationDraft::Node(Box::new(HttpDraft::read(leaves, report))),
        "wsgi" => wrapped(Interface::Wsgi, leaves, report),
        "asgi" => wrapped(Interface::Asgi, leaves, report),
        "rack" => wrapped(Interface::Rack, leaves, report),
        "rust" => ApplicationDraft::Rust,
        name => {
            let remedy = match known::nearest_word(name, RUNTIMES) {
                Some(nearest) => format!("did you mean \"{nearest}\"?"),
                None => KINDS.to_owned(),
            };
            report.rule(runtime, format!("{} is no known runtime", quoted(name)), remedy);
            ApplicationDraft::Wrong
        }
    }
}

/// What holds for each PHP application of a pool of many. What runs is said by each application's own files.
fn for_each(draft: &PoolDraft, leaves: &mut Leaves<'_>, report: &mut Report<'_>) -> ApplicationDraft {
    if let Some(runtime) = draft.runtime.written().filter(|runtime| runtime.value.0 != "php") {
        let problem = "with routing = \"application\" each application says itself what it is";
        report.rule(
            runtime,
            problem,
            "leave it out, or write \"php\" for what holds for PHP applications",
        );
        return ApplicationDraft::Wrong;
    }
    ApplicationDraft::Php(Box::new(PhpDraft::read(leaves, report)))
}

fn wrapped(interface: Interface, leaves: &mut Leaves<'_>, report: &mut Report<'_>) -> ApplicationDraft {
    ApplicationDraft::Wrapped(interface, Box::new(WrappedDraft::read(leaves, report)))
}

/// There is something under `application`, but not what it is.
fn without_runtime(draft: &PoolDraft, leaves: &mut Leaves<'_>, report: &mut Report<'_>) -> ApplicationDraft {
    if let (true, Some(place)) = (draft.runtime.is_absent(), leaves.first_place("application")) {
        report.missing(&place, "application.runtime", "runtime = \"php\"");
    }
    ApplicationDraft::Wrong
}

pub(super) fn resolve(text: &PoolText, world: &dyn World, report: &mut Report<'_>) -> Option<Application> {
    match &text.application {
        ApplicationDraft::Absent => {
            report.missing(&text.place, "application", WRITE.replace("NAME", &text.name));
            None
        }
        ApplicationDraft::Wrong => None,
        ApplicationDraft::Rust => Some(Application::Rust),
        ApplicationDraft::Wrapped(interface, draft) => {
            programs::wrapped(text, *interface, draft, world, report).map(Application::Wrapped)
        }
        ApplicationDraft::Http(draft) => started::http(text, draft, world, report),
        ApplicationDraft::Node(draft) => started::node(text, draft, world, report).map(Application::Program),
        ApplicationDraft::FastCgi(draft) => {
            programs::fastcgi(text, draft, world, report).map(Application::FastCgi)
        }
        ApplicationDraft::Cgi(draft) => programs::cgi(text, draft, world, report).map(Application::Cgi),
        ApplicationDraft::Php(draft) => php(text, draft, world, report).map(Application::Php),
    }
}

fn php(text: &PoolText, draft: &PhpDraft, world: &dyn World, report: &mut Report<'_>) -> Option<Php> {
    if draft.version.is_absent() && !text.is_routed() {
        report.missing(
            text.runtime_place(),
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
    Some(Php {
        library: file(&draft.library, world, report),
        no_php_ini: false,
        scan_dir: None,
        extended_info: false,
        // A script that starts PHP by it gets PHP. php-fpm names itself, which runs no scripts.
        binary: None,
        defines: Vec::new(),
        php_ini: file(&draft.php_ini, world, report),
        limit_extensions: limit_extensions(draft, report),
        script_root: script_root(&draft.script_root, world, report),
        // The default is not php-fpm's: reaching a socket must not be enough to run code, and what web servers usually
        // send goes through.
        request_settings: draft.request_settings.or(RequestSettings::Harmless),
        php_value: settings(&draft.php_value, &draft.php_flag, report),
        php_admin_value: settings(&draft.php_admin_value, &draft.php_admin_flag, report),
        preloader_idle_timeout: draft.preloader_idle_timeout.or(DEFAULT_PRELOADER_IDLE_TIMEOUT),
        start_timeout: positive(&draft.start_timeout, DEFAULT_START_TIMEOUT, report),
        warm_up: (report.range(&draft.warm_up, 0, MOST_WARM_UP)).unwrap_or(DEFAULT_WARM_UP),
        warm_up_time: positive(&draft.warm_up_time, DEFAULT_WARM_UP_TIME, report),
        preloading: draft.preloader.or(Preloading::Own),
        version: version.or_else(|| {
            let is_left_out = text.is_routed() && draft.version.is_absent();
            is_left_out.then(|| versions::newest().to_owned())
        })?,
    })
}

/// Where scripts may be.
pub(super) fn script_root(
    field: &Field<Text>,
    world: &dyn World,
    report: &mut Report<'_>,
) -> Option<ScriptRoot> {
    let path = file(field, world, report)?;
    let names = Vec::new();
    Some(ScriptRoot { path, names })
}

/// An absolute path of something that is there.
pub(super) fn file(field: &Field<Text>, world: &dyn World, report: &mut Report<'_>) -> Option<PathBuf> {
    let written = field.written()?;
    let text = &written.value.0;
    let path = Path::new(text);
    if report.is_php_fpm() {
        return Some(path.to_owned());
    }
    if !path.is_absolute() {
        report.rule(
            written,
            format!("{} is not an absolute path", quoted(text)),
            "start it with /",
        );
        return None;
    }
    if !world.exists(path) {
        report.rule(
            written,
            format!("{} does not exist", quoted(text)),
            "install it, or give another path",
        );
        return None;
    }
    Some(path.to_owned())
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

/// Values and flags as one list, in the order of the text.
fn settings(
    values: &[Entry<IniValue>],
    flags: &[Entry<IniValue>],
    report: &mut Report<'_>,
) -> Vec<(String, String)> {
    if report.is_php_fpm() {
        let setting = |entry: &Entry<IniValue>| (entry.name.join("."), entry.value.0.clone());
        return values.iter().map(setting).collect();
    }
    let mut settings: Vec<(&Entry<IniValue>, String, String)> = Vec::new();
    for entry in values.iter().chain(flags) {
        let name = entry.name.join(".");
        let value = if entry.table.ends_with("_flag") {
            flag(entry, &name, report)
        } else {
            entry.value.0.clone()
        };
        if name.is_empty() || name.contains(['=', '\0', '\n', '\r', ' ']) {
            let problem = format!("{} can't be the name of a setting", quoted(&name));
            let remedy = "write it as in php.ini".to_owned();
            report.error(&entry.place, entry.table, Kind::Rule { problem, remedy });
            continue;
        }
        if let Some((other, ..)) = settings.iter().find(|(_, other, _)| *other == name) {
            let problem = format!("it is already set at {}", other.place);
            let remedy = "set it once".to_owned();
            report.error(
                &entry.place,
                &format!("{}.{name}", entry.table),
                Kind::Rule { problem, remedy },
            );
            continue;
        }
        settings.push((entry, name, value));
    }
    settings.sort_by_key(|(entry, ..)| (entry.place.line, entry.place.column));
    settings
        .into_iter()
        .map(|(_, name, value)| (name, value))
        .collect()
}

/// A flag's value, however it was written.
fn flag(entry: &Entry<IniValue>, name: &str, report: &mut Report<'_>) -> String {
    match entry.value.0.to_ascii_lowercase().as_str() {
        "1" | "on" | "yes" | "true" => "1".to_owned(),
        "0" | "off" | "no" | "false" | "none" | "" => "0".to_owned(),
        _ => {
            let found = quoted(&entry.value.0);
            let expected = "a flag; write true or false without quotes".to_owned();
            report.error(
                &entry.place,
                &format!("{}.{name}", entry.table),
                Kind::Value { found, expected },
            );
            String::new()
        }
    }
}
