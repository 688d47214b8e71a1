//! Looking at processes through /proc.

use std::fs;
use std::process::{Child, ExitStatus};

/// The pids of a process' children.
pub fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// A process' title.
pub fn title(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes)
        .replace('\0', " ")
        .trim()
        .to_owned()
}

/// A process' state letter; `None`: it is gone.
pub fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// Whether a process runs, zombies not counted.
pub fn runs(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

/// One line of /proc/PID/status.
pub fn status_line(pid: u32, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| {
        line.strip_prefix(name)?
            .strip_prefix(':')
            .map(|v| v.trim().to_owned())
    })
}

/// How the kernel schedules it, see sched(7): the policy's number.
pub fn policy(pid: u32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 41 of proc_pid_stat(5); the third is the first after the name.
    stat.rsplit_once(") ")?.1.split(' ').nth(38)?.parse().ok()
}

/// The user and the group that a process runs as.
pub fn user_and_group(pid: u32) -> [String; 2] {
    ["Uid", "Gid"].map(|line| {
        let ids = status_line(pid, line).expect("status");
        ids.split_whitespace().next().expect("an id").to_owned()
    })
}

/// Sends a signal.
pub fn signal(pid: u32, signal: nix::sys::signal::Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), signal).expect("kill");
}

/// Waits for a child to end.
pub fn wait(child: &mut Child, what: &str) -> ExitStatus {
    super::until(what, || child.try_wait().expect("wait"))
}
