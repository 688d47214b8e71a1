//! Settings of a pool's requests.

use super::directive::Form::{Flag, List, Number, Text, Time};
use super::directive::Shown::Seconds;
use super::row::Sample::{Beside, Off};
use super::row::Section::Pool;
use super::row::{Setting, key};

#[rustfmt::skip]
pub(super) const ROWS: &[Setting] = &[
    key(Pool, "status_path", "string", "none",
        "the path (SCRIPT_NAME) of the pool's status page: `/` and letters, digits, `/ _ - . ~`")
        .fpm("pm.status_path", Text, "")
        .sample(Off(r#""/status""#)),
    key(Pool, "status_listen", "string", "none",
        "another address, as in `listen`, that answers status and ping only, even while every worker is busy; \
         see [The status page](status.md). Owner, group, mode and allowed clients are taken from `listen`; \
         `status_path` is `/` if it is not given")
        .fpm("pm.status_listen", Text, "")
        .sample(Off(r#""/run/forkyard-$pool-status.sock""#))
        .in_php_fpm("the status pool also runs scripts"),
    key(Pool, "http_listen", "string", "none",
        "another address, as in `listen`, where workers speak HTTP/1.1 to the web server's `proxy_pass`, with \
         WebSocket and other upgrades: for Node.js, programs that speak HTTP, and ASGI; see \
         [WebSocket](runtimes.md#websocket-and-other-upgrades). Owner, group, mode and allowed clients are \
         taken from `listen`")
        .sample(Beside(r#""/run/forkyard-$pool-http.sock""#)),
    key(Pool, "ping.path", "string", "none",
        "the path of the pool's ping page")
        .same(Text, "")
        .sample(Off(r#""/ping""#))
        .in_php_fpm("may be the same as `pm.status_path`"),
    key(Pool, "ping.response", "string", r#"`"pong"`"#,
        "the answer of `ping.path`")
        .same(Text, "").note("unset: `pong`"),
    key(Pool, "access.log", "path", "none",
        "a file with a line for each request: see [Logging](logging.md)")
        .same(Text, "")
        .sample(Off(r#""/var/log/forkyard-$pool.access""#)),
    key(Pool, "access.format", "string", r#"`"%R - %u %t \"%m %r\" %s"`"#,
        "the line of `access.log`: a format, or `json`; see [Logging](logging.md#the-access-log)")
        .same(Text, "").note(r#"unset: `%R - %u %t "%m %r" %s`"#)
        .in_php_fpm("no `json`, and no `escape=json`"),
    key(Pool, "access.suppress_path", "list", "`[]`",
        "URIs that leave no line in `access.log` when the request succeeds")
        .same(List, "")
        .sample(Off(r#"["/ping"]"#)),
    key(Pool, "slowlog", "path", "none",
        "file for slow requests")
        .same(Text, "")
        .sample(Off(r#""/var/log/$pool.slow""#)),
    key(Pool, "request_slowlog_timeout", "duration", "`0`",
        "a request that takes longer is slow; 0: none is. Needs `slowlog`; no more than `request_terminate_timeout`")
        .same(Time, "0").shown(Seconds),
    key(Pool, "request_slowlog_trace_depth", "number, 1 or more", "`20`",
        "calls of a slow request that are written down, the innermost first. Needs `slowlog`")
        .same(Number, "20"),
    key(Pool, "request_terminate_timeout", "duration", "`0`",
        "a request that takes longer is answered with 504 and ended, and its worker with it; one that serves several requests at a time goes on with the others, or ends after them if it has threads; 0: never ([Slow requests](../howto/slow-requests.md))")
        .same(Time, "0").shown(Seconds)
        .in_php_fpm("the connection is cut"),
    key(Pool, "request_terminate_timeout_track_finished", "flag", "`false`",
        "also count while the application works on after it has ended its answer (`fastcgi_finish_request`)")
        .same(Flag, "no"),
    key(Pool, "stop_timeout", "duration, not 0", r#"`"10s"`"#,
        "from SIGTERM to SIGKILL, when a worker or a program is stopped; for an application pool [`applications.stop_timeout`](application-pool.md#configuration)")
        .in_php_fpm("a second"),
    key(Pool, "push_timeout", "duration, not 0", "taken from `[jobs]`",
        "how long a push of a background job by the pool's applications may take")
        .sample(Off(r#""2s""#)),
    key(Pool, "client_timeout", "duration, not 0", r#"`"60s"`"#,
        "how long a client that is silent in the middle of a request may keep a worker waiting")
        .in_php_fpm("none: a worker waits for ever"),
    key(Pool, "keepalive_timeout", "duration, not 0", r#"`"75s"`"#,
        "how long an idle connection that the web server keeps stays open")
        .in_php_fpm("none: a connection holds its worker for ever"),
    key(Pool, "wait_for_cpu", "flag", "`true`",
        "leave new connections in the listening socket while as many of the pool's workers compute as there are processors ([Process management](../explain/process-management.md#requests-that-compute))")
        .in_php_fpm("every idle worker accepts"),
    key(Pool, "limits.params_bytes", r#"size, `"4K"` to `"1G"`"#, r#"`"1M"`"#,
        "most bytes of the names and values of one request's parameters")
        .in_php_fpm("fixed"),
    key(Pool, "limits.params_count", "number, 32 to 10000000", "`10000`",
        "most parameters of one request")
        .in_php_fpm("none"),
];
