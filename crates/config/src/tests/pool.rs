use super::*;

#[test]
fn rules_of_a_pool() {
    cases(
        pool,
        &ROOT,
        r#"
        max_children2 = 1
        ! 7:1: error: [pool www] max_children2: unknown key; did you mean max_children?
        statuspath = 1
        ! 7:1: error: [pool www] statuspath: unknown key; did you mean status_path?
        limits.parms_count = 1
        ! 7:8: error: [pool www] limits.parms_count: unknown key; did you mean limits.params_count?
        reload = "never"
        ! 7:1: error: [pool www] reload: "never" is not a kind of reload; write "changed" or "always"
        listen_mode = "0666"
        ! 7:1: error: [pool www] listen_mode: unknown key; to give mode, write listen = { address = "...", mode = ... }
        zzz = 1
        ! 7:1: error: [pool www] zzz: unknown key
        zzz = { a = 1 }
        ! 7:9: error: [pool www] zzz.a: unknown key
        "process.dumpable" = true
        ! 7:1: error: [pool www] "process.dumpable": unknown key; write process.dumpable without quotes
        chdir.x = 1
        ! 7:7: error: [pool www] chdir: is not a table; write chdir = followed by one value
        log_level = "debug"
        ! 7:1: error: [pool www] log_level: unknown key; it belongs in [global]
        php_value.memory_limit = "1M"
        ! 7:11: error: [pool www] php_value.memory_limit: unknown key; it belongs in [pool.www.application]
        library = "/x"
        ! 7:1: error: [pool www] library: unknown key; it belongs in [pool.www.application]
        security.limit_extensions = []
        ! 7:10: error: [pool www] security.limit_extensions: unknown key; write limit_extensions in [pool.www.application]
        slowlog = "x"
        ! 7:1: error: [pool www] slowlog: "x" is not the absolute path of a file; start it with /
        request_slowlog_timeout = 1
        ! 7:1: error: [pool www] request_slowlog_timeout: there is no file to write slow requests to; set slowlog as well
        request_slowlog_trace_depth = 5
        ! 7:1: warning: [pool www] request_slowlog_trace_depth: it has no effect without slowlog; set slowlog as well
        request_slowlog_trace_depth = 0
        slowlog = "/var/log/x"
        ! 7:1: error: [pool www] request_slowlog_trace_depth: 0 is out of range; give a whole number from 1 to 2147483647
        request_slowlog_timeout = "6s"
        request_terminate_timeout = "5s"
        slowlog = "/var/log/x"
        ! 7:1: error: [pool www] request_slowlog_timeout: no request lives that long: request_terminate_timeout is shorter; make it shorter than request_terminate_timeout
        access.format = "%{x}r"
        ! 7:8: error: [pool www] access.format: embrace is not allowed for modifier %r; see docs/reference/logging.md for the list
        access.suppress_path = ["x"]
        ! 7:8: error: [pool www] access.suppress_path: "x" does not start with /; give the URIs as the status page shows them
        abandoned = "never"
        ! 7:1: error: [pool www] abandoned: "never" is not a rule for requests whose client has left; write "skip", "run" or "skip-half-closed"
        abandoned_keep = [""]
        ! 7:1: error: [pool www] abandoned_keep: "" is no path; write the end of a path, for example "/wp-cron.php"
        abandoned_keep = ["/cron.php", "/"]
        ! 7:1: error: [pool www] abandoned_keep: "/" would keep the path of every directory; write the end of a path, for example "/wp-cron.php"
        abandoned_keep = ["cron.php"]
        ! 7:1: error: [pool www] abandoned_keep: "cron.php" does not start with /; write the end of a path, for example "/wp-cron.php"
        abandoned_keep = ["/cron.php?run=1"]
        ! 7:1: error: [pool www] abandoned_keep: "/cron.php?run=1" can't match: a path ends before the query; write the end of a path, for example "/wp-cron.php"
        abandoned_keep = ["/cron/*"]
        ! 7:1: error: [pool www] abandoned_keep: "/cron/*" can't match: * is no pattern; write the end of a path, for example "/wp-cron.php"
        abandoned_keep = "/cron.php"
        ! 7:1: error: [pool www] abandoned_keep: "/cron.php" is not an array of strings; write ["one", "two"]
        max_request_queue_time = "4000d"
        ! 7:1: error: [pool www] max_request_queue_time: "4000d" is not a duration; write whole seconds, or a whole number with ms, s, m, h or d, for example "10s", at most "3650d", or "auto"
        max_request_queue_time = -1
        ! 7:1: error: [pool www] max_request_queue_time: -1 is not a duration; write whole seconds, or a whole number with ms, s, m, h or d, for example "10s", at most "3650d", or "auto"
        stop_timeout = 0
        ! 7:1: error: [pool www] stop_timeout: 0 is too short; give a duration above zero, for example "10s"
        client_timeout = "10x"
        ! 7:1: error: [pool www] client_timeout: "10x" is not a duration; write whole seconds, or a whole number with ms, s, m, h or d, for example "10s", at most "3650d"
        client_timeout = 0
        ! 7:1: error: [pool www] client_timeout: 0 is too short; give a duration above zero, for example "10s"
        keepalive_timeout = "0ms"
        ! 7:1: error: [pool www] keepalive_timeout: 0 is too short; give a duration above zero, for example "10s"
        limits.params_bytes = "1T"
        ! 7:8: error: [pool www] limits.params_bytes: "1T" is not a size; write bytes, or a whole number with K, M or G, for example "64K"
        limits.params_bytes = 10
        ! 7:8: error: [pool www] limits.params_bytes: 10 bytes is out of range; give a size from "4K" to "1G"
        limits.params_count = 1
        ! 7:8: error: [pool www] limits.params_count: 1 is out of range; give a whole number from 32 to 10000000
        max_requests = -1
        ! 7:1: error: [pool www] max_requests: -1 is out of range; give a whole number from 0 to 9223372036854775807
        max_requests = 99999999999999999999
        ! 7:1: error: [pool www] max_requests: 99999999999999999999 is not a whole number; write digits without quotes, for example 10
        max_requests = "5"
        ! 7:1: error: [pool www] max_requests: "5" is not a whole number; write digits without quotes, for example 10
        clear_env = "no"
        ! 7:1: error: [pool www] clear_env: "no" is not true or false, without quotes
        clear_env = 0
        ! 7:1: error: [pool www] clear_env: 0 is not true or false, without quotes
        status_path = "status"
        ! 7:1: error: [pool www] status_path: "status" does not start with /; write / followed by letters, digits and any of / _ - . ~
        status_path = "/"
        ! 7:1: error: [pool www] status_path: "/" is too short; write / followed by letters, digits and any of / _ - . ~
        status_path = "/a b"
        ! 7:1: error: [pool www] status_path: "/a b" has a character that is not allowed; write / followed by letters, digits and any of / _ - . ~
        ping.path = "x"
        ! 7:6: error: [pool www] ping.path: "x" does not start with /; write / followed by letters, digits and any of / _ - . ~
        ping.response = ""
        ! 7:6: error: [pool www] ping.response: it is empty; give at least one character
        ping.path = "/a"
        status_path = "/a"
        ! 7:6: error: [pool www] ping.path: it is the same as status_path; give another path
        chroot = "srv"
        ! 7:1: error: [pool www] chroot: "srv" is not an absolute path; start it with /
        chroot = "/nowhere"
        ! 7:1: error: [pool www] chroot: "/nowhere" is not an existing directory; make it, or give another path
        chdir = "a"
        ! 7:1: error: [pool www] chdir: "a" is not an absolute path; start it with /
        chdir = "/nowhere"
        ! 7:1: error: [pool www] chdir: "/nowhere" is not an existing directory; make it, or give another path
        chroot = "/srv/www"
        chdir = "/b"
        ! 8:1: error: [pool www] chdir: "/srv/www/b", which it is in the chroot, is not an existing directory; give the path as seen from inside the chroot
        rlimit_files = -1
        ! 7:1: error: [pool www] rlimit_files: -1 is out of range; give a whole number from 0 to 2147483647
        rlimit_files = 1
        ! 7:1: error: [pool www] rlimit_files: 1 open files are too few for a worker of PHP; give at least 14, or leave it out
        rlimit_core = "lots"
        ! 7:1: error: [pool www] rlimit_core: "lots" is not a size; write bytes, a whole number with K, M or G, or "unlimited"
        rlimit_core = -1
        ! 7:1: error: [pool www] rlimit_core: -1 is not a size; write bytes, a whole number with K, M or G, or "unlimited"
        process.priority = 21
        ! 7:9: error: [pool www] process.priority: 21 is out of range; give a whole number from -19 to 20
        process.priority = -20
        ! 7:9: error: [pool www] process.priority: -20 is out of range; give a whole number from -19 to 20
        env = "x"
        ! 7:1: error: [pool www] env: "x" is not a table; write { NAME = "value" }
        env = { A = 1 }
        ! 7:9: error: [pool www] env.A: 1 is not a string; write text in quotes, without NUL characters
        env = { "A=B" = "x" }
        ! 7:9: error: [pool www] env: "A=B" can't be the name of a variable; use letters, digits and _
        group = "nobody-such"
        ! 7:1: error: [pool www] group: there is no group "nobody-such"; name an existing group, or give a numeric id
        group = "root"
        ! 7:1: error: [pool www] group: "root" makes root the group of the workers; name another one, or write allow_root = true in [global]
        start_servers = 1
        ! 7:1: warning: [pool www] start_servers: it has no effect with pm = "static"; it is for "dynamic"
        process_idle_timeout = 5
        ! 7:1: warning: [pool www] process_idle_timeout: it has no effect with pm = "static"; it is for "dynamic" and "ondemand"
    "#,
    );
}

