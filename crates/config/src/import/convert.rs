//! What each directive of php-fpm becomes. Most become the key that the table of settings names, with the value as it
//! is; the others are named here.

use super::is_unix;
use crate::application::RequestSettings;
use crate::fpm::directives::Directive;
use crate::fpm::{Plain, is_ours};
use crate::model::{Address, Pool, ProcessManager};
use crate::settings::{self, Section};
use toml_edit::{Array, Value};

/// The longest duration that the TOML takes, seconds.
const LONGEST: i32 = 3650 * 86_400;
/// A priority that is not set.
const NO_PRIORITY: i32 = 64;

/// What comes of a directive.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    /// What it says is so without a key.
    Nothing,
    /// It can't be said; why, and what to do.
    Lost(String),
    /// A key, and what of the value could not be taken over.
    Key {
        path: String,
        value: Value,
        lost: Vec<String>,
    },
    /// Entries of a table of free names, and those that could not be taken over, with the reason.
    Entries {
        path: String,
        entries: Vec<(String, String)>,
        lost: Vec<(String, String)>,
    },
}

/// A directive of the global section. One that is not written may still have to be said, because the TOML's default is
/// another.
pub(super) fn global(directive: &Directive, value: &Plain, is_written: bool) -> Outcome {
    match (directive.name, value) {
        ("pid", Plain::Text(path)) if !path.is_empty() => key(directive, true, path.as_str()),
        ("error_log", Plain::Text(path)) if path.starts_with('/') => key(directive, true, path.as_str()),
        ("daemonize", Plain::Flag(true)) => key(directive, true, true),
        _ if !is_written => Outcome::Nothing,
        _ => plain(directive, true, value),
    }
}

/// A directive that is written in a pool. `pool` is what the whole pool means; `has_more`: `listen` becomes a table.
pub(super) fn pool(directive: &Directive, value: &Plain, pool: &Pool, has_more: bool) -> Outcome {
    let listen = &pool.listen;
    // The address of the status has what the pool's own has.
    let status = pool.status_listen.as_ref().map(|status| &status.address);
    let all = || std::iter::once(&listen.address).chain(status);
    let is_tcp = all().any(|address| !is_unix(address));
    let is_unix = all().any(is_unix);
    match directive.name {
        // It is in the paths.
        "prefix" => Outcome::Nothing,
        "listen" => {
            let outcome = key(directive, false, address(value, &listen.address));
            if has_more {
                outcome.renamed("listen.address")
            } else {
                outcome
            }
        }
        "listen.backlog" => key(directive, false, i64::from(listen.backlog.max(-1))),
        "listen.owner" | "listen.group" | "listen.mode" if !is_unix => {
            Outcome::Lost("it has no effect on a TCP socket".to_owned())
        }
        "listen.mode" => mode(directive, listen.mode),
        "listen.allowed_clients" if !is_tcp => {
            Outcome::Lost("it has no effect on a unix socket; use listen.owner, group and mode".to_owned())
        }
        "listen.allowed_clients" => {
            let clients = listen.allowed_clients.iter().map(ToString::to_string);
            key(directive, false, clients.collect::<Array>())
        }
        "listen.acl_users" | "listen.acl_groups" if !is_unix => {
            Outcome::Lost("it has no effect on a TCP socket".to_owned())
        }
        "listen.acl_users" => key(directive, false, listen.acl_users.iter().collect::<Array>()),
        "listen.acl_groups" => key(directive, false, listen.acl_groups.iter().collect::<Array>()),
        name if is_for_another_manager(name, &pool.pm) => {
            Outcome::Lost(format!("it has no effect with pm = {}", pool.pm.name()))
        }
        "pm.process_idle_timeout" if matches!(pool.pm, ProcessManager::Dynamic { .. }) => {
            Outcome::Lost("php-fpm has no use for it with pm = dynamic; forkyard would".to_owned())
        }
        "pm.status_path" | "ping.path"
            if matches!(value, Plain::Text(path) if path.len() == 1)
                && (directive.name == "ping.path" || pool.status_listen.is_none()) =>
        {
            Outcome::Lost("the path / is for an address of its own; name another path".to_owned())
        }
        "ping.path" if pool.ping_path.is_some() && pool.ping_path == pool.status_path => {
            Outcome::Lost("it is the same as the path of the status; give it another one".to_owned())
        }
        "ping.response" if pool.ping_path.is_none() => Outcome::Nothing,
        "security.limit_extensions" => extensions(directive, value),
        "access.format" if pool.access.is_none() => Outcome::Nothing,
        "access.suppress_path" => match value {
            Plain::List(list) if !list.is_empty() => {
                let paths = list.iter().map(|(_, path)| path.as_str());
                key(directive, false, paths.collect::<Array>())
            }
            _ => Outcome::Nothing,
        },
        _ => plain(directive, false, value),
    }
}

