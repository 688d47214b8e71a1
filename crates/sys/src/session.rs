//! Process groups and sessions: finds and kills all descendants that are still members.

use super::error::{Named, Result};
use super::pidfd;
use super::process::{self, Stat};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getsid, setpgid};
use std::collections::HashSet;
use std::fs;
use std::os::fd::AsFd;

/// A killed process may have forked just before.
const PASSES: usize = 8;

/// An ended process. Its pid stays reserved, because its group or session may still have members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leader {
    /// Its pid.
    pub pid: i32,
    /// Its session.
    pub session: i32,
}

impl Leader {
    /// Reads an unreaped process, `None` if there is none.
    pub fn of(pid: i32) -> Option<Leader> {
        let session = getsid(Some(Pid::from_raw(pid))).ok()?;
        Some(Leader {
            pid,
            session: session.as_raw(),
        })
    }

    /// Whether its process group has members.
    pub fn has_group(&self) -> bool {
        killpg(Pid::from_raw(self.pid), None).is_ok()
    }

    fn has(&self, stat: &Stat) -> bool {
        stat.session == self.session && (stat.group == self.pid || self.session == self.pid)
    }
}

/// Starts a new session.
///
/// # Errors
/// EPERM if the process leads a process group.
pub fn begin() -> Result<()> {
    nix::unistd::setsid().named("setsid", "").map(drop)
}

/// Starts a new process group, unless it leads one.
///
/// # Errors
/// setpgid(2).
pub fn begin_group() -> Result<()> {
    match setpgid(Pid::from_raw(0), Pid::from_raw(0)) {
        Ok(()) | Err(Errno::EPERM) => Ok(()),
        Err(errno) => Err(super::error::Error::new("setpgid", "", errno)),
    }
}

/// Kills the process group of an unreaped leader.
pub fn kill_group(leader: i32) {
    let _ = killpg(Pid::from_raw(leader), Signal::SIGKILL);
}

/// Kills the leaders' remaining members and returns their number.
pub fn kill_rest(leaders: &[Leader]) -> usize {
    // A killed process may still be there at the next pass.
    let mut killed = HashSet::new();
    for _ in 0..PASSES {
        let mut any = false;
        for (pid, leader) in members(leaders) {
            // Opened first, so that what follows refers to this process.
            let Ok(descriptor) = pidfd::open(pid) else {
                continue;
            };
            let is_member = living(pid).is_some_and(|stat| leader.has(&stat));
            if is_member && pidfd::send_signal(descriptor.as_fd(), Signal::SIGKILL).is_ok() {
                any |= killed.insert(pid);
            }
        }
        if !any {
            break;
        }
    }
    killed.len()
}

/// Returns the remaining members, each with its leader.
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
    let is_reused = |leader: &Leader| found.iter().any(|(pid, _)| *pid == leader.pid);
    found
        .iter()
        .filter(|(_, leader)| !is_reused(leader))
        .copied()
        .collect()
}

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
        assert!(kill_rest(&leaders) >= 1);
        assert!(lines.next().is_none(), "all who had the pipe are gone");
        assert_eq!(members(&leaders), []);
    }

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
        while Leader::of(apart).is_some_and(|it| it.session != apart) {
            std::thread::yield_now();
        }
        (leader, Apart(apart))
    }

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
        let mut other = Command::new("/bin/sleep").arg("1000").spawn().unwrap();
        kill_group(other.id() as i32);
        assert_eq!(other.try_wait().unwrap(), None);
        other.kill().unwrap();
        other.wait().unwrap();
    }

    fn wait_until_gone(leader: Leader) {
        while !members(&[leader]).is_empty() {
            std::thread::yield_now();
        }
    }

    fn runs(pid: i32) -> bool {
        living(pid).is_some()
    }
}
