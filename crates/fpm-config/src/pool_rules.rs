//! php-fpm's rules of one pool, in order.

use super::journal::Failed;
use super::parse::PoolText;
use super::paths;
use super::validate::Context;
use super::values::{Item, Value};
use forkyard_config::php_fpm::is_tcp;
use forkyard_config::units::Manager;
use std::path::Path;

/// The kernel's maximum, php-fpm's default on Linux.
const DEFAULT_BACKLOG: i32 = -1;
const DEFAULT_TRACE_DEPTH: i32 = 20;

const PATH_SETTINGS: &[&str] = &[
    "error_log",
    "extension_dir",
    "mime_magic.magicfile",
    "sendmail_path",
    "session.cookie_path",
    "session_pgsql.sem_file_name",
    "soap.wsdl_cache_dir",
    "uploadprogress.file.filename_template",
    "xdebug.output_dir",
    "xdebug.profiler_output_dir",
    "xdebug.trace_output_dir",
    "xmms.path",
    "axis2.client_home",
    "blenc.key_file",
    "coin_acceptor.device",
];

pub(super) fn check(pool: &mut PoolText, mechanism: &str, context: &mut Context<'_>) -> Result<(), Failed> {
    let mut rules = Rules {
        prefix: None,
        pool,
        context,
    };
    rules.identity()?;
    rules.manager(mechanism)?;
    rules.pages()?;
    rules.logs()?;
    rules.directories()?;
    rules.php();
    Ok(())
}

struct Rules<'r, 'c> {
    prefix: Option<String>,
    pool: &'r mut PoolText,
    context: &'r mut Context<'c>,
}

impl Rules<'_, '_> {
    fn error(&mut self, text: &str) -> Failed {
        let text = format!("[pool {}] {text}", self.pool.name);
        self.context.journal.error(text)
    }

    fn alert(&mut self, text: &str) -> Failed {
        let text = format!("[pool {}] {text}", self.pool.name);
        self.context.journal.alert(text)
    }

    fn number(&self, name: &str) -> i32 {
        self.pool.values.number(name)
    }

    fn full(&self, name: &str) -> Option<String> {
        self.pool.values.full(name).map(str::to_owned)
    }

    fn path(&self, path: &str) -> String {
        paths::of_pool(
            path,
            self.prefix.as_deref(),
            self.context.options.prefix.as_deref(),
        )
    }

    fn is_dir(&self, path: &str) -> bool {
        self.context.machine.is_dir(Path::new(path))
    }

    fn identity(&mut self) -> Result<(), Failed> {
        if let Some(prefix) = self.full("prefix") {
            let global = self.context.options.prefix.as_deref().unwrap_or(paths::PREFIX);
            let prefix = paths::under(&prefix, global);
            if !self.is_dir(&prefix) {
                let text = format!("the prefix '{prefix}' does not exist or is not a directory");
                return Err(self.error(&text));
            }
            self.pool.values.set_text("prefix", prefix.clone());
            self.prefix = Some(prefix);
        }
        let is_unset = self.pool.values.text("user").is_none();
        if is_unset && self.context.machine.is_root() && !self.context.options.allow_root {
            return Err(self.alert("user has not been defined"));
        }
        match self.full("listen") {
            Some(address) if is_tcp(&address) => {}
            Some(address) => {
                let path = self.path(&address);
                self.pool.values.set_text("listen", path);
            }
            None => return Err(self.alert("no listen address have been defined!")),
        }
        self.limits("", "pm")
    }

    /// Checks number limits of the directives after one and up to another.
    fn limits(&mut self, after: &str, until: &str) -> Result<(), Failed> {
        match self.pool.values.beyond(after, until) {
            Some(limit) => {
                let text = format!("[pool {}] {}", self.pool.name, limit.words);
                self.context.journal.say(limit.level, text);
                Err(Failed)
            }
            None => Ok(()),
        }
    }

    fn manager(&mut self, mechanism: &str) -> Result<(), Failed> {
        let Some(manager) = self.pool.values.manager() else {
            return Err(self.alert("the process manager is missing (static, dynamic or ondemand)"));
        };
        self.limits("pm", "")?;
        match manager {
            Manager::Static => Ok(()),
            Manager::Dynamic => self.dynamic(),
            Manager::Ondemand => self.ondemand(mechanism),
        }
    }

