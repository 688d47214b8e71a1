//! `forkyard import`: the TOML means what php-fpm's files mean.

use super::both::{STOCK, compare, is_stock_there};
use super::files::{CASES, FULL, VALUES, prepare, write};
use crate::random::Random;
use crate::support::prelude::*;
use forkyard_config::{Abandoned, Address, Application, Config, Host, Listen, parse};
use forkyard_fpm_config::import::{Imported, import};
use forkyard_fpm_config::{Options, test};

const OURS: &str = env!("CARGO_BIN_EXE_forkyard");

fn options(path: &str) -> Options {
    Options {
        config: Some(path.to_owned()),
        allow_root: true,
        no_php_ini: false,
        ..Options::default()
    }
}

fn comparable(mut config: Config) -> Config {
    config.path = PathBuf::new();
    config.start_settings.clear();
    for pool in &mut config.pools {
        let pool = std::sync::Arc::make_mut(pool);
        pool.title.clear();
        // forkyard-fpm counts them, too.
        if pool.load.overload.abandoned == Abandoned::Count {
            pool.load.overload.abandoned = Abandoned::Run;
        }
        pool.environment.env = last_of_each(&pool.environment.env);
        if pool.pages.status_path.as_deref() == Some("/") {
            pool.pages.status_path = None;
        }
        if pool.pages.ping_path.as_deref() == Some("/") || pool.pages.ping_path == pool.pages.status_path {
            pool.pages.ping_path = None;
        }
        if pool.pages.ping_path.is_none() {
            "pong".clone_into(&mut pool.pages.ping_response);
        }
        pool.listen.backlog = pool.listen.backlog.max(-1);
        let is_unix = matches!(pool.listen.address, Address::Unix(_));
        if is_unix {
            pool.listen.allowed_clients.clear();
            pool.listen.mode &= 0o777;
        } else {
            let (address, clients) = (pool.listen.address.clone(), pool.listen.allowed_clients.clone());
            pool.listen = Listen {
                address,
                backlog: pool.listen.backlog,
                owner: None,
                group: None,
                mode: 0o660,
                allowed_clients: clients,
                wrong_clients: Vec::new(),
                acl_users: Vec::new(),
                acl_groups: Vec::new(),
            };
        }
        if let Application::Php(php) = &mut pool.application {
            php.limit_extensions.retain(|ending| ending.starts_with('.'));
            php.php_value = last_of_each(&php.php_value);
            php.php_admin_value = last_of_each(&php.php_admin_value);
        }
    }
    config
}

fn last_of_each(list: &[(String, String)]) -> Vec<(String, String)> {
    let later = |at: usize| list[at + 1..].iter().any(|(name, _)| *name == list[at].0);
    (0..list.len())
        .filter(|at| !later(*at))
        .map(|at| list[at].clone())
        .collect()
}

/// Imports a file and reads the result; returns whether php-fpm would accept the file.
fn round_trip(path: &str) -> Option<Imported> {
    let host = Host::default();
    let imported = import(&options(path), &host);
    let text = imported.text.clone()?;
    let loaded = match parse(&text, Path::new("imported.toml"), &host) {
        Ok(loaded) => loaded,
        Err(errors) => panic!("{path}: {errors}\n{text}"),
    };
    let config = imported.config.clone().expect("there is one with the text");
    let (ours, theirs) = (comparable(loaded.config), comparable(config));
    if ours != theirs {
        let [ours, theirs] = [ours, theirs].map(|config| format!("{config:#?}"));
        let mut pairs = ours.lines().zip(theirs.lines());
        let first = pairs.find(|(ours, theirs)| ours != theirs);
        panic!("{path}: {first:?}\n{text}");
    }
    Some(imported)
}

#[test]
fn whatever_php_fpm_takes_means_the_same_as_toml() {
    skip_if!(needs_root());
    let directory = tempfile::tempdir().expect("there is room");
    prepare(directory.path());
    let mut taken = 0;
    for (at, text) in CASES.iter().chain(&[FULL, VALUES, "{POOL}"]).enumerate() {
        let path = write(directory.path(), &format!("{at}.conf"), text);
        let fits = test(&options(&path), false, &Host::default(), &|_| Vec::new()).0;
        if !fits || text.contains("[]") && text.len() < 5 {
            continue;
        }
        taken += usize::from(round_trip(&path).is_some());
    }
    assert!(taken >= 5, "only {taken} files are right");
}

