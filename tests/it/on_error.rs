//! Pools with errors, which the others run without (`on_error = "skip"`).

use crate::support::prelude::*;

const ONDEMAND: &str = "pm = \"ondemand\"\nmax_children = 2\n";
const STATIC: &str = "pm = \"static\"\nmax_children = 1\n";
const USERS: [&str; 3] = ["www-data", "nobody", "daemon"];

fn global(dir: &Path) -> String {
    format!(
        "[global]\non_error = \"skip\"\ncontrol = \"{}/control.sock\"\ninclude = [\"pools/*.toml\"]\n",
        dir.display()
    )
}

/// A directory with a configuration that skips pools with errors, and the place of each pool's file.
struct Pools {
    dir: tempfile::TempDir,
}

impl Pools {
    fn new() -> Pools {
        let dir = directory();
        fs::create_dir(dir.path().join("pools")).expect("pools");
        fs::write(dir.path().join("forkyard.toml"), global(dir.path())).expect("configuration");
        Pools { dir }
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.file(name), text).expect("pool");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("pools/{name}.toml"))
    }
}

/// Reloads, and returns the output, after checking the exit code.
fn reload(daemon: &Daemon, arguments: &[&str], code: i32) -> Output {
    let output = daemon.run(&[&["reload"], arguments].concat());
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    output
}

fn order(daemon: &Daemon, arguments: &[&str]) -> Output {
    daemon.run(arguments)
}

