//! Names in directories that others can write to: log, pid file, sockets.

use super::{NOBODY, needs_root, python_as};
use crate::support::daemon::{Daemon, directory, forkyard, make_writable, pool};
use crate::support::until;
use nix::sys::signal::Signal;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;

const PHP: &str = "runtime = \"php\"\nversion = \"8.2\"\n";
const ONDEMAND: &str = "pm = \"ondemand\"\nmax_children = 1\n";

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("stat").permissions().mode() & 0o777
}

/// A directory of the attacker's, with links to a file of root's.
fn trap(names: &[&str]) -> tempfile::TempDir {
    let dir = directory();
    let precious = dir.path().join("precious");
    fs::write(&precious, "precious").expect("write");
    fs::set_permissions(&precious, fs::Permissions::from_mode(0o600)).expect("chmod");
    fs::create_dir(dir.path().join("theirs")).expect("mkdir");
    make_writable(&dir.path().join("theirs"));
    for name in names {
        symlink(&precious, dir.path().join("theirs").join(name)).expect("symlink");
    }
    dir
}

fn assert_untouched(dir: &Path) {
    let precious = dir.join("precious");
    assert_eq!(fs::read_to_string(&precious).expect("read"), "precious");
    assert_eq!(mode(&precious), 0o600);
}

#[test]
fn a_log_is_not_written_through_a_link_that_others_may_have_put_there() {
    let dir = trap(&["daemon.log"]);
    let log = dir.path().join("theirs/daemon.log");
    let text = format!(
        "[global]\nerror_log = \"{}\"\n{}",
        log.display(),
        pool(dir.path(), "www", ONDEMAND, PHP)
    );
    fs::write(dir.path().join("forkyard.toml"), text).expect("write");
    let output = forkyard(&["run"], dir.path())
        .stdin(Stdio::null())
        .output()
        .expect("forkyard");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("is a symbolic link in a directory that others can write to: it is not followed"),
        "{said}"
    );
    assert_untouched(dir.path());
}

/// The same when the log is opened again, at SIGUSR1: it goes on in the old file.
#[test]
fn nor_when_it_is_opened_again() {
    let dir = trap(&[]);
    let log = dir.path().join("theirs/daemon.log");
    let text = format!(
        "[global]\nerror_log = \"{}\"\n{}",
        log.display(),
        pool(dir.path(), "www", ONDEMAND, PHP)
    );
    fs::write(dir.path().join("forkyard.toml"), text).expect("write");
    let command = forkyard(&["run"], dir.path());
    let mut daemon = Daemon::launch(dir.path(), command);
    let old = dir.path().join("theirs/old");
    until("the log", || {
        fs::read_to_string(&log)
            .ok()?
            .contains("ready to handle")
            .then_some(())
    });
    fs::rename(&log, &old).expect("rename");
    symlink(dir.path().join("precious"), &log).expect("symlink");
    daemon.signal(Signal::SIGUSR1);
    until("the refusal", || {
        fs::read_to_string(&old)
            .ok()?
            .contains("is not followed")
            .then_some(())
    });
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success());
    assert_untouched(dir.path());
}

/// The log's own directory is root's, but the one above is the site's: its user puts a link in the place of the log's
/// directory. Neither the daemon's log nor a pool's is made at the link's end.
#[test]
fn a_link_in_the_place_of_a_log_s_directory_is_not_followed_either() {
    if needs_root() {
        return;
    }
    let dir = directory();
    let (base, site) = (dir.path(), dir.path().join("site"));
    fs::create_dir_all(site.join("logs")).expect("mkdir");
    fs::create_dir(base.join("cron.d")).expect("mkdir");
    std::os::unix::fs::chown(&site, Some(NOBODY), Some(NOBODY)).expect("chown");
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
    let command = forkyard(&["run"], base);
    let mut daemon = Daemon::launch(base, command);
    let log = site.join("logs/daemon.log");
    let says = |path: &Path, text: &str| fs::read_to_string(path).ok()?.contains(text).then_some(());
    until("the log", || says(&log, "ready to handle"));
    fs::rename(site.join("logs"), site.join("old")).expect("rename");
    symlink(base.join("cron.d"), site.join("logs")).expect("symlink");
    daemon.signal(Signal::SIGUSR1);
    until("the refusal", || {
        says(&site.join("old/daemon.log"), "it is not followed")
    });
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success());
    let made = fs::read_dir(base.join("cron.d")).expect("read").count();
    assert_eq!(made, 0, "root made a file at the end of the link");
}

