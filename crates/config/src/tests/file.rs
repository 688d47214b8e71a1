use super::*;

#[test]
fn rules_of_global() {
    cases(
        |line| format!("[global]\n{line}\n{}", pool("")),
        &ROOT,
        r#"
        pid = "a.pid"
        ! 2:1: error: global.pid: "a.pid" is not the absolute path of a file; start it with /
        pid = "/"
        ! 2:1: error: global.pid: "/" is not the absolute path of a file; start it with /
        pid = "/run/$pool.pid"
        ! 2:1: error: global.pid: $pool means nothing outside a pool; write the path in full
        pid = "/nodir/a.pid"
        ! 2:1: warning: global.pid: "/nodir" is not an existing directory; make it before the start
        control = "c.sock"
        ! 2:1: error: global.control: "c.sock" is not the absolute path of a file; start it with /
        rlimit_files = 34
        ! 2:1: error: global.rlimit_files: 34 open files are too few for the master; give at least 35, or leave it out
        control = "/run/a.sock"
        ! 2:1: error: global.control: pool www listens on it; give the control socket its own path
        control = "/run/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
        ! 2:1: error: global.control: the path has more than 107 bytes; give a shorter one
        web = "run/web.sock"
        ! 2:1: error: global.web: "run/web.sock" is not an address; write an absolute path, "ADDRESS:PORT", "[IPV6]:PORT" or a port
        web = "/run/a.sock"
        ! 2:1: error: global.web: pool www listens on it; give the numbers their own address
        web_hosts = ["a.test"]
        ! 2:1: warning: global.web_hosts: it has no effect without web; remove it, or write web = "127.0.0.1:9180"
        syslog.facility = "loud"
        ! 2:8: error: global.syslog.facility: "loud" is not a syslog facility; write "daemon", "user", "local0" to "local7", or another of syslog(3)
        log_limit = 511
        ! 2:1: error: global.log_limit: 511 is out of range; give a whole number from 512 to 2147483647
        log_format = "xml"
        ! 2:1: error: global.log_format: "xml" is not a log format; write "text" or "json"
        error_log = "log"
        ! 2:1: error: global.error_log: "log" is not the absolute path of a file; start it with /
        log_level = "loud"
        ! 2:1: error: global.log_level: "loud" is not a log level; write "debug", "notice", "warning", "error" or "alert"
        process.max = -1
        ! 2:9: error: global.process.max: -1 is out of range; give a whole number from 0 to 2147483647
        process.max = 1
        ! 2:9: warning: global.process.max: pool www may never have its 2 workers; raise it to 2 or more
        process.priority = 99
        ! 2:9: error: global.process.priority: 99 is out of range; give a whole number from -19 to 20
        daemonize = true
        ! 2:1: warning: global.daemonize: in the background there is no standard error stream; set error_log to a file
        max_children = 1
        ! 2:1: error: global.max_children: unknown key; it belongs in [pool.NAME]
        version = "8.2"
        ! 2:1: error: global.version: unknown key; it belongs in [pool.NAME.application]
        emergency_restart_interval = 1
        ! 2:1: warning: global.emergency_restart_interval: it has no effect without emergency_restart_threshold; set both
        emergency_restart_threshold = 3
        ! 2:1: warning: global.emergency_restart_threshold: it has no effect without emergency_restart_interval; set both
        events.mechanism = "epoll"
        ! 2:8: error: global.events.mechanism: unknown key; leave it out: epoll is always used
        daemonise = true
        ! 2:1: error: global.daemonise: unknown key; did you mean daemonize?
        process.maximum = 1
        ! 2:9: error: global.process.maximum: unknown key; did you mean process.max?
        include = ["no/*.toml"]
        ! 2:1: warning: global.include: "no/*.toml" matches no file; nothing is included by it
        include = ["/etc/locked/*.toml"]
        ! 2:1: error: global.include: "/etc/locked/*.toml": /etc/locked: Permission denied (os error 13); make the directory readable
        include = "x"
        ! 2:1: error: global.include: "x" is not an array of strings; write ["one", "two"]
    "#,
    );
    let text = format!(
        "[global]\nprocess.priority = 1\n{}",
        pool("").replace("user = \"www-data\"", "")
    );
    one(
        &text,
        &USER,
        "2:9: warning: global.process.priority: it is ignored; only a master that runs as root can do this",
    );
}

