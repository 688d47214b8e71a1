use super::*;
use forkyard_protocol::inspector::Preload;

const PATH: &str = "/srv/shop/forkyard.toml";

fn parsed(text: &str) -> Result<Settings, String> {
    parse(text.as_bytes(), Path::new(PATH)).map_err(|errors| errors.to_string())
}

#[test]
fn every_key_is_read() {
    let text = "runtime = \"wsgi\"\nentry = \"shop.wsgi:app\"\nstart_command = \"run\"\nmax_per_app = 2\n\
                min_instances = 0\nmax_requests = 500\nconcurrency = 0\nthreads = 4\ninstances = 3\nhandshake = true\npreload = false\nmax_idle_time = \"1m\"\n\
                max_request_time = 30\nmax_request_queue_size = 9\nmemory_limit = \"200M\"\nstart_timeout = \"5s\"\n\
                rolling_restarts = true\napp_log = \"log/app.log\"\nenv_file = \".env\"\n[env]\nA = \"1\"\nLD_PRELOAD = \"\"\n";
    let settings = parsed(text).unwrap();
    assert_eq!(settings.runtime, Some(Runtime::Wsgi));
    assert_eq!(settings.entry.as_deref(), Some("shop.wsgi:app"));
    assert_eq!(settings.start_command.as_deref(), Some("run"));
    assert_eq!(
        (
            settings.max_per_app,
            settings.min_instances,
            settings.max_requests
        ),
        (Some(2), Some(0), Some(500))
    );
    assert_eq!(settings.rolling_restarts, Some(true));
    let (concurrency, threads) = (settings.concurrency, settings.threads);
    assert_eq!(
        (concurrency, threads, settings.instances),
        (Some(0), Some(4), Some(3))
    );
    let times = [
        settings.max_idle_time,
        settings.max_request_time,
        settings.start_timeout,
    ];
    assert_eq!(
        times.map(|time| time.map(|time| time.as_secs())),
        [Some(60), Some(30), Some(5)]
    );
    assert_eq!(settings.max_request_queue_size, Some(9));
    assert_eq!(
        (settings.memory_limit, settings.handshake),
        (Some(200 << 20), Some(Handshake::Spoken))
    );
    assert_eq!(settings.app_log.as_deref(), Some("log/app.log"));
    assert_eq!(settings.env_file.as_deref(), Some(".env"));
    let env: Vec<(&str, &str)> = settings
        .env
        .iter()
        .map(|(a, b)| (a.as_str(), b.as_str()))
        .collect();
    assert_eq!(env, [("A", "1"), ("LD_PRELOAD", "")]);
    assert_eq!(parsed(""), Ok(Settings::default()));
    assert_eq!(settings.preload, Some(Preload::Never));
    let preload = |text: &str| parsed(&format!("preload = {text}")).unwrap().preload;
    assert_eq!(preload("\"auto\""), Some(Preload::Auto));
    assert_eq!(preload("true"), Some(Preload::Always));
    let handshake = |text: &str| parsed(&format!("handshake = {text}")).unwrap().handshake;
    assert_eq!(handshake("\"socket\""), Some(Handshake::Socket));
    assert_eq!(handshake("false"), Some(Handshake::Usual));
    for runtime in RUNTIMES.iter().filter(|runtime| runtime.is_for_many) {
        let text = format!("runtime = \"{}\"", runtime.name);
        assert_eq!(parsed(&text).unwrap().runtime, Some(runtime.kind));
    }
}

#[test]
fn mistakes_have_their_place_and_what_would_be_right() {
    let found = |text: &str| {
        let errors = parsed(text).expect_err(text);
        errors
            .lines()
            .map(|line| line.replace(&format!("{PATH}:"), ""))
            .collect()
    };
    crate::tests::each_case(
        r#"
        runtime = "fastcg"
        ! 1:1: error: runtime: "fastcg" is no known runtime; did you mean "fastcgi"?
        # Two lines.
        max_per_app = 0
        ! 2:1: error: max_per_app: 0 is out of range; give a whole number from 1 to 1000000000
        max_requests = "x"
        ! 1:1: error: max_requests: "x" is not a whole number; write digits without quotes, for example 10
        threads = 0
        ! 1:1: error: threads: 0 is out of range; give a whole number from 1 to 256
        concurrency = 10001
        ! 1:1: error: concurrency: 10001 is out of range; give a whole number from 0 to 10000
        memory_limit = 0
        ! 1:1: error: memory_limit: is 0, and every process takes more; give a size such as "200M", or leave it out
        # Two lines.
        max_request_time = 0
        ! 2:1: error: max_request_time: is 0, which is no time at all; give a time such as "30s", or leave it out
        user = "root"
        ! 1:1: error: user: unknown key
        min_instance = 1
        ! 1:1: error: min_instance: unknown key; did you mean min_instances?
        [pool.www]
        listen = 1
        ! 2:1: error: pool.www.listen: unknown key
        entry = ""
        ! 1:1: error: entry: is empty; leave it out
        app_log = "../other/app.log"
        ! 1:1: error: app_log: "../other/app.log" is no file below the application's root; give its path from there, for example "log/app.log"
        [env]
        "A=B" = "1"
        ! 2:1: error: env: "A=B" can't be the name of a variable; leave out = and what can't be seen
        env = 1
        ! 1:1: error: env: 1 is not a table; write { NAME = "value" }
    "#,
        found,
    );
    let error = parsed("runtime = php").unwrap_err();
    assert!(
        error.starts_with(&format!("{PATH}:1:")) && error.contains("put the value in quotes"),
        "{error}"
    );
    assert!(
        parsed("env = { A = \"a\\u0000b\" }")
            .unwrap_err()
            .contains("env.A")
    );
}

