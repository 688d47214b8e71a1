//! The keys of `[global]`.

use super::directive::Form;
use super::directive::Shown::{Priority, Seconds};
use super::row::Sample::{Off, On};
use super::row::{section, without_key};
use super::sections::Section;
use super::sections::Section::Global;
use crate::LogLevel::Error;
use crate::flat_keys::Field;
use crate::units::{Core, ErrorRule, Facility, Flag, Format, Level, TermRule, Text, Texts, Time, Whole};

/// php-fpm's message for an invalid priority.
pub(super) const PRIORITY: &str = "process.priority must be included into [-19,20]";

section! {
    GlobalDraft of Section::Global, below "" {
        pid: Field<Text> = key("pid", "path", "none",
            "file that holds the master's process id")
            .same(Form::Text, "")
            .sample(On(r#""/run/forkyard.pid""#)),
        error_log: Field<Text> = key("error_log", r#"path, `"stderr"` or `"syslog"`"#, r#"`"stderr"`"#,
            "where log lines go; SIGUSR1 opens the file again")
            .same(Form::Text, "log/php-fpm.log").note("a path, or `syslog`")
            .in_php_fpm("a file by default"),
        syslog_ident: Field<Text> = key("syslog.ident", "string", r#"`"forkyard"`"#,
            "the name in syslog")
            .same(Form::Text, "php-fpm")
            .in_php_fpm("`php-fpm` by default"),
        syslog_facility: Field<Facility> = key("syslog.facility", "name of a facility", r#"`"daemon"`"#,
            "the facility in syslog")
            .same(Form::Facility, "DAEMON"),
        _ = without_key(Global, "log_buffering", Form::Flag, "yes",
            "collect parts of a line of the log before it is written",
            "a line is written at once", "leave it out: a log line is always written at once")
            .needless(),
        log_level: Field<Level> = key("log_level", r#"`"debug"`, `"notice"`, `"warning"`, `"error"`, `"alert"`"#, r#"`"notice"`"#,
            "the least severe lines that are logged")
            .same(Form::Level, "notice"),
        log_format: Field<Format> = key("log_format", r#"`"text"` or `"json"`"#, r#"`"text"`"#,
            "how log lines look: see [Logging](logging.md)"),
        log_limit: Field<Whole> = key("log_limit", "number, 512 or more", "`1024`",
            "longest line of caught output and of the access log, bytes")
            .same(Form::Number, "1024").limit(512, i32::MAX, Error, "log_limit must be greater than 512")
            .in_php_fpm("for the access log always 1024 before PHP 8.5"),
        emergency_restart_interval: Field<Time> = key("emergency_restart_interval", "duration", "`0`",
            "the time for `emergency_restart_threshold`; 0: never")
            .same(Form::Time, "0").shown(Seconds)
            .in_php_fpm("may restart for one crash on a machine that was booted less than this ago"),
        emergency_restart_threshold: Field<Whole> = key("emergency_restart_threshold", "number", "`0`",
            "this many workers killed by SIGSEGV or SIGBUS within `emergency_restart_interval` give every pool new processes, as a reload does; 0: never")
            .same(Form::Number, "0"),
        process_control_timeout: Field<Time> = key("process_control_timeout", "duration", r#"`"60s"`"#,
            "how long a worker that has to leave may work on its request before it is terminated")
            .same(Form::Time, "0").shown(Seconds).note("unset: 60 s")
            .in_php_fpm("0 by default: requests are cut off"),
        process_max: Field<Whole> = key("process.max", "number", "`0`",
            "most workers over all pools; 0: no limit")
            .same(Form::Number, "0").limit(0, i32::MAX, Error, "process_max can't be negative"),
        process_priority: Field<Whole> = key("process.priority", "number, -19 to 20", "as inherited",
            "nice(2) value of the master; ignored without root, with a notice")
            .same(Form::Number, "64").shown(Priority).limit(-19, 20, Error, PRIORITY)
            .sample(Off("-5")),
        daemonize: Field<Flag> = key("daemonize", "flag", "`false`",
            "go to the background after start-up")
            .same(Form::Flag, "yes")
            .in_php_fpm("`yes` by default"),
        rlimit_files: Field<Whole> = key("rlimit_files", "number", "`0`",
            "most open files of the master; 0: as inherited, the soft limit raised to the hard one")
            .same(Form::Number, "0"),
        rlimit_core: Field<Core> = key("rlimit_core", r#"size or `"unlimited"`"#, "as inherited",
            "largest core file of the master")
            .same(Form::Core, "0").note("0: as inherited")
            .sample(Off(r#""unlimited""#))
            .in_php_fpm("0 means as inherited"),
        _ = without_key(Global, "events.mechanism", Form::Text, "",
            "how to wait for events",
            "always epoll", "leave it out: epoll is always used")
            .needless()
            .sample(Off(r#""epoll""#)),
        systemd_interval: Field<Time> = key("systemd_interval", "duration", r#"`"10s"`"#,
            "how often to send the pools' state to systemd, if NOTIFY_SOCKET is set; 0: never")
            .same(Form::Time, "10").shown(Seconds),
        allow_root: Field<Flag> = key("allow_root", "flag", "`false`",
            "let pools run as root, which is refused otherwise")
            .in_php_fpm("the option `-R`"),
        on_error: Field<ErrorRule> = key("on_error", r#"`"fail"`, `"skip"`"#, r#"`"fail"`"#,
            "the effect of a pool's error on the others: with `fail` nothing starts or is reloaded, with `skip` \
             the others serve without it: see [Pools with errors](configuration.md#pools-with-errors)")
            .in_php_fpm("always `fail`"),
        control: Field<Text> = key("control", "path", r#"none; of root's `/etc/forkyard/forkyard.toml`: `"/run/forkyard.sock"`"#,
            "the [control socket](control.md), for `forkyard reload`, `forkyard status` and others")
            .sample(On(r#""/run/forkyard.sock""#)),
        web: Field<Text> = key("web", "address and port, or path of a socket", "none",
            "address or socket for the numbers of all pools over HTTP: see [Numbers over HTTP](web.md); only the daemon's user can connect to the socket")
            .sample(Off(r#""127.0.0.1:9180""#)),
        web_hosts: Field<Texts> = key("web_hosts", "list of names", "none",
            "names that the Host header of a request for `web` may contain in addition to `localhost` and IP addresses")
            .sample(Off(r#"["numbers.example.org"]"#)),
        include: Field<Texts> = key("include", "list", r#"none; of `/etc/forkyard/forkyard.toml`: `["pools/*.toml"]`"#,
            "more files that hold `[pool.NAME]` tables: paths or patterns with `*`, `?` and `[a-z]`, relative to this file")
            .sample(Off(r#"["pools/*.toml"]"#))
            .in_php_fpm("anywhere, with any directive in the files; a pool that is defined twice is merged"),
        watch: Field<Flag> = key("watch", "flag", "`false`",
            "reload when a file that `include` matches appears, changes or goes; `on_error` is `\"skip\"` then: see \
             [Watched directories](configuration.md#watched-directories)"),
        on_sigterm: Field<TermRule> = key("on_sigterm", r#"`"terminate"`, `"finish"`"#, r#"`"terminate"`"#,
            "what SIGTERM means: with `terminate` requests that run end, with `finish` it is taken as SIGQUIT, and they are finished; a \
             second SIGTERM ends them")
            .in_php_fpm("`terminate` always"),
    }
}
