//! The keys of `[pool.NAME.application]` with PHP.

use super::directive::Form;
use super::row::Sample::{Nowhere, Off, On};
use super::row::{key, section};
use super::sections::Section;
use super::sections::Section::{Php, Pool};
use crate::flat_keys::{Entries, Field};
use crate::units::{
    ConnectionsChoice, IniValue, IsolationChoice, PreloaderChoice, RequestRule, Size, Text, Texts, Time,
    Whole, WorkerModeChoice,
};

section! {
    PhpDraft of Section::Php, below "application." {
        _ = key(Php, "runtime", "string", "required",
            "the runtime; the other keys of this table depend on it")
            .sample(On(r#""php""#))
            .in_php_fpm(""),
        version: Field<Text> = key("version", "string", "required",
            r#"which PHP: `"8.2"`"#)
            .sample(On(r#""8.2""#))
            .in_php_fpm("the binary is the version"),
        library: Field<Text> = key("library", "path", "found from `version`",
            "the library libphp")
            .sample(Off(r#""/usr/lib/libphp8.2.so""#))
            .in_php_fpm(""),
        php_ini: Field<Text> = key("php_ini", "path", "`/etc/php/VERSION/fpm`, otherwise `/etc/php/VERSION/embed`",
            "php.ini, or the directory it is in")
            .sample(Off(r#""/etc/php/8.2/fpm""#))
            .in_php_fpm("the option `-c`"),
        limit_extensions: Field<Texts> = key("limit_extensions", "list", r#"`[".php", ".phar"]`"#,
            "endings of the scripts that may be run; an empty list: any")
            .fpm("security.limit_extensions", Form::Blanks, "").note("with blanks between them; unset: `.php .phar`"),
        script_root: Field<Text> = key("script_root", "path", "",
            "scripts that a request names are below this directory, links resolved; others are answered with 403")
            .sample(Off(r#""/srv/app""#)),
        request_settings: Field<RequestRule> = key("request_settings", r#"`"harmless"`, `"all"`, `"none"`, or a list"#, r#"`"harmless"`"#,
            "which php.ini settings a request may bring along in `PHP_VALUE` and `PHP_ADMIN_VALUE`; see [Security](../explain/security.md#settings-that-come-with-a-request)")
            .in_php_fpm("all"),
        preloader_idle_timeout: Field<Time> = key("preloader_idle_timeout", "duration", r#"`"5m"`"#,
            "a preloader stops when its pool has had no worker for this long"),
        start_timeout: Field<Time> = key("start_timeout", "duration, not 0", r#"`"30s"`"#,
            "how long PHP may take to start"),
        warm_up: Field<Whole> = key("warm_up", "number, 0 to 1000", "`100`",
            "at a reload, how many of the scripts that the old workers ran most are compiled before the new ones serve; 0: none"),
        warm_up_time: Field<Time> = key("warm_up_time", "duration, not 0", r#"`"5s"`"#,
            "the most time for `warm_up`"),
        preloader: Field<PreloaderChoice> = key("preloader", r#"`"own"`, `"zygote"`"#, r#"`"zygote"` or `"own"`"#,
            "a preloader of the pool's own, or workers of [one start of PHP for pools of all users](../explain/process-management.md#one-start-of-php-for-all-users), which is usual where the daemon runs as root; with each an OPcache of the pool's own")
            .sample(Off(r#""zygote""#))
            .in_php_fpm("all pools share one"),
        opcache_cache: Field<Text> = key("opcache_cache", "path", "none",
            "a directory that keeps compiled scripts over reloads and reboots; each user has a subdirectory there, \
             named after the user's number, that no other user can enter; forkyard makes the directory if its \
             parent exists")
            .sample(Off(r#""/var/cache/forkyard""#))
            .in_php_fpm("`php_admin_value[opcache.file_cache]`, which is one for all users"),
        worker: Field<Text> = key("worker", "path", "",
            "the worker script of an application that [boots once](../howto/boot-once.md): it runs in the preloader up to its first request, and answers all requests")
            .sample(Nowhere),
        worker_mode: Field<WorkerModeChoice> = key("worker_mode", r#"`"loop"`, `"snapshot"`"#, "required with `worker`",
            "how the worker script answers: `\"loop\"`, one request after the other in a process that keeps its \
             state; `\"snapshot\"`, each request starts from the state after the boot")
            .sample(Nowhere),
        isolation: Field<IsolationChoice> = key("isolation", r#"`"auto"`, `"rewind"`"#, r#"`"auto"` with `worker_mode = "snapshot"`"#,
            "how a worker gets rid of a request: `\"rewind\"`: it is put back; `\"auto\"`: it is put back where the kernel can, and elsewhere each request boots the application")
            .sample(Nowhere),
        loop_requests: Field<Whole> = key("loop_requests", "number", "`500` with `worker`",
            "`max_requests`, with a tenth as `max_requests_jitter` if that is not set; 0: no limit")
            .sample(Nowhere),
        loop_memory: Field<Size> = key("loop_memory", "size", r#"`"128M"` with `worker`"#,
            "`memory_limit`; 0: no limit")
            .sample(Nowhere),
        boot_timeout: Field<Time> = key("boot_timeout", "duration, not 0", r#"`"30s"` with `worker`"#,
            "how long PHP's start, the boot and the warm-up requests may take together")
            .sample(Nowhere),
        boot_connections: Field<ConnectionsChoice> = key("boot_connections", r#"`"cut"`, `"refuse"`, `"keep"`"#, r#"`"cut"` with `worker`"#,
            "what becomes of connections that the boot leaves open: workers find them closed, the boot has failed, or all workers share them")
            .sample(Nowhere),
        warm_up_requests: Field<Texts> = key("warm_up_requests", "list", "`[]` with `worker`",
            "paths that are asked for in the preloader before the first worker is made; an answer of 500 or more is a failed boot")
            .sample(Nowhere),
        warm_up_server: Entries<Text> = key("warm_up_server", "table", "`{}` with `worker`",
            "values of `$_SERVER` for the boot and the warm-up requests")
            .sample(Nowhere),
        watch: Field<Texts> = key("watch", "list", "`[]` with `worker`",
            "patterns of files (`**` matches any number of directories): a change of a matching file reloads the \
             pool; for development")
            .sample(Nowhere),
        _ = key(Pool, "env", "table", "`{}`",
            r#"the workers' environment; a value `"$NAME"` is taken from that variable of the master's"#)
            .same(Form::List, "")
            .sample(Off(r#"{ PATH = "$PATH", TMP = "/tmp" }"#)),
        _ = key(Pool, "application.runtime", "string", "required",
            "the runtime: see [Runtimes](runtimes.md)")
            .sample(Nowhere)
            .in_php_fpm("always PHP"),
        php_value: Entries<IniValue> = key("php_value", "table", "`{}`",
            "php.ini settings that .user.ini files and scripts may change")
            .same(Form::List, "").note("also `php_flag`")
            .sample(Off(r#"{ memory_limit = "256M" }"#)),
        php_flag: Entries<IniValue> = key("php_flag", "table", "`{}`",
            "the same as `php_value`, for flags: `true` or `false`")
            .sample(Off("{ display_errors = false }"))
            .in_php_fpm("`php_flag[…]`"),
        php_admin_value: Entries<IniValue> = key("php_admin_value", "table", "`{}`",
            "php.ini settings that scripts may not change")
            .same(Form::List, "").note("also `php_admin_flag`")
            .sample(Off(r#"{ open_basedir = "/var/www:/tmp" }"#)),
        php_admin_flag: Entries<IniValue> = key("php_admin_flag", "table", "`{}`",
            "the same as `php_admin_value`, for flags")
            .sample(Off("{ log_errors = true }"))
            .in_php_fpm("`php_admin_flag[…]`"),
    }
}
