//! Names in directories that others can write to: log, pid file, sockets.

use super::{NOBODY, needs_root, python_as};
use crate::support::prelude::*;

const ONDEMAND: &str = "pm = \"ondemand\"\nmax_children = 1\n";

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("stat").permissions().mode() & 0o777
}

fn trap(names: &[&str]) -> tempfile::TempDir {
    let dir = directory();
    let precious = dir.path().join("precious");
    fs::write(&precious, "precious").expect("write");
    fs::set_permissions(&precious, fs::Permissions::from_mode(0o600)).expect("chmod");
    make_folder(&dir.path().join("theirs"));
    for name in names {
        symlink(&precious, dir.path().join("theirs").join(name)).expect("symlink");
    }
    dir
}

fn assert_untouched(dir: &Path) {
    let precious = dir.join("precious");
    assert_eq!(read_file(&precious), "precious");
    assert_eq!(mode(&precious), 0o600);
}

/// Names on the path to the logs, below the attacker's directory. Each may be the attacker's link.
const WAY: [&str; 3] = ["one", "two", "a.log"];
const LOGS: [&str; 3] = ["error_log", "access.log", "slowlog"];

fn way(base: &Path, names: usize) -> PathBuf {
    WAY[..names]
        .iter()
        .fold(base.to_owned(), |path, name| path.join(name))
}

fn two_ways() -> tempfile::TempDir {
    let dir = trap(&[]);
    let elsewhere = dir.path().join("elsewhere");
    fs::create_dir_all(way(&elsewhere, 2)).expect("mkdir");
    fs::rename(dir.path().join("precious"), way(&elsewhere, 3)).expect("rename");
    dir
}

fn mislead(dir: &Path, names: usize) {
    let [theirs, elsewhere] = ["theirs", "elsewhere"].map(|base| way(&dir.join(base), names));
    symlink(elsewhere, theirs).expect("symlink");
}

fn assert_not_misled(dir: &Path) {
    let elsewhere = dir.join("elsewhere");
    assert_eq!(read_file(way(&elsewhere, 3)), "precious");
    for (names, name) in WAY.iter().enumerate().take(3) {
        let entries = fs::read_dir(way(&elsewhere, names)).expect("read").count();
        assert_eq!(entries, 1, "something was made beside {name}");
    }
}

fn with_logs(dir: &Path, path: impl Fn(&str) -> PathBuf) -> String {
    let line = |name: &str| format!("{name} = \"{}\"\n", path(name).display());
    let logs = format!(
        "{}{}request_slowlog_timeout = \"1s\"\n",
        line("access.log"),
        line("slowlog")
    );
    let pool = pool(dir, "www", &format!("{logs}{ONDEMAND}"), PHP);
    format!("[global]\n{}{pool}", line("error_log"))
}

fn assert_refused(dir: &Path, wanted: &str) {
    let mut daemon = Daemon::launch(dir, forkyard(&["run"], dir));
    assert!(!daemon.wait().success());
    wait_until(wanted, || {
        let log = fs::read_to_string(dir.join("error_log")).unwrap_or_default();
        (daemon.log() + &log).contains(wanted)
    });
}

const NOT_FOLLOWED: &str = "is a symbolic link in a directory that others can write to: it is not followed";

#[test]
fn a_log_is_not_written_through_a_link_that_others_may_have_put_there() {
    for log in LOGS {
        let dir = two_ways();
        let theirs = way(&dir.path().join("theirs"), 3);
        make_folder(&way(&dir.path().join("theirs"), 2));
        fs::hard_link(way(&dir.path().join("elsewhere"), 3), &theirs).expect("link");
        let text = with_logs(dir.path(), |name| match name == log {
            true => theirs.clone(),
            false => dir.path().join(name),
        });
        fs::write(dir.path().join("forkyard.toml"), text).expect("write");
        assert_refused(
            dir.path(),
            "a file with several names in a directory that others can write to",
        );
        assert_not_misled(dir.path());
    }
    for (log, names) in LOGS
        .iter()
        .flat_map(|log| (1..=3).map(move |names| (*log, names)))
    {
        let dir = two_ways();
        fs::create_dir_all(way(&dir.path().join("theirs"), names - 1)).expect("mkdir");
        mislead(dir.path(), names);
        let text = with_logs(dir.path(), |name| match name == log {
            true => way(&dir.path().join("theirs"), 3),
            false => dir.path().join(name),
        });
        fs::write(dir.path().join("forkyard.toml"), text).expect("write");
        assert_refused(dir.path(), NOT_FOLLOWED);
        assert_not_misled(dir.path());
    }
}