fn is_for_another_manager(name: &str, pm: &ProcessManager) -> bool {
    let spare = [
        "pm.start_servers",
        "pm.min_spare_servers",
        "pm.max_spare_servers",
        "pm.max_spawn_rate",
    ];
    match pm {
        ProcessManager::Static { .. } => spare.contains(&name) || name == "pm.process_idle_timeout",
        ProcessManager::Ondemand { .. } => spare.contains(&name),
        ProcessManager::Dynamic { .. } | ProcessManager::Ordered { .. } => false,
    }
}

/// A value as it is, under the directive's own key.
fn plain(directive: &Directive, is_global: bool, value: &Plain) -> Outcome {
    if settings::of_directive(directive.name, is_global).is_none() {
        let absent = settings::absence(directive.name);
        let reason = absent.map_or("there is nothing like it", |absent| absent.advice);
        return Outcome::Lost(reason.to_owned());
    }
    // What php-fpm takes for "as it is".
    let is_unset = |number: i32| match directive.name {
        "process.priority" => number == NO_PRIORITY,
        "pm.start_servers" => false,
        _ => number <= 0,
    };
    match value {
        Plain::Unset => Outcome::Nothing,
        Plain::Text(text) if text.is_empty() => Outcome::Nothing,
        Plain::Text(text) if text.eq_ignore_ascii_case("syslog") && directive.name == "error_log" => {
            key(directive, is_global, "syslog")
        }
        Plain::Text(text) => key(directive, is_global, text.as_str()),
        Plain::Flag(flag) => key(directive, is_global, *flag),
        Plain::Number(number) if is_unset(*number) => Outcome::Nothing,
        Plain::Number(number) => key(directive, is_global, i64::from(*number)),
        Plain::Unlimited => key(directive, is_global, "unlimited"),
        Plain::Seconds(seconds) => duration(directive, is_global, *seconds),
        Plain::List(list) => entries(directive, list),
    }
}

fn duration(directive: &Directive, is_global: bool, seconds: i32) -> Outcome {
    let seconds = seconds.max(0);
    if seconds > LONGEST {
        return key(directive, is_global, "3650d").with_loss("it is cut to the longest time, ten years");
    }
    let text = match seconds {
        seconds if seconds % 86_400 == 0 && seconds > 0 => format!("{}d", seconds / 86_400),
        seconds if seconds % 3600 == 0 && seconds > 0 => format!("{}h", seconds / 3600),
        seconds if seconds % 60 == 0 && seconds > 0 => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    };
    key(directive, is_global, text)
}

fn mode(directive: &Directive, mode: u32) -> Outcome {
    let outcome = key(directive, false, format!("{:04o}", mode & 0o777));
    if mode > 0o777 {
        outcome.with_loss("a socket's mode has nine bits; the others are dropped")
    } else {
        outcome
    }
}

