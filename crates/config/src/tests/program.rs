use super::*;
use std::time::Duration;

/// A pool of this runtime; `pool` starts at line 8, `application` at line 11.
fn app(runtime: &str, pool: &str, application: &str) -> String {
    format!(
        "[global]\n\n[pool.www]\nlisten = \"/run/a.sock\"\nuser = \"www-data\"\npm = \"ondemand\"\nmax_children = 4\n{pool}\n\
         [pool.www.application]\nruntime = \"{runtime}\"\n{application}\n"
    )
}

fn program(text: &str, machine: &Machine) -> Program {
    let loaded = parsed(text, machine).unwrap_or_else(|errors| panic!("{errors}"));
    match &loaded.config.pools[0].application {
        Application::Program(program) => program.clone(),
        other => panic!("{other:?}"),
    }
}

const START: &str = "root = \"/srv/app\"\nstart_command = \"./server --port $PORT\"";

#[test]
fn a_program_is_started_or_is_there() {
    let found = program(&app("http", "", START), &ROOT);
    let expected = Program {
        root: PathBuf::from("/srv/app"),
        start_command: "./server --port $PORT".to_owned(),
        listens: Listens::Port,
        instances: 1,
        app_env: "production".to_owned(),
        load_shell_envvars: false,
        rlimits: Vec::new(),
        umask: None,
        start_timeout: Duration::from_secs(90),
        preloader_idle_timeout: Duration::from_secs(300),
    };
    assert_eq!(found, expected);
    let more = format!(
        "{START}\nhandshake = true\ninstances = 3\napp_env = \"staging\"\nload_shell_envvars = true\numask = \"0027\"\n\
         rlimits = {{ nofile = \"1024:4096\", as = \"1G\", core = 0 }}\nstart_timeout = \"5s\"\npreloader_idle_timeout = 7"
    );
    let found = program(&app("http", "env.PORT = \"1\"", &more), &ROOT);
    let limit = |name: &str, soft, hard| ResourceLimit {
        name: name.to_owned(),
        soft: Some(soft),
        hard: Some(hard),
    };
    let expected = Program {
        listens: Listens::Handshake,
        instances: 3,
        app_env: "staging".to_owned(),
        load_shell_envvars: true,
        umask: Some(0o27),
        start_timeout: Duration::from_secs(5),
        preloader_idle_timeout: Duration::from_secs(7),
        rlimits: vec![
            limit("nofile", 1024, 4096),
            limit("as", 1 << 30, 1 << 30),
            limit("core", 0, 0),
        ],
        ..expected
    };
    let sorted = |mut program: Program| {
        program.rlimits.sort_by(|a, b| a.name.cmp(&b.name));
        program
    };
    assert_eq!(sorted(found), sorted(expected));
    let there = parsed(&app("http", "", "address = \"/run/app.sock\""), &ROOT).unwrap();
    let address = Address::Unix(PathBuf::from("/run/app.sock"));
    assert_eq!(
        there.config.pools[0].application,
        Application::Http(Http { address })
    );
}

#[test]
fn rules_of_programs() {
    cases(
        in_halves(|pool, application| app("http", pool, application)),
        &ROOT,
        r#"
        --
        ! 10:1: error: [pool www] application.address: missing; write address = "127.0.0.1:3000", or the path of the program's socket; or start_command and root, if forkyard starts the program
        --
        address = "127.0.0.1:3000"
        start_command = "./x"
        ! 12:1: error: [pool www] application.start_command: the program has an address already; keep start_command if forkyard starts the program, otherwise address
        --
        address = "127.0.0.1:3000"
        instances = 2
        ! 12:1: error: [pool www] application.instances: it is for a program that forkyard starts; leave it out, or write start_command instead of address
        --
        start_command = "./x"
        ! 10:1: error: [pool www] application.root: missing; write root = "/srv/app", the directory of the application
        --
        root = "/srv/gone"
        start_command = "./x"
        ! 11:1: error: [pool www] application.root: "/srv/gone" does not exist; install it, or give another path
        --
        root = "/usr/lib/libphp8.2.so"
        start_command = "./x"
        ! 11:1: error: [pool www] application.root: "/usr/lib/libphp8.2.so" is not a directory; give the directory of the application
        --
        root = "/srv/app"
        start_command = " "
        ! 12:1: error: [pool www] application.start_command: it is empty; write what starts the program
        --
        root = "/srv/app"
        start_command = "x"
        instances = 0
        ! 13:1: error: [pool www] application.instances: 0 is out of range; give a whole number from 1 to 256
        --
        root = "/srv/app"
        start_command = "x"
        app_env = ""
        ! 13:1: error: [pool www] application.app_env: it is empty; write "production", or leave it out
        --
        root = "/srv/app"
        start_command = "x"
        rlimits.files = 1
        ! 13:9: error: [pool www] application.rlimits: "files" is no resource limit; it can be as, core, cpu, data, fsize, locks, memlock, msgqueue, nice, nofile, nproc, rss, stack
        --
        root = "/srv/app"
        start_command = "x"
        rlimits.nofile = "2:1"
        ! 13:9: error: [pool www] application.rlimits.nofile: "2:1" is not a limit; write a number, a size such as "512M", "unlimited", or two limits as "SOFT:HARD"
        memory_limit = "100M"
        --
        address = "127.0.0.1:3000"
        ! 8:1: error: [pool www] memory_limit: a program that forkyard does not start is not replaced for it; leave it out, or have forkyard start the program (application.start_command)
        chroot = "/srv/www"
        --
        root = "/srv/app"
        start_command = "./server --port $PORT"
        ! 8:1: error: [pool www] chroot: it is not available for a program that forkyard starts; leave it out, or start the program elsewhere and write its address
        confine.deny_system_calls = true
        --
        root = "/srv/app"
        start_command = "./server --port $PORT"
        ! 8:9: error: [pool www] confine.deny_system_calls: it is not available for a program that forkyard starts; leave it out, or start the program elsewhere and write its address
        env.PORT = "3000"
        --
        root = "/srv/app"
        start_command = "./server --port $PORT"
        ! 8:5: error: [pool www] env.PORT: forkyard chooses the port and passes it in PORT; leave it out
    "#,
    );
    let both = found(&app("node", "", &format!("{START}\naddress = \"80\"")), &ROOT);
    assert_eq!(
        both,
        [
            "13:1: error: [pool www] application.address: forkyard starts the program and chooses where it listens; leave it out; with runtime = \"http\" it is where a program listens that forkyard does not start"
        ]
    );
}