#[test]
fn twenty_mistakes_are_told_and_that_there_are_more() {
    let keys = |count: usize| -> String { (0..count).map(|n| format!("key_{n} = 1\n")).collect() };
    let error = parsed(&keys(20)).unwrap_err();
    assert_eq!(error.lines().count(), 20, "{error}");
    assert!(!error.contains("more than"), "{error}");
    for text in [keys(5000), "= 1\n".repeat(10_000), "a = 1\n".repeat(10_000)] {
        let error = parsed(&text).unwrap_err();
        let lines: Vec<&str> = error.lines().collect();
        assert!(lines.len() <= 21, "{error}");
        assert!(lines[0].starts_with(&format!("{PATH}:")), "{error}");
    }
    let error = parsed(&keys(21)).unwrap_err();
    let last = format!("{PATH}: error: has more than these 20 mistakes; correct these first");
    assert_eq!(error.lines().last(), Some(last.as_str()));
    let first = format!("{PATH}:1:1: error: key_0: unknown key");
    assert_eq!(error.lines().next(), Some(first.as_str()));
}

#[test]
fn no_file_of_an_allowed_length_takes_long() {
    let fill = |line: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        for n in 0.. {
            let line = line(n);
            if text.len() + line.len() > MOST_BYTES {
                break;
            }
            text += &line;
        }
        text
    };
    let texts = [
        fill(&|n| format!("k{n}=1\n")),
        fill(&|_| "[a]\n".to_owned()),
        format!("[a]\n[a]\n{}", fill(&|_| "b=1\n".to_owned())),
        format!("e={{{}k=1}}", fill(&|n| format!("k{n}=1,"))),
        format!("{}=1", "a.".repeat(MOST_BYTES / 2 - 2)),
        format!("a={}", "[".repeat(MOST_BYTES - 2)),
        format!("{}=1", "x".repeat(MOST_BYTES - 2)),
        fill(&|n| format!("{}{n}=1\n", "min_instances".repeat(200))),
        fill(&|_| "\"\n".to_owned()),
    ];
    for text in texts {
        // Measure CPU time, so that other processes don't count.
        let on_processor = || {
            let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
            Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
        };
        let began = on_processor();
        assert!(parsed(&text).is_err());
        let took = on_processor() - began;
        assert!(took < Duration::from_secs(10), "{took:?} for {:?}…", &text[..20]);
    }
}

#[test]
fn passenger_s_file_is_understood_as_far_as_it_maps() {
    let read =
        |text: &str| passengerfile(text.as_bytes(), Path::new("/p.json")).map_err(|error| error.to_string());
    let settings = read(
        r#"{"app_type": "wsgi", "startup_file": "shop.py", "envvars": {"A": "1"}, "min_instances": 2, "port": 80}"#,
    );
    let settings = settings.unwrap().unwrap();
    assert_eq!(
        (settings.runtime, settings.entry.as_deref()),
        (Some(Runtime::Wsgi), Some("shop.py"))
    );
    assert_eq!((settings.env.len(), settings.min_instances), (1, Some(2)));
    let settings = read(r#"{"app_start_command": "./run"}"#).unwrap().unwrap();
    assert_eq!(
        (settings.runtime, settings.start_command.as_deref()),
        (Some(Runtime::Http), Some("./run"))
    );
    assert_eq!(read(r#"{"port": 80}"#), Ok(None));
    let errors = [
        ("{\n\"a\"", "/p.json:2:3: error: not valid JSON"),
        (
            "{\"app_type\":\n 1}",
            "/p.json:2:2: error: a value of another type than Passenger documents",
        ),
        (
            r#"{"app_type": "meteor"}"#,
            "/p.json: error: app_type: \"meteor\" can't be run; it can be one of wsgi, python, rack, ruby, node, nodejs",
        ),
        (
            r#"{"app_type": "wsgi", "envvars": {"": "1"}}"#,
            "/p.json: error: envvars: \"\" can't be the name of a variable",
        ),
    ];
    for (text, error) in errors {
        assert_eq!(read(text), Err(error.to_owned()), "{text}");
    }
}