fn skipped(daemon: &Daemon) -> Vec<(String, bool, String)> {
    let output = order(daemon, &["status", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let none = Vec::new();
    let entries = status["skipped"].as_array().unwrap_or(&none).iter();
    let mut found: Vec<_> = entries
        .map(|it| {
            let reasons = it["reasons"].as_array().expect("reasons").iter();
            let reasons: Vec<&str> = reasons.filter_map(|it| it.as_str()).collect();
            (
                it["pool"].as_str().unwrap_or("-").to_owned(),
                it["goes_on"].as_bool().expect("goes_on"),
                reasons.join("|"),
            )
        })
        .collect();
    found.sort();
    found
}

fn user(number: usize) -> String {
    if is_root() {
        format!("user = \"{}\"\n", USERS[number % USERS.len()])
    } else {
        String::new()
    }
}

/// Each kind of error: pool name, file, and expected message.
fn wrong(dir: &Path) -> Vec<(&'static str, String, &'static str)> {
    let one = |name: &str, settings: &str| pool(dir, name, &format!("{}{settings}", user(0)), PHP);
    let mut wrong = vec![
        (
            "syntax",
            one("syntax", ONDEMAND).replace("\"ondemand\"", "ondemand"),
            "not valid TOML",
        ),
        (
            "value",
            one("value", "pm = \"dinamic\"\nmax_children = 1\n"),
            "pm: \"dinamic\" is not a process manager",
        ),
        (
            "key",
            one("key", &format!("{ONDEMAND}max_childern = 1\n")),
            "did you mean max_children?",
        ),
        (
            "chdir",
            one("chdir", &format!("{ONDEMAND}chdir = \"/nowhere\"\n")),
            "\"/nowhere\" is not an existing directory",
        ),
        (
            "parent",
            one(
                "parent",
                &format!("listen = \"/nowhere/parent.sock\"\n{ONDEMAND}"),
            ),
            "/nowhere",
        ),
        (
            "taken",
            one("taken", &format!("listen = \"DIR/taken\"\n{ONDEMAND}")),
            "already listens on",
        ),
        (
            "file",
            one("file", &format!("listen = \"DIR/forkyard.toml\"\n{ONDEMAND}")),
            "exists and is no socket",
        ),
        (
            "log",
            one(
                "log",
                &format!("{ONDEMAND}access.log = \"/nowhere/access.log\"\n"),
            ),
            "access.log: failed to open /nowhere/access.log",
        ),
        (
            "group",
            one(
                "group",
                &format!("{ONDEMAND}cgroup = {{ parent = \"DIR\", pids_max = 9 }}\n"),
            ),
            "cgroup",
        ),
        (
            "handler",
            pool(
                dir,
                "handler",
                &format!("{}{ONDEMAND}", user(0)),
                "runtime = \"rust\"\n",
            ),
            "no handler",
        ),
    ];
    if is_root() {
        let nobody = "user = \"no-such-user\"\n";
        let text = pool(dir, "user", &format!("{nobody}{ONDEMAND}"), PHP);
        wrong.push(("user", text, "there is no user \"no-such-user\""));
    }
    wrong
}

#[test]
fn three_hundred_pools_serve_without_those_that_have_errors() {
    let pools = Pools::new();
    let path = pools.dir.path();
    for number in 0..300 {
        let name = format!("p{number:03}");
        let text = pool(path, &name, &format!("{}{ONDEMAND}", user(number)), PHP);
        pools.write(&name, text);
    }
    let _taken = UnixListener::bind(path.join("taken")).expect("bind");
    let wrong = wrong(path);
    for (name, text, _) in &wrong {
        pools.write(name, text);
    }
    let twin = pool(path, "twin", &format!("{}{ONDEMAND}", user(0)), PHP).replace("twin.sock", "p299.sock");
    pools.write("twin", twin);

    let daemon = Daemon::start_in(path);
    daemon.write(
        "hello.php",
        "<?php echo 'hello from ', posix_getpwuid(posix_geteuid())['name'];",
    );
    for number in [0, 1, 2, 150, 298] {
        let body = daemon.get(&format!("p{number:03}"), "hello.php").body();
        if is_root() {
            assert_eq!(body, format!("hello from {}", USERS[number % USERS.len()]));
        } else {
            assert_starts(&body, "hello from ");
        }
    }
    let said = skipped(&daemon);
    let names: Vec<&str> = said.iter().map(|(name, ..)| name.as_str()).collect();
    let mut expected: Vec<&str> = wrong.iter().map(|(name, ..)| *name).collect();
    expected.extend(["p299", "twin"]);
    expected.sort_unstable();
    assert_eq!(names, expected);
    for (name, _, words) in &wrong {
        let found = said.iter().find(|(known, ..)| known == name).expect("known");
        assert!(!found.1 && found.2.contains(words), "{found:?}");
        let line = daemon.wait_for(&format!("[pool {name}] is skipped"));
        assert_contains(&line, "ERROR");
        assert!(daemon.log().lines().any(|line| line.contains(words)), "{words}");
        assert!(!daemon.socket(name).exists(), "{name}");
    }
    assert!(!daemon.socket("p299").exists() && !daemon.socket("twin").exists());
    let table = text_of(&order(&daemon, &["status"]).stdout);
    let line = table.lines().find(|line| line.starts_with("value "));
    let words: Vec<&str> = line.expect("a line").split_whitespace().collect();
    assert_eq!(words[1..4], ["-", "down", "0"], "{table}");
    let why = |name: &str| {
        table
            .lines()
            .find(|line| line.starts_with(&format!("{name}: skipped: ")))
    };
    assert!(
        why("value").is_some_and(|line| line.contains("pm: \"dinamic\" is not a process manager")),
        "{table}"
    );
    let count = 300 + wrong.len() + 1;
    assert_contains(&table, &format!("\n{count} pools "));
    let own = text_of(&order(&daemon, &["status", "value"]).stdout);
    assert_contains(&own, "  skipped: ");
    assert_lacks(&own, "p000");
    let numbers = text_of(&order(&daemon, &["status", "--metrics"]).stdout);
    for line in [
        "forkyard_pool_up{pool=\"value\"} 0\n".to_owned(),
        "forkyard_pool_up{pool=\"p000\"} 1\n".to_owned(),
        format!("forkyard_daemon_pools{{}} {count}\n"),
        format!("forkyard_daemon_pools_skipped{{}} {}\n", wrong.len() + 2),
    ] {
        assert!(numbers.contains(&line), "{line}{numbers}");
    }
    let check = order(&daemon, &["check"]);
    assert_eq!(check.status.code(), Some(78));
    let check = text_of(&check.stdout);
    assert_contains(&check, "pools/value.toml:");
    assert_contains(&check, "pools, without [");

    for (name, ..) in &wrong {
        pools.write(name, pool(path, name, &format!("{}{ONDEMAND}", user(1)), PHP));
    }
    fs::remove_file(pools.file("twin")).expect("remove");
    let output = reload(&daemon, &[], 0);
    assert!(text_of(&output.stdout).contains("added value\n"), "{output:?}");
    assert_eq!(skipped(&daemon), []);
    assert!(daemon.get("value", "hello.php").body().starts_with("hello from "));
    assert!(daemon.get("p299", "hello.php").body().starts_with("hello from "));
}

#[test]
fn a_pool_that_becomes_bad_goes_on_and_the_others_are_reloaded() {
    let pools = Pools::new();
    let path = pools.dir.path();
    let names: Vec<&str> = wrong(path).iter().map(|(name, ..)| *name).collect();
    let good = |name: &str, number: usize| pool(path, name, &format!("{}{STATIC}", user(number)), PHP);
    for name in names.iter().chain(&["other"]) {
        pools.write(name, good(name, 0));
    }
    let _taken = UnixListener::bind(path.join("taken")).expect("bind");
    let daemon = Daemon::start_in(path);
    daemon.write("pid.php", "<?php echo getmypid();");
    let pid = |name: &str| daemon.get(name, "pid.php").body();
    let before: Vec<String> = names.iter().map(|name| pid(name)).collect();
    let other = pid("other");

    for (name, text, _) in wrong(path) {
        pools.write(name, text);
    }
    pools.write(
        "other",
        good("other", 0).replace("max_children = 1", "max_children = 1\nmax_requests = 99"),
    );
    pools.write("new", good("new", 0).replace("\"static\"", "\"stattic\""));
    let output = reload(&daemon, &[], 78);
    let (done, errors) = (text_of(&output.stdout), text_of(&output.stderr));
    assert!(
        done.contains("replaced other: its settings changed"),
        "{done}{errors}"
    );
    assert_contains(&errors, "[pool value] goes on with the settings that it had");
    assert_contains(&errors, "[pool new] is skipped");
    assert_ne!(pid("other"), other);
    for (name, before) in names.iter().zip(&before) {
        assert_eq!(pid(name), *before, "{name}");
        daemon.wait_for(&format!("[pool {name}] goes on with the settings that it had"));
    }
    let said = skipped(&daemon);
    assert_eq!(said.len(), names.len() + 1);
    assert!(
        said.iter().all(|(name, goes_on, _)| *goes_on == (name != "new")),
        "{said:?}"
    );

    let table = text_of(&order(&daemon, &["status"]).stdout);
    let line = table.lines().find(|line| line.starts_with("value "));
    assert!(line.is_some_and(|line| line.contains(" serving ")), "{table}");
    assert_contains(&table, "\nvalue: goes on with the settings that it had: ");
    assert_contains(&table, "\nnew: skipped: ");

    reload(&daemon, &[], 78);
    assert_eq!(
        pid("value"),
        before[names.iter().position(|name| *name == "value").expect("value")]
    );
    let output = reload(&daemon, &["--all"], 78);
    assert!(text_of(&output.stdout).contains("replaced value"), "{output:?}");
    assert!(before.iter().all(|before| *before != pid("value")));

    fs::remove_file(daemon.socket("value")).expect("remove");
    let output = order(&daemon, &["reload"]);
    assert!(
        text_of(&output.stdout).contains("replaced value: clients could not reach its socket\n"),
        "{output:?}"
    );
    let bound_again = pid("value");
    reload(&daemon, &[], 78);
    assert_eq!(pid("value"), bound_again);

    fs::remove_file(pools.file("key")).expect("remove");
    pools.write("value", good("value", 0));
    pools.write(
        "syntax",
        good("syntax", 0).replace("max_children = 1", "max_children = 2"),
    );
    let output = order(&daemon, &["reload"]);
    let done = text_of(&output.stdout);
    for line in [
        "removed key\n",
        "kept value\n",
        "replaced syntax: its settings changed\n",
    ] {
        assert!(done.contains(line), "{output:?}");
    }
    daemon.wait_for_workers("syntax", 2);
    let said = skipped(&daemon);
    assert!(
        said.iter()
            .all(|(name, ..)| !["key", "value", "syntax"].contains(&name.as_str())),
        "{said:?}"
    );
    fs::write(path.join("forkyard.toml"), global(path) + "pidd = 1\n").expect("configuration");
    daemon.reload_until("the configuration is not reloaded, the old one stays in force");
}

#[test]
fn a_new_master_lets_a_bad_pool_go_on() {
    let pools = Pools::new();
    let path = pools.dir.path();
    for name in ["good", "bad", "gone"] {
        pools.write(name, pool(path, name, &format!("{}{STATIC}", user(0)), PHP));
    }
    let daemon = Daemon::launch(path, forkyard(&["run", "--keeper"], path)).ready();
    daemon.write("hello.php", "<?php echo 'hello';");
    for name in ["good", "bad", "gone"] {
        assert_eq!(daemon.get(name, "hello.php").body(), "hello");
    }
    let wrong = pool(
        path,
        "bad",
        &format!("{}pm = \"dinamic\"\nmax_children = 1\n", user(0)),
        PHP,
    );
    pools.write("bad", wrong);
    pools.write("gone", "[pool.gone");
    let first = daemon.kept_master();
    process::signal(first, Signal::SIGKILL);
    daemon.wait_for_count("ready to handle connections", 2);
    assert_ne!(daemon.kept_master(), first);
    daemon.wait_for("[pool bad] goes on with the settings that it had");
    daemon.wait_for("[pool gone] goes on with the settings that it had");
    daemon.write("end.php", "<?php posix_kill(getmypid(), 9);");
    for name in ["good", "bad", "gone"] {
        assert_eq!(daemon.get(name, "hello.php").body(), "hello");
        let query = Params::get(path, "end.php", "");
        let _ = daemon.client(name).request(&query, b"");
        assert_eq!(daemon.get(name, "hello.php").body(), "hello");
    }
}

#[test]
fn a_pool_that_goes_on_is_started_from_the_php_ini_that_it_had() {
    let pools = Pools::new();
    let path = pools.dir.path();
    let ini = path.join("php.ini");
    fs::write(&ini, "user_agent = old\n").expect("php.ini");
    let own = format!("{PHP}php_ini = \"{}\"\n", ini.display());
    let good = pool(path, "own", &format!("{}{STATIC}", user(0)), &own);
    pools.write("own", &good);
    pools.write("other", pool(path, "other", &format!("{}{STATIC}", user(0)), PHP));
    let daemon = Daemon::start_in(path);
    daemon.write("agent.php", "<?php echo ini_get('user_agent');");
    assert_eq!(daemon.get("own", "agent.php").body(), "old");

    fs::write(&ini, "user_agent = new\n").expect("php.ini");
    pools.write("own", good.replace("\"static\"", "\"stattic\""));
    reload(&daemon, &[], 78);
    for pid in [daemon.preloaders("own"), daemon.workers("own")].concat() {
        process::signal(pid, Signal::SIGKILL);
    }
    assert_eq!(daemon.get("own", "agent.php").body(), "old");

    pools.write("own", &good);
    reload(&daemon, &[], 0);
    assert_eq!(daemon.get("own", "agent.php").body(), "new");
}

#[test]
fn nothing_starts_if_no_pool_is_left() {
    let dir = directory();
    let path = dir.path();
    for text in [
        pool(path, "www", "pm = \"dinamic\"\nmax_children = 1\n", PHP),
        pool(
            path,
            "www",
            &format!("listen = \"/nowhere/x.sock\"\n{ONDEMAND}"),
            PHP,
        ),
    ] {
        write_file(
            path.join("forkyard.toml"),
            format!("[global]\non_error = \"skip\"\n{text}"),
        );
        let output = forkyard(&["run"], path).output().expect("forkyard");
        assert_eq!(output.status.code(), Some(78), "{output:?}");
    }
}
