//! A valid php-fpm configuration as the model that the daemon runs.

use super::directives::NO_PRIORITY;
use super::journal::Failed;
use super::parse::{PoolText, Written};
use super::pool_rules::is_tcp;
use super::validate::Context;
use super::values::{Manager, Values};
use crate::access::{DEFAULT_FORMAT, parse_format};
use crate::sharing;
use crate::{
    AccessLog, Address, Application, Config, Confine, CoreLimit, EmergencyRestart, Global, Limits, Listen,
    LogFormat, LogLevel, LogTarget, NOT_ONE_CLIENT, OnError, Php, Pool, Preloading, ProcessManager,
    ReloadWhen, RequestSettings, SlowLog,
};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The word before the colon in process titles.
const TITLE: &str = "php-fpm";
const DEFAULT_MODE: u32 = 0o660;
/// php-fpm cuts off what runs unless it is told to wait; no user relies on that.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(60);
/// What php-fpm has no settings for.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(60);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(75);
const LIMITS: Limits = Limits {
    params_bytes: 1 << 20,
    params_count: 10_000,
};
const PRELOADER_IDLE_TIMEOUT: Duration = Duration::from_secs(300);
const START_TIMEOUT: Duration = Duration::from_secs(30);
const WARM_UP: u32 = 100;
const WARM_UP_TIME: Duration = Duration::from_secs(5);
/// The kernel's maximum, as for any pool that names none.
const STATUS_BACKLOG: i32 = -1;
/// Which php.ini settings a request may bring along; read here and not passed on to PHP.
const REQUEST_SETTINGS: &str = "forkyard.request_settings";
/// Whose preloader makes the pool's workers.
const PRELOADER: &str = "forkyard.preloader";
/// php-fpm's default for `request_slowlog_trace_depth`.
const TRACE_DEPTH: u32 = 20;
/// After how long a surplus worker of a dynamic pool ends.
const SURPLUS_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn resolve(written: &Written, path: &str, context: &mut Context<'_>) -> Result<Config, Failed> {
    let mut pools = Vec::new();
    for text in &written.pools {
        pools.push(pool(text, context)?);
    }
    let all: Vec<&Pool> = pools.iter().collect();
    if let Some(conflict) = sharing::conflicts(&all).into_iter().next() {
        let name = &pools[conflict.pools[0]].name;
        let text = format!("[pool {name}] {PRELOADER}: {}", conflict.problem);
        return Err(context.journal.error(text));
    }
    Ok(Config {
        path: PathBuf::from(path),
        global: global(&written.global, context),
        pools,
        skipped: Vec::new(),
        included: BTreeMap::new(),
    })
}

fn global(values: &Values, context: &mut Context<'_>) -> Global {
    let log = values.text("error_log").unwrap_or_default();
    let is_shown = context.options.log_to_stderr && !values.flag("daemonize");
    let error_log = if is_shown {
        LogTarget::Stderr
    } else if log.eq_ignore_ascii_case("syslog") {
        LogTarget::Syslog {
            ident: values.text("syslog.ident").unwrap_or_default().to_owned(),
            facility: u8::try_from(values.facility() >> 3).unwrap_or(0),
        }
    } else {
        LogTarget::File(PathBuf::from(log))
    };
    if values.is_written("process.priority") && !context.machine.is_root() {
        let text = "'process.priority' directive is ignored when FPM is not running as root";
        context.journal.notice(text);
    }
    Global {
        pid: values.full("pid").map(PathBuf::from),
        error_log,
        log_level: values.level().unwrap_or(LogLevel::Notice),
        log_format: LogFormat::Text,
        log_limit: usize::try_from(values.number("log_limit")).unwrap_or(0),
        systemd_interval: Some(seconds(values, "systemd_interval")).filter(|interval| !interval.is_zero()),
        process_max: positive(values, "process.max"),
        emergency_restart: emergency_restart(values),
        process_priority: priority(values, context),
        process_control_timeout: if values.is_written("process_control_timeout") {
            seconds(values, "process_control_timeout")
        } else {
            CONTROL_TIMEOUT
        },
        daemonize: values.flag("daemonize"),
        rlimit_files: positive(values, "rlimit_files").map(u64::from),
        rlimit_core: core(values),
        on_error: OnError::Fail,
        control: None,
    }
}