#[test]
fn rules_of_the_numbers_over_http() {
    let with = |keys: &str| format!("[global]\n{keys}\n{}", pool(""));
    cases(
        |hosts| with(&format!("web = \"9180\"\nweb_hosts = [\"{hosts}\"]")),
        &ROOT,
        r#"
        a.test:80
        ! 3:1: error: global.web_hosts: "a.test:80" is not the name of a host; write names without port, such as ["numbers.example.org"]
        "#,
    );
    let web = |address: &str| {
        valid(&with(&format!("web = \"{address}\"\nweb_hosts = [\"A.test\"]")))
            .global
            .web
    };
    let hosts = vec!["a.test".to_owned()];
    for (text, address) in [
        ("127.0.0.1:9180", Address::Tcp(([127, 0, 0, 1], 9180).into())),
        ("9180", Address::TcpAny(9180)),
        ("/run/web.sock", Address::Unix("/run/web.sock".into())),
    ] {
        let hosts = hosts.clone();
        assert_eq!(web(text), Some(Web { address, hosts }), "{text}");
    }
    let of_pool =
        "[global]\nweb = \"127.0.0.1:9000\"\n".to_owned() + &pool("").replace("/run/a.sock", "9000");
    assert!(
        found(&of_pool, &ROOT)
            .join("\n")
            .contains("pool www listens on it")
    );
}

#[test]
fn rules_of_the_file() {
    let at_the_end = |more: &str| format!("{}{more}\n", pool(""));
    cases(
        at_the_end,
        &ROOT,
        r#"
        [www]
        a = 1
        ! 11:2: error: www: unknown key; if it is a pool, write [pool.www]
        [pools.www]
        a = 1
        [pools.www.application]
        b = 1
        ! 11:2: error: pools: unknown key; did you mean [pool.www]?
        [pools]
        a = 1
        ! 11:2: error: pools: unknown key; a pool is written [pool.NAME]
        [globals]
        ! 11:2: error: globals: unknown key; did you mean [global]?
        [pool]
        listen = "x"
        user = "x"
        pm = "x"
        ! 12:1: error: pool.listen: is not a table; write [pool.NAME]
    "#,
    );
    cases(
        |line| format!("{line}\n{}", pool("")),
        &ROOT,
        r#"
        daemonize = true
        ! 1:1: error: daemonize: unknown key; it belongs in [global]
        zzz = true
        ! 1:1: error: zzz: unknown key
        global = 1
        ! 1:1: error: global: is not a table; write [global]
    "#,
    );
    for (text, expected) in [
        (
            String::new(),
            " error: pool: missing; write a table [pool.NAME] with listen, pm, max_children and [pool.NAME.application], or let \
             forkyard init php (python, ruby, node, sites) write it",
        ),
        (
            pool("").replace("www]", "\"\"]").replace("www.", "\"\"."),
            "1:7: error: [pool ] name: \"\" can't be the name of a pool; give it at least one character and no control characters",
        ),
    ] {
        one(&text, &ROOT, expected);
    }
    one(
        "pool = 1",
        &ROOT,
        "1:1: error: pool: is not a table; write [pool.NAME]",
    );
}

#[test]
fn syntax_errors_know_what_was_meant() {
    cases(
        |line| format!("[pool.www]\n{line}\n"),
        &ROOT,
        r#"
        user = www-data
        ! 2:8: error: not valid TOML: string values must be quoted; put the value in quotes: user = "www-data"
        clear_env = no
        ! 2:13: error: not valid TOML: invalid float; write clear_env = false
        ; comment
        ! 2:1: error: not valid TOML: invalid unquoted key; a comment starts with #
        pm = "static"
        pm.max_children = 1
        ! 3:1: error: not valid TOML: cannot extend value of type string with a dotted key; php-fpm's pm.max_children is written max_children
        listen = { address = "/a", mode = 0660 }
        ! 2:35: error: not valid TOML: unexpected leading zero; put octal digits in quotes: "0660"
        listen = "/a"
        listen.mode = "0660"
        ! 3:1: error: not valid TOML: cannot extend value of type string with a dotted key; to give mode, write listen = { address = "...", mode = ... }
        php_value[memory_limit] = 32M
        ! 2:10: error: not valid TOML: key with no value; write php_value = { memory_limit = "..." }
        user = "a"
        user = "b"
        ! 3:1: error: not valid TOML: user is already there in line 2; leave one of the two out
    "#,
    );
}

