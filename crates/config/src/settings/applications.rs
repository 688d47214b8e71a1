//! The keys of `[pool.NAME.applications]`.

use super::row::Sample::Off;
use super::row::section;
use super::sections::Section;
use crate::flat_keys::{Entries, Field};
use crate::units::{Flag, Size, Text, Texts, Time, Whole};

section! {
    ApplicationsDraft of Section::Applications, below "applications." {
        directories: Field<Texts> = key("directories", "list of paths", "required",
            "applications' roots are below these directories, links resolved")
            .sample(Off(r#"["/srv/www"]"#)),
        root_parameter: Field<Text> = key("root_parameter", "string", r#"`"FORKYARD_APP_ROOT"`"#,
            "the FastCGI parameter that names a request's application by its root; if it is absent, \
             `PASSENGER_APP_ROOT`, and then the parent of `DOCUMENT_ROOT`"),
        max: Field<Whole> = key("max", "number, 1 or more", "`6`",
            "most instances of all applications together; in a rolling restart one more"),
        reserve: Field<Whole> = key("reserve", "number, below `max`", "a tenth of `max`, rounded up; `0` where `max` is 1 or 2",
            "so many of `max` are only for applications that have no instance, and for `min_instances`")
            .sample(Off("1")),
        max_per_app: Field<Whole> = key("max_per_app", "number", "`0`",
            "most instances of one application; 0: no limit but `max`"),
        min_instances: Field<Whole> = key("min_instances", "number", "`0`",
            "instances that an application keeps once it has had a request"),
        max_requests: Field<Whole> = key("max_requests", "number", "`0`",
            "an instance is replaced after this many requests, and a program that speaks HTTP after so many of its application; 0: never"),
        concurrency: Field<Whole> = key("concurrency", "number, 0 to 10000", "the runtime's: 100 for ASGI, no limit for programs that speak HTTP",
            "most requests that an instance works on at a time, of an ASGI application or a program that speaks HTTP; 0: no limit")
            .sample(Off("100")),
        max_requests_jitter: Field<Whole> = key("max_requests_jitter", "number", "`0`",
            "up to so many more requests, another number for each instance"),
        max_idle_time: Field<Time> = key("max_idle_time", "duration", r#"`"5m"`"#,
            "an instance without a request for this long is stopped; 0: never"),
        max_spawning: Field<Whole> = key("max_spawning", "number, 1 or more", "`4`",
            "most instances that start at a time; one user gets at most half, rounded up, while another user waits"),
        use_global_queue: Field<Flag> = key("use_global_queue", "flag", "`true`",
            "where requests wait when all instances are busy: in one queue for the first free instance, or each at \
             one instance"),
        max_request_queue_size: Field<Whole> = key("max_request_queue_size", "number", "`100`",
            "most requests of an application that wait, others are answered with 503; 0: no limit"),
        max_request_queue_time: Field<Time> = key("max_request_queue_time", "duration", "`0`",
            "how long a request waits before it is answered with 504; 0: until its client leaves"),
        max_request_time: Field<Time> = key("max_request_time", "duration", "`0`",
            "how long a request may take until its instance is killed, or, where an instance works on several, until it is ended alone; 0: no limit"),
        memory_limit: Field<Size> = key("memory_limit", "size", "`0`",
            "an instance that uses more, with its program and the processes that this has started, is replaced after its request; a program that speaks HTTP as in a rolling restart; 0: no limit"),
        start_timeout: Field<Time> = key("start_timeout", "duration, not 0", r#"`"90s"`"#,
            "until an instance must be up"),
        stop_timeout: Field<Time> = key("stop_timeout", "duration, not 0", r#"`"60s"`"#,
            "how long an instance that is stopped may take once its requests have ended, and its program from SIGTERM on, until it is killed"),
        drain_timeout: Field<Time> = key("drain_timeout", "duration", "`0`",
            "how long requests of an instance that leaves may take; 0: no limit"),
        work_timeout: Field<Time> = key("work_timeout", "duration, not 0", r#"`"60s"`"#,
            "how long an instance's out-of-band work may take until it is killed"),
        rolling_restarts: Field<Flag> = key("rolling_restarts", "flag", "`true` while a place is free, otherwise `false`",
            "restart an application one instance after the other, or (`false`) all at once")
            .sample(Off("true")),
        restart_dir: Field<Text> = key("restart_dir", "path", r#"`"tmp"`"#,
            "where `restart.txt` and `always_restart.txt` are, relative to the application's root"),
        stat_throttle_rate: Field<Time> = key("stat_throttle_rate", "duration", r#"`"10s"`"#,
            "how long the result of an inspection of an application's files is used; 0: inspect them with every request"),
        forget_after: Field<Time> = key("forget_after", "duration", r#"`"1h"`"#,
            "an application without requests and instances for this long is forgotten"),
        releases: Field<Text> = key("releases", "string", "none",
            "the name of a link below each application's root, to the release in service: `\"current\"`. An application with such a link keeps the release that it began with, until `forkyard deploy` or `forkyard restart`. See [Releases](../howto/deploy.md#in-an-application-pool)")
            .sample(Off(r#""current""#)),
        groups: Entries<Texts> = key("groups", "table", "`{}`",
            "names of groups, each with a list of applications' roots: [Groups](application-pool.md#groups)")
            .sample(Off(r#"{ images = ["/srv/www/thumbnails", "/srv/www/posters"] }"#)),
        min_uid: Field<Whole> = key("min_uid", "number", "`1000`",
            "owners of applications have at least this user id, and an entry in the user database"),
        user_switching: Field<Flag> = key("user_switching", "flag", "`true`",
            "run each application as its owner; otherwise all as `default_user`"),
        user_mounts: Field<Flag> = key("user_mounts", "flag", "`false`",
            "also run applications on FUSE and other file systems that users have mounted, where users decide who owns a file"),
        default_user: Field<Text> = key("default_user", "string", "none",
            "the user of applications that belong to a user who may not run any; without it they are refused")
            .sample(Off(r#""www-data""#)),
        router_user: Field<Text> = key("router_user", "string", "the pool's `user`, otherwise `forkyard`",
            "the user of router and inspector, as which nothing else may run with `user_switching`; ignored without root, with a notice")
            .sample(Off(r#""forkyard""#)),
    }
}
