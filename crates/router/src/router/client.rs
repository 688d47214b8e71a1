//! One client connection.

use super::app_index::Known;
use super::reading::{RequestInput, Rest};
use super::state::{ClientCause, ClientState, next};
use forkyard_base::tick::Tick;
use forkyard_core::applications::RestartFiles;
use forkyard_core::applications::event::SessionId;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Client {
    socket: OwnedFd,
    state: ClientState,
    pub(super) expires: Option<Tick>,
    pub(super) watch: Interest,
    /// Input arrived while the pool or an instance had the connection.
    pub(super) stirred: bool,
    pub(super) reading: Option<Box<RequestInput>>,
    pub(super) bytes: Vec<u8>,
    pub(super) memory: usize,
    /// Bytes of the request still in the socket when it was passed on.
    pub(super) seen: usize,
    pub(super) id: u16,
    pub(super) keep: bool,
    pub(super) root: Vec<u8>,
    pub(super) known: Option<Arc<Known>>,
    /// The release that was chosen for the request, and is being inspected.
    pub(super) release: Option<Arc<str>>,
    pub(super) user: Option<u32>,
    pub(super) restart_files: Option<RestartFiles>,
    pub(super) session: Option<SessionId>,
    pub(super) tries: u8,
    /// The kernel has reported an end of the connection, perhaps before the request was read.
    pub(super) hangs_up: bool,
    /// The client has left, and its request may be skipped.
    pub(super) left: bool,
    /// Since when the kernel has refused to pass the connection.
    pub(super) stuck: Option<Tick>,
    pub(super) since: Tick,
    /// The router's own answer and the bytes written.
    pub(super) out: Vec<u8>,
    pub(super) sent: usize,
    pub(super) rest: Option<Box<Rest>>,
}

/// What epoll reports of a connection, from least to most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Interest {
    None,
    /// Hang-up only, while the pool or an instance reads input.
    End,
    Input,
    Both,
}

impl Client {
    pub(super) fn new(socket: OwnedFd) -> Client {
        Client {
            socket,
            state: ClientState::Silent,
            expires: None,
            watch: Interest::None,
            stirred: false,
            reading: None,
            bytes: Vec::new(),
            memory: 0,
            seen: 0,
            id: 0,
            keep: false,
            root: Vec::new(),
            known: None,
            release: None,
            user: None,
            restart_files: None,
            session: None,
            tries: 0,
            hangs_up: false,
            left: false,
            stuck: None,
            since: Tick::ZERO,
            out: Vec::new(),
            sent: 0,
            rest: None,
        }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn state(&self) -> ClientState {
        self.state
    }

    /// The bytes that it holds of a request.
    pub(super) fn held(&self) -> usize {
        let reading = self.reading.as_deref().map_or(0, RequestInput::memory);
        reading + self.bytes.capacity()
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, ClientState::Idle | ClientState::Silent)
    }

    pub(super) fn change(&mut self, cause: ClientCause) -> bool {
        let before = self.state;
        self.state = next(before, cause);
        self.state != before
    }
}
