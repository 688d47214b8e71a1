//! php-fpm's rules of a whole configuration, in order. Also fills in defaults and expands relative paths.

use super::journal::{Failed, Journal};
use super::machine::Machine;
use super::parse::Written;
use super::pool_rules;
use super::values::Value;
use super::{Options, paths};
use forkyard_config::LogLevel;
use forkyard_config::access::{DEFAULT_FORMAT, parse_format};
use std::path::{Path, PathBuf};

/// php-fpm's event mechanisms on Linux, best first.
const MECHANISMS: [&str; 3] = ["epoll", "poll", "select"];

pub(super) struct Context<'c> {
    pub(super) options: &'c Options,
    pub(super) machine: &'c dyn Machine,
    pub(super) journal: &'c mut Journal,
}

impl<'c> Context<'c> {
    pub(super) fn new(
        options: &'c Options,
        machine: &'c dyn Machine,
        journal: &'c mut Journal,
    ) -> Context<'c> {
        Context {
            options,
            machine,
            journal,
        }
    }
}

pub(super) fn validate(written: &mut Written, context: &mut Context<'_>) -> Result<(), Failed> {
    globals(written, context)?;
    if written.pools.is_empty() {
        let text = "No pool defined. at least one pool section must be specified in config file";
        return Err(context.journal.error(text));
    }
    let mechanism = written
        .global
        .text("events.mechanism")
        .unwrap_or_default()
        .to_owned();
    for pool in &mut written.pools {
        pool_rules::check(pool, &mechanism, context)?;
    }
    unique_addresses(written, context)?;
    access_logs(written, context)
}

fn globals(written: &mut Written, context: &mut Context<'_>) -> Result<(), Failed> {
    let Context {
        options,
        machine,
        journal,
    } = context;
    let global = &mut written.global;
    let state = options.prefix.as_deref().unwrap_or(paths::STATE);
    if global.text("pid").is_none() {
        if let Some(pid) = &options.pid {
            global.set_text("pid", pid.clone());
        }
    }
    if let Some(pid) = global.text("pid") {
        let path = paths::under(pid, state);
        global.set_text("pid", path);
    }
    let daemonize = options.daemonize.unwrap_or(global.flag("daemonize"));
    global.set("daemonize", Value::Flag(daemonize));
    journal.set_threshold(global.level().unwrap_or(LogLevel::Notice));
    if let Some(limit) = global.beyond("", "") {
        journal.say(limit.level, limit.words);
        return Err(Failed);
    }
    for (name, default) in [("error_log", "log/php-fpm.log"), ("syslog.ident", "php-fpm")] {
        if global.text(name).is_none() {
            global.set_text(name, default.to_owned());
        }
    }
    let error_log = global.text("error_log").unwrap_or_default();
    if !error_log.eq_ignore_ascii_case("syslog") {
        let path = paths::under(error_log, state);
        if let Err(failure) = machine.touch(Path::new(&path)) {
            return Err(journal.error(format!("failed to open error_log ({path}): {failure}")));
        }
        journal.open(PathBuf::from(&path));
        global.set_text("error_log", path);
    }
    let wanted = global.full("events.mechanism").unwrap_or(MECHANISMS[0]);
    match MECHANISMS.iter().find(|name| name.eq_ignore_ascii_case(wanted)) {
        Some(name) => global.set_text("events.mechanism", (*name).to_owned()),
        None => {
            let text = format!("event mechanism '{wanted}' is not available on this system");
            return Err(journal.error(text));
        }
    }
    Ok(())
}

fn unique_addresses(written: &Written, context: &mut Context<'_>) -> Result<(), Failed> {
    let mut seen: Vec<(String, String)> = Vec::new();
    for pool in &written.pools {
        let status = pool.values.full("pm.status_listen");
        let addresses = [
            (pool.name.clone(), pool.values.text("listen")),
            (format!("{}_status", pool.name), status),
        ];
        for (name, address) in addresses {
            let Some(address) = address else { continue };
            if let Some((other, _)) = seen.iter().find(|(_, taken)| taken == address) {
                let text = format!(
                    "[pool {name}] unable to set listen address as it's already used in another pool '{other}'"
                );
                return Err(context.journal.error(text));
            }
            seen.push((name, address.to_owned()));
        }
    }
    Ok(())
}

fn access_logs(written: &Written, context: &mut Context<'_>) -> Result<(), Failed> {
    let Context { machine, journal, .. } = context;
    for pool in &written.pools {
        let Some(path) = pool.values.text("access.log") else {
            continue;
        };
        if let Err(failure) = machine.touch(Path::new(path)) {
            return Err(journal.error(format!("failed to open access log ({path}): {failure}")));
        }
    }
    for pool in &written.pools {
        let format = pool.values.text("access.format").unwrap_or(DEFAULT_FORMAT);
        let parsed = pool.values.full("access.log").map(|_| parse_format(format));
        if let Some(Err(problem)) = parsed {
            journal.warn(problem.to_string());
            let text = format!("[pool {}] wrong format for access.format '{format}'", pool.name);
            return Err(journal.error(text));
        }
    }
    Ok(())
}
