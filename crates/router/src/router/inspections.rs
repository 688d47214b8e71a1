//! The inspector's socket and what it has found.

use super::app_index::{AppIndex, Inspected, Lookup};
use super::gathered::Gathered;
use super::settings::Bounds;
use crate::inspector::protocol::{InspectReply, InspectRequest};
use forkyard_base::tick::Tick;
use forkyard_sys::Error;
use forkyard_sys::fd::send_with;
use forkyard_sys::socket::{Progress, receive};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

pub(super) const INSPECTOR: u64 = 2;

#[derive(Debug)]
pub(super) struct Inspections {
    socket: OwnedFd,
    pub(super) index: AppIndex,
    lines: Gathered,
}

impl Inspections {
    pub(super) fn new(socket: OwnedFd, epoll: &Epoll) -> Result<Inspections, Error> {
        watch(&socket, epoll).map_err(|errno| Error::new("epoll_ctl", "", errno))?;
        Ok(Inspections {
            socket,
            index: AppIndex::default(),
            lines: Gathered::default(),
        })
    }

    /// Looks up a root for connection `who`, and asks the inspector if needed.
    pub(super) fn ask(&mut self, root: &[u8], who: u64, rate: Duration, now: Tick) -> Lookup {
        let lookup = self.index.ask(root, who, rate, now);
        if let Lookup::Wait(Some(look)) = &lookup {
            self.send(look);
        }
        lookup
    }

    fn send(&self, look: &InspectRequest) {
        let Ok(message) = serde_json::to_vec(look) else {
            return;
        };
        if let Err(error) = send_with(self.socket.as_fd(), &message, &[]) {
            log::warn!("the inspector can't be asked: {error}");
        }
    }

    /// The next answer, if there is one.
    pub(super) fn receive(&mut self, buffer: &mut [u8], epoll: &Epoll) -> Option<InspectReply> {
        let count = match receive(self.socket.as_fd(), buffer) {
            Ok(Progress::Done(count)) if count > 0 => count,
            Ok(Progress::WouldBlock) => return None,
            Ok(Progress::Done(_)) | Err(_) => {
                let _ = epoll.delete(&self.socket);
                return None;
            }
        };
        let reply = serde_json::from_slice(&buffer[..count]);
        reply
            .inspect_err(|error| log::warn!("the inspector's answer is not understood: {error}"))
            .ok()
    }

    /// Takes up a new inspector's socket and repeats the questions.
    pub(super) fn replace(&mut self, socket: OwnedFd, epoll: &Epoll) {
        let _ = epoll.delete(&self.socket);
        self.socket = socket;
        if let Err(errno) = watch(&self.socket, epoll) {
            log::error!("can't watch the inspector: epoll_ctl: {errno}");
        }
        for look in self.index.unanswered() {
            self.send(&look);
        }
    }

    /// Handles an answer. Returns `None` if the question is unknown.
    pub(super) fn seen(
        &mut self,
        reply: InspectReply,
        bounds: &Bounds,
        pool: &str,
        now: Tick,
    ) -> Option<Inspected> {
        let inspected = self.index.seen(reply, bounds, now)?;
        if let Some(text) = &inspected.say {
            let what = if inspected.looked {
                "no application"
            } else {
                "no look"
            };
            let line = format!("{what}: {text}");
            if let Some(line) = self.lines.add(&inspected.root, line, now) {
                log::warn!("[pool {pool}] {line}");
            }
        }
        Some(inspected)
    }

    pub(super) fn next_deadline(&self) -> Option<Tick> {
        self.lines.next_deadline()
    }

    /// Logs how many lines were left out.
    pub(super) fn end_lines(&mut self, pool: &str, now: Tick) {
        if let Some((count, last)) = self.lines.end(now) {
            log::warn!(
                "[pool {pool}] {count} more requests' roots in the last minute were none of an application, the last: {last}"
            );
        }
    }
}

fn watch(socket: &OwnedFd, epoll: &Epoll) -> Result<(), Errno> {
    epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, INSPECTOR))
}
