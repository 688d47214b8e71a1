//! System calls, counted by strace.

use super::{process, until};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// Counts the system calls of a process and its threads while `act` runs, by their names.
pub fn count(pid: u32, directory: &Path, act: impl FnOnce()) -> BTreeMap<String, u64> {
    let report = directory.join("strace");
    let mut strace = Command::new("strace")
        .args(["-f", "-c", "-U", "calls,name", "-o"])
        .arg(&report)
        .args(["-p", &pid.to_string()])
        .stderr(Stdio::null())
        .spawn()
        .expect("strace (Debian package strace)");
    until("strace to attach", || {
        let tracer = process::status_line(pid, "TracerPid");
        tracer.filter(|tracer| tracer != "0").map(|_| ())
    });
    act();
    process::signal(strace.id(), Signal::SIGINT);
    process::wait(&mut strace, "strace's end");
    let text = std::fs::read_to_string(&report).expect("strace's report");
    let lines = text.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let calls = fields.next()?.parse().ok()?;
        Some((fields.next()?.to_owned(), calls))
    });
    lines.filter(|(name, _)| name != "total").collect()
}
