use super::*;

/// A PHP application; `more` starts at line 9.
fn application(more: &str) -> String {
    format!("{}{more}\n", pool("").replace("\n\n\n", "\n\n"))
}

/// An application of WSGI, ASGI or Rack; `line` is line 11.
fn wrapped(interface: &str, line: &str) -> String {
    let application = format!("runtime = \"{interface}\"\nroot = \"/srv/app\"\n{line}\n");
    pool("").replace("runtime = \"php\"\nversion = \"8.2\"\n", &application)
}

#[test]
fn rules_of_the_application() {
    let missing = pool("").replace(
        "[pool.www.application]\nruntime = \"php\"\nversion = \"8.2\"\n",
        "",
    );
    one(
        &missing,
        &ROOT,
        "1:7: error: [pool www] application: missing; write [pool.www.application] with runtime = \"php\" and version = \"8.2\"",
    );
    let with = |runtime: &str| pool("").replace("runtime = \"php\"", runtime);
    cases(
        with,
        &ROOT,
        r#"
        ! 10:1: error: [pool www] application.runtime: missing; write runtime = "php"
        runtime = "pph"
        ! 9:1: error: [pool www] application.runtime: "pph" is no known runtime; it can be "php", "cgi", "fastcgi", "http", "node", "wsgi", "asgi", "rack" or "rust"
        runtime = "noed"
        ! 9:1: error: [pool www] application.runtime: "noed" is no known runtime; did you mean "node"?
        runtime = 1
        ! 9:1: error: [pool www] application.runtime: 1 is not a string; write text in quotes, without NUL characters
        runtime = "rust"
        ! 10:1: error: [pool www] application.version: unknown key
    "#,
    );
    let version = pool("").replace("version = \"8.2\"", "");
    one(
        &version,
        &ROOT,
        "9:1: error: [pool www] application.version: missing; write version = \"8.2\", or the version that is installed",
    );
    let version = pool("").replace("\"8.2\"", "\"8\"");
    one(
        &version,
        &ROOT,
        "10:1: error: [pool www] application.version: \"8\" is not a PHP version; write major and minor number, for example \"8.2\"",
    );
    cases(
        application,
        &ROOT,
        r#"
        library = "libphp.so"
        ! 10:1: error: [pool www] application.library: "libphp.so" is not an absolute path; start it with /
        library = "/gone.so"
        ! 10:1: error: [pool www] application.library: "/gone.so" does not exist; install it, or give another path
        php_ini = "/gone.ini"
        ! 10:1: error: [pool www] application.php_ini: "/gone.ini" does not exist; install it, or give another path
        limit_extensions = ["php"]
        ! 10:1: error: [pool www] application.limit_extensions: "php" is not an extension; write a dot and the name, for example ".php"
        limit_extensions = ".php"
        ! 10:1: error: [pool www] application.limit_extensions: ".php" is not an array of strings; write ["one", "two"]
        limit_extensions = [1]
        ! 10:1: error: [pool www] application.limit_extensions: 1 is not a string; write text in quotes, without NUL characters
        warm_up = 1001
        ! 10:1: error: [pool www] application.warm_up: 1001 is out of range; give a whole number from 0 to 1000
        warm_up_time = 0
        ! 10:1: error: [pool www] application.warm_up_time: 0 is too short; give a duration above zero, for example "10s"
        start_timeout = 0
        ! 10:1: error: [pool www] application.start_timeout: 0 is too short; give a duration above zero, for example "10s"
        php_flag.display_errors = "maybe"
        ! 10:10: error: [pool www] application.php_flag.display_errors: "maybe" is not a flag; write true or false without quotes
        php_value.display_errors = 1
        php_flag.display_errors = true
        ! 11:10: error: [pool www] application.php_flag.display_errors: it is already set at 10:11; set it once
        php_value = { "a b" = 1 }
        ! 10:15: error: [pool www] application.php_value: "a b" can't be the name of a setting; write it as in php.ini
        php_value.x = []
        ! 10:11: error: [pool www] application.php_value.x: an array is not a php.ini value; write a string in quotes, a number, true or false
        php_values.x = 1
        ! 10:12: error: [pool www] application.php_values.x: unknown key; did you mean application.php_value?
        startup_timeout = 1
        ! 10:1: error: [pool www] application.startup_timeout: unknown key; did you mean application.start_timeout?
        max_requests = 1
        ! 10:1: error: [pool www] application.max_requests: unknown key; it belongs in [pool.www]
        pid = "/x"
        ! 10:1: error: [pool www] application.pid: unknown key; it belongs in [global]
    "#,
    );
}