/// The daemon doesn't follow a link named like a standard stream: it logs to its own stream.
#[test]
fn a_link_to_a_standard_stream_stands_for_the_daemon_s_own() {
    let dir = trap(&[]);
    let theirs = dir.path().join("theirs");
    for (log, text) in [
        ("error_log", "/dev/stderr"),
        ("access.log", "/proc/self/fd/2"),
        ("slowlog", "/dev/stdout"),
        ("app_log", "/dev/stderr"),
    ] {
        symlink(text, theirs.join(log)).expect("symlink");
    }
    let app_log = format!(
        "app_log = \"{}\"\n[pool.www.application]",
        theirs.join("app_log").display()
    );
    let text = with_logs(dir.path(), |name| theirs.join(name));
    let text = text.replace("[pool.www.application]", &app_log);
    fs::write(dir.path().join("forkyard.toml"), text).expect("write");
    let daemon = Daemon::start_in(dir.path());
    daemon.write(
        "a.php",
        "<?php file_put_contents('php://stderr', \"from the script\\n\");",
    );
    for count in 1..=2 {
        daemon.get("www", "a.php");
        daemon.wait_for_count("from the script", count);
        daemon.wait_for_count("\"GET /a.php\" 200", count);
        daemon.signal(Signal::SIGUSR1);
        daemon.wait_for_count("error log file re-opened", count);
        daemon.wait_for_count("access log file re-opened", count);
        daemon.wait_for_count("application log file re-opened", count);
    }
}

/// SIGUSR1 reopens the logs: the daemon keeps the old files.
#[test]
fn nor_when_it_is_opened_again() {
    for names in 1..=3 {
        let dir = two_ways();
        let theirs = dir.path().join("theirs");
        fs::create_dir_all(way(&theirs, 2)).expect("mkdir");
        let text = with_logs(dir.path(), |name| match name {
            "error_log" => way(&theirs, 3),
            other => way(&theirs, 2).join(other),
        });
        fs::write(dir.path().join("forkyard.toml"), text).expect("write");
        let mut daemon = Daemon::launch(dir.path(), forkyard(&["run"], dir.path()));
        let says = |path: &Path, text: &str| fs::read_to_string(path).ok()?.contains(text).then_some(());
        until("the log", || says(&way(&theirs, 3), "ready to handle"));
        let old = dir.path().join("old");
        fs::rename(way(&theirs, names), &old).expect("rename");
        mislead(dir.path(), names);
        daemon.signal(Signal::SIGUSR1);
        let log = WAY[names..].iter().fold(old, |path, name| path.join(name));
        until("the refusal", || says(&log, NOT_FOLLOWED));
        daemon.end(Signal::SIGTERM);
        assert_not_misled(dir.path());
    }
}

#[test]
fn a_link_in_the_place_of_a_log_s_directory_is_not_followed_either() {
    skip_if!(needs_root());
    let dir = directory();
    let (base, site) = (dir.path(), dir.path().join("site"));
    fs::create_dir_all(site.join("logs")).expect("mkdir");
    fs::create_dir(base.join("cron.d")).expect("mkdir");
    chown(&site, Some(NOBODY), Some(NOBODY)).expect("chown");
    let logs = format!(
        "access.log = \"{0}/access.log\"\nslowlog = \"{0}/slow.log\"\nrequest_slowlog_timeout = \"1s\"\n",
        site.join("logs").display()
    );
    let text = format!(
        "[global]\nerror_log = \"{}\"\n{}",
        site.join("logs/daemon.log").display(),
        pool(base, "www", &format!("{logs}{ONDEMAND}"), PHP)
    );
    fs::write(base.join("forkyard.toml"), text).expect("write");
    let mut daemon = Daemon::launch(base, forkyard(&["run"], base));
    let log = site.join("logs/daemon.log");
    let says = |path: &Path, text: &str| fs::read_to_string(path).ok()?.contains(text).then_some(());
    until("the log", || says(&log, "ready to handle"));
    fs::rename(site.join("logs"), site.join("old")).expect("rename");
    symlink(base.join("cron.d"), site.join("logs")).expect("symlink");
    daemon.signal(Signal::SIGUSR1);
    until("the refusal", || {
        says(&site.join("old/daemon.log"), "it is not followed")
    });
    daemon.end(Signal::SIGTERM);
    let made = fs::read_dir(base.join("cron.d")).expect("read").count();
    assert_eq!(made, 0, "root made a file at the end of the link");
}

#[test]
fn a_socket_is_not_bound_at_the_end_of_a_link_that_others_may_have_put_there() {
    let dir = directory();
    fs::create_dir(dir.path().join("elsewhere")).expect("mkdir");
    make_folder(&dir.path().join("theirs"));
    symlink(dir.path().join("elsewhere"), dir.path().join("theirs/run")).expect("symlink");
    let socket = dir.path().join("theirs/run/www.sock");
    let listen = format!("listen = \"{}\"\n", socket.display());
    let text = pool(dir.path(), "www", &format!("{listen}{ONDEMAND}"), PHP);
    fs::write(dir.path().join("forkyard.toml"), text).expect("write");
    assert_refused(
        dir.path(),
        "theirs/run is a symbolic link in a directory that others can write to",
    );
    assert_eq!(
        fs::read_dir(dir.path().join("elsewhere")).expect("read").count(),
        0
    );
}

