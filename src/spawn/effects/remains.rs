//! What belongs to a process that is up, and has to go with it.

use super::family;
use crate::sys::pidfd;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::os::fd::{AsFd, OwnedFd};

/// A process' group, and what it has started that left the group.
#[derive(Debug)]
pub struct Remains {
    pid: i32,
    mark: Vec<u8>,
    orphans: Vec<OwnedFd>,
}

impl Remains {
    /// Of a process that leads a group, and by whose mark in the environment its descendants are known.
    pub(super) fn new(pid: i32, mark: Vec<u8>) -> Remains {
        Remains {
            pid,
            mark,
            orphans: Vec::new(),
        }
    }

    /// Of a process that another master has started, who knew this mark.
    pub fn adopt(pid: i32, mark: &str) -> Remains {
        Remains::new(pid, mark.as_bytes().to_vec())
    }

    /// The mark, for a next master.
    pub fn mark(&self) -> String {
        String::from_utf8_lossy(&self.mark).into_owned()
    }

    /// Sends the whole group a signal. To be called as long as the process was not reaped, or at once after it was: then
    /// its number means nobody else yet.
    pub fn signal_group(&self, signal: Signal) {
        // There may be nobody left.
        let _ = killpg(Pid::from_raw(self.pid), signal);
    }

    /// Once the process has ended: kills what is left of it, and says whether there was anything. Then it has to be called
    /// again, since who is killed may leave others. `is_known`: children of ours that belong to somebody else.
    pub fn sweep(&mut self, is_known: impl Fn(i32) -> bool) -> bool {
        for orphan in family::orphans(&self.mark, self.pid, is_known) {
            let _ = pidfd::send_signal(orphan.as_fd(), Signal::SIGKILL);
            self.orphans.push(orphan);
        }
        self.orphans.retain(|orphan| !pidfd::has_ended(orphan.as_fd()));
        let has_members = killpg(Pid::from_raw(self.pid), None).is_ok();
        has_members || !self.orphans.is_empty()
    }
}