#[test]
fn settings_of_php() {
    let text = application(
        "php_value = { session.save_path = \"/tmp/$pool\", memory_limit = \"1M\" }\n\
         php_flag.display_errors = false\n\
         php_admin_flag = { log_errors = true, html_errors = \"On\" }\n\
         php_admin_value = { precision = 14 }\n\
         library = \"/usr/lib/libphp8.2.so\"\nphp_ini = \"/etc/php/8.2/fpm\"",
    );
    let Application::Php(php) = &valid(&text).pools[0].application else {
        panic!("PHP")
    };
    let pairs = |list: &[(&str, &str)]| -> Vec<(String, String)> {
        list.iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    };
    let expected = [
        ("session.save_path", "/tmp/www"),
        ("memory_limit", "1M"),
        ("display_errors", "0"),
    ];
    assert_eq!(php.php_value, pairs(&expected));
    assert_eq!(
        php.php_admin_value,
        pairs(&[("log_errors", "1"), ("html_errors", "1"), ("precision", "14")])
    );
    assert_eq!(php.limit_extensions, [".php", ".phar"]);
}

#[test]
fn a_number_or_numbers_say_when_workers_are_forked_from_a_worker() {
    let read = |line: &str| {
        let config = valid(&wrapped("wsgi", line));
        match &config.pools[0].application {
            Application::Wrapped(wrapped) => wrapped.clone(),
            other => panic!("{other:?}"),
        }
    };
    let at = |line: &str| {
        (0..4)
            .map(|promotions| read(line).refork_at(promotions))
            .collect::<Vec<_>>()
    };
    assert_eq!(at(""), [None; 4]);
    assert_eq!(at("refork_after = 0"), [None; 4]);
    assert_eq!(at("refork_after = 50"), [Some(50); 4]);
    assert_eq!(
        at("refork_after = [5, 10]"),
        [Some(5), Some(10), Some(10), Some(10)]
    );
    assert_eq!(at("refork_after = [5, 10, 0]"), [Some(5), Some(10), None, None]);
    assert!(read("refork_after = [5, 0]").reforks() && !read("refork_after = [0, 5]").reforks());
    for (line, found) in [("refork_after = -1", "-1"), ("refork_after = [5, -2]", "-2")] {
        one(
            &wrapped("wsgi", line),
            &ROOT,
            &format!(
                "11:1: error: [pool www] application.refork_after: {found} is not a number of requests, or an array of numbers; write 1000, or [50, 100, 1000]"
            ),
        );
    }
}

#[test]
fn an_application_is_loaded_before_the_workers_or_in_each() {
    for interface in ["wsgi", "asgi", "rack"] {
        let read = |line: &str| match &valid(&wrapped(interface, line)).pools[0].application {
            Application::Wrapped(wrapped) => wrapped.preload,
            other => panic!("{other:?}"),
        };
        assert_eq!(read(""), Preload::Auto);
        assert_eq!(read("preload = \"auto\""), Preload::Auto);
        assert_eq!(read("preload = true\nrefork_after = 9"), Preload::Always);
        assert_eq!(read("preload = false\nrefork_after = 0"), Preload::Never);
    }
    one(
        &wrapped("rack", "preload = \"lazy\""),
        &ROOT,
        "11:1: error: [pool www] application.preload: \"lazy\" is not a place to load the application; write \"auto\", true or false",
    );
    one(
        &wrapped("wsgi", "preload = false\nrefork_after = 9"),
        &ROOT,
        "12:1: error: [pool www] application.refork_after: with preload = false each worker loads the application, and no worker is forked from another; leave one out",
    );
}

#[test]
fn several_requests_are_served_by_an_event_loop_or_by_threads() {
    let read = |interface: &str, line: &str| match &valid(&wrapped(interface, line)).pools[0].application {
        Application::Wrapped(wrapped) => wrapped.concurrency,
        other => panic!("{other:?}"),
    };
    assert_eq!((read("asgi", ""), read("asgi", "concurrency = 7")), (100, 7));
    assert_eq!((read("wsgi", ""), read("rack", "")), (1, 1));
    assert_eq!(
        (read("wsgi", "threads = 4"), read("rack", "threads = 256")),
        (4, 256)
    );
    for (interface, line, told) in [
        (
            "asgi",
            "concurrency = 0",
            "0 is out of range; give a whole number from 1 to 10000",
        ),
        (
            "wsgi",
            "concurrency = 2",
            "an application without an event loop serves one request at a time in each thread; leave it out, and set threads instead",
        ),
        (
            "rack",
            "threads = 0",
            "0 is out of range; give a whole number from 1 to 256",
        ),
        (
            "wsgi",
            "threads = 257",
            "257 is out of range; give a whole number from 1 to 256",
        ),
        (
            "asgi",
            "threads = 2",
            "an ASGI application has an event loop, which serves many requests in one thread; leave it out, and set concurrency instead",
        ),
    ] {
        let key = line.split(' ').next().expect("a key");
        let location = format!("11:1: error: [pool www] application.{key}: {told}");
        one(&wrapped(interface, line), &ROOT, &location);
    }
}
