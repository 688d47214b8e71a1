//! The keys of `[pool.NAME]`: the socket and the process manager; requests, logs and status; environment and restrictions.

use super::directive::Form;
use super::directive::Shown::{Never, Priority, Seconds};
use super::global::PRIORITY;
use super::row::Sample::{Beside, Off, On};
use super::row::{section, without_key};
use super::sections::Section;
use super::sections::Section::Pool;
use crate::LogLevel::{Alert, Error};
use crate::flat_keys::{Entries, Field};
use crate::units::{
    AbandonedRule, Children, Core, FileMode, Flag, LaneReserve, LaneRules, Manager, Percentages, QueueLimit,
    Reload, Routing, Size, Text, Texts, Time, Whole,
};

section! {
    PoolDraft of Section::Pool, below "" {
        _ = without_key(Pool, "prefix", Form::Text, "",
            "what relative paths of the pool are relative to",
            "write paths in full", "leave it out: paths are written in full")
            .sample(Off(r#""/srv""#)),
        user: Field<Text> = key("user", "string", "required for a root master",
            "user of the workers, a name or a numeric id; ignored without root, with a notice")
            .same(Form::Text, "")
            .sample(On(r#""www-data""#)),
        group: Field<Text> = key("group", "string", "the user's",
            "group of the workers; ignored without root, with a notice")
            .same(Form::Text, "")
            .sample(On(r#""www-data""#)),
        listen: Field<Text> = key("listen", "string, or the table of the next rows", "required",
            r#"an absolute path of at most 107 bytes: a unix socket; `"ADDRESS:PORT"`, `"[IPV6]:PORT"`, `"HOST:PORT"`: TCP; `"PORT"`: TCP on every address. A host's first address is taken"#)
            .same(Form::Text, "")
            .sample(Beside(r#""/run/forkyard-$pool.sock""#))
            .in_php_fpm("may be a relative path; one of more than 107 bytes is cut"),
        listen_address: Field<Text> = key("listen.address", "string", "required",
            "the same, where `listen` has other keys too")
            .sample(On(r#""/run/forkyard-$pool.sock""#))
            .in_php_fpm(""),
        listen_backlog: Field<Whole> = key("listen.backlog", "number, -1 or more", "`-1`",
            "connections that may wait to be accepted; -1: as many as the kernel lets")
            .same(Form::Number, "-1"),
        listen_acl_users: Field<Texts> = key("listen.acl_users", "list", "`[]`",
            "users, by name or id, that may connect to the unix socket (an access control list, read and write), in addition to those that `listen.mode` admits; replaces `listen.owner` and `listen.group`, with a warning")
            .same(Form::Commas, "").note("with commas between them")
            .in_php_fpm("names with commas between them, no list"),
        listen_acl_groups: Field<Texts> = key("listen.acl_groups", "list", "`[]`",
            "groups that may connect to the unix socket, likewise")
            .same(Form::Commas, "")
            .in_php_fpm("the same"),
        listen_owner: Field<Text> = key("listen.owner", "string", "the master's user",
            "owner of a unix socket, a name or a numeric id")
            .same(Form::Text, "")
            .sample(On(r#""www-data""#)),
        listen_group: Field<Text> = key("listen.group", "string", "the owner's",
            "group of a unix socket, a name or a numeric id")
            .same(Form::Text, "")
            .sample(On(r#""www-data""#)),
        listen_mode: Field<FileMode> = key("listen.mode", "string of octal digits", r#"`"0660"`"#,
            "permissions of a unix socket")
            .same(Form::Octal, "").note("unset: 0660"),
        listen_allowed_clients: Field<Texts> = key("listen.allowed_clients", "list", "any",
            "the only addresses that may connect over TCP")
            .same(Form::Commas, "").note("with commas between them")
            .sample(Off(r#"["127.0.0.1", "::1"]"#))
            .in_php_fpm("a wrong address is left out"),
        process_priority: Field<Whole> = key("process.priority", "number, -19 to 20", "as inherited",
            "nice(2) value of the workers; ignored without root, with a notice")
            .same(Form::Number, "64").shown(Priority).limit(-19, 20, Error, PRIORITY)
            .sample(Off("0")),
        process_dumpable: Field<Flag> = key("process.dumpable", "flag", "`false`",
            "let workers be traced and dump core although they changed user")
            .same(Form::Flag, "no"),
        routing: Field<Routing> = key("routing", r#"`"pool"`, `"application"`"#, r#"`"pool"`"#,
            r#"what the socket is for: one application, or [many](application-pool.md), each found by the root that a request names. With `"application"`, leave out `pm` and its numbers: `[pool.NAME.applications]` has others. `[pool.NAME.application]`, with the settings of each PHP application, and `user` are optional then"#)
            .in_php_fpm("one application for each pool"),
        pm: Field<Manager> = key("pm", r#"`"static"`, `"dynamic"`, `"ondemand"`"#, "required",
            "how many workers there are, and when. `static`: always `max_children`; `dynamic`: as many as are busy, and from `min_spare_servers` to `max_spare_servers` idle ones; `ondemand`: none until a request comes")
            .same(Form::Manager, "")
            .sample(On(r#""dynamic""#)),
        max_children: Field<Children> = key("max_children", r#"number, 1 or more, or `"auto"`"#, "required",
            "most workers; with `static`, their number. `\"auto\"`: [the autopilot](../howto/overload.md#the-number-of-workers) chooses \
            the number, by memory, processors, and what requests wait for")
            .fpm("pm.max_children", Form::Number, "0")
            .limit(1, i32::MAX, Alert, "pm.max_children must be a positive value")
            .sample(On("10"))
            .in_php_fpm("no `\"auto\"`"),
        max_children_most: Field<Whole> = key("max_children_most", "number, 1 or more", "as many as memory has room for, at most 1024",
            "the most workers that `max_children = \"auto\"` chooses")
            .sample(Off("40")),
        start_servers: Field<Whole> = key("start_servers", "number", "halfway between the next two",
            "`dynamic`: workers at the start")
            .fpm("pm.start_servers", Form::Number, "0").note("unset: halfway between the next two")
            .sample(On("2")),
        min_spare_servers: Field<Whole> = key("min_spare_servers", "number, 1 or more", "required with `dynamic`",
            "`dynamic`: fewest idle workers")
            .fpm("pm.min_spare_servers", Form::Number, "0")
            .sample(On("1")),
        max_spare_servers: Field<Whole> = key("max_spare_servers", "number, 1 or more", "required with `dynamic`",
            "`dynamic`: most idle workers")
            .fpm("pm.max_spare_servers", Form::Number, "0")
            .sample(On("3")),
        max_spawn_rate: Field<Whole> = key("max_spawn_rate", "number, 1 or more", "`32`",
            "`dynamic`: most workers started in one step")
            .fpm("pm.max_spawn_rate", Form::Number, "32"),
        process_idle_timeout: Field<Time> = key("process_idle_timeout", "duration, not 0", r#"`"10s"`"#,
            "`dynamic`, `ondemand`: an idle worker that is not needed is stopped after this time")
            .fpm("pm.process_idle_timeout", Form::Time, "10").note("without effect with `dynamic`")
            .in_php_fpm("for `ondemand` only"),
        max_requests: Field<Whole> = key("max_requests", "number", "`0`",
            "a worker is replaced after this many requests, or [a program](runtimes.md#http) that speaks HTTP and that forkyard starts; 0: never")
            .fpm("pm.max_requests", Form::Number, "0"),
        max_requests_jitter: Field<Whole> = key("max_requests_jitter", "number", "`0`",
            "up to so many more requests, another number for each worker, so that workers that were started together are not replaced together"),
        memory_limit: Field<Size> = key("memory_limit", "size", "`0`",
            "a worker that uses more, together with its FastCGI program, is replaced after its request; a program \
             that speaks HTTP is replaced with the processes that it has started; measured as proportional share \
             (PSS) in /proc after every few requests, or every second; not for a program that forkyard does not \
             start; 0: no limit")
            .sample(Off(r#""512M""#)),
        reload: Field<Reload> = key("reload", r#"`"changed"`, `"always"`"#, r#"`"changed"`"#,
            "which reloads replace the workers: those that find [something changed](../explain/process-management.md#what-counts-as-changed), or all")
            .in_php_fpm("always"),
        status_path: Field<Text> = key("status_path", "string", "none",
            "the path (SCRIPT_NAME) of the pool's status page: `/` and letters, digits, `/ _ - . ~`")
            .fpm("pm.status_path", Form::Text, "")
            .sample(Off(r#""/status""#)),
        status_listen: Field<Text> = key("status_listen", "string", "none",
            "another address, as in `listen`, that answers status and ping only, even while every worker is busy; \
             see [The status page](status.md). Owner, group, mode and allowed clients are taken from `listen`; \
             `status_path` is `/` if it is not given")
            .fpm("pm.status_listen", Form::Text, "")
            .sample(Off(r#""/run/forkyard-$pool-status.sock""#))
            .in_php_fpm("the status pool also runs scripts"),
        http_listen: Field<Text> = key("http_listen", "string", "none",
            "another address, as in `listen`, where workers speak HTTP/1.1 to the web server's `proxy_pass`, with \
             WebSocket and other upgrades: for Node.js, programs that speak HTTP, and ASGI; see \
             [WebSocket](runtimes.md#websocket-and-other-upgrades). Owner, group, mode and allowed clients are \
             taken from `listen`")
            .sample(Beside(r#""/run/forkyard-$pool-http.sock""#))
            .in_php_fpm(""),
        ping_path: Field<Text> = key("ping.path", "string", "none",
            "the path of the pool's ping page")
            .same(Form::Text, "")
            .sample(Off(r#""/ping""#))
            .in_php_fpm("may be the same as `pm.status_path`"),
        ping_response: Field<Text> = key("ping.response", "string", r#"`"pong"`"#,
            "the answer of `ping.path`")
            .same(Form::Text, "").note("unset: `pong`"),
        access_log: Field<Text> = key("access.log", "path", "none",
            "a file with a line for each request: see [Logging](logging.md)")
            .same(Form::Text, "")
            .sample(Off(r#""/var/log/forkyard-$pool.access""#)),
        access_format: Field<Text> = key("access.format", "string", r#"`"%R - %u %t \"%m %r\" %s"`"#,
            "the line of `access.log`: a format, or `json`; see [Logging](logging.md#the-access-log)")
            .same(Form::Text, "").note(r#"unset: `%R - %u %t "%m %r" %s`"#)
            .in_php_fpm("no `json`, and no `escape=json`"),
        access_suppress_path: Field<Texts> = key("access.suppress_path", "list", "`[]`",
            "URIs that leave no line in `access.log` when the request succeeds")
            .same(Form::List, "")
            .sample(Off(r#"["/ping"]"#)),
        slowlog: Field<Text> = key("slowlog", "path", "none",
            "file for slow requests")
            .same(Form::Text, "")
            .sample(Off(r#""/var/log/$pool.slow""#)),
        request_slowlog_timeout: Field<Time> = key("request_slowlog_timeout", "duration", "`0`",
            "a request that takes longer is slow; 0: none is. Needs `slowlog`; no more than `request_terminate_timeout`")
            .same(Form::Time, "0").shown(Seconds),
        request_slowlog_trace_depth: Field<Whole> = key("request_slowlog_trace_depth", "number, 1 or more", "`20`",
            "calls of a slow request that are written down, the innermost first. Needs `slowlog`")
            .same(Form::Number, "20"),
        request_terminate_timeout: Field<Time> = key("request_terminate_timeout", "duration", "`0`",
            "a request that takes longer is answered with 504 and ended, and its worker with it; one that serves several requests at a time goes on with the others, or ends after them if it has threads; 0: never ([Slow requests](../howto/slow-requests.md))")
            .same(Form::Time, "0").shown(Seconds)
            .in_php_fpm("the connection is cut"),
        request_terminate_timeout_track_finished: Field<Flag> = key("request_terminate_timeout_track_finished", "flag", "`false`",
            "also count while the application works on after it has ended its answer (`fastcgi_finish_request`)")
            .same(Form::Flag, "no"),
        stop_timeout: Field<Time> = key("stop_timeout", "duration, not 0", r#"`"10s"`"#,
            "from SIGTERM to SIGKILL, when a worker or a program is stopped; for an application pool [`applications.stop_timeout`](application-pool.md#configuration)")
            .in_php_fpm("a second"),
        push_timeout: Field<Time> = key("push_timeout", "duration, not 0", "taken from `[jobs]`",
            "how long a push of a background job by the pool's applications may take")
            .sample(Off(r#""2s""#))
            .in_php_fpm(""),
        client_timeout: Field<Time> = key("client_timeout", "duration, not 0", r#"`"60s"`"#,
            "how long a client may take to send a request's parameters, and how long it may be silent in the body or while it receives the answer")
            .in_php_fpm("none: a worker waits for ever"),
        keepalive_timeout: Field<Time> = key("keepalive_timeout", "duration, not 0", r#"`"75s"`"#,
            "how long an idle connection that the web server keeps stays open")
            .in_php_fpm("none: a connection holds its worker for ever"),
        wait_for_cpu: Field<Flag> = key("wait_for_cpu", "flag", "`true`",
            "leave new connections in the listening socket while as many of the pool's workers compute as there are processors ([Process management](../explain/process-management.md#requests-that-compute))")
            .in_php_fpm("every idle worker accepts"),
        max_request_queue_time: Field<QueueLimit> = key("max_request_queue_time", r#"duration, or `"auto"`"#, "`0`",
            "how long a request may wait before it begins: one that has waited longer is answered with 504; `\"auto\"`: with 503 and `Retry-After`, while all requests wait too long; 0: no limit. See [Overload](../howto/overload.md)")
            .in_php_fpm("none"),
        abandoned: Field<AbandonedRule> = key("abandoned", r#"`"skip"`, `"run"`, `"skip-half-closed"`"#, r#"`"skip"`"#,
            "what becomes of a GET or HEAD request that has waited for a second and whose client has left: it does not begin, or it runs. `\"skip-half-closed\"`: a client of another machine has left once it has closed its half of a TCP connection, as nginx does ([Overload](../howto/overload.md))")
            .in_php_fpm("it runs"),
        abandoned_keep: Field<Texts> = key("abandoned_keep", "list", r#"`["/wp-cron.php", "/cron.php"]`"#,
            "ends of paths, each from a slash, whose requests run without a client")
            .in_php_fpm("all run"),
        lanes: Field<LaneRules> = key("lanes", r#"`"off"`, `"wordpress"`, or an array of rules"#, r#"`"off"`"#,
            "classes of requests in one pool: bots and background work leave workers idle for people. A rule is `{ lane, uri, method, cookie, no_cookie, agent }`; the first that fits counts. See [Lanes](../howto/lanes.md)")
            .in_php_fpm("none"),
        lane_reserve: Field<LaneReserve> = key("lane_reserve", r#"number, 1 or more, or `"auto"`"#, r#"`"auto"`"#,
            "how many workers the lanes `background` and `bots` leave idle; `\"auto\"`: as many as people need, at most half")
            .in_php_fpm("none"),
        lane_extra: Field<Flag> = key("lane_extra", "true or false", "`true`",
            "whether as many workers as are left idle come on top of `max_children`, where memory has room")
            .in_php_fpm("none"),
        release: Field<Text> = key("release", "path", "none",
            "a link to the release in service. The pool's processes keep the release that it named at their start, until `forkyard deploy` or `forkyard restart`. See [Releases](../howto/deploy.md#releases)")
            .sample(Off(r#""/srv/shop/current""#))
            .in_php_fpm("none"),
        gradual: Field<Percentages> = key("gradual", "array of numbers, 1 to 99, or `[]`", "`[1, 10, 50]`",
            "the parts of the requests, in percent, that a new release gets before it gets all; `[]`: all at once")
            .in_php_fpm("none"),
        step_time: Field<Time> = key("step_time", "duration, not 0", r#"`"20s"`"#,
            "how long a new release gets each part; three times as long if there are too few requests to compare")
            .in_php_fpm("none"),
        release_shared: Field<Texts> = key("release_shared", "list of paths", "none",
            "directories for all releases, such as uploads: a script of a release may be a link to a file below them. See [Scripts](../howto/deploy.md#scripts-of-a-release)")
            .sample(Off(r#"["/srv/shop/shared"]"#))
            .in_php_fpm("none"),
        params_bytes: Field<Size> = key("limits.params_bytes", r#"size, `"4K"` to `"1G"`"#, r#"`"1M"`"#,
            "most bytes of the names and values of one request's parameters")
            .in_php_fpm("fixed"),
        params_count: Field<Whole> = key("limits.params_count", "number, 32 to 10000000", "`10000`",
            "most parameters of one request")
            .in_php_fpm("none"),
        rlimit_files: Field<Whole> = key("rlimit_files", "number", "`0`",
            "most open files of a worker; 0: as inherited")
            .same(Form::Number, "0"),
        rlimit_core: Field<Core> = key("rlimit_core", r#"size or `"unlimited"`"#, "as inherited",
            "largest core file of a worker")
            .same(Form::Core, "0").note("0: as inherited")
            .sample(Off(r#""unlimited""#))
            .in_php_fpm("0 means as inherited"),
        chroot: Field<Text> = key("chroot", "path", "none",
            "root directory of the workers; ignored without root, with a notice")
            .same(Form::Text, "")
            .sample(Off(r#""/srv/www""#))
            .in_php_fpm("`$prefix` stands for the pool's prefix"),
        chdir: Field<Text> = key("chdir", "path", "the master's; `/` in a chroot",
            "working directory of the workers, seen from inside the chroot")
            .same(Form::Text, "")
            .sample(Off(r#""/""#)),
        catch_workers_output: Field<Flag> = key("catch_workers_output", "flag", "`true`; `false` in a pool of PHP",
            "log what workers write to their standard output and error; it is dropped otherwise")
            .same(Form::Flag, "no").sample(Off("false")),
        decorate_workers_output: Field<Flag> = key("decorate_workers_output", "flag", "`true`",
            "put pool, process id and stream before what workers write")
            .same(Form::Flag, "yes"),
        app_log: Field<Text> = key("app_log", "path", "none",
            "file for the application's output, in place of the daemon's log; it belongs to the pool's user. In an \
             application pool the path is below each application's root. See \
             [Logging](logging.md#what-workers-write)")
            .sample(Off(r#""/var/log/$pool.app""#)),
        friendly_error_pages: Field<Flag> = key("friendly_error_pages", "flag", "`false`",
            "when the application can't be started, answer requests with its report, including output and the names of the environment's variables; \
             for development. See [How applications are started](spawning.md#what-clients-see)"),
        clear_env: Field<Flag> = key("clear_env", "flag", "`true`",
            "start the workers' environment empty, so that it holds nothing of the master's")
            .same(Form::Flag, "yes"),
        env_file: Field<Text> = key("env_file", "path", "none",
            "file with environment variables, which override `env`; it is read at each start of the application. \
             See [Secrets](../howto/deploy.md#secrets)")
            .sample(Off(r#""/srv/app/.env""#)),
        no_new_privs: Field<Flag> = key("no_new_privs", "flag", "`false`",
            "keep workers, and all they start, from gaining privileges, for example through set-user-id programs"),
        apparmor_hat: Field<Text> = key("apparmor_hat", "string", "none",
            "the workers change to the AppArmor profile `CURRENT//HAT`. Without AppArmor in the kernel the daemon does not start")
            .same(Form::Text, "").shown(Never)
            .sample(Off(r#""www""#))
            .in_php_fpm("a wrong one fails each worker"),
        confine_read: Field<Texts> = key("confine.read", "list of paths", "everything",
            "the only paths that may be read and executed, in addition to `confine.write` and the system's; see \
             [Security](../explain/security.md#paths)")
            .sample(Off(r#"["/"]"#)),
        confine_write: Field<Texts> = key("confine.write", "list of paths", "everything",
            "the only paths that may be written to; at least one directory if one of the two is set")
            .sample(Off(r#"["/app"]"#)),
        confine_deny_system_calls: Field<Flag> = key("confine.deny_system_calls", "flag", "`false`",
            "refuse system calls that attacks use; see [Security](../explain/security.md#system-calls)"),
        confine_private_tmp: Field<Flag> = key("confine.private_tmp", "flag", "`false`",
            "a `/tmp` and `/var/tmp` of the pool's own, in memory; needs root"),
        cpu_weight: Field<Whole> = key("cpu_weight", "number, 1 to 10000", "as the others",
            "the pool's share when pools want more processor time than there is; a pool without it has 100: see \
             [Fair shares](../howto/many-users.md#fair-shares)")
            .sample(Off("50")),
        memory_max: Field<Size> = key("memory_max", r#"size, `"4M"` or more"#, "no limit",
            "most memory of all processes of the pool; without control groups, of each process")
            .sample(Off(r#""512M""#)),
        cgroup_parent: Field<Text> = key("cgroup.parent", "path", "none",
            "a control group (cgroup v2); the pool gets a group in it, under the pool's name; see \
             [Security](../explain/security.md#control-groups)")
            .sample(Off(r#""/sys/fs/cgroup/forkyard""#)),
        cgroup_memory_max: Field<Size> = key("cgroup.memory_max", r#"size, `"4M"` or more"#, "no limit",
            "most memory of all processes of the pool")
            .sample(Off(r#""512M""#)),
        cgroup_cpu_percent: Field<Whole> = key("cgroup.cpu_percent", "number, 1 to 100000", "no limit",
            "share of processor time of all processes of the pool; 100: one processor")
            .sample(Off("150")),
        cgroup_pids_max: Field<Whole> = key("cgroup.pids_max", "number, 2 or more", "no limit",
            "most processes and threads of the pool, its preloader among them")
            .sample(Off("100")),
    }
    rows elsewhere {
        env: Entries<Text> = "env",
        runtime: Field<Text> = "application.runtime",
    }
}
