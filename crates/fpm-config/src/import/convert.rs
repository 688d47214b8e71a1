//! Directives without an exact TOML equivalent.

use super::is_unix;
use forkyard_config::php_fpm::FpmSetting;
use forkyard_config::settings;
use forkyard_config::{Address, Pool, ProcessManager};
use toml_edit::{Array, Value};

#[derive(Debug)]
pub(super) enum Converted {
    /// No key needed.
    Nothing,
    /// Not convertible: the reason and the fix.
    Lost(String),
    /// Key, value, and the parts of the value that were lost.
    Key(String, Value, Vec<String>),
}

/// php-fpm's default is written if forkyard's differs.
pub(super) fn global(said: &FpmSetting) -> Converted {
    let value = said.value.as_ref();
    let is_default = match said.name {
        "" | "pid" => false,
        "error_log" => !value
            .and_then(Value::as_str)
            .is_some_and(|path| path.starts_with('/')),
        "daemonize" => value.and_then(Value::as_bool) == Some(false),
        _ => true,
    };
    if is_default && said.location.is_none() {
        return Converted::Nothing;
    }
    plain(said)
}

/// `pool`: the resolved pool; `has_more`: `listen` becomes a table.
pub(super) fn pool(said: &FpmSetting, pool: &Pool, has_more: bool) -> Converted {
    if said.location.is_none() && !said.name.is_empty() {
        return Converted::Nothing;
    }
    let lost = |reason: &str| Converted::Lost(reason.to_owned());
    let listen = &pool.listen;
    // The status address shares the pool socket's attributes.
    let status = pool.pages.status_listen.as_ref().map(|status| &status.address);
    let all = || std::iter::once(&listen.address).chain(status);
    let is_tcp = all().any(|address| !is_unix(address));
    let is_unix = all().any(is_unix);
    let text = said.value.as_ref().and_then(Value::as_str).unwrap_or_default();
    match said.name {
        "prefix" => Converted::Nothing,
        "listen" => {
            let key = if has_more { "listen.address" } else { "listen" };
            Converted::Key(key.to_owned(), address(text, &listen.address).into(), Vec::new())
        }
        "listen.backlog" => plain(said).with(i64::from(listen.backlog.max(-1))),
        "listen.owner" | "listen.group" | "listen.mode" | "listen.acl_users" | "listen.acl_groups"
            if !is_unix =>
        {
            lost("it has no effect on a TCP socket")
        }
        "listen.mode" if listen.mode > 0o777 => {
            plain(said).without("a socket's mode has nine bits; the others are dropped")
        }
        "listen.allowed_clients" if !is_tcp => {
            lost("it has no effect on a unix socket; use listen.owner, group and mode")
        }
        "listen.allowed_clients" => {
            let clients = listen.allowed_clients.iter().map(ToString::to_string);
            plain(said).with(clients.collect::<Array>())
        }
        name if is_for_another_manager(name, &pool.pm) => {
            Converted::Lost(format!("it has no effect with pm = {}", pool.pm.name()))
        }
        "pm.process_idle_timeout" if matches!(pool.pm, ProcessManager::Dynamic { .. }) => {
            lost("php-fpm has no use for it with pm = dynamic; forkyard would")
        }
        "pm.status_path" | "ping.path"
            if text.len() == 1 && (said.name == "ping.path" || pool.pages.status_listen.is_none()) =>
        {
            lost("the path / needs its own address; name another path")
        }
        "ping.path" if pool.pages.ping_path.is_some() && pool.pages.ping_path == pool.pages.status_path => {
            lost("it is the same as the path of the status; give it another one")
        }
        "security.limit_extensions" => extensions(said),
        "access.format" if pool.logs.access.is_none() => Converted::Nothing,
        _ => plain(said),
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

fn plain(said: &FpmSetting) -> Converted {
    if said.key.is_empty() {
        let absent = settings::absence(said.name);
        let reason = absent.map_or("there is nothing like it", |absent| absent.advice);
        return Converted::Lost(reason.to_owned());
    }
    match &said.value {
        Some(value) => {
            let cut = said.cut.into_iter().map(str::to_owned).collect();
            Converted::Key(said.key.clone(), value.clone(), cut)
        }
        None => Converted::Nothing,
    }
}

/// Keeps a host name. Rewrites an address to mean the same here.
fn address(written: &str, address: &Address) -> String {
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

/// Extensions need a dot here.
fn extensions(said: &FpmSetting) -> Converted {
    let words = said
        .value
        .as_ref()
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let words = words.filter_map(Value::as_str);
    let (fine, wrong): (Vec<&str>, Vec<&str>) =
        words.partition(|word| word.len() > 1 && word.starts_with('.') && !word.contains('/'));
    if fine.is_empty() && !wrong.is_empty() {
        return Converted::Lost("an ending begins with a dot, for example \".php\"".to_owned());
    }
    let outcome = plain(said).with(fine.into_iter().collect::<Array>());
    wrong.into_iter().fold(outcome, |outcome, word| {
        outcome.without(&format!("{word} is no ending: it has to begin with a dot"))
    })
}

impl Converted {
    fn with(self, value: impl Into<Value>) -> Converted {
        match self {
            Converted::Key(key, _, lost) => Converted::Key(key, value.into(), lost),
            other => other,
        }
    }

    fn without(mut self, reason: &str) -> Converted {
        if let Converted::Key(_, _, lost) = &mut self {
            lost.push(reason.to_owned());
        }
        self
    }
}
