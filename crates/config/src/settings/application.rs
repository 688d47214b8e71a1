//! Settings of a pool's application.

use super::directive::Form::{Blanks, List};
use super::row::Sample::{Beside, Nowhere, Off, On};
use super::row::Section::{Cgi, FastCgi, Http, Php, Pool, Wrapped};
use super::row::{Setting, key};

#[rustfmt::skip]
pub(super) const ROWS: &[Setting] = &[
    key(Php, "runtime", "string", "required",
        "the runtime; the other keys of this table depend on it")
        .sample(On(r#""php""#)),
    key(Php, "version", "string", "required",
        r#"which PHP: `"8.2"`"#)
        .sample(On(r#""8.2""#))
        .in_php_fpm("the binary is the version"),
    key(Php, "library", "path", "found from `version`",
        "the library libphp")
        .sample(Off(r#""/usr/lib/libphp8.2.so""#)),
    key(Php, "php_ini", "path", "`/etc/php/VERSION/fpm`, otherwise `/etc/php/VERSION/embed`",
        "php.ini, or the directory it is in")
        .sample(Off(r#""/etc/php/8.2/fpm""#))
        .in_php_fpm("the option `-c`"),
    key(Php, "limit_extensions", "list", r#"`[".php", ".phar"]`"#,
        "endings of the scripts that may be run; an empty list: any")
        .fpm("security.limit_extensions", Blanks, "").note("with blanks between them; unset: `.php .phar`"),
    key(Php, "script_root", "path", "",
        "scripts that a request names are below this directory, links resolved; others are answered with 403")
        .sample(Off(r#""/srv/app""#))
        .in_php_fpm("not there"),
    key(Php, "request_settings", r#"`"harmless"`, `"all"`, `"none"`, or a list"#, r#"`"harmless"`"#,
        "which php.ini settings a request may bring along in `PHP_VALUE` and `PHP_ADMIN_VALUE`; see [Security](../explain/security.md#settings-that-come-with-a-request)")
        .in_php_fpm("all"),
    key(Php, "preloader_idle_timeout", "duration", r#"`"5m"`"#,
        "a preloader stops when its pool has had no worker for this long")
        .in_php_fpm("not there"),
    key(Php, "start_timeout", "duration, not 0", r#"`"30s"`"#,
        "how long PHP may take to start")
        .in_php_fpm("not there"),
    key(Php, "warm_up", "number, 0 to 1000", "`100`",
        "at a reload, how many of the scripts that the old workers ran most are compiled before the new ones serve; 0: none")
        .in_php_fpm("not there"),
    key(Php, "warm_up_time", "duration, not 0", r#"`"5s"`"#,
        "the most time for `warm_up`")
        .in_php_fpm("not there"),
    key(Php, "preloader", r#"`"own"`, `"zygote"`"#, r#"`"zygote"` or `"own"`"#,
        "a preloader of the pool's own, or workers of [one start of PHP for pools of all users](../explain/process-management.md#one-start-of-php-for-all-users), which is usual where the daemon runs as root; with each an OPcache of the pool's own")
        .sample(Off(r#""zygote""#))
        .in_php_fpm("all pools share one"),
    key(Php, "opcache_cache", "path", "none",
        "a directory that keeps compiled scripts over reloads and reboots; each user has a subdirectory there, \
         named after the user's number, that no other user can enter; forkyard makes the directory if its \
         parent exists")
        .sample(Off(r#""/var/cache/forkyard""#))
        .in_php_fpm("`php_admin_value[opcache.file_cache]`, which is one for all users"),
    key(Php, "worker", "path", "",
        "the worker script of an application that [boots once](../howto/boot-once.md): it runs in the preloader up to its first request, and answers all requests")
        .sample(Nowhere)
        .in_php_fpm("not there"),
    key(Php, "worker_mode", r#"`"loop"`, `"snapshot"`"#, "required with `worker`",
        "how the worker script answers: `\"loop\"`, one request after the other in a process that keeps its \
         state; `\"snapshot\"`, each request starts from the state after the boot")
        .sample(Nowhere)
        .in_php_fpm("not there"),
    key(Php, "isolation", r#"`"auto"`, `"rewind"`"#, r#"`"auto"` with `worker_mode = "snapshot"`"#,
        "how a worker gets rid of a request: `\"rewind\"`: it is put back; `\"auto\"`: it is put back where the kernel can, and elsewhere each request boots the application")
        .sample(Nowhere)
        .in_php_fpm("not there"),
    key(Php, "loop_requests", "number", "`500` with `worker`",
        "`max_requests`, with a tenth as `max_requests_jitter` if that is not set; 0: no limit")
        .sample(Nowhere)
        .in_php_fpm("not there"),
    key(Php, "loop_memory", "size", r#"`"128M"` with `worker`"#,
        "`memory_limit`; 0: no limit")
        .sample(Nowhere)
        .in_php_fpm("not there"),
    key(Php, "boot_timeout", "duration, not 0", r#"`"30s"` with `worker`"#,
        "how long PHP's start, the boot and the warm-up requests may take together")
        .sample(Nowhere)
        .in_php_fpm("not there"),
    key(Php, "boot_connections", r#"`"cut"`, `"refuse"`, `"keep"`"#, r#"`"cut"` with `worker`"#,
        "what becomes of connections that the boot leaves open: workers find them closed, the boot has failed, or all workers share them")
        .sample(Nowhere)
        .in_php_fpm("not there"),
    key(Php, "warm_up_requests", "list", "`[]` with `worker`",
        "paths that are asked for in the preloader before the first worker is made; an answer of 500 or more is a failed boot")
        .sample(Nowhere)
        .in_php_fpm("not there"),
    key(Php, "warm_up_server", "table", "`{}` with `worker`",
        "values of `$_SERVER` for the boot and the warm-up requests")
        .sample(Nowhere)
        .in_php_fpm("not there"),
    key(Php, "watch", "list", "`[]` with `worker`",
        "patterns of files (`**` matches any number of directories): a change of a matching file reloads the \
         pool; for development")
        .sample(Nowhere)
        .in_php_fpm("not there"),
    key(Pool, "env", "table", "`{}`",
        r#"the workers' environment; a value `"$NAME"` is taken from that variable of the master's"#)
        .same(List, "")
        .sample(Off(r#"{ PATH = "$PATH", TMP = "/tmp" }"#)),
    key(Php, "php_value", "table", "`{}`",
        "php.ini settings that .user.ini files and scripts may change")
        .same(List, "").note("also `php_flag`")
        .sample(Off(r#"{ memory_limit = "256M" }"#)),
    key(Php, "php_flag", "table", "`{}`",
        "the same as `php_value`, for flags: `true` or `false`")
        .sample(Off("{ display_errors = false }"))
        .in_php_fpm("`php_flag[…]`"),
    key(Php, "php_admin_value", "table", "`{}`",
        "php.ini settings that scripts may not change")
        .same(List, "").note("also `php_admin_flag`")
        .sample(Off(r#"{ open_basedir = "/var/www:/tmp" }"#)),
    key(Php, "php_admin_flag", "table", "`{}`",
        "the same as `php_admin_value`, for flags")
        .sample(Off("{ log_errors = true }"))
        .in_php_fpm("`php_admin_flag[…]`"),
    key(Pool, "application.runtime", "string", "required",
        "the runtime: see [Runtimes](runtimes.md)")
        .sample(Nowhere)
        .in_php_fpm("always PHP"),
    key(Cgi, "script", "path", "",
        "the program that answers every request")
        .sample(Off(r#""/usr/lib/cgit/cgit.cgi""#)),
    key(Cgi, "root", "path", "",
        "programs are those that the web server names (`SCRIPT_FILENAME`, or `DOCUMENT_ROOT` with `SCRIPT_NAME`), links resolved, below this directory")
        .sample(Off(r#""/usr/lib/cgi-bin""#)),
    key(Cgi, "search_arguments", "flag", "`false`",
        "give a query without `=` to the program as its arguments (RFC 3875 section 4.4)"),
    key(Cgi, "parameters", "list", "`[]`",
        "names of parameters that programs get in addition to CGI's; a `*` at the end matches any rest")
        .sample(Off(r#"["GIT_*"]"#)),
    key(FastCgi, "start_command", "string", "",
        "the command, run by a shell")
        .sample(Off(r#""/usr/bin/php-cgi8.2""#)),
    key(FastCgi, "program", "path", "",
        "the command, run without a shell; instead of `start_command`")
        .sample(Nowhere),
    key(FastCgi, "arguments", "list", "`[]`",
        "the arguments of `program`")
        .sample(Nowhere),
    key(FastCgi, "root", "path", "the worker's directory (`chdir`)",
        "the program's working directory")
        .sample(Off(r#""/srv/app""#)),
    key(FastCgi, "start_timeout", "duration, not 0", r#"`"90s"`"#,
        "how long the program may leave input unread"),
    key(FastCgi, "abort_timeout", "duration", r#"`"10s"`"#,
        "how long the program may continue with a request after its client has left; then it is killed and \
         restarted"),
    key(FastCgi, "parameters", "list", "`[]`",
        "names of parameters that the program gets in addition to CGI's; a `*` at the end matches any rest")
        .sample(Off(r#"["GIT_*"]"#)),
    key(FastCgi, "script_root", "path", "",
        "scripts that a request names are below this directory, links resolved; others are answered with 403")
        .sample(Off(r#""/srv/app""#)),
    key(Http, "address", "string", "",
        "where a program listens that forkyard does not start: an address and port, a port of this machine, or the path of a unix socket; all other keys are for a program that forkyard starts")
        .sample(Nowhere),
    key(Http, "root", "path", "required with `start_command`",
        "the application's directory; the program starts there")
        .sample(Off(r#""/srv/app""#)),
    key(Http, "start_command", "string", "for Node.js the script `start` of package.json, otherwise `node` \
        with the first of app.js, server.js, index.js",
        "what starts the program, as a shell reads it after `exec`; it has to listen on `$PORT`, or on `$SOCKET` with `handshake = \"socket\"`")
        .sample(Off(r#""node server.js""#)),
    key(Http, "handshake", "flag, or `\"socket\"`", "`false`",
        "`\"socket\"`: the program listens on the unix socket `$SOCKET`, which only forkyard can reach; `true`: it speaks the \
         [handshake](spawning.md#the-handshake) and chooses its sockets itself"),
    key(Http, "instances", "number, 1 to 256", "`1`",
        "how many processes are started of the program; a request goes to the least busy one"),
    key(Http, "app_env", "string", r#"`"production"`"#,
        "`NODE_ENV`, `RAILS_ENV`, `RACK_ENV`, `WSGI_ENV`"),
    key(Http, "load_shell_envvars", "flag", "`false`",
        "let the user's login shell set the environment first"),
    key(Http, "rlimits", "table", "`{}`",
        "resource limits by their names in setrlimit(2): a number, a size, `\"unlimited\"`, or `\"SOFT:HARD\"`")
        .sample(Off(r#"{ nofile = 4096, as = "2G" }"#)),
    key(Http, "umask", "octal digits in quotes", "the daemon's",
        "file mode creation mask")
        .sample(Off(r#""0027""#)),
    key(Http, "preloader_idle_timeout", "duration", r#"`"5m"`"#,
        "a program stops when its pool has had no worker for this long"),
    key(Http, "start_timeout", "duration, not 0", r#"`"90s"`"#,
        "how long the program may take until it listens"),
    key(Wrapped, "root", "path", "required",
        "the application's directory")
        .sample(Off(r#""/srv/app""#)),
    key(Wrapped, "entry", "string", "the usual file in `root`",
        "the application: `module:callable`, or the path of a file")
        .sample(Off(r#""app:application""#)),
    key(Wrapped, "interpreter", "path", "`.venv/bin/python` or `venv/bin/python` in `root`, or `/usr/bin/python3`; for Rack `/usr/bin/ruby`",
        "the language's interpreter")
        .sample(Off(r#""/srv/app/.venv/bin/python""#)),
    key(Wrapped, "concurrency", "number, 1 to 10000", "`100`",
        "ASGI only: so many requests are served by one worker at a time; idle streams and WebSockets don't count")
        .sample(Beside("100")),
    key(Wrapped, "threads", "number, 1 to 256", "`1`",
        "WSGI and Rack only: threads of one worker, each with a request at a time; the application has to be safe for threads")
        .sample(Off("5")),
    key(Wrapped, "preloader_idle_timeout", "duration", r#"`"5m"`"#,
        "a preloader stops when its pool has had no worker for this long"),
    key(Wrapped, "refork_after", "number, or array of numbers", "`0`",
        "once a worker has served so many requests, workers are forked from it; of an array, each number is for one time and the last for all that follow; 0: no more")
        .sample(Off("[50, 100, 1000]")),
    key(Wrapped, "huge_code_pages", "flag", "`false`",
        "put the interpreter's code into huge pages, as `opcache.huge_code_pages` does with PHP's: see [Python](python.md#huge-pages)"),
    key(Wrapped, "preload", r#"`"auto"`, `true`, `false`"#, r#"`"auto"`"#,
        "where the application is loaded: `true`, in the preloader, and workers are forked from it; `false`, \
         in each worker; `\"auto\"`, in each worker if the application leaves a connection open: see \
         [Python](python.md#connections-and-threads)"),
    key(Wrapped, "start_timeout", "duration, not 0", r#"`"90s"`"#,
        "how long the application may take to start"),
];