#[test]
fn a_file_of_php_fpm_s_is_one_error() {
    for (text, place) in [
        (
            "; php-fpm's\n;listen = x\n[www]\nlisten = /run/www.sock\nuser = www-data\n; more\n",
            "1:1",
        ),
        (
            "[www]\nlisten = 127.0.0.1:9000\npm = static\npm.max_children = 3\n",
            "2:15",
        ),
        (
            "[www]\npm.max_children = 3\nphp_admin_value[error_log] = /x\n",
            "3:16",
        ),
        (
            "[global]\npid = /run/x.pid\ninclude=/etc/php/8.2/fpm/pool.d/*.conf\n",
            "2:7",
        ),
    ] {
        let said = format!(
            "{place}: error: not valid TOML: this is a configuration of php-fpm's; forkyard import f.toml converts it to TOML, and forkyard-fpm -y f.toml runs it unchanged"
        );
        one(text, &ROOT, &said);
    }
    for text in [
        "[pool.www]\nuser = www-data\nlisten = /run/www.sock\n",
        "[global]\npid = /run/x.pid\nerror_log = /var/log/x\n",
    ] {
        let said = found(text, &ROOT);
        assert!(
            said.len() == 2 && said[0].contains("put the value in quotes"),
            "{said:?}"
        );
    }
}

#[test]
fn the_system_s_configuration_has_a_socket_and_a_directory_beside_it() {
    const POOL: &str = "[pool.a]\nlisten = \"/run/$pool\"\npm = \"static\"\nmax_children = 1\napplication = { runtime = \"rust\" }\n";
    let machine = |root| Machine {
        root,
        files: vec![("/etc/forkyard/pools/a.toml", POOL)],
    };
    let config = |text: &str, path: &str, root| {
        let loaded = parse(text, Path::new(path), &machine(root));
        let loaded = loaded.unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(loaded.warnings, []);
        loaded.config
    };
    let names = |config: &Config| {
        config
            .pools
            .iter()
            .map(|pool| pool.name.clone())
            .collect::<Vec<_>>()
    };
    let www = POOL.replace("[pool.a]\n", "[pool.www]\nuser = \"www-data\"\n");
    let own = "[global]\nallow_root = true\n".to_owned() + &www;
    let of_system = config(&own, SYSTEM, true);
    assert_eq!(names(&of_system), ["www", "a"]);
    assert_eq!(
        of_system.global.control.as_deref(),
        Some(Path::new(SYSTEM_CONTROL))
    );
    let written = own.replace("[global]\n", "[global]\ncontrol = \"/run/c\"\ninclude = []\n");
    let written = config(&written, SYSTEM, true);
    assert_eq!(names(&written), ["www"]);
    assert_eq!(written.global.control.as_deref(), Some(Path::new("/run/c")));
    // Other users can't listen there, and other configurations have their own daemons.
    let plain = www.replace("user = \"www-data\"\n", "");
    assert_eq!(config(&plain, SYSTEM, false).global.control, None);
    let other = config(&own, "/etc/other/forkyard.toml", true);
    assert_eq!(
        (names(&other), other.global.control),
        (vec!["www".to_owned()], None)
    );
    let asked = |text: &str, path: &str| {
        crate::resolve::control_socket(text.as_bytes(), Path::new(path), &machine(false))
    };
    assert_eq!(asked(&plain, SYSTEM), Some(SYSTEM_CONTROL.into()));
    assert_eq!(
        asked("[global]\ncontrol = \"/run/c\"\n", SYSTEM),
        Some("/run/c".into())
    );
    assert_eq!(asked("[global]\ncontrol = 1\n", SYSTEM), None);
    assert_eq!(asked(&plain, "/etc/other/forkyard.toml"), None);
}

#[test]
fn another_unit_of_a_size_or_a_duration_has_its_remedy() {
    for (line, expected) in [
        ("memory_limit = \"128MB\"", "write \"128M\""),
        ("memory_limit = \"1 GiB\"", "write \"1G\""),
        ("memory_limit = \"64kb\"", "write \"64K\""),
        ("stop_timeout = \"10 sec\"", "write \"10s\""),
        ("stop_timeout = \"5min\"", "write \"5m\""),
        ("stop_timeout = \"1 Hour\"", "write \"1h\""),
        ("memory_limit = \"much\"", "for example \"64K\""),
        ("stop_timeout = \"1 week\"", "at most \"3650d\""),
    ] {
        let said = found(&pool(&format!("{line}\n")), &ROOT);
        assert!(said.len() == 1 && said[0].ends_with(expected), "{line}: {said:?}");
    }
}

