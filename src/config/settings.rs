//! Every key of forkyard's own configuration, once: what it is in php-fpm's, its values, default and meaning.
//!
//! The documentation is made of this table, the advice about unknown keys looks here, and so does whoever turns a
//! php-fpm configuration into one of these. [`super::fpm::directives`] is the same for php-fpm's files; tests hold the
//! two, the drafts and the sample together.

/// The table that a key belongs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// `[global]`
    Global,
    /// `[pool.NAME]`
    Pool,
    /// `[pool.NAME.application]` with `runtime = "php"`
    Php,
    /// `[pool.NAME.application]` with `runtime = "cgi"`
    Cgi,
    /// `[pool.NAME.application]` with `runtime = "http"`
    Http,
    /// `[pool.NAME.application]` with `runtime = "wsgi"`, `"asgi"` or `"rack"`
    Wrapped,
}

impl Section {
    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Section::Global => "[global]",
            Section::Pool => "[pool.NAME]",
            Section::Php | Section::Cgi | Section::Http | Section::Wrapped => "[pool.NAME.application]",
        }
    }

    /// Is it that of one runtime?
    pub fn is_application(self) -> bool {
        !matches!(self, Section::Global | Section::Pool)
    }
}

/// One key.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Where it is written.
    pub section: Section,
    /// Its name.
    pub key: &'static str,
    /// The directive that is the same in php-fpm; empty: there is none.
    pub directive: &'static str,
    /// What its values look like.
    pub values: &'static str,
    /// The value that it has when it is not written: in backquotes as it would be written, or in words.
    pub default: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// How it differs from php-fpm, beside its name.
    pub difference: &'static str,
}

use Section::{Cgi, Global, Http, Php, Pool, Wrapped};

const fn row(
    section: Section,
    key: &'static str,
    directive: &'static str,
    values: &'static str,
    default: &'static str,
    meaning: &'static str,
    difference: &'static str,
) -> Setting {
    Setting {
        section,
        key,
        directive,
        values,
        default,
        meaning,
        difference,
    }
}

