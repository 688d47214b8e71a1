//! Sessions: what a process has started and what that has started, however deep, unless it leaves.

use super::error::{Named, Result};
use super::pidfd;
use nix::sys::signal::Signal;
use std::fs;
use std::os::fd::AsFd;

/// Passes over /proc until nothing is found: a process that is killed may have forked just before.
const PASSES: usize = 8;

/// Begins a session of this process' own.
///
/// # Errors
/// EPERM: it leads a process group already.
pub fn begin() -> Result<()> {
    nix::unistd::setsid().named("setsid", "").map(drop)
}

/// Kills what is left of the session of a process that has ended. Says how many were killed.
pub fn kill_rest(leader: i32) -> usize {
    let mut killed = 0;
    for _ in 0..PASSES {
        let found = members(leader);
        // The number belongs to another process by now.
        if found.contains(&leader) {
            return killed;
        }
        let mut any = false;
        for pid in found {
            // The descriptor first: what is read after it is of this process.
            let Ok(process) = pidfd::open(pid) else { continue };
            let is_member = stat(pid).is_some_and(|(state, session)| session == leader && state != 'Z');
            if is_member && pidfd::send_signal(process.as_fd(), Signal::SIGKILL).is_ok() {
                (any, killed) = (true, killed + 1);
            }
        }
        if !any {
            break;
        }
    }
    killed
}

/// The processes of a session that have not ended.
fn members(leader: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries
        .map_while(std::result::Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|(state, session)| session == leader && state != 'Z'))
        .collect()
}

/// State and session of a process (proc(5)).
fn stat(pid: i32) -> Option<(char, i32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may have anything in it.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    // Parent and group come between.
    let session = fields.nth(2)?.parse().ok()?;
    Some((state, session))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn the_rest_of_a_session_is_killed_when_its_leader_has_ended() {
        let mut leader = Command::new("/usr/bin/setsid")
            .args([
                "--fork",
                "/bin/sh",
                "-c",
                "sleep 1000 & (sleep 1000 & wait) & echo $$; wait",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(leader.stdout.take().unwrap()).lines();
        leader.wait().unwrap();
        let session: i32 = lines.next().unwrap().unwrap().parse().unwrap();
        assert_eq!(kill_rest(session), 0, "its leader lives");
        let process = pidfd::open(session).unwrap();
        pidfd::send_signal(process.as_fd(), Signal::SIGKILL).unwrap();
        let readable = crate::socket::Readiness::Readable;
        let limit = std::time::Duration::from_secs(30);
        assert_eq!(crate::socket::wait(process.as_fd(), readable, limit), Ok(true));
        // Three sleepers' and a shell's: as many as have come to be.
        assert!(kill_rest(session) >= 1);
        assert!(lines.next().is_none(), "all who had the pipe are gone");
        assert_eq!(members(session), [0_i32; 0]);
    }
}