fn pool(text: &PoolText, context: &mut Context<'_>) -> Result<Pool, Failed> {
    let values = &text.values;
    let own = |name: &str| values.full(name).map(str::to_owned);
    let is_root = context.machine.is_root();
    let listen = listen(text, context)?;
    let env = reversed(values.list("env"))
        .map(|(name, value)| {
            let value = match value.strip_prefix('$') {
                Some(source) => context.machine.env(source).unwrap_or_default(),
                None => value,
            };
            (name, value)
        })
        .collect();
    Ok(Pool {
        name: text.name.clone(),
        title: TITLE.to_owned(),
        listen: listen.clone(),
        user: own("user").filter(|_| is_root),
        group: own("group").filter(|_| is_root),
        pm: manager(values),
        max_requests: positive(values, "pm.max_requests").map(u64::from),
        request_terminate_timeout: Some(seconds(values, "request_terminate_timeout"))
            .filter(|timeout| !timeout.is_zero()),
        request_terminate_timeout_track_finished: values.flag("request_terminate_timeout_track_finished"),
        slow_log: slow_log(values),
        client_timeout: CLIENT_TIMEOUT,
        keepalive_timeout: KEEPALIVE_TIMEOUT,
        limits: LIMITS,
        chdir: values.full("chdir").map(PathBuf::from),
        chroot: values.full("chroot").map(PathBuf::from).filter(|_| is_root),
        clear_env: values.flag("clear_env"),
        env,
        own_env: Vec::new(),
        origin: None,
        rlimit_files: positive(values, "rlimit_files").map(u64::from),
        rlimit_core: core(values),
        process_priority: priority(values, context),
        process_dumpable: values.flag("process.dumpable"),
        no_new_privs: false,
        confine: Confine {
            apparmor_hat: own("apparmor_hat"),
            ..Confine::default()
        },
        status_path: own("pm.status_path"),
        status_listen: status_listen(values, &listen, context)?,
        ping_path: own("ping.path"),
        ping_response: own("ping.response").unwrap_or_else(|| "pong".to_owned()),
        catch_workers_output: values.flag("catch_workers_output"),
        decorate_workers_output: values.flag("decorate_workers_output"),
        friendly_error_pages: false,
        // Users of php-fpm rely on a fresh OPcache after a reload.
        reload: ReloadWhen::Always,
        access: access(values),
        application: Application::Php(php(text, context)?),
        applications: None,
    })
}

/// The format was checked when the file was read.
fn access(values: &Values) -> Option<AccessLog> {
    let format = values.text("access.format").unwrap_or(DEFAULT_FORMAT);
    values.full("access.log").map(|path| AccessLog {
        path: PathBuf::from(path),
        format: parse_format(format).unwrap_or_default(),
        suppress_paths: values
            .list("access.suppress_path")
            .iter()
            .map(|(_, path)| path.clone())
            .collect(),
    })
}

/// The first that was written is applied last, and wins.
fn reversed(list: &[(String, String)]) -> impl Iterator<Item = (String, String)> + '_ {
    list.iter().rev().cloned()
}

fn php(text: &PoolText, context: &mut Context<'_>) -> Result<Php, Failed> {
    let values = &text.values;
    let request_settings = request_settings(text, context)?;
    let preloading = preloading(text, context)?;
    let is_for_php = |(name, _): &(String, String)| !is_ours(name);
    let options = context.options;
    let endings = values.text("security.limit_extensions").unwrap_or_default();
    Ok(Php {
        version: context.options.version().to_owned(),
        library: None,
        php_ini: options.php_ini.clone(),
        no_php_ini: options.no_php_ini,
        scan_dir: options.scan_dir.clone(),
        extended_info: options.extended_info,
        binary: options.executable.clone(),
        defines: options
            .defines
            .iter()
            .filter(|define| is_for_php(define))
            .cloned()
            .collect(),
        script_root: None,
        limit_extensions: endings
            .split([' ', '\t'])
            .filter(|e| !e.is_empty())
            .map(str::to_owned)
            .collect(),
        php_value: reversed(values.list("php_value")).collect(),
        request_settings,
        php_admin_value: reversed(values.list("php_admin_value"))
            .filter(is_for_php)
            .collect(),
        preloader_idle_timeout: PRELOADER_IDLE_TIMEOUT,
        start_timeout: START_TIMEOUT,
        warm_up: WARM_UP,
        warm_up_time: WARM_UP_TIME,
        preloading,
    })
}