/// So is it with the directory of a socket: the daemon says so and does not start.
#[test]
fn a_socket_is_not_bound_at_the_end_of_a_link_that_others_may_have_put_there() {
    let dir = directory();
    fs::create_dir(dir.path().join("elsewhere")).expect("mkdir");
    fs::create_dir(dir.path().join("theirs")).expect("mkdir");
    make_writable(&dir.path().join("theirs"));
    symlink(dir.path().join("elsewhere"), dir.path().join("theirs/run")).expect("symlink");
    let socket = dir.path().join("theirs/run/www.sock");
    let listen = format!("listen = \"{}\"\n", socket.display());
    let text = pool(dir.path(), "www", &format!("{listen}{ONDEMAND}"), PHP);
    fs::write(dir.path().join("forkyard.toml"), text).expect("write");
    let output = forkyard(&["run"], dir.path())
        .stdin(Stdio::null())
        .output()
        .expect("forkyard");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("theirs/run is a symbolic link in a directory that others can write to"),
        "{said}"
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
    assert_eq!(fs::read_to_string(&pid).expect("read"), daemon.pid().to_string());
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success());
    assert!(!pid.exists());
    assert_untouched(dir.path());
}

/// A reload gives a socket its new mode. Somebody who owns the directory has put a link to another file in its place.
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
    until("the new mode", || (mode(&socket) == 0o622).then_some(()));
    fs::remove_file(&socket).expect("unlink");
    symlink(dir.path().join("precious"), &socket).expect("symlink");
    fs::write(&file, configuration("0666")).expect("write");
    daemon.signal(Signal::SIGUSR2);
    daemon.wait_for("is not the socket that was made there: it has been replaced");
    assert_untouched(dir.path());
}

/// Looks at a path and connects to it as fast as it can, until it is told to stop; says what it saw.
const WATCH: &str = "
import socket, stat, sys
path, stop = sys.argv[1:]
seen, connected = set(), 0
while not os.path.exists(stop):
    try:
        seen.add(oct(stat.S_IMODE(os.lstat(path).st_mode)))
    except FileNotFoundError:
        pass
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        connected += 1
    except OSError:
        pass
print(sorted(seen), connected)
";

#[test]
fn a_socket_is_never_there_with_another_mode_than_its_own() {
    if needs_root() {
        return;
    }
    let dir = directory();
    let socket = dir.path().join("www.sock");
    let listen = format!(
        "listen = {{ address = \"{}\", mode = \"0600\", owner = \"www-data\" }}\n",
        socket.display()
    );
    fs::write(
        dir.path().join("forkyard.toml"),
        pool(dir.path(), "www", &format!("{listen}{ONDEMAND}"), PHP),
    )
    .expect("write");
    let stop = dir.path().join("stop");
    let output = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let arguments = [socket.display().to_string(), stop.display().to_string()];
            python_as(NOBODY, WATCH, &[&arguments[0], &arguments[1]])
        });
        for _ in 0..10 {
            let mut daemon = Daemon::start_in(dir.path());
            daemon.signal(Signal::SIGTERM);
            assert!(daemon.wait().success());
        }
        fs::write(&stop, "").expect("write");
        watcher.join().expect("the watcher")
    });
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        said.trim(),
        "['0o600'] 0",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
