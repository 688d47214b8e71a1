//! Containers: the daemon as process 1, its stop signal, and the Kubernetes manifests.

use super::blocks;
use super::served::settle_toml;
use crate::support::prelude::*;

fn instruction(name: &str) -> String {
    let text = blocks::find("docs/howto/containers.md", "dockerfile", name);
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.expect("an instruction").trim().to_owned()
}

#[test]
fn a_container_s_daemon_is_process_1_and_lets_requests_finish() {
    skip_if!(needs_root());
    assert_eq!(instruction("STOPSIGNAL "), "SIGQUIT");
    let arguments: Vec<String> = serde_json::from_str(&instruction("CMD ")).expect("a list");
    let dir = directory();
    let port = free_port();
    let toml = blocks::find("docs/howto/containers.md", "toml", "listen = \"9000\"");
    let toml = settle_toml(
        &toml.replace("\"9000\"", &format!("\"127.0.0.1:{port}\"")),
        dir.path(),
    );
    let file = dir.path().join("forkyard.toml");
    fs::write(&file, toml).expect("configuration");
    let script = "<?php touch(__DIR__ . '/begun'); while (!file_exists(__DIR__ . '/go')) usleep(10000); echo 'finished';";
    fs::write(dir.path().join("slow.php"), script).expect("script");

    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--mount-proc", "--fork", "--kill-child"])
        .arg(env!("CARGO_BIN_EXE_forkyard"))
        .args(arguments[1..].iter().map(|word| match word.starts_with('/') {
            true => file.display().to_string(),
            false => word.clone(),
        }));
    let mut daemon = Daemon::launch(dir.path(), command);
    daemon.wait_for("is running, pid 1");
    daemon.wait_for("ready to handle connections");
    let client = Command::new("cgi-fcgi")
        .args(["-bind", "-connect", &format!("127.0.0.1:{port}")])
        .env("REQUEST_METHOD", "GET")
        .env("SCRIPT_NAME", "/slow.php")
        .env("SCRIPT_FILENAME", dir.path().join("slow.php"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("cgi-fcgi (Debian package libfcgi-bin)");
    wait_until("the request to run", || dir.path().join("begun").exists());
    let children = format!("/proc/{0}/task/{0}/children", daemon.pid());
    let children = read_file(children);
    let pid: i32 = children.trim().parse().expect("one child");
    let pid = nix::unistd::Pid::from_raw(pid);
    nix::sys::signal::kill(pid, Signal::SIGQUIT).expect("kill");
    daemon.wait_for("Finishing ...");
    fs::write(dir.path().join("go"), "").expect("go");
    let output = client.wait_with_output().expect("an answer");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.ends_with("finished"), "{said}\n{}", daemon.log());
    assert!(daemon.wait().success(), "{}", daemon.log());
}

#[test]
fn the_pod_of_the_manifests_shows_no_status_serves_files_and_loses_no_request_at_its_end() {
    skip_if!(needs_root() || crate::skip::needs_file("/usr/bin/promtool"));
    let program = Path::new(env!("CARGO_BIN_EXE_forkyard"));
    let output = Command::new("unshare")
        .args(["--mount", "--net", "/usr/bin/python3", "-B"])
        .args([
            blocks::root().join("tests/package/pod"),
            blocks::root().join("packaging/kubernetes"),
        ])
        .arg(program.parent().expect("a directory"))
        .arg(PHP_VERSION)
        .output()
        .expect("unshare");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    assert!(said.contains("of preStop"), "{said}{errors}");
}
