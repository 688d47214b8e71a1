//! The command `forkyard spawn`.

use crate::support::prelude::*;

fn spawn(arguments: &[&str]) -> (tempfile::TempDir, Output) {
    let scratch = tempfile::tempdir().expect("a directory");
    let output = Command::new(env!("CARGO_BIN_EXE_forkyard"))
        .arg("spawn")
        .args(["--spawn-dir".as_ref(), scratch.path().as_os_str()])
        .args(["--app-root".as_ref(), scratch.path().as_os_str()])
        .args(arguments)
        .output()
        .expect("forkyard");
    (scratch, output)
}

#[test]
fn an_application_that_comes_up_is_shown_and_stopped() {
    let command = "/usr/bin/python3 -m http.server --bind 127.0.0.1 $PORT";
    let (scratch, output) = spawn(&["--start-command", command, "--json", "--processes", "2"]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{text}");
    assert_eq!(text.lines().count(), 2);
    for line in text.lines() {
        let document: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(document["journey"]["type"], "SPAWN_DIRECTLY");
        assert_eq!(document["sockets"][0]["protocol"], "http");
        assert!(!process::runs(document["pid"].as_u64().expect("a pid") as u32));
    }
    assert_eq!(fs::read_dir(scratch.path()).expect("the directory").count(), 0);
}

#[test]
fn a_failure_is_told_as_text_json_or_html() {
    let failing = ["--native", "--start-command", "echo '<i>oops</i>'; exit 3"];
    let with = |more: &str| {
        let arguments: Vec<&str> = failing.iter().copied().chain(more.split_whitespace()).collect();
        let (_scratch, output) = spawn(&arguments);
        assert_eq!(output.status.code(), Some(70));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let text = with("");
    assert_contains(&text, "How to solve it:");
    assert_contains(&text, "<i>oops</i>");
    let document: Value = serde_json::from_str(&with("--json")).expect("JSON");
    assert_eq!(document["error"]["category"], "INTERNAL_ERROR");
    let html = with("--html");
    assert_starts(&html, "<!DOCTYPE html>");
    assert_lacks(&html, "<i>oops");
}

#[test]
fn a_wrong_command_line_is_refused() {
    let (_scratch, output) = spawn(&["--start-command", "true", "--env", "nonsense"]);
    assert_eq!(output.status.code(), Some(64));
}

/// Only a separate process can be the subreaper: in this one it would change other tests.
#[test]
fn processes_that_go_to_the_background_are_ended() {
    let command = "sleep 1000 & setsid sleep 1000 & setsid sh -c 'sleep 1000 & sleep 1000' & exit 0";
    let command = format!("sh -c \"{command}\"");
    for _ in 0..5 {
        let (scratch, output) = spawn(&["--native", "--json", "--start-command", &command]);
        assert_eq!(output.status.code(), Some(70));
        let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let subprocess = &document["diagnostics"]["subprocess"];
        assert_eq!(subprocess["exit"], "exited with code 0");
        assert_eq!(subprocess["processes_left"], 0);
        let problem = document["error"]["problem_description"]["plain"].as_str();
        assert!(
            problem.is_some_and(|text| text.contains("goes to the background")),
            "{document}"
        );
        let mark = scratch.path().to_string_lossy().into_owned();
        let left: Vec<u32> = super::all_processes()
            .filter(|pid| {
                let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                String::from_utf8_lossy(&environment).contains(&mark)
            })
            .collect();
        assert!(left.is_empty(), "processes {left:?} are left");
        assert_eq!(fs::read_dir(scratch.path()).expect("the directory").count(), 0);
    }
}
