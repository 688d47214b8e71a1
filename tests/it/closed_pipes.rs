//! Commands that write to a closed pipe exit by SIGPIPE, without a message.

use super::dev::stand::{command, site};
use super::jobs::Jobs;
use crate::support::prelude::*;
use std::os::unix::process::ExitStatusExt;

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
    let mut versions = Command::new(Path::new(env!("CARGO_BIN_EXE_forkyard")).with_file_name("forkyard-php"));
    versions.arg("--versions");
    for mut command in [
        versions,
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
    for arguments in [&["--help"][..], &["jobs", "--help"], &["help", "status"]] {
        let output = own(arguments).stdout(closed_pipe()).output().expect("forkyard");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
    }
}

#[test]
fn a_command_that_fails_has_its_exit_code_when_its_errors_are_not_read() {
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("forkyard.toml");
    fs::write(&file, "[pool.www\n").expect("a configuration");
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

#[test]
fn a_daemon_goes_on_when_its_log_is_not_read() {
    let place = directory();
    let path = place.path().to_owned();
    let text = php_pool(&path, "", "");
    let text = format!("[global]\ncontrol = \"{0}/control.sock\"\n{text}", path.display());
    fs::write(path.join("forkyard.toml"), text).expect("configuration");
    let mut child = forkyard(&["run"], &path)
        .stdout(closed_pipe())
        .stderr(closed_pipe())
        .spawn()
        .expect("forkyard");
    let ping = || forkyard(&["ping"], &path).output().expect("ping");
    wait_until("the daemon", || ping().status.success());
    let reload = forkyard(&["reload", "--all"], &path).status().expect("reload");
    assert!(reload.success() && process::runs(child.id()), "{reload}");
    assert!(ping().status.success());
    process::signal(child.id(), Signal::SIGTERM);
    assert!(process::wait(&mut child, "the daemon").success());
}

#[test]
fn a_developer_s_site_is_served_when_its_terminal_is_not_read() {
    let code =
        "require('http').createServer((_, reply) => reply.end('from node')).listen(process.env.PORT)\n";
    let (_place, root) = site(&[("app.js", code)]);
    let port = free_port().to_string();
    let mut child = command(&root, &["--port", &port])
        .stdout(closed_pipe())
        .stderr(closed_pipe())
        .spawn()
        .expect("forkyard dev");
    let get = || {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).ok()?;
        stream
            .write_all(b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
            .ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    };
    for _ in 0..2 {
        let page = until("a page", get);
        assert!(page.ends_with("from node"), "{page}");
    }
    assert!(process::runs(child.id()));
    process::signal(child.id(), Signal::SIGINT);
    assert!(process::wait(&mut child, "forkyard dev").success());
}