#[test]
fn users_of_a_pool() {
    let with = |user: &str| pool("").replace("user = \"www-data\"", user);
    cases(
        with,
        &ROOT,
        r#"
        ! 1:7: error: [pool www] user: missing; write user = "www-data", or another user for its workers; to run them as root, allow_root = true in [global]
        user = "4294967295"
        ! 3:1: error: [pool www] user: "4294967295" is no id of a user; give a number from 0 to 4294967294, or name an existing user
        user = "4294967296"
        ! 3:1: error: [pool www] user: "4294967296" is no id of a user; give a number from 0 to 4294967294, or name an existing user
        user = "4294967295"
        group = "www-data"
        ! 3:1: error: [pool www] user: "4294967295" is no id of a user; give a number from 0 to 4294967294, or name an existing user
        user = "www-data"
        group = "4294967295"
        ! 4:1: error: [pool www] group: "4294967295" is no id of a group; give a number from 0 to 4294967294, or name an existing group
        user = "gone"
        ! 3:1: error: [pool www] user: there is no user "gone"; name an existing user, or give a numeric id
        user = "root"
        ! 3:1: error: [pool www] user: "root" makes root the user of the workers; name another one, or write allow_root = true in [global]
        user = "0"
        ! 3:1: error: [pool www] user: "0" makes root the user of the workers; name another one, or write allow_root = true in [global]
        user = "1234"
        ! 3:1: error: [pool www] user: user id 1234 has no entry to take its group from; set group as well
        user = "halfroot"
        ! 3:1: error: [pool www] user: "halfroot" makes root the group of the workers; name another one, or write allow_root = true in [global]
        user = 33
        ! 3:1: error: [pool www] user: 33 is not a string; write text in quotes, without NUL characters
    "#,
    );
    for right in [
        "user = \"33\"",
        "user = \"1234\"\ngroup = \"www-data\"",
        "user = \"www-data\"\ngroup = \"44\"",
    ] {
        assert_eq!(found(&with(right), &ROOT), [""; 0], "{right}");
    }
    let allowed = format!("[global]\nallow_root = true\n{}", with(""));
    assert_eq!(found(&allowed, &ROOT), [""; 0]);
    let allowed = format!("[global]\nallow_root = true\n{}", with("user = \"root\""));
    assert_eq!(found(&allowed, &ROOT), [""; 0]);
}

