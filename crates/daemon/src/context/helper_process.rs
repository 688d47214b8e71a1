//! One running helper process: channel, messages, heartbeat.

use crate::context::lines::Lines;
use forkyard_base::tick::Tick;
use forkyard_core::master::heartbeat::{Activity, Heartbeat, HeartbeatAction, Sample};
use forkyard_sys::fd::send_with;
use forkyard_sys::guarded::Guarded;
use forkyard_sys::{Error, clock, fd, process, socket};
use nix::sys::signal::Signal;
use serde::Serialize;
use std::os::fd::{AsFd, OwnedFd, RawFd};

#[derive(Debug)]
pub(crate) struct HelperProcess {
    pub(crate) pid: i32,
    pub(crate) channel: Option<Guarded>,
    /// Its log lines.
    pub(crate) messages: Option<Lines>,
    pub(crate) pulse: Option<Pulse>,
    /// It was killed to be replaced.
    pub(crate) is_outdated: bool,
}

impl HelperProcess {
    pub(crate) fn new(pid: i32, channel: OwnedFd, messages: Option<OwnedFd>) -> HelperProcess {
        HelperProcess {
            pid,
            channel: Some(Guarded::new(channel)),
            messages: messages.map(|messages| Lines::new(Guarded::new(messages))),
            pulse: None,
            is_outdated: false,
        }
    }

    /// Sends a message now.
    ///
    /// # Errors
    /// Its channel is full or closed.
    pub(crate) fn send(&self, message: &impl Serialize, descriptors: &[RawFd]) -> Result<(), Error> {
        let Some(channel) = &self.channel else {
            return Ok(());
        };
        // Serialising plain values can't fail.
        let bytes = serde_json::to_vec(message).unwrap_or_default();
        send_with(channel.as_fd(), &bytes, descriptors).map(|_| ())
    }

    pub(crate) fn kill(&self) {
        let _ = process::send_signal(self.pid, Signal::SIGKILL);
    }
}

/// The heartbeat of a helper that must always answer.
#[derive(Debug)]
pub(crate) struct Pulse {
    heartbeat: Heartbeat,
    socket: Guarded,
    clock: Option<clock::ProcessClock>,
}

impl Pulse {
    pub(crate) fn new(pid: i32, socket: OwnedFd) -> Pulse {
        Pulse {
            heartbeat: Heartbeat::new(clock::now()),
            socket: Guarded::new(socket),
            clock: clock::ProcessClock::of(pid),
        }
    }

    pub(crate) fn deadline(&self) -> Tick {
        self.heartbeat.deadline()
    }

    /// Why its process `pid` has to be killed.
    pub(crate) fn check(&mut self, pid: i32, now: Tick) -> Option<&'static str> {
        if self.deadline() > now {
            return None;
        }
        let at = || match process::state(pid) {
            Some('T' | 't') => Activity::Stop,
            Some('S' | 'I') => Activity::Rest,
            // One that has ended is reaped soon.
            Some(_) | None => Activity::Work,
        };
        let seen = Sample {
            has_read: fd::unread_by_peer(self.socket.as_fd()) == Some(0),
            micros: self.clock.map_or(0, clock::ProcessClock::micros),
        };
        match self.heartbeat.check(seen, at, now) {
            HeartbeatAction::None => None,
            HeartbeatAction::Send => {
                // There is room for a byte, or the process has ended.
                let _ = socket::send(self.socket.as_fd(), &[0]);
                None
            }
            HeartbeatAction::Kill(why) => Some(why),
        }
    }
}
