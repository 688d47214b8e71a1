//! The keys of `[jobs]`, its queues and its schedules.

use super::row::Sample::Off;
use super::row::section;
use super::sections::Section;
use crate::flat_keys::{Entries, Field};
use crate::units::{Flag, Size, Text, Texts, Time, Whole};

section! {
    JobsDraft of Section::Jobs, below "" {
        store: Field<Text> = key("store", "path or URL", r#"`"/var/lib/forkyard/jobs.db"`"#,
            "the file that holds the jobs, an SQLite database; its directory belongs to `user`. Or a database of PostgreSQL, which several machines may use: `\"postgresql:///shop?host=/run/postgresql\"`; over the network with libpq's `sslmode`, `sslrootcert`, `sslcert` and `sslkey`"),
        durability: Field<Text> = key("durability", r#"`"full"` or `"normal"`"#, r#"`"full"`"#,
            "when a push returns: with `full`, when the job is on the disk; with `normal`, earlier, and a power \
             failure (not a crash) may lose the last jobs"),
        push_timeout: Field<Time> = key("push_timeout", "duration, not 0", r#"`"2s"`"#,
            "how long a push may take, so that a store that does not answer blocks no page for longer; a pool and \
             a call may set another time"),
        machine_timeout: Field<Time> = key("machine_timeout", "duration, 20s or more", r#"`"60s"`"#,
            "with PostgreSQL: a machine that was silent for so long is taken for dead, and others start its jobs again; one that is cut off ends its jobs before that"),
        user: Field<Text> = key("user", "string", r#"`"forkyard-jobs"`"#,
            "user of the process that keeps the jobs; ignored without root, with a notice"),
        listen: Field<Text> = key("listen", "path", r#"`"/run/forkyard-jobs.sock"`"#,
            "the unix socket for commands; every user may connect, and the user id decides which queues may be used"),
        listen_tcp: Field<Text> = key("listen_tcp", "loopback address and port", "none",
            "a TCP socket for the same commands, such as `\"127.0.0.1:4422\"`; who knows the secret of `secret_file` may do everything there")
            .sample(Off(r#""127.0.0.1:4422""#)),
        secret_file: Field<Text> = key("secret_file", "path", "required with `listen_tcp`",
            "a file with the secret of `listen_tcp`, 16 to 255 characters without blanks; it belongs to root or the daemon's user, and no other user may read it")
            .sample(Off(r#""/etc/forkyard/jobs.secret""#)),
        keep_done: Field<Time> = key("keep_done", "duration, not 0", r#"`"24h"`"#,
            "jobs that are done, were cancelled or were discarded are forgotten after this time"),
        keep_failed: Field<Time> = key("keep_failed", "duration, not 0", r#"`"30d"`"#,
            "jobs that failed or are quarantined are forgotten after this time"),
        max_payload: Field<Size> = key("max_payload", "size, 1 to 16M", r#"`"256K"`"#,
            "longest payload of a job"),
        max_result: Field<Size> = key("max_result", "size, 1 to 16M", r#"`"64K"`"#,
            "how many bytes of a job's answer, and of its error stream, are kept"),
    }
}

section! {
    JobQueueDraft of Section::JobQueue, below "" {
        pool: Field<Text> = key("pool", "string", "required",
            "the pool that runs the jobs")
            .sample(Off(r#""local""#)),
        script: Field<Text> = key("script", "path", "required for `php`, and for `cgi` without its own `script`",
            "the script that runs each job: the request's SCRIPT_FILENAME")
            .sample(Off(r#""/srv/shop/jobs.php""#)),
        max_running: Field<Whole> = key("max_running", "number, 1 or more", "the pool's `max_children`",
            "most jobs of this queue at once")
            .sample(Off("4")),
        weight: Field<Whole> = key("weight", "number, 1 to 1000", "`1`",
            "the weight of this queue's groups against the pool's other queues"),
        reserve: Field<Flag> = key("reserve", "flag", "`true`",
            "leave a tenth of the workers, of four or more, to groups with nothing running"),
        timeout: Field<Time> = key("timeout", "duration, not 0", r#"`"60s"`"#,
            "how long a job, or a step of one, may take; at most the pool's `request_terminate_timeout`, where that is set"),
        attempts: Field<Whole> = key("attempts", "number, 1 to 1000", "`5`",
            "so many failures, and the job has failed"),
        crashes: Field<Whole> = key("crashes", "number, 1 to 100", "`2`",
            "so many workers that died under a job one after the other, and it is quarantined"),
        backoff_first: Field<Time> = key("backoff.first", "duration", r#"`"10s"`"#,
            "how long a job waits after its first failure"),
        backoff_factor: Field<Whole> = key("backoff.factor", "number, 1 to 100", "`4`",
            "so many times as long after each further one"),
        backoff_most: Field<Time> = key("backoff.most", "duration", r#"`"6h"`"#,
            "and never longer than this"),
        backoff_jitter: Field<Whole> = key("backoff.jitter", "number, 0 to 100", "`20`",
            "up to so many percent more or less, so that jobs that failed together are not tried together"),
        rate_jobs: Field<Whole> = key("rate.jobs", "number, 0 or more", "`0`",
            "most starts in `rate.per`; 0: no limit"),
        rate_per: Field<Time> = key("rate.per", "duration, not 0", r#"`"1s"`"#,
            "the time for `rate.jobs`"),
        push_users: Field<Texts> = key("push_users", "list", "`[]`",
            "users, by name or id, that may push into this queue in addition to root, the daemon's user and the \
             pool's"),
        kinds: Entries<Text> = key("kinds", "table", "`{}`",
            "descriptions of the kinds of jobs, for `forkyard jobs kinds`; other kinds may be pushed as well")
            .sample(Off(r#"{ welcome = "Greets a new customer by mail" }"#)),
    }
}

section! {
    JobScheduleDraft of Section::JobSchedule, below "" {
        queue: Field<Text> = key("queue", "string", "required",
            "the queue that gets the jobs")
            .sample(Off(r#""mail""#)),
        kind: Field<Text> = key("kind", "string", "the schedule's name",
            "the kind of the jobs")
            .sample(Off(r#""digest""#)),
        cron: Field<Text> = key("cron", "crontab(5): minute, hour, day of month, month, day of week", "required",
            "when a job is pushed")
            .sample(Off(r#""30 2 * * *""#)),
        timezone: Field<Text> = key("timezone", "name of a time zone", r#"`"UTC"`"#,
            "the time zone of `cron`"),
        missed: Field<Text> = key("missed", r#"`"skip"`, `"once"`, `"all"`"#, r#"`"once"`"#,
            "after the daemon was down: push nothing, one job, or a job for each of the last hundred missed times"),
        overlap: Field<Text> = key("overlap", r#"`"skip"`, `"queue"`, `"allow"`"#, r#"`"skip"`"#,
            "if the job before it has not finished: push none, let it wait, or run it at the same time"),
        payload: Field<Text> = key("payload", "string", r#"`""`"#,
            "the payload of the jobs"),
    }
}
