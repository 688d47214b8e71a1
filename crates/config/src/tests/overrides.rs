use super::*;

fn machine(files: &[(&'static str, &'static str)]) -> Machine {
    Machine {
        root: true,
        files: files.to_vec(),
    }
}

fn config(text: &str, files: &[(&'static str, &'static str)]) -> Config {
    match parsed(text, &machine(files)) {
        Ok(loaded) => {
            assert_eq!(loaded.warnings, []);
            loaded.config
        }
        Err(errors) => panic!("{errors}"),
    }
}

#[test]
fn variables_stand_over_the_files() {
    let text = pool("ping.path = \"/ping\"\n");
    let config = config(
        &text,
        &[
            ("$FORKYARD_GLOBAL__LOG_LEVEL", "debug"),
            ("$FORKYARD_GLOBAL__PROCESS_CONTROL_TIMEOUT", "7s"),
            ("$FORKYARD_POOL_WWW__MAX_CHILDREN", "20"),
            ("$FORKYARD_POOL_WWW__PING__PATH", "/other"),
            ("$FORKYARD_POOL_WWW__LISTEN", "/run/b.sock"),
            ("$FORKYARD_POOL_WWW__ENV__DATABASE_URL", "postgres://a=b"),
            ("$FORKYARD_POOL_WWW__APPLICATION__PHP_VALUE__MEMORY_LIMIT", "9M"),
            ("$FORKYARD_POOL_WWW__CLEAR_ENV", "false"),
            ("$FORKYARD_POOL_WWW__APPLICATION__VERSION", "8.2"),
            ("$FORKYARD_PHP", "8.4"),
        ],
    );
    assert_eq!(config.global.log_level, LogLevel::Debug);
    assert_eq!(
        config.global.process_control_timeout,
        std::time::Duration::from_secs(7)
    );
    let www = &config.pools[0];
    assert_eq!(www.pm.max_children(), 20);
    assert_eq!(www.listen.address, Address::Unix("/run/b.sock".into()));
    assert!(!www.environment.clear_env);
    assert!(
        www.environment
            .env
            .contains(&("DATABASE_URL".to_owned(), "postgres://a=b".to_owned()))
    );
    let Application::Php(php) = &www.application else {
        panic!("{www:?}")
    };
    assert_eq!(php.php_value, [("memory_limit".to_owned(), "9M".to_owned())]);
}

#[test]
fn a_name_is_written_in_capitals_and_a_table_keeps_its_other_keys() {
    let text = pool("").replace("pool.www", "pool.my-app").replace(
        "listen = \"/run/a.sock\"",
        "listen = { address = \"/run/a.sock\", owner = \"www-data\" }",
    );
    let config = config(
        &text,
        &[
            ("$FORKYARD_POOL_MY_APP__LISTEN", "/run/b.sock"),
            ("$FORKYARD_POOL_MY_APP__LISTEN__MODE", "0600"),
        ],
    );
    let listen = &config.pools[0].listen;
    assert_eq!(listen.address, Address::Unix("/run/b.sock".into()));
    assert_eq!((listen.mode, listen.owner.as_deref()), (0o600, Some("www-data")));
}

#[test]
fn mistakes_are_told_with_the_name_of_the_variable() {
    let said = |name: &'static str, value: &'static str| found(&pool(""), &machine(&[(name, value)]));
    assert_eq!(
        said("$FORKYARD_POOL_WWW__MAX_CHILDREN", "many"),
        [
            "FORKYARD_POOL_WWW__MAX_CHILDREN: error: [pool www] max_children: \"many\" is not a number of workers; write digits without \
             quotes, for example 10, or \"auto\""
        ]
    );
    assert_eq!(
        said("$FORKYARD_POOL_WWW__MAXCHILDREN", "5"),
        [
            "FORKYARD_POOL_WWW__MAXCHILDREN: error: [pool www] maxchildren: unknown key; did you mean max_children?"
        ]
    );
    let unknown = said("$FORKYARD_POOL_SHOP__MAX_CHILDREN", "5");
    assert!(
        unknown.len() == 1
            && unknown[0].starts_with("FORKYARD_POOL_SHOP__MAX_CHILDREN: warning: there is no such pool"),
        "{unknown:?}"
    );
}

