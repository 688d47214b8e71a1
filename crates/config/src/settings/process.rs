//! The rows of a pool about what its processes have and may do.

use super::directive::Form::{Core, Flag, Number, Text};
use super::directive::Shown::Never;
use super::row::Sample::Off;
use super::row::Section::Pool;
use super::row::{Setting, key};

#[rustfmt::skip]
pub(super) const ROWS: &[Setting] = &[
    key(Pool, "rlimit_files", "number", "`0`",
        "most open files of a worker; 0: as inherited")
        .same(Number, "0"),
    key(Pool, "rlimit_core", r#"size or `"unlimited"`"#, "as inherited",
        "largest core file of a worker")
        .same(Core, "0").note("0: as inherited")
        .sample(Off(r#""unlimited""#))
        .in_php_fpm("0 means as inherited"),
    key(Pool, "chroot", "path", "none",
        "root directory of the workers; ignored without root, with a notice")
        .same(Text, "")
        .sample(Off(r#""/srv/www""#))
        .in_php_fpm("`$prefix` stands for the pool's prefix"),
    key(Pool, "chdir", "path", "the master's; `/` in a chroot",
        "working directory of the workers, seen from inside the chroot")
        .same(Text, "")
        .sample(Off(r#""/""#)),
    key(Pool, "catch_workers_output", "flag", "`true`; `false` in a pool of PHP",
        "log what workers write to their standard output and error; it is dropped otherwise")
        .same(Flag, "no").sample(Off("false")),
    key(Pool, "decorate_workers_output", "flag", "`true`",
        "put pool, process id and stream before what workers write")
        .same(Flag, "yes"),
    key(Pool, "app_log", "path", "none",
        "file for the application's output, in place of the daemon's log; it belongs to the pool's user. In an \
         application pool the path is below each application's root. See \
         [Logging](logging.md#what-workers-write)")
        .sample(Off(r#""/var/log/$pool.app""#))
        .in_php_fpm("not there"),
    key(Pool, "friendly_error_pages", "flag", "`false`",
        "when the application can't be started, answer requests with its report, including output and the names of the environment's variables; \
         for development. See [How applications are started](spawning.md#what-clients-see)")
        .in_php_fpm("not there"),
    key(Pool, "clear_env", "flag", "`true`",
        "start the workers' environment empty, so that it holds nothing of the master's")
        .same(Flag, "yes"),
    key(Pool, "env_file", "path", "none",
        "file with environment variables, which override `env`; it is read at each start of the application. \
         See [Secrets](../howto/deploy.md#secrets)")
        .sample(Off(r#""/srv/app/.env""#))
        .in_php_fpm("not there"),
    key(Pool, "no_new_privs", "flag", "`false`",
        "keep workers, and all they start, from gaining privileges, for example through set-user-id programs")
        .in_php_fpm("not there"),
    key(Pool, "apparmor_hat", "string", "none",
        "the workers change to the AppArmor profile `CURRENT//HAT`. Without AppArmor in the kernel the daemon does not start")
        .same(Text, "").shown(Never)
        .sample(Off(r#""www""#))
        .in_php_fpm("a wrong one fails each worker"),
    key(Pool, "confine.read", "list of paths", "everything",
        "the only paths that may be read and executed, in addition to `confine.write` and the system's; see \
         [Security](../explain/security.md#paths)")
        .sample(Off(r#"["/"]"#))
        .in_php_fpm("not there"),
    key(Pool, "confine.write", "list of paths", "everything",
        "the only paths that may be written to; at least one directory if one of the two is set")
        .sample(Off(r#"["/app"]"#))
        .in_php_fpm("not there"),
    key(Pool, "confine.deny_system_calls", "flag", "`false`",
        "refuse system calls that attacks use; see [Security](../explain/security.md#system-calls)")
        .in_php_fpm("not there"),
    key(Pool, "confine.private_tmp", "flag", "`false`",
        "a `/tmp` and `/var/tmp` of the pool's own, in memory; needs root")
        .in_php_fpm("not there"),
    key(Pool, "cpu_weight", "number, 1 to 10000", "as the others",
        "the pool's share when pools want more processor time than there is; a pool without it has 100: see \
         [Fair shares](../howto/many-users.md#fair-shares)")
        .sample(Off("50"))
        .in_php_fpm("not there"),
    key(Pool, "memory_max", r#"size, `"4M"` or more"#, "no limit",
        "most memory of all processes of the pool; without control groups, of each process")
        .sample(Off(r#""512M""#))
        .in_php_fpm("not there"),
    key(Pool, "cgroup.parent", "path", "none",
        "a control group (cgroup v2); the pool gets a group in it, under the pool's name; see \
         [Security](../explain/security.md#control-groups)")
        .sample(Off(r#""/sys/fs/cgroup/forkyard""#))
        .in_php_fpm("not there"),
    key(Pool, "cgroup.memory_max", r#"size, `"4M"` or more"#, "no limit",
        "most memory of all processes of the pool")
        .sample(Off(r#""512M""#))
        .in_php_fpm("not there"),
    key(Pool, "cgroup.cpu_percent", "number, 1 to 100000", "no limit",
        "share of processor time of all processes of the pool; 100: one processor")
        .sample(Off("150"))
        .in_php_fpm("not there"),
    key(Pool, "cgroup.pids_max", "number, 2 or more", "no limit",
        "most processes and threads of the pool, its preloader among them")
        .sample(Off("100"))
        .in_php_fpm("not there"),
];
