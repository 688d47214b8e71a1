//! A worker's environment, directory and descriptors.

use super::assert_quiet;
use crate::support::prelude::*;

const SETTINGS: &str = "pm = \"static\"\nmax_children = 1\n";
const ENVIRONMENT: &str = "<?php echo json_encode(array_intersect_key(getenv(),
    array_flip(['MARK', 'COPY', 'OWN', 'HOME', 'USER', 'PATH', 'PWD'])));";

fn start(settings: &str) -> (Daemon, tempfile::TempDir) {
    start_application(settings, "")
}

fn start_application(settings: &str, application: &str) -> (Daemon, tempfile::TempDir) {
    let dir = directory();
    write_file(
        dir.path().join("forkyard.toml"),
        php_pool(dir.path(), settings, application),
    );
    write_file(
        dir.path().join("stray"),
        "a file that the daemon was started with",
    );
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            "exec \"$0\" run -c \"$1/forkyard.toml\" 7<\"$1/stray\" 8<\"$1/stray\"",
        ])
        .arg(env!("CARGO_BIN_EXE_forkyard"))
        .arg(dir.path())
        .env("MARK", "the master's")
        .env("PATH", "/usr/bin:/bin")
        .current_dir("/usr");
    let daemon = Daemon::launch(dir.path(), command).ready();
    (daemon, dir)
}

fn environment(settings: &str) -> BTreeMap<String, String> {
    let (daemon, _dir) = start(&format!("{SETTINGS}{settings}"));
    daemon.write("env.php", ENVIRONMENT);
    let body = daemon.get("www", "env.php").body();
    assert_quiet(&daemon);
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

fn user_variables() -> BTreeMap<String, String> {
    let user = if is_root() {
        nix::unistd::User::from_name("www-data")
    } else {
        nix::unistd::User::from_uid(nix::unistd::geteuid())
    };
    let user = user.expect("users").expect("a user");
    let home = user.dir.display().to_string();
    BTreeMap::from([("USER".to_owned(), user.name), ("HOME".to_owned(), home)])
}

#[test]
fn the_environment_is_cleared_and_set() {
    let mut wanted = user_variables();
    wanted.insert("OWN".into(), "a b".into());
    wanted.insert("COPY".into(), "the master's".into());
    assert_eq!(environment("env = { OWN = \"a b\", COPY = \"$MARK\" }\n"), wanted);
}

#[test]
fn clear_env_false_keeps_the_master_s_environment() {
    let seen = environment("clear_env = false\n");
    assert_eq!(seen.get("MARK").map(String::as_str), Some("the master's"));
    assert_eq!(seen.get("PATH").map(String::as_str), Some("/usr/bin:/bin"));
    for (name, value) in user_variables() {
        assert_eq!(seen.get(&name), Some(&value));
    }
}

fn descriptors(pid: u32) -> BTreeMap<u32, String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors");
    entries
        .map_while(Result::ok)
        .filter_map(|entry| {
            let target = fs::read_link(entry.path()).ok()?.display().to_string();
            Some((entry.file_name().to_str()?.parse().ok()?, target))
        })
        .collect()
}

fn kind(target: &str) -> &str {
    let known = [
        "socket:",
        "pipe:",
        "anon_inode:[eventpoll]",
        "/memfd:forkyard php",
        "/memfd:forkyard",
        "/tmp/.ZendSem",
    ];
    known
        .into_iter()
        .find(|known| target.starts_with(known))
        .unwrap_or(target)
}

#[test]
fn a_worker_has_the_descriptors_that_it_needs_and_no_other() {
    has_what_it_needs("preloader = \"own\"\n", "/tmp/.ZendSem");
    if is_root() {
        has_what_it_needs("", "/memfd:forkyard php");
    }
}

fn has_what_it_needs(application: &str, lock: &str) {
    let (daemon, _dir) = start_application(SETTINGS, application);
    daemon.write("pid.php", "<?php echo getmypid();");
    let worker: u32 = daemon.get("www", "pid.php").body().parse().expect("a pid");
    let home = fs::read_link(format!("/proc/{worker}/cwd"))
        .expect("cwd")
        .display()
        .to_string();
    let wanted = BTreeMap::from([
        ("socket:", 5),
        ("pipe:", 1),
        ("anon_inode:[eventpoll]", 1),
        ("anon_inode:[eventfd]", 1),
        (lock, 1),
        (home.as_str(), 1),
    ]);
    let mut seen = BTreeMap::new();
    let is_as_wanted = || {
        seen = descriptors(worker);
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, target) in seen.range(3..) {
            *kinds.entry(kind(target)).or_default() += 1;
        }
        (kinds == wanted).then_some(())
    };
    until("these descriptors and no other", is_as_wanted);
    for standard in 0..3 {
        assert_eq!(seen[&standard], "/dev/null");
    }
    assert_quiet(&daemon);
}

#[test]
fn a_program_that_a_script_starts_has_none_of_the_daemon_s_descriptors() {
    let (daemon, _dir) = start(SETTINGS);
    daemon.write("list.php", "<?php echo shell_exec('exec ls -l /proc/self/fd');");
    let list = daemon.get("www", "list.php").body();
    for wrong in ["socket:", "eventpoll", "memfd", "stray", "ZendSem"] {
        assert!(!list.contains(wrong), "{wrong} in {list}");
    }
    assert_eq!(list.matches("pipe:").count(), 1, "{list}");
}

#[test]
fn a_worker_stands_where_chdir_says() {
    let (daemon, _dir) = start(&format!("{SETTINGS}chdir = \"/usr/share\"\n"));
    let worker = daemon.wait_for_workers("www", 1)[0];
    daemon.write("cwd.php", "<?php echo getcwd();");
    assert_eq!(
        daemon.get("www", "cwd.php").body(),
        daemon.dir.display().to_string()
    );
    let place = || {
        fs::read_link(format!("/proc/{worker}/cwd"))
            .expect("cwd")
            .display()
            .to_string()
    };
    wait_until("the worker to be back", || place() == "/usr/share");
    assert_eq!(process::title(worker), "forkyard: pool www");
}
