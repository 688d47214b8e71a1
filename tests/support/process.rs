//! Looking at processes through /proc.

use nix::sys::signal::Signal;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};

pub fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

pub fn title(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes)
        .replace('\0', " ")
        .trim()
        .to_owned()
}

pub fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

pub fn runs(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

pub fn status_line(pid: u32, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| {
        line.strip_prefix(name)?
            .strip_prefix(':')
            .map(|v| v.trim().to_owned())
    })
}

pub fn policy(pid: u32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 41 of proc_pid_stat(5); the third is the first after the name.
    stat.rsplit_once(") ")?.1.split(' ').nth(38)?.parse().ok()
}

pub fn user_and_group(pid: u32) -> [String; 2] {
    ["Uid", "Gid"].map(|line| {
        let ids = status_line(pid, line).expect("status");
        ids.split_whitespace().next().expect("an id").to_owned()
    })
}

pub fn signal(pid: u32, signal: Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), signal).expect("kill");
}

pub fn wait(child: &mut Child, what: &str) -> ExitStatus {
    super::until(what, || child.try_wait().expect("wait"))
}

/// A child that gets a signal, and is waited for, at the end.
pub struct Guard(pub Child, Signal);

impl Guard {
    pub fn kill(child: Child) -> Guard {
        Guard(child, Signal::SIGKILL)
    }

    pub fn terminate(child: Child) -> Guard {
        Guard(child, Signal::SIGTERM)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.0.try_wait().ok().flatten().is_none() {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.0.id() as i32), self.1);
            let _ = self.0.wait();
        }
    }
}

/// A mounted file system; it is unmounted at the end.
pub struct Mounted(pub PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

pub fn wait_for_end(pid: u32) {
    super::wait_until(&format!("the end of {pid}"), || !runs(pid));
}

pub fn wait_for_ends<'p>(pids: impl IntoIterator<Item = &'p u32>) {
    pids.into_iter().for_each(|pid| wait_for_end(*pid));
}

/// The first child with this title.
pub fn child_titled(pid: u32, wanted: &str) -> Option<u32> {
    children(pid).into_iter().find(|pid| title(*pid) == wanted)
}
