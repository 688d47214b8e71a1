//! The processes of instances and their channels.

use super::channel::{FromWorker, ToWorker, head, parse};
use forkyard_base::origin::Origin;
use forkyard_base::tick::Tick;
use forkyard_base::timers::Timers;
use forkyard_core::applications::event::SessionId;
use forkyard_protocol::router::Instance;
use forkyard_sys::Error;
use forkyard_sys::fd::send_gathered_with;
use forkyard_sys::guarded::receive_bytes;
use forkyard_sys::socket::{Progress, receive, refuses_descriptors};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use std::collections::HashMap;
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

/// The token bit of instance channels; the rest is the number.
pub(super) const INSTANCE: u64 = 1 << 62;
const GONE_TIMEOUT: Duration = Duration::from_secs(5);
const MOST_FOUND: u32 = 100_000;

#[derive(Debug)]
pub(super) struct InstanceProcess {
    pub application: Arc<str>,
    pub pid: i32,
    pub revision: Option<String>,
    pub up: Tick,
    channel: OwnedFd,
    /// The channel accepts no descriptors. Otherwise it is closed at the first one, because closing a received
    /// descriptor can block.
    refuses_descriptors: bool,
    /// The session that stands for requests of an earlier router, until the instance has named them.
    pub adopted: Option<SessionId>,
    found: u32,
    /// The channel is closed.
    has_ended: bool,
    pub memory: Option<u64>,
    pub origin: Option<Origin>,
    /// The application was replaced, and the pool knows.
    is_outdated: bool,
}

impl InstanceProcess {
    /// Counts a session that was found. Returns `false` if there can be no more.
    pub(super) fn finds(&mut self) -> bool {
        let is_possible = self.adopted.is_some() && self.found < MOST_FOUND;
        self.found += u32::from(is_possible);
        is_possible
    }
}

pub(super) enum InstanceInput<'b> {
    Message(FromWorker, SessionId, &'b [u8]),
    Nothing,
    /// The channel is closed.
    End,
    Invalid,
}

#[derive(Debug, Default)]
pub(super) struct Instances {
    processes: HashMap<u64, InstanceProcess>,
    /// Those of an earlier router, until the master has named all.
    pub(super) running: Vec<(Instance, OwnedFd)>,
    /// When to kill instances with a closed channel.
    pub(super) ended: Timers<u64>,
}

impl Instances {
    pub(super) fn get(&self, number: u64) -> Option<&InstanceProcess> {
        self.processes.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut InstanceProcess> {
        self.processes.get_mut(&number)
    }

    pub(super) fn of_pid(&self, pid: i32) -> Option<u64> {
        let found = self.processes.iter().find(|(_, process)| process.pid == pid);
        found.map(|(number, _)| *number)
    }

    fn live(&self, number: u64) -> Option<&InstanceProcess> {
        self.get(number).filter(|process| !process.has_ended)
    }

    /// Adds an instance and watches its channel.
    pub(super) fn add(
        &mut self,
        instance: Instance,
        application: Arc<str>,
        channel: OwnedFd,
        adopted: Option<SessionId>,
        (epoll, now): (&Epoll, Tick),
    ) -> Result<(), Errno> {
        epoll.add(
            &channel,
            EpollEvent::new(EpollFlags::EPOLLIN, INSTANCE | instance.instance),
        )?;
        let process = InstanceProcess {
            application,
            pid: instance.pid,
            revision: instance.revision,
            up: now,
            refuses_descriptors: refuses_descriptors(channel.as_fd()),
            channel,
            adopted,
            found: 0,
            has_ended: false,
            memory: None,
            origin: instance.origin,
            is_outdated: false,
        };
        self.processes.insert(instance.instance, process);
        Ok(())
    }

    pub(super) fn remove(&mut self, number: u64, epoll: &Epoll) {
        if let Some(process) = self.processes.remove(&number) {
            let _ = epoll.delete(&process.channel);
            self.ended.clear(number);
        }
    }

    /// Handles the closed channel. The instance keeps its place until the master reports the exit.
    pub(super) fn channel_ended(&mut self, number: u64, epoll: &Epoll, now: Tick) {
        let process = self.processes.get_mut(&number);
        if let Some(process) = process.filter(|process| !process.has_ended) {
            process.has_ended = true;
            let _ = epoll.delete(&process.channel);
            self.ended.set(number, now, GONE_TIMEOUT);
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Tick> {
        self.ended.next()
    }

    /// Sends a message. Returns `None` if the instance is gone.
    pub(super) fn send(
        &self,
        number: u64,
        (kind, session): (ToWorker, SessionId),
        bytes: &[u8],
        descriptors: &[RawFd],
    ) -> Option<Result<(), Error>> {
        let head = head(kind, session.0);
        let pieces = [IoSlice::new(&head), IoSlice::new(bytes)];
        let pieces = if bytes.is_empty() { &pieces[..1] } else { &pieces };
        let channel = self.live(number)?.channel.as_fd();
        Some(send_gathered_with(channel, pieces, descriptors).map(|_| ()))
    }

    /// Sends a message without session and payload. Returns `false` if that failed.
    pub(super) fn tell(&self, number: u64, kind: ToWorker) -> bool {
        let sent = self.send(number, (kind, SessionId(0)), &[], &[]);
        matches!(sent, Some(Ok(())))
    }

    pub(super) fn receive<'b>(&self, number: u64, buffer: &'b mut [u8]) -> InstanceInput<'b> {
        let Some(process) = self.live(number) else {
            return InstanceInput::Nothing;
        };
        let received = match process.refuses_descriptors {
            true => receive(process.channel.as_fd(), buffer),
            false => receive_bytes(process.channel.as_fd(), buffer),
        };
        match received {
            Ok(Progress::Done(count)) if count > 0 => match parse(&buffer[..count]) {
                Some((kind, session, bytes)) => InstanceInput::Message(kind, SessionId(session), bytes),
                None => InstanceInput::Invalid,
            },
            Ok(Progress::WouldBlock) => InstanceInput::Nothing,
            Ok(Progress::Done(_)) | Err(_) => InstanceInput::End,
        }
    }

    /// Marks an application's instances with another origin. Returns whether there are new ones.
    pub(super) fn outdate(&mut self, name: &str, is_other: impl Fn(&Origin) -> bool) -> bool {
        let mut any = false;
        for process in self.processes.values_mut() {
            let is_other = process.origin.as_ref().is_some_and(&is_other);
            if *process.application == *name && is_other && !process.is_outdated {
                process.is_outdated = true;
                any = true;
            }
        }
        any
    }
}
