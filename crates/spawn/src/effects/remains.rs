//! Processes and sockets that must go with a process.

use super::{family, own_socket};
use forkyard_sys::{dir, pidfd};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

/// A process group and the descendants that left it.
#[derive(Debug)]
pub struct Remains {
    pid: i32,
    mark: Vec<u8>,
    orphans: Vec<OwnedFd>,
    search: family::Search,
    sockets: Vec<SocketFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketFile {
    pub path: PathBuf,
    pub uid: u32,
    pub mark: dir::Mark,
}

impl SocketFile {
    /// Returns the socket file at a path, or `None` if it is missing or another user's. May block.
    pub(super) fn find(path: PathBuf, uid: u32) -> Option<SocketFile> {
        let mark = dir::socket_mark(&path, uid)?;
        Some(SocketFile { path, uid, mark })
    }

    /// Removes the unchanged file and its dedicated directory. May block.
    pub(super) fn remove(&self) {
        let _ = dir::remove_same_socket(&self.path, self.uid, self.mark);
        own_socket::remove_around(&self.path, self.uid);
    }
}

impl Remains {
    pub(super) fn new(pid: i32, mark: Vec<u8>) -> Remains {
        Remains {
            pid,
            mark,
            orphans: Vec::new(),
            search: family::Search::default(),
            sockets: Vec::new(),
        }
    }

    /// Creates the remains of a process that another master started with this mark.
    pub fn adopt(pid: i32, mark: &str) -> Remains {
        Remains::new(pid, mark.as_bytes().to_vec())
    }

    pub fn sockets(&self) -> &[SocketFile] {
        &self.sockets
    }

    pub fn with_sockets(self, sockets: Vec<SocketFile>) -> Remains {
        Remains { sockets, ..self }
    }

    /// Returns the socket files, to be removed when no process is left.
    pub fn into_sockets(self) -> Vec<SocketFile> {
        self.sockets
    }

    /// The mark, for the next master.
    pub fn mark(&self) -> String {
        String::from_utf8_lossy(&self.mark).into_owned()
    }

    /// Signals the group. Call it before the leader is reaped or right after, while its pid can't be reused.
    pub fn signal_group(&self, signal: Signal) {
        let _ = killpg(Pid::from_raw(self.pid), signal);
    }

    /// Kills surviving processes and returns whether there were any. Repeat until it returns `false`, since killed
    /// processes may leave children. `is_known`: children that belong elsewhere.
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