#[test]
fn a_variable_that_fits_no_key_is_a_warning_with_the_nearest_name() {
    let said = |name: &'static str| found(&pool(""), &machine(&[(name, "x")]));
    for (name, meant) in [
        ("$FORKYARD_GLOBAL_LOG_FORMAT", "FORKYARD_GLOBAL__LOG_FORMAT"),
        ("$FORKYARD_GLOBAL_LOG_FROMAT", "FORKYARD_GLOBAL__LOG_FORMAT"),
        ("$FORKYARD_GLOBAL_PROCESS_MAX", "FORKYARD_GLOBAL__PROCESS__MAX"),
        ("$FORKYARD_GLOBAL_NONSENSE", "FORKYARD_GLOBAL__KEY"),
        (
            "$FORKYARD_POOL_WWW_MAX_CHILDREN",
            "FORKYARD_POOL_WWW__MAX_CHILDREN",
        ),
        (
            "$FORKYARD_POOL_MY_APP_PING_PATH",
            "FORKYARD_POOL_MY_APP__PING__PATH",
        ),
        (
            "$FORKYARD_POOL_WWW_MAX_CHILDERN",
            "FORKYARD_POOL_WWW__MAX_CHILDREN",
        ),
        ("$FORKYARD_POOL_WWW", "FORKYARD_POOL_NAME__KEY"),
        ("$FORKYARD_LOG_LEVEL", "FORKYARD_GLOBAL__LOG_LEVEL"),
        ("$FORKYARD_CONTROL", "FORKYARD_GLOBAL__CONTROL"),
        ("$FORKYARD_MAX_CHILDREN", "FORKYARD_POOL_NAME__MAX_CHILDREN"),
    ] {
        let expected = format!(
            "{}: warning: it stands for no key, so the variable has no effect; did you mean {meant}?",
            &name[1..]
        );
        assert_eq!(said(name), [expected]);
    }
    // forkyard's own variables, an application's, and those that Kubernetes sets for a service.
    for name in [
        "$FORKYARD_LOG",
        "$FORKYARD_JOBS",
        "$FORKYARD_JOB_ID",
        "$FORKYARD_JOB_QUEUE",
        "$FORKYARD_PHP",
        "$FORKYARD_APP_ROOT",
        "$FORKYARD_SPAWN_WORK_DIR",
        "$FORKYARD_SYSLOG_SOCKET",
        "$FORKYARD_SKIPPED",
        "$FORKYARD_UPGRADE",
        "$FORKYARD_HANDOVER",
        "$FORKYARD_ENV",
        "$FORKYARD_DATABASE_URL",
        "$FORKYARD_SERVICE_HOST",
        "$FORKYARD_PORT_9000_TCP_ADDR",
        "$FORKYARD_PORT",
    ] {
        assert_eq!(said(name), [""; 0], "{name}");
    }
}

#[test]
fn what_is_in_force_has_its_source() {
    let world = machine(&[("$FORKYARD_POOL_WWW__MAX_CHILDREN", "20")]);
    let text = pool("");
    let shown = crate::resolve::effective(text.as_bytes(), Path::new("f.toml"), &world).expect("valid");
    let has = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        shown
            .lines()
            .any(|it| it.split_whitespace().collect::<Vec<_>>() == words)
    };
    for line in [
        "[pool.www]",
        "max_children = 20 # FORKYARD_POOL_WWW__MAX_CHILDREN",
        "pm = \"static\" # f.toml:4:1",
        "max_requests = 0 # default",
        "application.limit_extensions = [\".php\", \".phar\"] # default",
        "[global]",
        "log_level = \"notice\" # default",
    ] {
        assert!(has(line), "{line}\n{shown}");
    }
    parsed(&shown, &ROOT).expect("what is shown is valid");
}

#[test]
fn the_autopilot_has_a_bound_by_memory_or_by_the_operator() {
    let text = pool("").replace("max_children = 2", "max_children = \"auto\"");
    let gib = ("/memory", "1073741824");
    let bound = |text: &str| {
        let pool = &config(text, &[gib]).pools[0];
        assert!(pool.load.has_autopilot);
        pool.pm.max_children()
    };
    assert_eq!(bound(&text), 128);
    let limited = text.replace("pm = ", "max_children_most = 40\npm = ");
    assert_eq!(bound(&limited), 40);
    assert!(!config(&pool(""), &[gib]).pools[0].load.has_autopilot);
    one(
        &text,
        &ROOT,
        "5:1: error: [pool www] max_children: it is not known how much memory there is; give a number",
    );
}
