//! Every directive of php-fpm's configuration, once: what reads it, prints it and documents it asks this table.
//!
//! The order is that of the `-tt` dump.

/// Where a directive may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// In `[global]`.
    Global,
    /// In a pool.
    Pool,
}

/// What a value looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Text; `$pool` stands for the pool's name.
    Text,
    /// A boolean.
    Flag,
    /// A whole number.
    Number,
    /// Seconds, or a number with `s`, `m`, `h` or `d`.
    Time,
    /// The name of a log level.
    Level,
    /// The name of a syslog facility.
    Facility,
    /// A number of bytes or `unlimited`.
    Core,
    /// `static`, `dynamic` or `ondemand`.
    Manager,
    /// A list: `name[key] = value`.
    List,
}

/// How the dump shows a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// As its form says.
    Plain,
    /// With an `s` behind it.
    Seconds,
    /// `undefined` while it is not set.
    Priority,
    /// Not at all.
    Never,
}

/// What a directive does here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// What it does in php-fpm.
    Same,
    /// It is about how php-fpm works inside; there is nothing to be done about it here.
    Needless,
}

/// One directive.
#[derive(Debug, Clone, Copy)]
pub struct Directive {
    /// Its name.
    pub name: &'static str,
    /// Where it may be written.
    pub section: Section,
    /// What its values look like.
    pub form: Form,
    /// The value that it has when it is not written, as it would be written; empty: none.
    pub default: &'static str,
    /// How the dump shows it.
    pub shown: Shown,
    /// What it does here.
    pub effect: Effect,
    /// What it means.
    pub meaning: &'static str,
}

/// The stored number of a priority that is not set.
pub(super) const NO_PRIORITY: i32 = 64;

use Effect::{Needless, Same};
use Form::{Core, Facility, Flag, Level, List, Manager, Number, Text, Time};
use Section::{Global, Pool};
use Shown::{Never, Plain, Priority, Seconds};

const fn row(
    name: &'static str,
    section: Section,
    form: Form,
    default: &'static str,
    shown: Shown,
    effect: Effect,
    meaning: &'static str,
) -> Directive {
    Directive {
        name,
        section,
        form,
        default,
        shown,
        effect,
        meaning,
    }
}

