//! What belongs to a process that is up, and has to go with it.

use super::{family, own_socket};
use crate::sys::{dir, pidfd};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

/// A process' group, and what it has started that left the group.
#[derive(Debug)]
pub struct Remains {
    pid: i32,
    mark: Vec<u8>,
    orphans: Vec<OwnedFd>,
    search: family::Search,
    sockets: Vec<SocketFile>,
}

/// The file of a unix socket that a process has made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketFile {
    /// Where it is.
    pub path: PathBuf,
    /// Whose it is.
    pub uid: u32,
    /// Which one it is.
    pub mark: dir::Mark,
}

impl SocketFile {
    /// The one that is there; `None`: there is none, or it is another's. May wait.
    pub(super) fn find(path: PathBuf, uid: u32) -> Option<SocketFile> {
        let mark = dir::socket_mark(&path, uid)?;
        Some(SocketFile { path, uid, mark })
    }

    /// Removes it, if it is still there, and the directory that was made for it. May wait.
    pub(super) fn remove(&self) {
        // Most programs have done so themselves.
        let _ = dir::remove_same_socket(&self.path, self.uid, self.mark);
        own_socket::remove_around(&self.path, self.uid);
    }
}

impl Remains {
    /// The remains of a process that leads a group. Its descendants are known by its mark in their environment.
    pub(super) fn new(pid: i32, mark: Vec<u8>) -> Remains {
        Remains {
            pid,
            mark,
            orphans: Vec::new(),
            search: family::Search::default(),
            sockets: Vec::new(),
        }
    }

    /// The remains of a process that another master has started with this mark.
    pub fn adopt(pid: i32, mark: &str) -> Remains {
        Remains::new(pid, mark.as_bytes().to_vec())
    }

    /// Its sockets in the file system, which are to go with it.
    pub fn sockets(&self) -> &[SocketFile] {
        &self.sockets
    }

    /// The same, with these sockets.
    pub fn with_sockets(self, sockets: Vec<SocketFile>) -> Remains {
        Remains { sockets, ..self }
    }

    /// Its sockets, once nothing of it is left: they are to be removed from the file system.
    pub fn into_sockets(self) -> Vec<SocketFile> {
        self.sockets
    }

    /// The mark, for a next master.
    pub fn mark(&self) -> String {
        String::from_utf8_lossy(&self.mark).into_owned()
    }

    /// Sends the whole group a signal. To be called as long as the process was not reaped, or at once after it was:
    /// then its number does not mean another process yet.
    pub fn signal_group(&self, signal: Signal) {
        // There may be no process left.
        let _ = killpg(Pid::from_raw(self.pid), signal);
    }

    /// Once the process has ended: kills what is left of it, and says whether there was anything. Then it has to be
    /// called again, since a process that is killed may leave others. `is_known`: children of ours that belong to
    /// another part.
    pub fn sweep(&mut self, is_known: impl Fn(i32) -> bool) -> bool {
        for orphan in self.search.orphans(&self.mark, self.pid, is_known) {
            let _ = pidfd::send_signal(orphan.as_fd(), Signal::SIGKILL);
            self.orphans.push(orphan);
        }
        self.orphans.retain(|orphan| !pidfd::has_ended(orphan.as_fd()));
        let has_members = killpg(Pid::from_raw(self.pid), None).is_ok();
        has_members || !self.orphans.is_empty() || !self.search.is_complete()
    }
}