/// The pool's `php_admin_value[forkyard.request_settings]`, else `-d forkyard.request_settings`, else php-fpm's way. It is
/// no directive, so that php-fpm can use the same file.
fn request_settings(text: &PoolText, context: &mut Context<'_>) -> Result<RequestSettings, Failed> {
    let Some(value) = of_ours(REQUEST_SETTINGS, text, context) else {
        return Ok(RequestSettings::All);
    };
    if let Some(rule) = RequestSettings::from_word(&value) {
        return Ok(rule);
    }
    let names: Vec<String> = value
        .split([',', ' '])
        .filter(|n| !n.is_empty())
        .map(str::to_owned)
        .collect();
    if names.is_empty() {
        let name = &text.name;
        let text = format!(
            "[pool {name}] {REQUEST_SETTINGS}: write all, harmless, none, or names with commas between them"
        );
        return Err(context.journal.error(text));
    }
    Ok(RequestSettings::Only(names))
}

/// The pool's `php_admin_value[forkyard.preloader]`, else `-d forkyard.preloader`, else a preloader of its own.
fn preloading(text: &PoolText, context: &mut Context<'_>) -> Result<Preloading, Failed> {
    let Some(word) = of_ours(PRELOADER, text, context) else {
        return Ok(Preloading::Own);
    };
    Preloading::from_word(&word).ok_or_else(|| {
        let name = &text.name;
        let text = format!("[pool {name}] {PRELOADER}: write own, shared, or shared:NAME");
        context.journal.error(text)
    })
}

/// One of the settings that php-fpm does not know: the pool's, else the option's.
fn of_ours(wanted: &str, text: &PoolText, context: &Context<'_>) -> Option<String> {
    let find = |list: &[(String, String)]| {
        let found = list.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.trim_matches('"').to_owned())
    };
    find(text.values.list("php_admin_value")).or_else(|| find(&context.options.defines))
}

/// Whether a name among php.ini's settings is forkyard's.
pub(crate) fn is_ours(name: &str) -> bool {
    name == REQUEST_SETTINGS || name == PRELOADER
}

fn seconds(values: &Values, name: &str) -> Duration {
    Duration::from_secs(u64::try_from(values.number(name)).unwrap_or(0))
}

fn slow_log(values: &Values) -> Option<SlowLog> {
    let timeout = seconds(values, "request_slowlog_timeout");
    let path = values.full("slowlog").filter(|_| !timeout.is_zero())?;
    Some(SlowLog {
        path: PathBuf::from(path),
        timeout,
        trace_depth: positive(values, "request_slowlog_trace_depth").unwrap_or(TRACE_DEPTH),
    })
}

fn emergency_restart(values: &Values) -> Option<EmergencyRestart> {
    let interval = seconds(values, "emergency_restart_interval");
    Some(EmergencyRestart {
        threshold: positive(values, "emergency_restart_threshold")?,
        interval,
    })
    .filter(|_| !interval.is_zero())
}

fn positive(values: &Values, name: &str) -> Option<u32> {
    u32::try_from(values.number(name))
        .ok()
        .filter(|number| *number > 0)
}

fn core(values: &Values) -> Option<CoreLimit> {
    match values.number("rlimit_core") {
        0 => None,
        limit => Some(u64::try_from(limit).map_or(CoreLimit::Unlimited, CoreLimit::Bytes)),
    }
}

fn priority(values: &Values, context: &Context<'_>) -> Option<i32> {
    let number = values.number("process.priority");
    (number != NO_PRIORITY && context.machine.is_root()).then_some(number)
}

fn manager(values: &Values) -> ProcessManager {
    let number = |name| positive(values, name).unwrap_or(1);
    let max_children = number("pm.max_children");
    match values.manager() {
        Some(Manager::Dynamic) => ProcessManager::Dynamic {
            max_children,
            start_servers: number("pm.start_servers"),
            min_spare_servers: number("pm.min_spare_servers"),
            max_spare_servers: number("pm.max_spare_servers"),
            max_spawn_rate: number("pm.max_spawn_rate"),
            process_idle_timeout: SURPLUS_IDLE_TIMEOUT,
        },
        Some(Manager::Ondemand) => ProcessManager::Ondemand {
            max_children,
            process_idle_timeout: seconds(values, "pm.process_idle_timeout"),
        },
        Some(Manager::Static) | None => ProcessManager::Static { max_children },
    }
}