#[test]
fn debians_files_are_taken_over_whole_without_what_they_explain() {
    let stock = concat!("/etc/php/", env!("FORKYARD_PHP"), "/fpm/php-fpm.conf");
    skip_if!(needs_root() || needs_file(stock));
    let imported = round_trip(stock).expect("Debian's files are right");
    assert_eq!(imported.lost, []);
    let text = imported.text.expect("there is a text");
    for expected in [
        "\n[pool.www]\n",
        "\nstart_servers = 2\n",
        "listen.owner = \"www-data\"\n",
        "daemonize = true\n",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let comments: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
    assert_eq!(comments.len(), 2, "{text}");
}

#[test]
fn the_command_says_what_it_could_not_take_over() {
    skip_if!(needs_root());
    let directory = tempfile::tempdir().expect("there is room");
    let path = directory.path();
    let source = "[global]\nerror_log = {DIR}/log\n[www]\nuser = www-data\n; one is enough\npm = static\n\
                  pm.max_children = 1 ; for now\npm.max_spawn_rate = 3\nlisten = {DIR}/www.sock\n\
                  php_value[memory_limit] = 12M\nevents.nothing = 1\n";
    let file = write(path, "php-fpm.conf", &source.replace("events.nothing = 1\n", ""));
    let target = path.join("forkyard.toml");
    let run = |file: &str| {
        let arguments = ["import", file, "-F", "-o"];
        Command::new(OURS)
            .args(arguments)
            .arg(&target)
            .output()
            .expect("it runs")
    };
    let output = run(&file);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text_of(&output.stderr);
    let expected = format!(
        "{file}:8: [pool www] pm.max_spawn_rate is not taken over: it has no effect with pm = static\n"
    );
    assert_eq!(said, expected);
    let text = fs::read_to_string(&target).expect("it was written");
    let expected = format!(
        "# Made of {file} by forkyard import. conf/forkyard.toml shows every key.\n\n[global]\n\
         error_log = \"{0}/log\"\n\n[pool.www]\nreload = \"always\"\nabandoned = \"run\"\nuser = \"www-data\"\nlisten = \"{0}/www.sock\"\n# one is enough\n\
         pm = \"static\"\n# for now\nmax_children = 1\n\n[pool.www.application]\nruntime = \"php\"\nversion = \"{1}\"\n\
         # As in php-fpm. If you remove this line, a request can't change settings that run code; see docs/explain/security.md.\n\
         request_settings = \"all\"\n\n[pool.www.application.php_value]\nmemory_limit = \"12M\"\n",
        path.display(),
        env!("FORKYARD_PHP")
    );
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&text), sorted(&expected), "{text}");
    let check = Command::new(OURS)
        .args(["check", "-c"])
        .arg(&target)
        .output()
        .expect("it runs");
    assert_eq!(check.status.code(), Some(0), "{check:?}");

    let again = run(&file);
    assert_eq!(again.status.code(), Some(70), "{again:?}");
    let said = text_of(&again.stderr);
    assert_contains(
        &said,
        &format!(
            "forkyard: write {}: File exists (os error 17); move it away, or name another file with -o",
            target.display()
        ),
    );
    fs::remove_file(&target).expect("it is ours");
    let wrong = run(&write(path, "wrong.conf", source));
    assert_eq!(wrong.status.code(), Some(78), "{wrong:?}");
    let said = text_of(&wrong.stderr);
    assert_contains(&said, "wrong.conf:11] unknown entry 'events.nothing'");
    assert!(
        !target.exists() && !path.join("log").exists(),
        "an import makes no log"
    );
}