#[test]
fn a_pid_file_takes_a_link_s_place_and_not_its_target_s() {
    let dir = trap(&["forkyard.pid"]);
    let pid = dir.path().join("theirs/forkyard.pid");
    let text = format!(
        "[global]\npid = \"{}\"\n{}",
        pid.display(),
        pool(dir.path(), "www", ONDEMAND, PHP)
    );
    fs::write(dir.path().join("forkyard.toml"), text).expect("write");
    let mut daemon = Daemon::start_in(dir.path());
    assert!(fs::symlink_metadata(&pid).expect("the pid file").is_file());
    assert_eq!(read_file(&pid), daemon.pid().to_string());
    daemon.end(Signal::SIGTERM);
    assert!(!pid.exists());
    assert_untouched(dir.path());
}

#[test]
fn a_reload_changes_the_mode_of_a_socket_and_of_nothing_else() {
    let dir = trap(&[]);
    let socket = dir.path().join("theirs/www.sock");
    let configuration = |mode: &str| {
        let listen = format!(
            "listen = {{ address = \"{}\", mode = \"{mode}\" }}\n",
            socket.display()
        );
        pool(dir.path(), "www", &format!("{listen}{ONDEMAND}"), PHP)
    };
    let file = dir.path().join("forkyard.toml");
    fs::write(&file, configuration("0600")).expect("write");
    let daemon = Daemon::start_in(dir.path());
    assert_eq!(mode(&socket), 0o600);
    fs::write(&file, configuration("0622")).expect("write");
    daemon.signal(Signal::SIGUSR2);
    wait_until("the new mode", || mode(&socket) == 0o622);
    fs::remove_file(&socket).expect("unlink");
    symlink(dir.path().join("precious"), &socket).expect("symlink");
    fs::write(&file, configuration("0666")).expect("write");
    daemon.reload_until("is not the socket that was made there: it has been replaced");
    assert_untouched(dir.path());
}

/// Connects to a path and stats it in a loop until stopped; reports whether root (no mode stops root) could connect,
/// the mode, the owner, and whether there is an ACL. Permissions at the time of the connection were these, or stricter.
const WATCH: &str = "
import socket, stat, sys, time
path, stop = sys.argv[1:]
seen = set()
while not os.path.exists(stop):
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        connected = True
    except OSError:
        connected = False
    try:
        data = os.lstat(path)
        has_list = 'system.posix_acl_access' in os.listxattr(path)
        seen.add((connected, oct(stat.S_IMODE(data.st_mode)), data.st_uid, has_list))
    except FileNotFoundError:
        pass
    time.sleep(0.001)
for line in sorted(seen): print(*line)
";

struct Stopper(PathBuf);

impl Drop for Stopper {
    fn drop(&mut self) {
        let _ = fs::write(&self.0, "");
    }
}

/// States of a socket seen over a few starts of the daemon, while strace delays each change of owner or ACL.
fn seen_of_a_socket(settings: &str) -> Vec<String> {
    let dir = directory();
    let socket = dir.path().join("www.sock");
    let listen = format!(
        "user = \"www-data\"\nlisten = {{ address = \"{}\", mode = \"0600\", {settings} }}\n",
        socket.display()
    );
    write_file(
        dir.path().join("forkyard.toml"),
        pool(dir.path(), "www", &format!("{listen}{ONDEMAND}"), PHP),
    );
    let (stop, stopper) = (dir.path().join("stop"), Stopper(dir.path().join("stop")));
    let output = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let arguments = [socket.display().to_string(), stop.display().to_string()];
            python_as(0, WATCH, &[&arguments[0], &arguments[1]])
        });
        let stopper = stopper;
        for _ in 0..3 {
            let command = strace::held(
                &forkyard(&["run"], dir.path()),
                &dir.path().join("strace"),
                "fchownat,setxattr,fsetxattr",
                300,
            );
            let mut daemon = Daemon::launch(dir.path(), command).ready();
            daemon.end(Signal::SIGTERM);
        }
        drop(stopper);
        watcher.join().expect("the watcher")
    });
    assert_success(&output);
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().map(str::to_owned).collect()
}

#[test]
fn a_socket_is_never_there_with_another_mode_than_its_own() {
    skip_if!(needs_root());
    let owner = seen_of_a_socket("owner = \"www-data\"");
    let wanted = [
        "False 0o600 0 False",
        "False 0o600 33 False",
        "True 0o600 33 False",
    ];
    let others: Vec<&String> = owner
        .iter()
        .filter(|line| !wanted.contains(&line.as_str()))
        .collect();
    assert!(others.is_empty(), "{owner:?}");
    let list = seen_of_a_socket("acl_users = [\"www-data\"]");
    let wanted_list = ["False 0o600 0 False", "False 0o660 0 True", "True 0o660 0 True"];
    let read_between = "False 0o600 0 True";
    let others: Vec<&String> = list
        .iter()
        .filter(|line| !wanted_list.contains(&line.as_str()) && line.as_str() != read_between)
        .collect();
    assert!(others.is_empty(), "{list:?}");
    for (seen, wanted) in [(owner, wanted), (list, wanted_list)] {
        assert!(
            seen.contains(&wanted[0].to_owned()) && seen.contains(&wanted[2].to_owned()),
            "both ends were seen: {seen:?}"
        );
    }
}
