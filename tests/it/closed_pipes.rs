//! Commands whose output goes into a pipe that is not read: they end by SIGPIPE, as other programs do, and say nothing of it.

use super::jobs::Jobs;
use crate::support::daemon::{directory, forkyard, php_pool};
use crate::support::{process, until};
use nix::sys::signal::Signal;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

fn closed_pipe() -> Stdio {
    let (reader, writer) = nix::unistd::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

fn own(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkyard"));
    command.args(arguments);
    command
}

#[test]
fn a_command_ends_quietly_when_its_output_is_not_read() {
    let jobs = Jobs::start_with("control = \"@DIR/control.sock\"\n", "max_children = 1\n", "", "");
    let with = |arguments: &[&str]| forkyard(arguments, &jobs.dir());
    for mut command in [
        own(&["--version"]),
        own(&["php"]),
        own(&["schema"]),
        own(&["completions", "bash"]),
        own(&["settings", "sample"]),
        with(&["check"]),
        with(&["check", "--effective"]),
        with(&["status"]),
        with(&["status", "--json"]),
        with(&["ping"]),
        with(&["jobs", "queues"]),
        with(&["jobs", "push", "mail", "echo", "--wait"]),
    ] {
        let output = command.stdout(closed_pipe()).output().expect("forkyard");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            (output.status.signal(), said.as_ref()),
            (Some(Signal::SIGPIPE as i32), ""),
            "{command:?}: {}",
            output.status
        );
    }
    // What the parser says is no different.
    for arguments in [&["--help"][..], &["jobs", "--help"], &["help", "status"]] {
        let output = own(arguments).stdout(closed_pipe()).output().expect("forkyard");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
    }
}

/// What goes to standard error is not read either: the exit code says what was wrong.
#[test]
fn a_command_that_fails_has_its_exit_code_when_its_errors_are_not_read() {
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("forkyard.toml");
    std::fs::write(&file, "[pool.www\n").expect("a configuration");
    for (arguments, code) in [(["check", "-c"], 78), (["run", "-c"], 78), (["status", "-c"], 78)] {
        let status = own(&arguments)
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(closed_pipe())
            .status()
            .expect("forkyard");
        assert_eq!(status.code(), Some(code), "{arguments:?}: {status}");
    }
}

/// A daemon goes on when its log is not read any more.
#[test]
fn a_daemon_goes_on_when_its_log_is_not_read() {
    let place = directory();
    let path = place.path().to_owned();
    let text = php_pool(&path, "pm = \"static\"\nmax_children = 1\n", "");
    let text = format!("[global]\ncontrol = \"{0}/control.sock\"\n{text}", path.display());
    std::fs::write(path.join("forkyard.toml"), text).expect("configuration");
    let mut child = forkyard(&["run"], &path)
        .stdout(closed_pipe())
        .stderr(closed_pipe())
        .spawn()
        .expect("forkyard");
    let ping = || forkyard(&["ping"], &path).output().expect("ping");
    until("the daemon", || ping().status.success().then_some(()));
    let reload = forkyard(&["reload", "--all"], &path).status().expect("reload");
    assert!(reload.success() && process::runs(child.id()), "{reload}");
    assert!(ping().status.success());
    process::signal(child.id(), Signal::SIGTERM);
    assert!(process::wait(&mut child, "the daemon").success());
}