#[test]
fn a_pool_that_forkyard_can_t_name_is_told_and_the_others_are_taken_over() {
    skip_if!(needs_root());
    let directory = tempfile::tempdir().expect("there is room");
    let pool = |name: &str| {
        format!("[{name}]\nuser = www-data\npm = static\npm.max_children = 1\nlisten = /tmp/{name}.sock\n")
    };
    let path = write(directory.path(), "names.conf", &(pool("") + &pool("www")));
    let imported = import(&options(&path), &Host::default());
    let said: Vec<String> = imported.lost.iter().map(ToString::to_string).collect();
    let reason = "give it a name of at least one character, without control characters";
    assert_eq!(
        said,
        [format!("{path}:2: [pool ] the pool is not taken over: {reason}")]
    );
    let loaded = parse(
        &imported.text.expect("there is a text"),
        Path::new("imported.toml"),
        &Host::default(),
    );
    let pools = loaded.expect("it is right").config.pools;
    assert_eq!(pools.iter().map(|pool| &*pool.name).collect::<Vec<_>>(), ["www"]);
}

#[test]
fn a_line_ends_at_nul() {
    skip_if!(needs_root());
    let directory = tempfile::tempdir().expect("there is room");
    let pool = "[www]\npm = static\npm.max_children = 1\nlisten = /tmp/www.sock\0.other\nuser = ";
    let whole = write(directory.path(), "whole.conf", &format!("{pool}www-data\0 \"\n"));
    let imported = import(&options(&whole), &Host::default());
    let text = imported.text.expect("php-fpm takes it");
    assert_contains(&text, "listen = \"/tmp/www.sock\"");
    assert_contains(&text, "user = \"www-data\"");
    let open = write(directory.path(), "open.conf", &format!("{pool}\"www-data\0\"\n"));
    for (path, fits) in [(&whole, true), (&open, false)] {
        let status = Command::new(STOCK)
            .args(["-t", "-y", path])
            .output()
            .expect("php-fpm runs")
            .status;
        assert_eq!(status.success(), fits, "php-fpm and {path}");
        assert_eq!(
            test(&options(path), false, &Host::default(), &|_| Vec::new()).0,
            fits,
            "forkyard and {path}"
        );
    }
}

const LINES: &[(&str, &[&str])] = &[
    ("user", &["www-data", "root", "33", "nobody"]),
    ("group", &["www-data", "0", "nogroup"]),
    ("listen.backlog", &["511", "-1", "-7", "0"]),
    ("listen.owner", &["www-data", "0"]),
    ("listen.group", &["www-data", "5", ""]),
    ("listen.mode", &["0666", "660", "7", "04777", ""]),
    ("listen.allowed_clients", &["127.0.0.1", "127.0.0.1,::1", ""]),
    ("process.priority", &["-19", "0", "20"]),
    ("process.dumpable", &["yes", "no", "1"]),
    ("pm.max_requests", &["0", "500", "-3"]),
    ("pm.max_spawn_rate", &["1", "64"]),
    ("pm.process_idle_timeout", &["1", "2m", "3d"]),
    ("pm.status_path", &["/status", "\"/a/b-c_d.e~\""]),
    ("ping.path", &["/ping", "/status"]),
    ("ping.response", &["pong", "\"a 'b' $pool\"", "é"]),
    ("access.log", &["/dev/null"]),
    ("access.format", &["", "\"%R %s\""]),
    ("request_terminate_timeout", &["0", "7", "90s", "2h", "30d"]),
    ("rlimit_files", &["0", "1024"]),
    ("rlimit_core", &["0", "unlimited", "7"]),
    ("chdir", &["/", "/tmp"]),
    ("catch_workers_output", &["yes", "no"]),
    ("decorate_workers_output", &["on", "off"]),
    ("clear_env", &["true", "false"]),
    (
        "security.limit_extensions",
        &[".php", ".php .phar  .x", "", "\".a b .c\""],
    ),
    ("env[A]", &["one", "$HOME", "\"with ; and # \\\"\"", "$pool"]),
    ("env[B.C]", &["2", "'$$'"]),
    ("env[a b]", &["c"]),
    ("php_value[memory_limit]", &["1M", "\"2 M\""]),
    ("php_value[session.save_path]", &["/tmp/$pool", "\"N;/path\""]),
    ("php_flag[display_errors]", &["on", "off", ""]),
    ("php_admin_value[error_log]", &["rel.log", "/abs.log", "syslog"]),
    ("php_admin_value[disable_functions]", &["exec,system"]),
    ("php_admin_flag[log_errors]", &["yes"]),
];

