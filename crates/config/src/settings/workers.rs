//! Settings of a pool's workers: user, socket and number.

use super::directive::Form::{Commas, Flag, Manager, Number, Octal, Text, Time};
use super::directive::Shown::Priority;
use super::global::PRIORITY;
use super::row::Sample::{Beside, Off, On};
use super::row::Section::Pool;
use super::row::{Setting, key, without_key};
use crate::LogLevel::{Alert, Error};

#[rustfmt::skip]
pub(super) const ROWS: &[Setting] = &[
    without_key(Pool, "prefix", Text, "",
        "what relative paths of the pool are relative to",
        "write paths in full", "leave it out: paths are written in full")
        .sample(Off(r#""/srv""#)),
    key(Pool, "user", "string", "required for a root master",
        "user of the workers, a name or a numeric id; ignored without root, with a notice")
        .same(Text, "")
        .sample(On(r#""www-data""#)),
    key(Pool, "group", "string", "the user's",
        "group of the workers; ignored without root, with a notice")
        .same(Text, "")
        .sample(On(r#""www-data""#)),
    key(Pool, "listen", "string, or the table of the next rows", "required",
        r#"an absolute path of at most 107 bytes: a unix socket; `"ADDRESS:PORT"`, `"[IPV6]:PORT"`, `"HOST:PORT"`: TCP; `"PORT"`: TCP on every address. A host's first address is taken"#)
        .same(Text, "")
        .sample(Beside(r#""/run/forkyard-$pool.sock""#))
        .in_php_fpm("may be a relative path; one of more than 107 bytes is cut"),
    key(Pool, "listen.address", "string", "required",
        "the same, where `listen` has other keys too")
        .sample(On(r#""/run/forkyard-$pool.sock""#)),
    key(Pool, "listen.backlog", "number, -1 or more", "`-1`",
        "connections that may wait to be accepted; -1: as many as the kernel lets")
        .same(Number, "-1"),
    key(Pool, "listen.acl_users", "list", "`[]`",
        "users, by name or id, that may connect to the unix socket (an access control list, read and write), in addition to those that `listen.mode` admits; replaces `listen.owner` and `listen.group`, with a warning")
        .same(Commas, "").note("with commas between them")
        .in_php_fpm("names with commas between them, no list"),
    key(Pool, "listen.acl_groups", "list", "`[]`",
        "groups that may connect to the unix socket, likewise")
        .same(Commas, "")
        .in_php_fpm("the same"),
    key(Pool, "listen.owner", "string", "the master's user",
        "owner of a unix socket, a name or a numeric id")
        .same(Text, "")
        .sample(On(r#""www-data""#)),
    key(Pool, "listen.group", "string", "the owner's",
        "group of a unix socket, a name or a numeric id")
        .same(Text, "")
        .sample(On(r#""www-data""#)),
    key(Pool, "listen.mode", "string of octal digits", r#"`"0660"`"#,
        "permissions of a unix socket")
        .same(Octal, "").note("unset: 0660"),
    key(Pool, "listen.allowed_clients", "list", "any",
        "the only addresses that may connect over TCP")
        .same(Commas, "").note("with commas between them")
        .sample(Off(r#"["127.0.0.1", "::1"]"#))
        .in_php_fpm("a wrong address is left out"),
    key(Pool, "process.priority", "number, -19 to 20", "as inherited",
        "nice(2) value of the workers; ignored without root, with a notice")
        .same(Number, "64").shown(Priority).limit(-19, 20, Error, PRIORITY)
        .sample(Off("0")),
    key(Pool, "process.dumpable", "flag", "`false`",
        "let workers be traced and dump core although they changed user")
        .same(Flag, "no"),
    key(Pool, "routing", r#"`"pool"`, `"application"`"#, r#"`"pool"`"#,
        r#"what the socket is for: one application, or [many](application-pool.md), each found by the root that a request names. With `"application"`, leave out `pm` and its numbers: `[pool.NAME.applications]` has others. `[pool.NAME.application]`, with the settings of each PHP application, and `user` are optional then"#)
        .in_php_fpm("one application for each pool"),
    key(Pool, "pm", r#"`"static"`, `"dynamic"`, `"ondemand"`"#, "required",
        "how many workers there are, and when. `static`: always `max_children`; `dynamic`: as many as are busy, and from `min_spare_servers` to `max_spare_servers` idle ones; `ondemand`: none until a request comes")
        .same(Manager, "")
        .sample(On(r#""dynamic""#)),
    key(Pool, "max_children", r#"number, 1 or more, or `"auto"`"#, "required",
        "most workers; with `static`, their number. `\"auto\"`: as many as three quarters of the memory of the machine or the \
        container have room for: divided by `memory_limit`, or by 64 MiB where that is 0, and by the number of pools with `\"auto\"`")
        .fpm("pm.max_children", Number, "0")
        .limit(1, i32::MAX, Alert, "pm.max_children must be a positive value")
        .sample(On("10"))
        .in_php_fpm("no `\"auto\"`"),
    key(Pool, "start_servers", "number", "halfway between the next two",
        "`dynamic`: workers at the start")
        .fpm("pm.start_servers", Number, "0").note("unset: halfway between the next two")
        .sample(On("2")),
    key(Pool, "min_spare_servers", "number, 1 or more", "required with `dynamic`",
        "`dynamic`: fewest idle workers")
        .fpm("pm.min_spare_servers", Number, "0")
        .sample(On("1")),
    key(Pool, "max_spare_servers", "number, 1 or more", "required with `dynamic`",
        "`dynamic`: most idle workers")
        .fpm("pm.max_spare_servers", Number, "0")
        .sample(On("3")),
    key(Pool, "max_spawn_rate", "number, 1 or more", "`32`",
        "`dynamic`: most workers started in one step")
        .fpm("pm.max_spawn_rate", Number, "32"),
    key(Pool, "process_idle_timeout", "duration, not 0", r#"`"10s"`"#,
        "`dynamic`, `ondemand`: an idle worker that is not needed is stopped after this time")
        .fpm("pm.process_idle_timeout", Time, "10").note("without effect with `dynamic`")
        .in_php_fpm("for `ondemand` only"),
    key(Pool, "max_requests", "number", "`0`",
        "a worker is replaced after this many requests, or [a program](runtimes.md#http) that speaks HTTP and that forkyard starts; 0: never")
        .fpm("pm.max_requests", Number, "0"),
    key(Pool, "max_requests_jitter", "number", "`0`",
        "up to so many more requests, another number for each worker, so that workers that were started together are not replaced together")
        .in_php_fpm("not there"),
    key(Pool, "memory_limit", "size", "`0`",
        "a worker that uses more, together with its FastCGI program, is replaced after its request; a program \
         that speaks HTTP is replaced with the processes that it has started; measured as proportional share \
         (PSS) in /proc after every few requests, or every second; not for a program that forkyard does not \
         start; 0: no limit")
        .sample(Off(r#""512M""#))
        .in_php_fpm("not there"),
    key(Pool, "reload", r#"`"changed"`, `"always"`"#, r#"`"changed"`"#,
        "which reloads replace the workers: those that find [something changed](../explain/process-management.md#what-counts-as-changed), or all")
        .in_php_fpm("always"),
];