/// A host's name stays; an address is written so that both say the same.
fn address(value: &Plain, address: &Address) -> String {
    let written = match value {
        Plain::Text(text) => text.as_str(),
        _ => "",
    };
    match address {
        Address::Unix(path) => path.to_string_lossy().into_owned(),
        Address::TcpAny(port) => port.to_string(),
        Address::Tcp(address) => {
            let host = written.rsplit_once(':').map_or("", |(host, _)| host);
            let is_name = host.contains(|c: char| c.is_ascii_alphabetic()) && !host.contains(':');
            if is_name {
                written.to_owned()
            } else {
                address.to_string()
            }
        }
    }
}

/// Endings need a dot here.
fn extensions(directive: &Directive, value: &Plain) -> Outcome {
    let Plain::Text(text) = value else {
        return Outcome::Nothing;
    };
    let words = text.split([' ', '\t']).filter(|word| !word.is_empty());
    let (fine, wrong): (Vec<&str>, Vec<&str>) =
        words.partition(|word| word.len() > 1 && word.starts_with('.') && !word.contains('/'));
    if fine.is_empty() && !wrong.is_empty() {
        return Outcome::Lost("an ending begins with a dot, for example \".php\"".to_owned());
    }
    let mut outcome = key(directive, false, fine.into_iter().collect::<Array>());
    for word in wrong {
        outcome = outcome.with_loss(&format!("{word} is no ending: it has to begin with a dot"));
    }
    outcome
}

/// The first entry of a name wins in php-fpm, and is the only one here. The order is that in which they are applied.
fn entries(directive: &Directive, list: &[(String, String)]) -> Outcome {
    let path = path(directive, false);
    let mut entries: Vec<(String, String)> = Vec::new();
    let mut lost = Vec::new();
    for (name, value) in list {
        let is_known = entries.iter().any(|(known, _)| known == name);
        let problem = match name.as_str() {
            "extension" | "zend_extension" if is_known => "name a second extension in php.ini",
            // It has become a key.
            ours if is_ours(ours) && path != "env" => continue,
            _ if is_known => continue,
            name if name.contains(['=', '\0', '\n', '\r']) || (path != "env" && name.contains(' ')) => {
                "this can't be a name"
            }
            _ => {
                entries.push((name.clone(), value.clone()));
                continue;
            }
        };
        lost.push((name.clone(), problem.to_owned()));
    }
    entries.reverse();
    Outcome::Entries { path, entries, lost }
}

/// The rule for settings that come with requests, which php-fpm has no directive for, with comments.
pub(super) fn request_settings(rule: &RequestSettings) -> (Value, Vec<String>) {
    let word = |word: &str| (Value::from(word), Vec::new());
    match rule {
        RequestSettings::All => {
            let comment = "As in php-fpm. Without this line a request can't have settings that run code; see docs/explain/security.md.";
            (Value::from("all"), vec![comment.to_owned()])
        }
        RequestSettings::Harmless => word("harmless"),
        RequestSettings::None => word("none"),
        RequestSettings::Only(names) => (names.iter().collect::<Array>().into(), Vec::new()),
    }
}

fn path(directive: &Directive, is_global: bool) -> String {
    match settings::of_directive(directive.name, is_global) {
        Some(setting) if setting.section == Section::Php => format!("application.{}", setting.key),
        Some(setting) => setting.key.to_owned(),
        None => directive.name.to_owned(),
    }
}

fn key(directive: &Directive, is_global: bool, value: impl Into<Value>) -> Outcome {
    Outcome::Key {
        path: path(directive, is_global),
        value: value.into(),
        lost: Vec::new(),
    }
}

impl Outcome {
    fn with_loss(mut self, reason: &str) -> Outcome {
        if let Outcome::Key { lost, .. } = &mut self {
            lost.push(reason.to_owned());
        }
        self
    }

    fn renamed(mut self, name: &str) -> Outcome {
        if let Outcome::Key { path, .. } = &mut self {
            name.clone_into(path);
        }
        self
    }
}