const GLOBALS: &[(&str, &[&str])] = &[
    ("pid", &["rel.pid", "/run/x.pid"]),
    ("log_level", &["debug", "NOTICE", "warning", "Error", "alert"]),
    ("process_control_timeout", &["0", "5", "3m"]),
    ("process.max", &["0", "128"]),
    ("process.priority", &["-5", "19"]),
    ("daemonize", &["yes", "no"]),
    ("rlimit_files", &["0", "4096"]),
    ("rlimit_core", &["unlimited", "0", "1000"]),
];

fn random_file(random: &mut Random, directory: &str) -> String {
    let mut text = format!("[global]\nerror_log = {directory}/log\n");
    for (name, values) in GLOBALS {
        if random.below(2) == 0 {
            text.push_str(&format!("{name} = {}\n", random.pick(values)));
        }
    }
    let pools = 1 + random.below(4);
    for at in 0..pools {
        let name = format!("{}{at}", random.pick(&["www", "a.b", "x-y", "é", "with blank "]));
        let listen = match random.below(6) {
            0 => format!("{}", 9000 + at),
            1 => format!("127.0.0.1:{}", 9100 + at),
            2 => format!("[::1]:{}", 9200 + at),
            3 => format!("localhost:{}", 9300 + at),
            4 => format!("run/{at}.sock\nprefix = /tmp"),
            _ => format!("/tmp/$pool-{at}.sock"),
        };
        let pm = random.pick(&[
            "static",
            "ondemand",
            "dynamic\npm.min_spare_servers = 1\npm.max_spare_servers = 3",
            "Dynamic\npm.min_spare_servers = 2\npm.max_spare_servers = 2\npm.start_servers = 2",
        ]);
        text.push_str(&format!(
            "[{name}]\nlisten = {listen}\npm = {pm}\npm.max_children = 5\n"
        ));
        for (name, values) in LINES {
            for _ in 0..random.below(3) {
                if random.below(4) == 0 {
                    text.push_str("; a remark\n");
                }
                text.push_str(&format!("{name} = {}\n", random.pick(values)));
            }
        }
    }
    text
}

#[test]
fn random_configurations_are_shown_as_in_php_fpm() {
    skip_if!(needs_root() || !is_stock_there());
    let directory = tempfile::tempdir().expect("there is room");
    let own = directory.path().to_string_lossy().into_owned();
    for seed in 1..=60_u64 {
        let mut random = Random::new(seed);
        let text = random_file(&mut random, &own).replace("log_level = debug", "log_level = notice");
        let path = directory.path().join("random.conf");
        fs::write(&path, &text).expect("writable");
        let path = path.to_string_lossy().into_owned();
        if let Err(difference) = compare("random", &["-n", "-tt", "-R", "-y", &path]) {
            panic!("seed {seed}: {difference}\n{text}");
        }
    }
}

#[test]
fn random_configurations_mean_the_same_as_toml() {
    skip_if!(needs_root());
    let directory = tempfile::tempdir().expect("there is room");
    let own = directory.path().to_string_lossy().into_owned();
    fs::create_dir_all("/tmp/run").expect("a directory for relative sockets");
    let mut taken = 0;
    for seed in 1..=300_u64 {
        let mut random = Random::new(seed);
        let text = random_file(&mut random, &own);
        let path = directory.path().join("random.conf");
        fs::write(&path, &text).expect("writable");
        let outcome = std::panic::catch_unwind(|| round_trip(&path.to_string_lossy()).is_some());
        match outcome {
            Ok(is_taken) => taken += usize::from(is_taken),
            Err(_) => panic!("seed {seed}:\n{text}"),
        }
    }
    assert!(taken > 150, "only {taken} of 300 files are right");
}
