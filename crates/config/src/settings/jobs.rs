//! Settings of background jobs.

use super::row::Sample::Off;
use super::row::Section::{JobQueue, JobSchedule, Jobs};
use super::row::{Setting, key};

#[rustfmt::skip]
pub(super) const ROWS: &[Setting] = &[
    key(Jobs, "store", "path or URL", r#"`"/var/lib/forkyard/jobs.db"`"#,
        "the file that holds the jobs, an SQLite database; its directory belongs to `user`. Or a database of PostgreSQL, which several machines may use: `\"postgresql:///shop?host=/run/postgresql\"`; over the network with libpq's `sslmode`, `sslrootcert`, `sslcert` and `sslkey`"),
    key(Jobs, "durability", r#"`"full"` or `"normal"`"#, r#"`"full"`"#,
        "when a push returns: with `full`, when the job is on the disk; with `normal`, earlier, and a power \
         failure (not a crash) may lose the last jobs"),
    key(Jobs, "push_timeout", "duration, not 0", r#"`"2s"`"#,
        "how long a push may take, so that a store that does not answer blocks no page for longer; a pool and \
         a call may set another time"),
    key(Jobs, "machine_timeout", "duration, 20s or more", r#"`"60s"`"#,
        "with PostgreSQL: a machine that was silent for so long is taken for dead, and others start its jobs again; one that is cut off ends its jobs before that"),
    key(Jobs, "user", "string", r#"`"forkyard-jobs"`"#,
        "user of the process that keeps the jobs; ignored without root, with a notice"),
    key(Jobs, "listen", "path", r#"`"/run/forkyard-jobs.sock"`"#,
        "the unix socket for commands; every user may connect, and the user id decides which queues may be used"),
    key(Jobs, "listen_tcp", "loopback address and port", "none",
        "a TCP socket for the same commands, such as `\"127.0.0.1:4422\"`; who knows the secret of `secret_file` may do everything there")
        .sample(Off(r#""127.0.0.1:4422""#)),
    key(Jobs, "secret_file", "path", "required with `listen_tcp`",
        "a file with the secret of `listen_tcp`, 16 to 255 characters without blanks; it belongs to root or the daemon's user, and no other user may read it")
        .sample(Off(r#""/etc/forkyard/jobs.secret""#)),
    key(Jobs, "keep_done", "duration, not 0", r#"`"24h"`"#,
        "jobs that are done, were cancelled or were discarded are forgotten after this time"),
    key(Jobs, "keep_failed", "duration, not 0", r#"`"30d"`"#,
        "jobs that failed or are quarantined are forgotten after this time"),
    key(Jobs, "max_payload", "size, 1 to 16M", r#"`"256K"`"#,
        "longest payload of a job"),
    key(Jobs, "max_result", "size, 1 to 16M", r#"`"64K"`"#,
        "how many bytes of a job's answer, and of its error stream, are kept"),
    key(JobQueue, "pool", "string", "required",
        "the pool that runs the jobs")
        .sample(Off(r#""local""#)),
    key(JobQueue, "script", "path", "required for `php`, and for `cgi` without its own `script`",
        "the script that runs each job: the request's SCRIPT_FILENAME")
        .sample(Off(r#""/srv/shop/jobs.php""#)),
    key(JobQueue, "max_running", "number, 1 or more", "the pool's `max_children`",
        "most jobs of this queue at once")
        .sample(Off("4")),
    key(JobQueue, "weight", "number, 1 to 1000", "`1`",
        "the weight of this queue's groups against the pool's other queues"),
    key(JobQueue, "reserve", "flag", "`true`",
        "leave a tenth of the workers, of four or more, to groups with nothing running"),
    key(JobQueue, "timeout", "duration, not 0", r#"`"60s"`"#,
        "how long a job, or a step of one, may take; at most the pool's `request_terminate_timeout`, where that is set"),
    key(JobQueue, "attempts", "number, 1 to 1000", "`5`",
        "so many failures, and the job has failed"),
    key(JobQueue, "crashes", "number, 1 to 100", "`2`",
        "so many workers that died under a job one after the other, and it is quarantined"),
    key(JobQueue, "backoff.first", "duration", r#"`"10s"`"#,
        "how long a job waits after its first failure"),
    key(JobQueue, "backoff.factor", "number, 1 to 100", "`4`",
        "so many times as long after each further one"),
    key(JobQueue, "backoff.most", "duration", r#"`"6h"`"#,
        "and never longer than this"),
    key(JobQueue, "backoff.jitter", "number, 0 to 100", "`20`",
        "up to so many percent more or less, so that jobs that failed together are not tried together"),
    key(JobQueue, "rate.jobs", "number, 0 or more", "`0`",
        "most starts in `rate.per`; 0: no limit"),
    key(JobQueue, "rate.per", "duration, not 0", r#"`"1s"`"#,
        "the time for `rate.jobs`"),
    key(JobQueue, "push_users", "list", "`[]`",
        "users, by name or id, that may push into this queue in addition to root, the daemon's user and the \
         pool's"),
    key(JobQueue, "kinds", "table", "`{}`",
        "descriptions of the kinds of jobs, for `forkyard jobs kinds`; other kinds may be pushed as well")
        .sample(Off(r#"{ welcome = "Greets a new customer by mail" }"#)),
    key(JobSchedule, "queue", "string", "required",
        "the queue that gets the jobs")
        .sample(Off(r#""mail""#)),
    key(JobSchedule, "kind", "string", "the schedule's name",
        "the kind of the jobs")
        .sample(Off(r#""digest""#)),
    key(JobSchedule, "cron", "crontab(5): minute, hour, day of month, month, day of week", "required",
        "when a job is pushed")
        .sample(Off(r#""30 2 * * *""#)),
    key(JobSchedule, "timezone", "name of a time zone", r#"`"UTC"`"#,
        "the time zone of `cron`"),
    key(JobSchedule, "missed", r#"`"skip"`, `"once"`, `"all"`"#, r#"`"once"`"#,
        "after the daemon was down: push nothing, one job, or a job for each of the last hundred missed times"),
    key(JobSchedule, "overlap", r#"`"skip"`, `"queue"`, `"allow"`"#, r#"`"skip"`"#,
        "if the job before it has not finished: push none, let it wait, or run it at the same time"),
    key(JobSchedule, "payload", "string", r#"`""`"#,
        "the payload of the jobs"),
];