/// All directives but `include`.
#[rustfmt::skip]
pub const DIRECTIVES: &[Directive] = &[
    row("pid", Global, Text, "", Plain, Same, "file that the master writes its pid to"),
    row("error_log", Global, Text, "log/php-fpm.log", Plain, Same, "file of the log, or `syslog`"),
    row("syslog.ident", Global, Text, "php-fpm", Plain, Same, "name in syslog"),
    row("syslog.facility", Global, Facility, "DAEMON", Plain, Same, "facility in syslog"),
    row("log_buffering", Global, Flag, "yes", Plain, Needless, "lines are always written with one system call"),
    row("log_level", Global, Level, "notice", Plain, Same, "least severe lines that are logged"),
    row("log_limit", Global, Number, "1024", Plain, Same, "longest line of caught output and of the access log, bytes"),
    row("emergency_restart_interval", Global, Time, "0", Seconds, Same, "see emergency_restart_threshold"),
    row("emergency_restart_threshold", Global, Number, "0", Plain, Same, "new processes for all pools after so many crashes"),
    row("process_control_timeout", Global, Time, "0", Seconds, Same, "how long a retiring worker may go on"),
    row("process.max", Global, Number, "0", Plain, Same, "cap on workers over all pools; 0: none"),
    row("process.priority", Global, Number, "64", Priority, Same, "nice value of the master"),
    row("daemonize", Global, Flag, "yes", Plain, Same, "go to the background"),
    row("rlimit_files", Global, Number, "0", Plain, Same, "RLIMIT_NOFILE of the master; 0: as it is"),
    row("rlimit_core", Global, Core, "0", Plain, Same, "RLIMIT_CORE of the master; 0: as it is"),
    row("events.mechanism", Global, Text, "", Plain, Needless, "epoll is always used"),
    row("systemd_interval", Global, Time, "10", Seconds, Same, "how often systemd is told the status"),
    row("prefix", Pool, Text, "", Plain, Same, "what relative paths of the pool are relative to"),
    row("user", Pool, Text, "", Plain, Same, "user of the workers"),
    row("group", Pool, Text, "", Plain, Same, "group of the workers"),
    row("listen", Pool, Text, "", Plain, Same, "address: a path, `ADDRESS:PORT`, `[IPV6]:PORT`, `HOST:PORT` or a port"),
    row("listen.backlog", Pool, Number, "-1", Plain, Same, "listen(2)'s backlog; -1: the kernel's maximum"),
    row("listen.acl_users", Pool, Text, "", Plain, Same, "users that may connect to the unix socket"),
    row("listen.acl_groups", Pool, Text, "", Plain, Same, "groups that may connect to the unix socket"),
    row("listen.owner", Pool, Text, "", Plain, Same, "owner of the unix socket"),
    row("listen.group", Pool, Text, "", Plain, Same, "group of the unix socket"),
    row("listen.mode", Pool, Text, "", Plain, Same, "permissions of the unix socket; unset: 0660"),
    row("listen.allowed_clients", Pool, Text, "", Plain, Same, "addresses that may connect over TCP"),
    row("process.priority", Pool, Number, "64", Priority, Same, "nice value of the workers"),
    row("process.dumpable", Pool, Flag, "no", Plain, Same, "let workers be dumpable after the change of user"),
    row("pm", Pool, Manager, "", Plain, Same, "how many workers there are and when"),
    row("pm.max_children", Pool, Number, "0", Plain, Same, "most workers"),
    row("pm.start_servers", Pool, Number, "0", Plain, Same, "dynamic: workers at start"),
    row("pm.min_spare_servers", Pool, Number, "0", Plain, Same, "dynamic: fewest idle workers"),
    row("pm.max_spare_servers", Pool, Number, "0", Plain, Same, "dynamic: most idle workers"),
    row("pm.max_spawn_rate", Pool, Number, "32", Plain, Same, "dynamic: most workers made in one step"),
    row("pm.process_idle_timeout", Pool, Time, "10", Plain, Same, "ondemand: an idle worker ends after this"),
    row("pm.max_requests", Pool, Number, "0", Plain, Same, "a worker ends after so many requests; 0: never"),
    row("pm.status_path", Pool, Text, "", Plain, Same, "URI of the status page"),
    row("pm.status_listen", Pool, Text, "", Plain, Same, "address that serves the status page alone"),
    row("ping.path", Pool, Text, "", Plain, Same, "URI of the ping page"),
    row("ping.response", Pool, Text, "", Plain, Same, "text of the ping page; unset: pong"),
    row("access.log", Pool, Text, "", Plain, Same, "file of the access log"),
    row("access.format", Pool, Text, "", Plain, Same, "format of the access log"),
    row("access.suppress_path", Pool, List, "", Plain, Same, "URIs that are not in the access log"),
    row("slowlog", Pool, Text, "", Plain, Same, "file of the log of slow requests"),
    row("request_slowlog_timeout", Pool, Time, "0", Seconds, Same, "when a request is slow; 0: never"),
    row("request_slowlog_trace_depth", Pool, Number, "20", Plain, Same, "depth of the trace of a slow request"),
    row("request_terminate_timeout", Pool, Time, "0", Seconds, Same, "longest time of a request; 0: any"),
    row("request_terminate_timeout_track_finished", Pool, Flag, "no", Plain, Same, "go on counting after fastcgi_finish_request()"),
    row("rlimit_files", Pool, Number, "0", Plain, Same, "RLIMIT_NOFILE of the workers; 0: as it is"),
    row("rlimit_core", Pool, Core, "0", Plain, Same, "RLIMIT_CORE of the workers; 0: as it is"),
    row("chroot", Pool, Text, "", Plain, Same, "root directory of the workers"),
    row("chdir", Pool, Text, "", Plain, Same, "working directory of the workers"),
    row("catch_workers_output", Pool, Flag, "no", Plain, Same, "log what workers write to standard output and error"),
    row("decorate_workers_output", Pool, Flag, "yes", Plain, Same, "say which worker wrote it"),
    row("clear_env", Pool, Flag, "yes", Plain, Same, "start the workers' environment empty"),
    row("security.limit_extensions", Pool, Text, "", Plain, Same, "endings of scripts; unset: `.php .phar`"),
    row("env", Pool, List, "", Plain, Same, "the workers' environment"),
    row("php_value", Pool, List, "", Plain, Same, "settings of PHP that scripts may change; also php_flag"),
    row("php_admin_value", Pool, List, "", Plain, Same, "settings of PHP that they may not; also php_admin_flag"),
    row("apparmor_hat", Pool, Text, "", Never, Same, "AppArmor profile of the workers"),
];

/// The directives of a section, in order.
pub fn of(section: Section) -> impl Iterator<Item = &'static Directive> {
    DIRECTIVES
        .iter()
        .filter(move |directive| directive.section == section)
}

/// The table as Markdown.
pub fn render() -> String {
    let mut text = String::new();
    for (section, title) in [(Global, "[global]"), (Pool, "a pool")] {
        text.push_str(&format!(
            "\n### In {title}\n\n| directive | value | unset | here | meaning |\n"
        ));
        text.push_str("|---|---|---|---|---|\n");
        for directive in of(section) {
            let value = match directive.form {
                Text => "text",
                Flag => "boolean",
                Number => "number",
                Time => "time",
                Level => "log level",
                Facility => "facility",
                Core => "number or `unlimited`",
                Manager => "`static`, `dynamic`, `ondemand`",
                List => "list",
            };
            let default = match directive.default {
                "" | "64" => "–".to_owned(),
                default => format!("`{default}`"),
            };
            let effect = match directive.effect {
                Same => "as in php-fpm",
                Needless => "not needed",
            };
            let (name, meaning) = (directive.name, directive.meaning);
            text.push_str(&format!(
                "| `{name}` | {value} | {default} | {effect} | {meaning} |\n"
            ));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::render;

    #[test]
    fn the_documentation_shows_this_table() {
        let text = include_str!("../../../docs/forkyard-fpm.md");
        let table = render();
        assert!(
            text.ends_with(&table),
            "docs/forkyard-fpm.md has to end with:\n{table}"
        );
    }
}
