//! Releases a journey's resources after success or failure.

use super::Effects;
use super::live::Live;
use super::own_socket::OwnDirectory;
use super::remains::SocketFile;
use crate::event::JourneyId;
use crate::handshake::properties::Address;
use crate::workdir::{WorkDirectory, remove_given};
use forkyard_sys::{dir, pidfd};
use mio::unix::SourceFd;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

impl Effects {
    pub(super) fn end_handshake(&mut self, id: JourneyId) {
        let Some(live) = self.live.get_mut(&id) else {
            return;
        };
        if let Some(finish) = live.finish.take() {
            let _ = self.registry.deregister(&mut SourceFd(&finish.as_raw_fd()));
        }
        if let Some(mut ping) = live.ping.take() {
            let _ = self.registry.deregister(&mut ping);
        }
        live.own_mark = live.mark().unwrap_or_default();
        // Removing dozens of files takes a while, so report the process first.
        let uid = live.plan.account.uid;
        self.litter
            .extend(live.directory.take().map(|directory| (directory, uid)));
    }

    /// Removes the work directories of processes that are up.
    pub fn clear_up(&mut self) {
        for (directory, uid) in std::mem::take(&mut self.litter) {
            self.remove(directory, uid);
        }
    }

    pub(super) fn give_up(&mut self, mut live: Live, sockets: &[Address]) {
        self.unwatch(&mut live);
        if let Some(port) = live.port {
            self.ports.release(port);
        }
        if let (Some(handle), false) = (&live.process, live.reaped) {
            let _ = pidfd::reap(handle.as_fd());
        }
        let (own, account) = (live.own.take(), &live.plan.account);
        let named = sockets.iter().filter_map(|address| {
            let (Address::Unix(path), Some(allowed)) = (address, &live.plan.socket_dir) else {
                return None;
            };
            let name = path.file_name().and_then(|name| name.to_str())?;
            (path.parent() == Some(allowed)).then_some((allowed, name))
        });
        let named: Vec<_> = named.collect();
        if own.is_some() || !named.is_empty() {
            self.lookers.clear(account.uid, &[], || {
                own.iter().for_each(OwnDirectory::remove);
                for (directory, name) in named {
                    let _ = dir::remove_socket(directory, name, account.uid);
                }
            });
        }
        if let Some(directory) = live.directory.take() {
            self.remove(directory, live.plan.account.uid);
        }
    }

    /// Removes a work directory with user-controlled contents, in a separate process.
    pub(super) fn remove(&mut self, directory: WorkDirectory, uid: u32) {
        if let Some(path) = directory.into_removable() {
            self.lookers.clear(uid, &[], || remove_given(&path));
        }
    }

    pub fn remove_sockets(&mut self, sockets: Vec<SocketFile>) {
        let Some(uid) = sockets.first().map(|socket| socket.uid) else {
            return;
        };
        self.lookers
            .clear(uid, &[], || sockets.iter().for_each(SocketFile::remove));
    }

    /// Waits up to `limit` for pending removals.
    pub fn settle(&mut self, limit: Duration) {
        self.lookers.settle(limit);
    }

    pub(super) fn unwatch(&mut self, live: &mut Live) {
        let watched = [
            live.finish.as_ref(),
            live.process.as_ref(),
            live.output.as_deref(),
        ];
        for fd in watched.into_iter().flatten() {
            let _ = self.registry.deregister(&mut SourceFd(&fd.as_raw_fd()));
        }
        if let Some(mut ping) = live.ping.take() {
            let _ = self.registry.deregister(&mut ping);
        }
        if let Some(look) = live.look.take() {
            self.unwatch_look(&look);
        }
    }
}
