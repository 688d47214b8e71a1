//! The progress bar on a terminal.

use super::Jobs;
use crate::support::prelude::*;

/// Runs a command with standard error on a terminal of 100 columns, and prints what appears. With `alone`, standard
/// output is no terminal.
const TERMINAL: &str = r#"
import fcntl, os, pty, struct, subprocess, sys, termios
ours, theirs = pty.openpty()
fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
output = 2 if sys.argv[1] == "alone" else theirs
child = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stdout=output, stderr=theirs)
os.close(theirs)
try:
    while data := os.read(ours, 65536):
        os.write(1, data)
except OSError:
    pass
sys.exit(child.wait())
"#;

struct Terminal {
    child: Child,
    seen: String,
}

impl Terminal {
    fn run(jobs: &Jobs, output: &str, arguments: &[&str]) -> Terminal {
        let child = Command::new("python3")
            .args(["-c", TERMINAL, output, env!("CARGO_BIN_EXE_forkyard"), "jobs"])
            .args(arguments)
            .arg("-c")
            .arg(jobs.dir().join("forkyard.toml"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("python3");
        let seen = String::new();
        Terminal { child, seen }
    }

    fn wait_for(&mut self, text: &str) {
        let mut bytes = [0; 1_024];
        while !self.seen.contains(text) {
            let output = self.child.stdout.as_mut().expect("a pipe");
            let count = output.read(&mut bytes).expect("what is seen");
            let last = self.seen.rsplit('\r').find(|line| line.len() > ERASE.len());
            assert_ne!(count, 0, "{text}: {last:?}");
            self.seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }

    fn end(mut self) -> (String, String, Option<i32>) {
        let output = self.child.wait_with_output().expect("python3");
        self.seen.push_str(&String::from_utf8_lossy(&output.stdout));
        let errors = text_of(&output.stderr);
        (self.seen, errors, output.status.code())
    }
}

const ERASE: &str = "\u{1b}[K";

#[test]
fn a_bar_shows_how_far_a_job_is_and_leaves_nothing() {
    let jobs = Jobs::start("max_children = 1", "");
    for (gate, output) in [("all", "both"), ("errors", "alone")] {
        let payload = format!("\"{gate}\"");
        let push = [
            "push",
            "mail",
            "gate",
            "--payload",
            &payload,
            "--step",
            "first",
            "--wait",
        ];
        let mut terminal = Terminal::run(&jobs, output, &push);
        terminal.wait_for(&format!("running [{}] 0%", "-".repeat(30)));
        jobs.open(gate);
        let (seen, shown, code) = terminal.end();
        assert_eq!(code, Some(0), "{seen:?} {shown:?}");
        // Each line overwrites the one before, and the last is erased.
        let lines: Vec<&str> = seen.split('\r').filter(|line| line.ends_with(ERASE)).collect();
        assert!(
            lines.iter().all(|line| line.len() < 100 + ERASE.len()),
            "{seen:?}"
        );
        assert_eq!(seen.matches(&format!("\r{ERASE}")).count(), 1, "{seen:?}");
        let after = &seen[seen.find(&format!("\r{ERASE}")).expect("the end") + 1 + ERASE.len()..];
        let answer = if output == "both" { after } else { &shown };
        assert!(answer.contains("mail/gate: done"), "{seen:?} {shown:?}");
        assert!(!answer.contains('\u{1b}'), "{answer:?}");
    }
}

#[test]
fn a_bar_shows_how_far_a_sequence_is() {
    let jobs = Jobs::start("max_children = 2", "");
    let source = "printf '\"one\"\n\"two\"\n'";
    let push = [
        "push",
        "mail",
        "gate",
        "--content-type",
        "application/json",
        "--each-line-of",
        source,
        "--wait",
    ];
    let mut terminal = Terminal::run(&jobs, "both", &push);
    terminal.wait_for("0% 0 of 2");
    jobs.open("one");
    terminal.wait_for(&format!("[{}{}] 50% 1 of 2", "#".repeat(15), "-".repeat(15)));
    jobs.open("two");
    let (seen, _, code) = terminal.end();
    let sequence = jobs.ask(&json!({"command": "sequence-list"}))["sequences"][0].clone();
    assert_eq!((code, &sequence["done"]), (Some(0), &json!(2)), "{seen:?}");
    assert!(seen.contains(&format!("\r{ERASE}")), "{seen:?}");
}

#[test]
fn there_is_no_bar_where_errors_go_into_a_file() {
    let jobs = Jobs::start("max_children = 1", "");
    let errors = jobs.dir().join("errors");
    // The command's own standard error is a file, its output the terminal.
    let script = r#"exec "$0" "$@" 2>"$FORKYARD_TEST_ERRORS""#;
    let status = Command::new("python3")
        .args([
            "-c",
            TERMINAL,
            "both",
            "sh",
            "-c",
            script,
            env!("CARGO_BIN_EXE_forkyard"),
            "jobs",
        ])
        .args(["push", "mail", "echo", "--wait", "-c"])
        .arg(jobs.dir().join("forkyard.toml"))
        .env("FORKYARD_TEST_ERRORS", &errors)
        .stdout(Stdio::null())
        .status()
        .expect("python3");
    assert!(status.success(), "{status}");
    assert_eq!(read_file(&errors), "");
}