#[test]
fn a_pool_that_is_there_twice_is_one_error() {
    let twice = pool("") + &pool("");
    one(
        &twice,
        &ROOT,
        "11:7: error: not valid TOML: [pool.www] is already there in line 1; give one of the two pools another name",
    );
    let text = twice + "[pool.other]\npm = 1\npm = 2\n";
    assert_eq!(
        found(&text, &ROOT)[1..],
        ["23:1: error: not valid TOML: pm is already there in line 22; leave one of the two out"]
    );
    let text = pool("") + "[pool.www.application]\nruntime = \"php\"\n";
    one(
        &text,
        &ROOT,
        "11:11: error: not valid TOML: [pool.www.application] is already there in line 8; write the keys of both in one",
    );
}

#[test]
fn all_errors_are_reported() {
    let text = "[global]\nlog_level = \"x\"\n[pool.a]\nlisten = \"x\"\n[pool.b]\nmax_children = 0\n";
    let locations: Vec<String> = found(text, &USER)
        .iter()
        .map(|line| line.split(": missing").next().unwrap().to_owned())
        .collect();
    let locations: Vec<&str> = locations
        .iter()
        .map(|line| line.split(": ").nth(2).unwrap())
        .collect();
    let expected = [
        "global.log_level",
        "[pool a] pm",
        "[pool a] max_children",
        "[pool a] application",
        "[pool a] listen",
        "[pool b] listen",
        "[pool b] pm",
        "[pool b] application",
        "[pool b] max_children",
    ];
    assert_eq!(locations, expected);
}

#[test]
fn included_files() {
    const A: &str = "[pool.a]\nlisten = \"/run/$pool\"\npm = \"static\"\nmax_children = 1\napplication = { runtime = \"rust\" }\n";
    const B: &str = "[pool.b]\nlisten = \"/run/$pool\"\npm = \"static\"\nmax_children = 1\napplication = { runtime = \"rust\" }\n";
    let main = "[global]\ninclude = [\"*.conf\", \"a.conf\"]\n";
    let with = |files: Vec<(&'static str, &'static str)>| Machine { root: false, files };
    let loaded = parsed(main, &with(vec![("a.conf", A), ("b.conf", B)])).unwrap();
    let names: Vec<&str> = loaded
        .config
        .pools
        .iter()
        .map(|pool| pool.name.as_str())
        .collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(loaded.warnings, []);
    for (files, expected) in [
        (
            vec![("a.conf", A), ("c.conf", A)],
            "c.conf:1:7: error: [pool a] this pool is already defined at a.conf:1:7; give one of the two another name",
        ),
        (
            vec![("a.conf", A), ("g.conf", "[global]\n")],
            "g.conf: error: global: is not read from an included file; move it to the main file",
        ),
        (
            vec![("a.conf", "unreadable")],
            "a.conf: error: can't be read: Permission denied (os error 13)",
        ),
        (
            vec![("a.conf", "latin")],
            "a.conf:2:9: error: not valid TOML: this is not UTF-8; save the file as UTF-8",
        ),
        (
            vec![("a.conf", A), ("x.conf", "[pool.x\n")],
            "x.conf:1:8: error: not valid TOML: unclosed table, expected `]`",
        ),
    ] {
        let main = main.replace(", \"a.conf\"", "");
        one(&main, &with(files), expected);
    }
}

#[test]
fn directories_are_watched_with_pools_to_skip_and_may_be_empty() {
    let of = |global: &str| valid(&format!("[global]\n{global}\n")).global;
    let watched = of("watch = true\ninclude = [\"pools/*.toml\"]");
    assert_eq!(watched.on_error, OnError::Skip);
    assert_eq!(watched.watch.len(), 1);
    assert!(watched.watch[0].ends_with("pools/*.toml"));
    one(
        &format!("[global]\nwatch = true\n{}", pool("")),
        &ROOT,
        "2:1: error: global.watch: there are no files of `include` to watch; write include = [\"pools/*.toml\"] as well, or leave it out",
    );
    let refused = found(
        "[global]\nwatch = true\ninclude = [\"pools/*.toml\"]\non_error = \"fail\"\n",
        &ROOT,
    );
    assert!(
        refused.iter().any(|line| line.contains(
            "on_error: watch = true reloads at once, so a file with errors must not stop the other pools"
        )),
        "{refused:?}"
    );
}