#[test]
fn what_needs_root_is_ignored_without_it() {
    let text = pool("group = \"gone\"\nchroot = \"/nowhere\"\nprocess.priority = 3");
    let config = parsed(&text, &USER).unwrap().config;
    let pool = &config.pools[0];
    assert_eq!(
        (
            &pool.account.user,
            &pool.account.group,
            &pool.setup.chroot,
            pool.setup.process_priority
        ),
        (&None, &None, &None, None)
    );
    assert_eq!(
        found(&text, &USER),
        [
            "3:1: warning: [pool www] user: it is ignored; only a master that runs as root can do this",
            "7:1: warning: [pool www] group: it is ignored; only a master that runs as root can do this",
            "8:1: warning: [pool www] chroot: it is ignored; only a master that runs as root can do this",
            "9:9: warning: [pool www] process.priority: it is ignored; only a master that runs as root can do this",
        ]
    );
}

#[test]
fn the_environment() {
    let text = pool("env = { Z = \"1\", PATH = \"$PATH\", GONE = \"$GONE\", NAME = \"$pool\" }");
    let expected = [
        ("Z", "1"),
        ("PATH", "/usr/bin:/bin"),
        ("GONE", ""),
        ("NAME", "www"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(valid(&text).pools[0].environment.env, expected);
}