#[test]
fn a_program_that_forkyard_starts_may_be_limited() {
    for runtime in ["http", "node"] {
        let loaded = parsed(&app(runtime, "memory_limit = \"100M\"", START), &ROOT).unwrap();
        assert_eq!(loaded.config.pools[0].retirement.memory_limit, Some(100 << 20));
    }
}

/// Other runtimes' workers speak only FastCGI, and application pools need its parameters.
#[test]
fn http_is_spoken_where_workers_can() {
    const LINE: &str = "http_listen = \"/run/http.sock\"";
    const PROBLEM: &str = "8:1: error: [pool www] http_listen: only workers of ASGI applications, of Node.js and of other \
                           programs that speak HTTP can serve HTTP; leave it out, and use listen with the web server's FastCGI";
    for (runtime, application) in [
        ("php", "version = \"8.2\""),
        ("cgi", "root = \"/srv/app\""),
        ("fastcgi", "root = \"/srv/app\"\nstart_command = \"./run\""),
        ("wsgi", "root = \"/srv/app\"\nentry = \"a:b\""),
        ("rack", "root = \"/srv/app\"\nentry = \"config.ru\""),
        ("rust", ""),
    ] {
        let diagnostics = found(&app(runtime, LINE, application), &ROOT);
        assert_eq!(diagnostics, [PROBLEM], "{runtime}");
    }
    for (runtime, application) in [
        ("asgi", "root = \"/srv/app\"\nentry = \"a:b\""),
        ("node", START),
        ("http", START),
        ("http", "address = \"127.0.0.1:3000\""),
    ] {
        let loaded =
            parsed(&app(runtime, LINE, application), &ROOT).unwrap_or_else(|errors| panic!("{errors}"));
        assert!(loaded.config.pools[0].http_listen.is_some(), "{runtime}");
    }
    let sites = format!(
        "[pool.sites]\nlisten = \"/run/s.sock\"\nrouting = \"application\"\n{LINE}\n[pool.sites.applications]\n\
         directories = [\"/srv\"]\n"
    );
    let diagnostics = found(&sites, &ROOT);
    let problem = "4:1: error: [pool sites] http_listen: an application pool finds the application of a request by its FastCGI parameters, and HTTP has none; leave it out, and give the application that needs it its own pool";
    assert!(diagnostics.iter().any(|it| it == problem), "{diagnostics:?}");
}

#[test]
fn an_application_of_node_is_found_as_npm_would() {
    const PACKAGE: &str = "/srv/app/package.json";
    let machine = |files: &[(&'static str, &'static str)]| Machine {
        root: true,
        files: files.to_vec(),
    };
    let text = app("node", "", "root = \"/srv/app\"");
    for (files, expected) in [
        (
            vec![("/srv/app/index.js", ""), ("/srv/app/server.js", "")],
            "node server.js",
        ),
        (vec![("/srv/app/app.js", ""), (PACKAGE, "{}")], "node app.js"),
        (
            vec![(PACKAGE, r#"{"scripts": {"start": " node bin/www "}}"#)],
            "node bin/www",
        ),
        (
            vec![(PACKAGE, r#"{"scripts": {"start": "next start -p $PORT"}}"#)],
            "/bin/sh -c 'PATH='\\''/srv/app/node_modules/.bin'\\'':$PATH; export PATH; next start -p $PORT'",
        ),
        (
            vec![
                (PACKAGE, r#"{"scripts": {"start": "next start"}}"#),
                ("/srv/app/node_modules/.bin/next", ""),
            ],
            "node_modules/.bin/next start",
        ),
        (
            vec![(PACKAGE, r#"{"scripts": {"start": "DEBUG=x node a.js"}}"#)],
            "/bin/sh -c 'PATH='\\''/srv/app/node_modules/.bin'\\'':$PATH; export PATH; DEBUG=x node a.js'",
        ),
    ] {
        assert_eq!(
            program(&text, &machine(&files)).start_command,
            expected,
            "{files:?}"
        );
    }
    let own = app("node", "", START);
    assert_eq!(program(&own, &ROOT).start_command, "./server --port $PORT");
    for (files, problem) in [
        (
            vec![],
            "it has no package.json with a script \"start\", and none of app.js, server.js, index.js",
        ),
        (
            vec![(PACKAGE, "{")],
            "/srv/app/package.json: EOF while parsing an object at line 1 column 1",
        ),
        (
            vec![(PACKAGE, "unreadable")],
            "/srv/app/package.json: Permission denied (os error 13)",
        ),
    ] {
        let expected = format!(
            "11:1: error: [pool www] application.root: {problem}; write start_command = \"node FILE\""
        );
        assert_eq!(found(&text, &machine(&files)), [expected]);
    }
}