/// All keys, in the order of the documentation.
#[rustfmt::skip]
pub const SETTINGS: &[Setting] = &[
    row(Global, "pid", "pid", "path", "none", "file that holds the master's process id", ""),
    row(Global, "error_log", "error_log", r#"path, `"stderr"` or `"syslog"`"#, r#"`"stderr"`"#, "where log lines go; SIGUSR1 opens the file again", "the default is a file there"),
    row(Global, "log_level", "log_level", r#"`"debug"`, `"notice"`, `"warning"`, `"error"`, `"alert"`"#, r#"`"notice"`"#, "the least severe lines that are logged", ""),
    row(Global, "log_format", "", r#"`"text"` or `"json"`"#, r#"`"text"`"#, "how log lines look: see [Logging](logging.md)", "not there"),
    row(Global, "log_limit", "log_limit", "number, 512 or more", "`1024`", "longest line of caught output and of the access log, bytes", "the access log has always 1024 there, before PHP 8.5"),
    row(Global, "syslog.ident", "syslog.ident", "string", r#"`"forkyard"`"#, "the name in syslog", "`php-fpm` there"),
    row(Global, "syslog.facility", "syslog.facility", "name of a facility", r#"`"daemon"`"#, "the facility in syslog", ""),
    row(Global, "systemd_interval", "systemd_interval", "duration", r#"`"10s"`"#, "how often systemd is told what the pools do, if it has set NOTIFY_SOCKET; 0: never", ""),
    row(Global, "process_control_timeout", "process_control_timeout", "duration", r#"`"60s"`"#, "how long a worker that has to go may work on its request before it is terminated", "0 is the default there, and requests are cut off"),
    row(Global, "emergency_restart_threshold", "emergency_restart_threshold", "number", "`0`", "so many workers killed by SIGSEGV or SIGBUS within `emergency_restart_interval` give every pool new processes, as a reload does; 0: never", ""),
    row(Global, "emergency_restart_interval", "emergency_restart_interval", "duration", "`0`", "see `emergency_restart_threshold`; 0: never", "a machine that was booted a moment ago counts right"),
    row(Global, "process.max", "process.max", "number", "`0`", "most workers over all pools; 0: no limit", ""),
    row(Global, "process.priority", "process.priority", "number, -19 to 20", "as inherited", "nice(2) value of the master; ignored, with a warning, without root", ""),
    row(Global, "daemonize", "daemonize", "flag", "`false`", "go to the background after start-up", "`yes` is the default there"),
    row(Global, "rlimit_files", "rlimit_files", "number", "`0`", "most open files of the master; 0: as inherited, the soft limit raised to the hard one", ""),
    row(Global, "rlimit_core", "rlimit_core", r#"size or `"unlimited"`"#, "as inherited", "largest core file of the master", r#"0 means none here, and "as inherited" there"#),
    row(Global, "allow_root", "", "flag", "`false`", "let pools run as root", "the option `-R` there"),
    row(Global, "control", "", "path", "none", "a unix socket over which root, or the daemon's user, gives [orders](control.md): `forkyard reload`, `forkyard status`", "not there"),
    row(Global, "include", "", "list", "`[]`", "more files that hold `[pool.NAME]` tables: paths or patterns with `*`, `?` and `[a-z]`, relative to this file", "only in `[global]`, and only pools in the files; a pool that is defined twice is an error and is not merged"),
    row(Pool, "listen", "listen", "string, or the table of the next rows", "required", r#"a path: a unix socket; `"ADDRESS:PORT"`, `"[IPV6]:PORT"`, `"HOST:PORT"`: TCP; `"PORT"`: TCP on every address. A host's first address is taken"#, "a path of more than 107 bytes and a port out of range are errors of the configuration; no relative paths"),
    row(Pool, "listen.address", "", "string", "required", "what `listen` is as a string", ""),
    row(Pool, "listen.backlog", "listen.backlog", "number, -1 or more", "`-1`", "connections that may wait to be accepted; -1: as many as the kernel lets", ""),
    row(Pool, "listen.owner", "listen.owner", "string", "the master's user", "owner of a unix socket, a name or a numeric id", ""),
    row(Pool, "listen.group", "listen.group", "string", "the owner's", "group of a unix socket, a name or a numeric id", ""),
    row(Pool, "listen.mode", "listen.mode", "string of octal digits", r#"`"0660"`"#, "permissions of a unix socket", ""),
    row(Pool, "listen.allowed_clients", "listen.allowed_clients", "list", "any", "the only addresses that may connect over TCP", "a wrong address is an error, not left out"),
    row(Pool, "listen.acl_users", "listen.acl_users", "list", "`[]`", "users, by name or id, that may connect to the unix socket (an access control list, read and write), beside whom `listen.mode` lets; `listen.owner` and `listen.group` are not used then, with a warning", "names with commas between them"),
    row(Pool, "listen.acl_groups", "listen.acl_groups", "list", "`[]`", "the same for groups", "the same"),
    row(Pool, "user", "user", "string", "required for a root master", "user of the workers, a name or a numeric id; ignored, with a warning, without root", ""),
    row(Pool, "group", "group", "string", "the user's", "group of the workers; ignored, with a warning, without root", ""),
    row(Pool, "pm", "pm", r#"`"static"`, `"dynamic"`, `"ondemand"`"#, "required", "when there are how many workers", ""),
    row(Pool, "max_children", "pm.max_children", "number, 1 or more", "required", "most workers; with `static`, their number", ""),
    row(Pool, "start_servers", "pm.start_servers", "number", "halfway between the next two", "`dynamic`: workers at the start", ""),
    row(Pool, "min_spare_servers", "pm.min_spare_servers", "number, 1 or more", "required with `dynamic`", "`dynamic`: fewest idle workers", ""),
    row(Pool, "max_spare_servers", "pm.max_spare_servers", "number, 1 or more", "required with `dynamic`", "`dynamic`: most idle workers", ""),
    row(Pool, "max_spawn_rate", "pm.max_spawn_rate", "number, 1 or more", "`32`", "`dynamic`: most workers started in one step", ""),
    row(Pool, "process_idle_timeout", "pm.process_idle_timeout", "duration, not 0", r#"`"10s"`"#, "`dynamic`, `ondemand`: an idle worker that is not needed goes after this time", "for `ondemand` only"),
    row(Pool, "max_requests", "pm.max_requests", "number", "`0`", "a worker is replaced after this many requests; 0: never", ""),
    row(Pool, "request_terminate_timeout", "request_terminate_timeout", "duration", "`0`", "a request that takes longer is ended, and its worker with it; 0: never ([Slow requests](slow-requests.md))", "the client is answered with 504"),
    row(Pool, "request_terminate_timeout_track_finished", "request_terminate_timeout_track_finished", "flag", "`false`", "also count while the application works on after it has ended its answer", ""),
    row(Pool, "slowlog", "slowlog", "path", "none", "file in which slow requests are written down", ""),
    row(Pool, "request_slowlog_timeout", "request_slowlog_timeout", "duration", "`0`", "a request that takes longer is slow; 0: none is. Needs `slowlog`; no more than `request_terminate_timeout`", ""),
    row(Pool, "request_slowlog_trace_depth", "request_slowlog_trace_depth", "number, 1 or more", "`20`", "calls that are written down of each, the innermost first. Needs `slowlog`", ""),
    row(Pool, "client_timeout", "", "duration, not 0", r#"`"60s"`"#, "how long a client that is silent in the middle of a request may keep a worker waiting", "waits for ever"),
    row(Pool, "keepalive_timeout", "", "duration, not 0", r#"`"75s"`"#, "how long an idle connection that the web server keeps stays open", "for ever, and it holds a worker"),
    row(Pool, "limits.params_bytes", "", r#"size, `"4K"` to `"1G"`"#, r#"`"1M"`"#, "most bytes of the names and values of one request's parameters", "fixed"),
    row(Pool, "limits.params_count", "", "number, 32 to 10000000", "`10000`", "most parameters of one request", "none"),
    row(Pool, "status_path", "pm.status_path", "string", "none", "the path (SCRIPT_NAME) at which the pool's status is served: `/` and letters, digits, `/ _ - . ~`", ""),
    row(Pool, "status_listen", "pm.status_listen", "string", "none", "another address, as in `listen`, that answers status and ping only, also while every worker is busy; see [The status page](status.md). Owner, group, mode and allowed clients are those of `listen`; `status_path` is `/` if it is not given", "runs no scripts"),
    row(Pool, "ping.path", "ping.path", "string", "none", "the path at which the pool answers that it lives", "an error if it is the same as `status_path`"),
    row(Pool, "ping.response", "ping.response", "string", r#"`"pong"`"#, "the answer", ""),
    row(Pool, "chdir", "chdir", "path", "the master's; `/` in a chroot", "working directory of the workers, seen from inside the chroot", ""),
    row(Pool, "chroot", "chroot", "path", "none", "root directory of the workers; ignored, with a warning, without root", "no `$prefix`"),
    row(Pool, "clear_env", "clear_env", "flag", "`true`", "start the workers' environment empty", ""),
    row(Pool, "env", "env", "table", "`{}`", r#"the workers' environment; a value `"$NAME"` is taken from that variable of the master's"#, ""),
    row(Pool, "rlimit_files", "rlimit_files", "number", "`0`", "most open files of a worker; 0: as inherited", ""),
    row(Pool, "rlimit_core", "rlimit_core", r#"size or `"unlimited"`"#, "as inherited", "largest core file of a worker", "0 means none here"),
    row(Pool, "process.priority", "process.priority", "number, -19 to 20", "as inherited", "nice(2) value of the workers; ignored, with a warning, without root", ""),
    row(Pool, "process.dumpable", "process.dumpable", "flag", "`false`", "let workers be traced and dump core although they changed user", ""),
    row(Pool, "no_new_privs", "", "flag", "`false`", "keep workers, and all they start, from gaining privileges", "not there"),
    row(Pool, "apparmor_hat", "apparmor_hat", "string", "none", "the workers change to the AppArmor profile `CURRENT//HAT`. Without AppArmor in the kernel the daemon does not start", "workers fail one by one"),
    row(Pool, "confine.read", "", "list of paths", "everything", "the only paths, beside those of `confine.write` and of the system, that may be read and executed; see [Security](security.md#paths)", "not there"),
    row(Pool, "confine.write", "", "list of paths", "everything", "the only paths that may be written to; at least one directory if one of the two is set", "not there"),
    row(Pool, "confine.deny_system_calls", "", "flag", "`false`", "refuse system calls that attacks begin with; see [Security](security.md#system-calls)", "not there"),
    row(Pool, "confine.private_tmp", "", "flag", "`false`", "a `/tmp` and `/var/tmp` of the pool's own, in memory; needs root", "not there"),
    row(Pool, "cgroup.parent", "", "path", "none", "a control group (cgroup v2) in which the pool's own is made, under the pool's name; see [Security](security.md#control-groups)", "not there"),
    row(Pool, "cgroup.memory_max", "", r#"size, `"4M"` or more"#, "no limit", "most memory of all processes of the pool", "not there"),
    row(Pool, "cgroup.cpu_percent", "", "number, 1 to 100000", "no limit", "their share of processor time; 100: one processor", "not there"),
    row(Pool, "cgroup.pids_max", "", "number, 2 or more", "no limit", "most processes and threads of the pool, its preloader among them", "not there"),
    row(Pool, "catch_workers_output", "catch_workers_output", "flag", "`false`", "log what workers write to their standard output and error; it is dropped otherwise", ""),
    row(Pool, "decorate_workers_output", "decorate_workers_output", "flag", "`true`", "put pool, process id and stream before such lines", ""),
    row(Pool, "reload", "", r#"`"changed"`, `"always"`"#, r#"`"changed"`"#, "which reloads replace the workers: those that find [something changed](process-management.md#what-counts-as-changed), or all", "always"),
    row(Pool, "access.log", "access.log", "path", "none", "a file with a line for each request: see [Logging](logging.md)", ""),
    row(Pool, "access.format", "access.format", "string", r#"`"%R - %u %t \"%m %r\" %s"`"#, "what such a line holds", ""),
    row(Pool, "access.suppress_path", "access.suppress_path", "list", "`[]`", "successful requests of these URIs leave no line", ""),
    row(Pool, "application.runtime", "", "string", "required", r#"what the pool runs: `"php"`, or `"rust"` for a handler of a program that embeds forkyard"#, "always PHP"),
    row(Php, "runtime", "", "string", "required", r#"`"php"`"#, ""),
    row(Php, "version", "", "string", "required", r#"which PHP: `"8.2"`"#, "the binary is the version"),
    row(Php, "library", "", "path", "found from `version`", "libphp", ""),
    row(Php, "php_ini", "", "path", "`/etc/php/VERSION/fpm`, or else `/etc/php/VERSION/embed`", "php.ini, or the directory it is in", "the option `-c`"),
    row(Php, "limit_extensions", "security.limit_extensions", "list", r#"`[".php", ".phar"]`"#, "endings of the scripts that may be run; `[]`: any", ""),
    row(Php, "request_settings", "", r#"`"harmless"`, `"all"`, `"none"`, or a list"#, r#"`"harmless"`"#, "which php.ini settings a request may bring along in `PHP_VALUE` and `PHP_ADMIN_VALUE`; see [Security](security.md#settings-that-come-with-a-request)", "all"),
    row(Php, "preloader_idle_timeout", "", "duration", r#"`"5m"`"#, "a preloader whose pool has had no worker for this long is stopped", "not there"),
    row(Php, "start_timeout", "", "duration, not 0", r#"`"30s"`"#, "how long PHP may take to start", "not there"),
    row(Php, "warm_up", "", "number, 0 to 1000", "`100`", "at a reload, how many of the scripts that the old workers ran most are compiled before the new ones serve; 0: none", "not there"),
    row(Php, "warm_up_time", "", "duration, not 0", r#"`"5s"`"#, "the most time for that", "not there"),
    row(Php, "preloader", "", r#"`"own"`, `"shared"`, `"shared:NAME"`"#, r#"`"own"`"#, "a preloader, and so an OPcache, of the pool's own, or [shared](process-management.md#pools-that-share-a-preloader) with the other pools that write the same here", "all pools share one"),
    row(Php, "php_value", "php_value", "table", "`{}`", "php.ini settings that scripts may change", ""),
    row(Php, "php_flag", "", "table", "`{}`", "the same, for flags", "`php_flag[…]`"),
    row(Php, "php_admin_value", "php_admin_value", "table", "`{}`", "php.ini settings that scripts may not change", ""),
    row(Php, "php_admin_flag", "", "table", "`{}`", "the same, for flags", "`php_admin_flag[…]`"),
    row(Cgi, "script", "", "path", "", "the program that answers every request", ""),
    row(Cgi, "root", "", "path", "", "programs are those that the web server names (`SCRIPT_FILENAME`, or `DOCUMENT_ROOT` with `SCRIPT_NAME`), links resolved, below this directory", ""),
    row(Cgi, "search_arguments", "", "flag", "`false`", "give a query without `=` to the program as its arguments (RFC 3875 section 4.4)", ""),
    row(Http, "address", "", "string", "", "where the program listens: an address and port, a port of this machine, or the path of a unix socket", ""),
    row(Wrapped, "root", "", "path", "required", "the application's directory", ""),
    row(Wrapped, "entry", "", "string", "the usual file in `root`", "what is loaded: `module:callable`, or the path of a file", ""),
    row(Wrapped, "interpreter", "", "path", "`/usr/bin/python3`, for Rack `/usr/bin/ruby`", "the language's interpreter", ""),
    row(Wrapped, "preloader_idle_timeout", "", "duration", "`\"5m\"`", "a preloader whose pool has had no worker for this long is stopped", ""),
    row(Wrapped, "start_timeout", "", "duration, not 0", "`\"90s\"`", "how long the application may take to start", ""),
];

/// Directives of php-fpm that have no key here.
#[derive(Debug, Clone, Copy)]
pub struct Absent {
    /// Their names.
    pub directives: &'static [&'static str],
    /// What there is instead.
    pub instead: &'static str,
    /// What to do about one that is written.
    pub advice: &'static str,
}

const fn absent(directives: &'static [&'static str], instead: &'static str, advice: &'static str) -> Absent {
    Absent {
        directives,
        instead,
        advice,
    }
}

/// The directives of php-fpm that have no key here, in the order of the documentation.
#[rustfmt::skip]
pub const ABSENT: &[Absent] = &[
    absent(&["prefix"], "write paths in full", "leave it out: paths are written in full"),
    absent(&["log_buffering"], "a line is written at once", "leave it out: a log line is always written at once"),
    absent(&["events.mechanism"], "always epoll", "leave it out: epoll is always used"),
];

/// The keys of a table.
pub fn of(section: Section) -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(move |setting| setting.section == section)
}

/// What a directive of php-fpm's global section (`is_global`) or of its pools is called here.
pub fn of_directive(name: &str, is_global: bool) -> Option<&'static Setting> {
    let is_it = |setting: &&Setting| setting.directive == name && (setting.section == Global) == is_global;
    SETTINGS.iter().find(is_it)
}

/// The advice about a directive that has no key here.
pub fn absence(name: &str) -> Option<&'static Absent> {
    ABSENT.iter().find(|absent| absent.directives.contains(&name))
}

/// The table of a section as Markdown.
pub fn render(section: Section) -> String {
    let mut text = String::from(
        "| key | type | default | meaning | difference from php-fpm |\n| --- | --- | --- | --- | --- |\n",
    );
    for setting in of(section) {
        let Setting {
            key,
            directive,
            values,
            default,
            meaning,
            ..
        } = setting;
        let name = match *directive {
            "" => String::new(),
            name if name == *key => String::new(),
            name => format!("`{name}`"),
        };
        let parts = [name.as_str(), setting.difference];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let difference = parts.join("; ");
        let space = if difference.is_empty() { "" } else { " " };
        text.push_str(&format!(
            "| `{key}` | {values} | {default} | {meaning} |{space}{difference} |\n"
        ));
    }
    text
}

/// The table of a runtime that php-fpm has not, as Markdown.
pub fn render_runtime(section: Section) -> String {
    let mut text = String::from("| key | meaning | default |\n| --- | --- | --- |\n");
    for Setting {
        key,
        meaning,
        default,
        ..
    } in of(section)
    {
        let space = if default.is_empty() { "" } else { " " };
        text.push_str(&format!("| `{key}` | {meaning} |{space}{default} |\n"));
    }
    text
}

/// What php-fpm has and forkyard has not, as Markdown.
pub fn render_absent() -> String {
    let mut text = String::from("| php-fpm | instead |\n| --- | --- |\n");
    for absent in ABSENT {
        let names: Vec<String> = absent.directives.iter().map(|name| format!("`{name}`")).collect();
        text.push_str(&format!("| {} | {} |\n", names.join(", "), absent.instead));
    }
    text
}
