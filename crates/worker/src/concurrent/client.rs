//! A connection of a worker with several requests, and its request.

use super::super::access::Recorder;
use super::super::connection::ClientSocket;
use super::super::dead_work::Dead;
use super::super::router_channel::Session;
use super::super::tally::AnswerStatus;
use fastcgi::{Connection, Params, Phase};
use forkyard_base::tick::Tick;
use forkyard_scoreboard::routes::RouteRow;
use nix::sys::epoll::EpollFlags;
use std::time::Duration;

/// A place for a connection, or for a request that the event loop serves itself.
#[derive(Debug, Default)]
pub(super) struct Client {
    pub serial: u32,
    /// `None` also after the client was lost during its request.
    pub link: Option<Link>,
    pub connection: Option<Box<Connection<Tick>>>,
    /// From its start to the end of its answer.
    pub request: Option<RunningRequest>,
    /// A router has given the connection.
    pub session: Option<Session>,
}

/// A socket, and the kernel's reports about it.
#[derive(Debug)]
pub(super) struct Link {
    pub socket: ClientSocket,
    /// The client's serial when it was accepted: late events can still be matched to their connection.
    pub generation: u32,
    pub watched: Option<EpollFlags>,
    pub readable: bool,
    /// The kernel reported the client's end-of-file, which is still unread.
    pub hangs_up: bool,
    /// Wait of the next request before this worker, a lower bound.
    pub waited: Duration,
    /// Arrival of the next request, if it waits in this worker.
    pub waits_since: Option<Tick>,
    /// Its request is this generation's, whatever the turn.
    pub has_turn: bool,
}

impl Link {
    /// Returns the wait of the request that begins now.
    pub(super) fn take_wait(&mut self, now: Tick) -> Duration {
        let here = self.waits_since.take().map(|since| now.since(since));
        std::mem::take(&mut self.waited).saturating_add(here.unwrap_or_default())
    }
}

#[derive(Debug)]
pub(super) struct RunningRequest {
    pub taken: Tick,
    pub expires: Option<Tick>,
    pub recorder: Option<Box<Recorder>>,
    /// Parameters of a request without a connection.
    pub params: Option<Box<Params>>,
    pub answer: AnswerPhase,
    /// When the answer was last sent.
    pub sent: Tick,
    /// The answer has paused for a while; it does not count against the limit.
    pub is_quiet: bool,
    /// The slot has shown it long enough for the master to find it slow.
    pub was_found: bool,
    pub waited: Duration,
    pub status: AnswerStatus,
    pub is_timed_out: bool,
    /// It did not begin; it counts for no distribution.
    pub dead: Option<Dead>,
    pub route: Option<RouteRow>,
}

/// ```text
///   Awaited ──────▶ Begun ──────▶ Endless
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerPhase {
    Awaited,
    Begun,
    /// A long-lived connection, such as a WebSocket, without a time limit.
    Endless,
}

const MOST_SERIAL: u32 = (1 << 29) - 1;

impl Client {
    pub(super) fn next_serial(&mut self) -> u32 {
        self.serial = self.serial.wrapping_add(1) & MOST_SERIAL;
        self.serial
    }

    pub(super) fn is_free(&self) -> bool {
        self.connection.is_none() && self.request.is_none()
    }

    pub(super) fn is_in(&self, phase: Phase) -> bool {
        self.connection.as_ref().is_some_and(|it| it.phase() == phase)
    }

    pub(super) fn is_portable(&self) -> bool {
        self.connection.as_ref().is_some_and(|it| it.is_portable())
    }

    /// Whether the client gets nothing more of an answer.
    pub(super) fn is_gone(&self) -> bool {
        self.connection.as_ref().is_some_and(|it| it.is_gone())
    }

    pub(super) fn deadline(&self) -> Option<Tick> {
        self.connection.as_ref()?.deadline()
    }

    pub(super) fn expires(&self) -> Option<Tick> {
        self.request.as_ref()?.expires
    }

    /// `None` once the client is lost.
    pub(super) fn params(&self) -> Option<&Params> {
        let own = self.connection.as_deref().filter(|_| self.link.is_some());
        let visit = || self.request.as_ref()?.params.as_deref();
        own.map(Connection::params).or_else(visit)
    }
}

impl RunningRequest {
    pub(super) fn has_begun(&self) -> bool {
        self.answer != AnswerPhase::Awaited
    }

    pub(super) fn begin_answer(&mut self) {
        if self.answer == AnswerPhase::Awaited {
            self.answer = AnswerPhase::Begun;
        }
    }
}
