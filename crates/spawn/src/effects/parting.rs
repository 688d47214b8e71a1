//! Giving up what a journey has held: when its process is up, and when it has failed.

use super::Effects;
use super::live::Live;
use crate::capture::Capture;
use crate::event::JourneyId;
use crate::handshake::properties::Address;
use crate::sys::{dir, pidfd, process};
use crate::workdir::WorkDirectory;
use mio::unix::SourceFd;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

impl Effects {
    /// It is up: what belongs to the handshake is given up.
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
        live.capture = Capture::default();
        live.own_mark = live.mark().unwrap_or_default();
        // That the process is up is told first: removing dozens of files takes a while.
        self.litter.extend(live.directory.take());
    }

    /// Removes the work directories of what is up.
    pub fn clear_up(&mut self) {
        for directory in std::mem::take(&mut self.litter) {
            self.remove(directory);
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
        if let Some(own) = live.own.take() {
            own.remove();
        }
        for address in sockets {
            let (Address::Unix(path), Some(allowed)) = (address, &live.plan.socket_dir) else {
                continue;
            };
            let name = path.file_name().and_then(|name| name.to_str());
            if let (Some(name), true) = (name, path.parent() == Some(allowed)) {
                // Gone already, or none of its own.
                let _ = dir::remove_socket(allowed, name, live.plan.account.uid);
            }
        }
        if let Some(directory) = live.directory.take() {
            self.remove(directory);
        }
    }

    pub(super) fn remove(&self, directory: WorkDirectory) {
        let path = directory.path().to_owned();
        match directory.remove() {
            Ok(None) => {}
            Ok(Some(rest)) => {
                log::warn!(
                    "{} has very many files, another process removes them",
                    rest.display()
                );
                self.remove_elsewhere(&rest);
            }
            Err(error) => log::warn!("the work directory {} can't be removed: {error}", path.display()),
        }
    }

    /// A process of its own removes a directory that is too large to be removed between two events. It is reaped with the
    /// orphans.
    pub(super) fn remove_elsewhere(&self, path: &Path) {
        let strings = ["rm", "-r", "-f", "--"].map(CString::new);
        let mut arguments: Vec<CString> = strings.into_iter().map_while(Result::ok).collect();
        let (Ok(rest), Ok(rm)) = (CString::new(path.as_os_str().as_bytes()), CString::new("/bin/rm")) else {
            return;
        };
        arguments.push(rest);
        let program = process::Program {
            path: rm,
            arguments,
            environment: Vec::new(),
            descriptors: Vec::new(),
            descriptor_limit: None,
        };
        if let Err(error) = process::start(&program) {
            log::warn!("{} can't be removed: {error}", path.display());
        }
    }

    pub(super) fn unwatch(&mut self, live: &mut Live) {
        let watched = [&live.finish, &live.process, &live.output];
        for fd in watched.into_iter().flatten() {
            // A pipe that came to its end is not watched any more.
            let _ = self.registry.deregister(&mut SourceFd(&fd.as_raw_fd()));
        }
        if let Some(mut ping) = live.ping.take() {
            let _ = self.registry.deregister(&mut ping);
        }
    }
}