    fn dynamic(&mut self) -> Result<(), Failed> {
        let most = self.number("pm.max_children");
        let (min, max) = (
            self.number("pm.min_spare_servers"),
            self.number("pm.max_spare_servers"),
        );
        for (name, number) in [("pm.min_spare_servers", min), ("pm.max_spare_servers", max)] {
            if number < 1 {
                return Err(self.alert(&format!("{name}({number}) must be a positive value")));
            }
        }
        if min > most || max > most {
            return Err(self.alert(&format!(
                "pm.min_spare_servers({min}) and pm.max_spare_servers({max}) cannot be greater than \
                 pm.max_children({most})"
            )));
        }
        if max < min {
            return Err(self.alert(&format!(
                "pm.max_spare_servers({max}) must not be less than pm.min_spare_servers({min})"
            )));
        }
        let start = self.number("pm.start_servers");
        if start <= 0 {
            let start = min + (max - min) / 2;
            self.pool.values.set("pm.start_servers", Value::Number(start));
            let name = &self.pool.name;
            let text = format!("[pool {name}] pm.start_servers is not set. It's been set to {start}.");
            self.context.journal.notice(text);
        } else if start < min || start > max {
            return Err(self.alert(&format!(
                "pm.start_servers({start}) must not be less than pm.min_spare_servers({min}) and not greater than \
                 pm.max_spare_servers({max})"
            )));
        }
        if self.number("pm.max_spawn_rate") < 1 {
            return Err(self.alert("pm.max_spawn_rate must be a positive value"));
        }
        Ok(())
    }

    fn ondemand(&mut self, mechanism: &str) -> Result<(), Failed> {
        if mechanism != "epoll" {
            return Err(self.alert(
                "ondemand process manager can ONLY be used when events.mechanism is either epoll (Linux) or kqueue \
                 (*BSD).",
            ));
        }
        let idle = self.number("pm.process_idle_timeout");
        if idle < 1 {
            return Err(self.alert(&format!(
                "pm.process_idle_timeout({idle}s) must be greater than 0s"
            )));
        }
        let backlog = self.number("listen.backlog");
        if backlog < DEFAULT_BACKLOG {
            let name = &self.pool.name;
            let text = format!(
                "[pool {name}] listen.backlog({backlog}) was too low for the ondemand process manager. I updated it \
                 for you to {DEFAULT_BACKLOG}."
            );
            self.context.journal.warn(text);
            self.pool
                .values
                .set("listen.backlog", Value::Number(DEFAULT_BACKLOG));
        }
        for name in ["pm.start_servers", "pm.min_spare_servers", "pm.max_spare_servers"] {
            self.pool.values.set(name, Value::Number(0));
        }
        Ok(())
    }

    fn pages(&mut self) -> Result<(), Failed> {
        let has_status_address = self.pool.values.text("pm.status_listen").is_some();
        if has_status_address && self.full("pm.status_path").is_none() {
            self.pool.values.set_text("pm.status_path", "/".to_owned());
        }
        if let Some(path) = self.full("pm.status_path") {
            self.page("status", &path, if has_status_address { 1 } else { 2 })?;
        }
        if let Some(path) = self.full("ping.path") {
            self.page("ping", &path, 2)?;
            match self.pool.values.text("ping.response") {
                None => self.pool.values.set_text("ping.response", "pong".to_owned()),
                Some("") => {
                    return Err(self.error("the ping response page '' is not long enough"));
                }
                Some(_) => {}
            }
        } else {
            self.pool.values.set("ping.response", Value::Text(None));
        }
        Ok(())
    }

    fn page(&mut self, kind: &str, path: &str, least: usize) -> Result<(), Failed> {
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"/_-.~".contains(&byte);
        let problem = if !path.starts_with('/') {
            "must start with a '/'"
        } else if path.len() < least {
            "is not long enough"
        } else if !path.bytes().all(is_fine) {
            "must contain only the following characters '[alphanum]/_-.~'"
        } else {
            return Ok(());
        };
        Err(self.error(&format!("the {kind} path '{path}' {problem}")))
    }

