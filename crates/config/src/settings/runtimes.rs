//! The keys of `[pool.NAME.application]` with another runtime than PHP.

use super::row::Sample::{Beside, Nowhere, Off};
use super::row::section;
use super::sections::Section;
use crate::flat_keys::{Entries, Field};
use crate::units::{Bounds, Counts, FileMode, Flag, Handshake, PreloadRule, Text, Texts, Time, Whole};

section! {
    CgiDraft of Section::Cgi, below "application." {
        script: Field<Text> = key("script", "path", "",
            "the program that answers every request")
            .sample(Off(r#""/usr/lib/cgit/cgit.cgi""#)),
        root: Field<Text> = key("root", "path", "",
            "programs are those that the web server names (`SCRIPT_FILENAME`, or `DOCUMENT_ROOT` with `SCRIPT_NAME`), links resolved, below this directory")
            .sample(Off(r#""/usr/lib/cgi-bin""#)),
        search_arguments: Field<Flag> = key("search_arguments", "flag", "`false`",
            "give a query without `=` to the program as its arguments (RFC 3875 section 4.4)"),
        parameters: Field<Texts> = key("parameters", "list", "`[]`",
            "names of parameters that programs get in addition to CGI's; a `*` at the end matches any rest")
            .sample(Off(r#"["GIT_*"]"#)),
    }
}

section! {
    FastCgiDraft of Section::FastCgi, below "application." {
        start_command: Field<Text> = key("start_command", "string", "",
            "the command, run by a shell")
            .sample(Off(r#""/usr/bin/php-cgi8.2""#)),
        program: Field<Text> = key("program", "path", "",
            "the command, run without a shell; instead of `start_command`")
            .sample(Nowhere),
        arguments: Field<Texts> = key("arguments", "list", "`[]`",
            "the arguments of `program`")
            .sample(Nowhere),
        root: Field<Text> = key("root", "path", "the worker's directory (`chdir`)",
            "the program's working directory")
            .sample(Off(r#""/srv/app""#)),
        start_timeout: Field<Time> = key("start_timeout", "duration, not 0", r#"`"90s"`"#,
            "how long the program may leave input unread"),
        abort_timeout: Field<Time> = key("abort_timeout", "duration", r#"`"10s"`"#,
            "how long the program may continue with a request after its client has left; then it is killed and \
             restarted"),
        parameters: Field<Texts> = key("parameters", "list", "`[]`",
            "names of parameters that the program gets in addition to CGI's; a `*` at the end matches any rest")
            .sample(Off(r#"["GIT_*"]"#)),
        script_root: Field<Text> = key("script_root", "path", "",
            "scripts that a request names are below this directory, links resolved; others are answered with 403")
            .sample(Off(r#""/srv/app""#)),
    }
}

section! {
    HttpDraft of Section::Http, below "application." {
        address: Field<Text> = key("address", "string", "",
            "where a program listens that forkyard does not start: an address and port, a port of this machine, or the path of a unix socket; all other keys are for a program that forkyard starts")
            .sample(Nowhere),
        root: Field<Text> = key("root", "path", "required with `start_command`",
            "the application's directory; the program starts there")
            .sample(Off(r#""/srv/app""#)),
        start_command: Field<Text> = key("start_command", "string", "for Node.js the script `start` of package.json, otherwise `node` \
            with the first of app.js, server.js, index.js",
            "what starts the program, as a shell reads it after `exec`; it has to listen on `$PORT`, or on `$SOCKET` with `handshake = \"socket\"`")
            .sample(Off(r#""node server.js""#)),
        handshake: Field<Handshake> = key("handshake", "flag, or `\"socket\"`", "`false`",
            "`\"socket\"`: the program listens on the unix socket `$SOCKET`, which only forkyard can reach; `true`: it speaks the \
             [handshake](spawning.md#the-handshake) and chooses its sockets itself"),
        instances: Field<Whole> = key("instances", "number, 1 to 256", "`1`",
            "how many processes are started of the program; a request goes to the least busy one"),
        app_env: Field<Text> = key("app_env", "string", r#"`"production"`"#,
            "`NODE_ENV`, `RAILS_ENV`, `RACK_ENV`, `WSGI_ENV`"),
        load_shell_envvars: Field<Flag> = key("load_shell_envvars", "flag", "`false`",
            "let the user's login shell set the environment first"),
        rlimits: Entries<Bounds> = key("rlimits", "table", "`{}`",
            "resource limits by their names in setrlimit(2): a number, a size, `\"unlimited\"`, or `\"SOFT:HARD\"`")
            .sample(Off(r#"{ nofile = 4096, as = "2G" }"#)),
        umask: Field<FileMode> = key("umask", "octal digits in quotes", "the daemon's",
            "file mode creation mask")
            .sample(Off(r#""0027""#)),
        preloader_idle_timeout: Field<Time> = key("preloader_idle_timeout", "duration", r#"`"5m"`"#,
            "a program stops when its pool has had no worker for this long"),
        start_timeout: Field<Time> = key("start_timeout", "duration, not 0", r#"`"90s"`"#,
            "how long the program may take until it listens"),
    }
}

section! {
    WrappedDraft of Section::Wrapped, below "application." {
        root: Field<Text> = key("root", "path", "required",
            "the application's directory")
            .sample(Off(r#""/srv/app""#)),
        entry: Field<Text> = key("entry", "string", "the usual file in `root`",
            "the application: `module:callable`, or the path of a file")
            .sample(Off(r#""app:application""#)),
        interpreter: Field<Text> = key("interpreter", "path", "`.venv/bin/python` or `venv/bin/python` in `root`, or `/usr/bin/python3`; for Rack `/usr/bin/ruby`",
            "the language's interpreter")
            .sample(Off(r#""/srv/app/.venv/bin/python""#)),
        concurrency: Field<Whole> = key("concurrency", "number, 1 to 10000", "`100`",
            "ASGI only: so many requests are served by one worker at a time; idle streams and WebSockets don't count")
            .sample(Beside("100")),
        threads: Field<Whole> = key("threads", "number, 1 to 256", "`1`",
            "WSGI and Rack only: threads of one worker, each with a request at a time; the application has to be safe for threads")
            .sample(Off("5")),
        preloader_idle_timeout: Field<Time> = key("preloader_idle_timeout", "duration", r#"`"5m"`"#,
            "a preloader stops when its pool has had no worker for this long"),
        refork_after: Field<Counts> = key("refork_after", "number, or array of numbers", "`0`",
            "once a worker has served so many requests, workers are forked from it; of an array, each number is for one time and the last for all that follow; 0: no more")
            .sample(Off("[50, 100, 1000]")),
        huge_code_pages: Field<Flag> = key("huge_code_pages", "flag", "`false`",
            "put the interpreter's code into huge pages, as `opcache.huge_code_pages` does with PHP's: see [Python](python.md#huge-pages)"),
        preload: Field<PreloadRule> = key("preload", r#"`"auto"`, `true`, `false`"#, r#"`"auto"`"#,
            "where the application is loaded: `true`, in the preloader, and workers are forked from it; `false`, \
             in each worker; `\"auto\"`, in each worker if the application leaves a connection open: see \
             [Python](python.md#connections-and-threads)"),
        start_timeout: Field<Time> = key("start_timeout", "duration, not 0", r#"`"90s"`"#,
            "how long the application may take to start"),
    }
}