fn listen(text: &PoolText, context: &mut Context<'_>) -> Result<Listen, Failed> {
    let values = &text.values;
    let own = |name: &str| values.full(name).map(str::to_owned);
    let mode = values.full("listen.mode");
    let acl_users = comma_list(values, "listen.acl_users");
    let acl_groups = comma_list(values, "listen.acl_groups");
    if (!acl_users.is_empty() || !acl_groups.is_empty()) && !is_tcp(values.text("listen").unwrap_or_default())
    {
        for name in ["listen.owner", "listen.group"] {
            if let Some(value) = values.full(name) {
                let text = format!("[pool {}] ACL set, {name} = '{value}' is ignored", text.name);
                context.journal.warn(text);
            }
        }
    }
    let (allowed_clients, wrong_clients) = allowed_clients(values);
    let listen = Listen {
        address: address(values.text("listen").unwrap_or_default(), context)?,
        backlog: values.number("listen.backlog"),
        owner: own("listen.owner"),
        group: own("listen.group"),
        mode: mode.map_or(DEFAULT_MODE, octal),
        allowed_clients,
        wrong_clients,
        acl_users,
        acl_groups,
    };
    // php-fpm's workers say so, to their standard error. Where that is not caught, the log has it from here.
    if !matches!(listen.address, Address::Unix(_)) && !values.flag("catch_workers_output") {
        for complaint in listen.client_complaints() {
            context.journal.error(format!("[pool {}] {complaint}", text.name));
        }
    }
    Ok(listen)
}

/// The address of the status alone, with the pool's owner, mode and allowed clients, and a backlog of its own.
fn status_listen(
    values: &Values,
    pool: &Listen,
    context: &mut Context<'_>,
) -> Result<Option<Listen>, Failed> {
    let Some(text) = values.full("pm.status_listen") else {
        return Ok(None);
    };
    Ok(Some(Listen {
        address: address(text, context)?,
        backlog: STATUS_BACKLOG,
        ..pool.clone()
    }))
}

fn comma_list(values: &Values, name: &str) -> Vec<String> {
    let list = values.full(name).unwrap_or_default().split(',');
    list.filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// The octal digits at the start of a text, as strtoul(3) reads them.
fn octal(text: &str) -> u32 {
    let digits = text.bytes().take_while(|byte| (b'0'..=b'7').contains(byte));
    digits.fold(0, |mode: u32, digit| {
        mode.wrapping_mul(8).wrapping_add(u32::from(digit - b'0')) & 0o7777
    })
}

fn address(text: &str, context: &mut Context<'_>) -> Result<Address, Failed> {
    if !is_tcp(text) {
        return Ok(Address::Unix(PathBuf::from(text)));
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let Some(port) = port.parse::<u16>().ok().filter(|port| *port > 0) else {
        return Err(context.journal.error(format!("invalid port value '{port}'")));
    };
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    if host.is_empty() {
        return Ok(Address::TcpAny(port));
    }
    let found = match host.parse::<IpAddr>() {
        Ok(address) => vec![(address, port).into()],
        Err(_) => match context.machine.resolve(host, port) {
            Ok(found) => found,
            Err(reason) => {
                return Err(context
                    .journal
                    .error(format!("getaddrinfo: {reason}{}", context.options.line_end())));
            }
        },
    };
    let Some((first, others)) = found.split_first() else {
        return Err(context.journal.error(format!("cannot resolve hostname '{host}'")));
    };
    for other in others.iter().filter(|other| *other != first) {
        let text = format!("Found multiple addresses for {host}, {} ignored", other.ip());
        context.journal.warn(text);
    }
    Ok(Address::Tcp(*first))
}

/// The addresses of a list, and what in it is none.
fn allowed_clients(values: &Values) -> (Vec<IpAddr>, Vec<String>) {
    let Some(list) = values.full("listen.allowed_clients") else {
        return (Vec::new(), Vec::new());
    };
    let (mut clients, mut wrong) = (Vec::new(), Vec::new());
    for item in list.split(',').filter(|item| !item.is_empty()) {
        match item.parse() {
            Ok(address) => clients.push(address),
            Err(_) => wrong.push(item.to_owned()),
        }
    }
    if clients.is_empty() {
        clients.push(NOT_ONE_CLIENT);
    }
    (clients, wrong)
}