    fn logs(&mut self) -> Result<(), Failed> {
        if let Some(path) = self.full("access.log") {
            let path = self.path(&path);
            self.pool.values.set_text("access.log", path);
        }
        let has_access_log = self.pool.values.text("access.log").is_some();
        if has_access_log && self.pool.values.text("access.format").is_none() {
            let format = "%R - %u %t \"%m %r\" %s";
            self.pool.values.set_text("access.format", format.to_owned());
        }
        if let Some(path) = self.full("slowlog") {
            let path = self.path(&path);
            self.pool.values.set_text("slowlog", path);
        }
        let slowlog = self.full("slowlog");
        let slow = self.number("request_slowlog_timeout");
        if slow != 0 {
            let Some(path) = &slowlog else {
                return Err(self.error("'slowlog' must be specified for use with 'request_slowlog_timeout'"));
            };
            if let Err(failure) = self.context.machine.touch(Path::new(path)) {
                let text = format!("Unable to create or open slowlog({path}): {failure}");
                return Err(self.context.journal.error(text));
            }
            let terminate = self.number("request_terminate_timeout");
            if terminate != 0 && slow > terminate {
                return Err(self.error(&format!(
                    "'request_slowlog_timeout' ({slow}) can't be greater than 'request_terminate_timeout' \
                     ({terminate})"
                )));
            }
        }
        let depth = self.number("request_slowlog_trace_depth");
        if !self.pool.values.is_written("request_slowlog_trace_depth") || depth == 0 {
            let default = Value::Number(DEFAULT_TRACE_DEPTH);
            self.pool.values.set("request_slowlog_trace_depth", default);
        } else if slowlog.is_none() {
            return Err(self.error("'slowlog' must be specified for use with 'request_slowlog_trace_depth'"));
        } else if depth < 0 {
            return Err(self.error(&format!(
                "'request_slowlog_trace_depth' ({depth}) must be a positive value"
            )));
        }
        Ok(())
    }

    fn directories(&mut self) -> Result<(), Failed> {
        let prefix = self.context.options.prefix.as_deref();
        if let Some(written) = self.full("chroot") {
            let path = paths::expand_prefix(&written, self.prefix.as_deref(), prefix, self.context.journal);
            if !path.starts_with('/') {
                return Err(self.error(&format!("the chroot path '{path}' must start with a '/'")));
            }
            if !self.is_dir(&path) {
                let text = format!("the chroot path '{path}' does not exist or is not a directory");
                return Err(self.error(&text));
            }
            self.pool.values.set_text("chroot", path);
        }
        if let Some(written) = self.full("chdir") {
            let path = self.path(&written);
            if let Some(root) = self.full("chroot") {
                let inside = format!("{root}/{path}");
                if !self.is_dir(&inside) {
                    return Err(self.error(&format!(
                        "the chdir path '{path}' within the chroot path '{root}' ('{inside}') does not exist or is \
                         not a directory"
                    )));
                }
            } else if !self.is_dir(&path) {
                let text = format!("the chdir path '{path}' does not exist or is not a directory");
                return Err(self.error(&text));
            }
            self.pool.values.set_text("chdir", path);
        }
        Ok(())
    }

    fn php(&mut self) {
        if self.pool.values.text("security.limit_extensions").is_none() {
            let endings = ".php .phar".to_owned();
            self.pool.values.set_text("security.limit_extensions", endings);
        }
        if self.full("chroot").is_some() {
            return;
        }
        let prefix = (self.prefix.clone(), self.context.options.prefix.clone());
        for list in ["php_value", "php_admin_value"] {
            for Item { key, value, .. } in self.pool.values.list_mut(list) {
                let is_log = key == "error_log";
                let stays = is_log && list == "php_admin_value" && value.eq_ignore_ascii_case("syslog");
                if PATH_SETTINGS.contains(&key.as_str()) && !stays {
                    *value = paths::of_pool(value, prefix.0.as_deref(), prefix.1.as_deref());
                }
            }
        }
    }
}
