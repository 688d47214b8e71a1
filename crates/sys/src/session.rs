//! Process groups and sessions: what a process has started and what that has started, however deep, unless it leaves.

use super::error::{Named, Result};
use super::pidfd;
use super::process::{self, Stat};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getsid, setpgid};
use std::fs;
use std::os::fd::AsFd;

/// Passes over /proc until nothing is found: a process that is killed may have forked just before.
const PASSES: usize = 8;

/// A process that has ended, and those of its process group, or, if it led that, of its session. The kernel gives its number to
/// no other process as long as there are any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leader {
    /// Its number.
    pub pid: i32,
    /// Its session's.
    pub session: i32,
}

impl Leader {
    /// Of a process that is there, or has ended and was not reaped. `None`: there is none.
    pub fn of(pid: i32) -> Option<Leader> {
        let session = getsid(Some(Pid::from_raw(pid))).ok()?;
        Some(Leader {
            pid,
            session: session.as_raw(),
        })
    }

    /// Whether there is anybody left in its process group, as far as its number means that.
    pub fn has_group(&self) -> bool {
        killpg(Pid::from_raw(self.pid), None).is_ok()
    }

    fn has(&self, stat: &Stat) -> bool {
        stat.session == self.session && (stat.group == self.pid || self.session == self.pid)
    }
}

/// Begins a session of this process' own.
///
/// # Errors
/// EPERM: it leads a process group already.
pub fn begin() -> Result<()> {
    nix::unistd::setsid().named("setsid", "").map(drop)
}

/// Begins a process group of this process' own, if it does not lead one.
///
/// # Errors
/// setpgid(2).
pub fn begin_group() -> Result<()> {
    match setpgid(Pid::from_raw(0), Pid::from_raw(0)) {
        // It leads its session.
        Ok(()) | Err(Errno::EPERM) => Ok(()),
        Err(errno) => Err(super::error::Error::new("setpgid", "", errno)),
    }
}

/// Kills the process group that this process leads, if it leads one. It must not be reaped yet: its number would mean another.
pub fn kill_group(leader: i32) {
    // There is none: it has never led one.
    let _ = killpg(Pid::from_raw(leader), Signal::SIGKILL);
}

/// Kills what is left of these. Says how many were killed.
pub fn kill_rest(leaders: &[Leader]) -> usize {
    let mut killed = 0;
    for _ in 0..PASSES {
        let mut any = false;
        for (pid, leader) in members(leaders) {
            // The descriptor first: what is read after it is of this process.
            let Ok(descriptor) = pidfd::open(pid) else {
                continue;
            };
            let is_member = living(pid).is_some_and(|stat| leader.has(&stat));
            if is_member && pidfd::send_signal(descriptor.as_fd(), Signal::SIGKILL).is_ok() {
                (any, killed) = (true, killed + 1);
            }
        }
        if !any {
            break;
        }
    }
    killed
}

/// The processes that are left of these, each with its leader.
pub fn members(leaders: &[Leader]) -> Vec<(i32, Leader)> {
    if leaders.is_empty() {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries
        .map_while(std::result::Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let processes = pids.filter_map(|pid| Some((pid, living(pid)?)));
    let found = processes.flat_map(|(pid, stat)| {
        let own = leaders.iter().filter(move |leader| leader.has(&stat));
        own.map(move |leader| (pid, *leader))
    });
    let found: Vec<(i32, Leader)> = found.collect();
    // A number that a living process has belongs to that one by now.
    let is_reused = |leader: &Leader| found.iter().any(|(pid, _)| *pid == leader.pid);
    found
        .iter()
        .filter(|(_, leader)| !is_reused(leader))
        .copied()
        .collect()
}

/// A process that has not ended.
fn living(pid: i32) -> Option<Stat> {
    process::stat(pid).filter(|stat| !matches!(stat.state, 'Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
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
        let leaders = [Leader::of(session).unwrap()];
        assert_eq!(kill_rest(&leaders), 0, "its leader lives");
        let process = pidfd::open(session).unwrap();
        pidfd::send_signal(process.as_fd(), Signal::SIGKILL).unwrap();
        let readable = crate::socket::Readiness::Readable;
        let limit = std::time::Duration::from_secs(30);
        assert_eq!(crate::socket::wait(process.as_fd(), readable, limit), Ok(true));
        // Three sleepers' and a shell's: as many as have come to be.
        assert!(kill_rest(&leaders) >= 1);
        assert!(lines.next().is_none(), "all who had the pipe are gone");
        assert_eq!(members(&leaders), []);
    }

    /// A process in a group of its own with a child there, and one in another session.
    fn family() -> (std::process::Child, Apart) {
        let mut leader = Command::new("/bin/sh")
            .args([
                "-c",
                "sleep 1000 & setsid sleep 1000 & echo $!; kill -STOP $$; exit 0",
            ])
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(leader.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let apart: i32 = line.trim().parse().unwrap();
        // Until it has left: it is a copy of the shell at first.
        while Leader::of(apart).is_some_and(|it| it.session != apart) {
            std::thread::yield_now();
        }
        (leader, Apart(apart))
    }

    /// One in another session, which ends with the test.
    struct Apart(i32);

    impl Drop for Apart {
        fn drop(&mut self) {
            assert!(runs(self.0));
            crate::process::send_signal(self.0, Signal::SIGKILL).unwrap();
        }
    }

    #[test]
    fn a_group_is_found_by_its_leader_s_number_and_session_and_what_left_it_is_not() {
        let (mut shell, _apart) = family();
        let leader = Leader::of(shell.id() as i32).unwrap();
        assert_eq!(
            leader.session,
            Leader::of(std::process::id() as i32).unwrap().session
        );
        shell.kill().unwrap();
        shell.wait().unwrap();
        assert!(leader.has_group());
        let elsewhere = Leader {
            session: leader.pid + 1,
            ..leader
        };
        assert_eq!(members(&[elsewhere]), []);
        let left = members(&[leader]);
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(kill_rest(&[leader, elsewhere]), 1);
        wait_until_gone(leader);
    }

    #[test]
    fn a_group_ends_with_its_leader() {
        let (mut shell, _apart) = family();
        let leader = Leader::of(shell.id() as i32).unwrap();
        kill_group(leader.pid);
        shell.wait().unwrap();
        wait_until_gone(leader);
        // Of one that leads no group.
        let mut other = Command::new("/bin/sleep").arg("1000").spawn().unwrap();
        kill_group(other.id() as i32);
        assert_eq!(other.try_wait().unwrap(), None);
        other.kill().unwrap();
        other.wait().unwrap();
    }

    /// What is killed needs a moment.
    fn wait_until_gone(leader: Leader) {
        while !members(&[leader]).is_empty() {
            std::thread::yield_now();
        }
    }

    fn runs(pid: i32) -> bool {
        living(pid).is_some()
    }
}
