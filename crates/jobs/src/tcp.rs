//! Clients over TCP. The kernel does not identify them: before the secret, nothing else is read, and the time is short.

use crate::client::{Client, Origin, Rights};
use crate::listener::Listener;
use crate::process::{Process, TCP};
use forkyard_config::Secret;
use forkyard_protocol::jobs::{JobsAnswer, SecretRequest};
use forkyard_sys::socket;
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

/// The time limit for the secret.
const PATIENCE_MS: u64 = 10_000;
/// The most unauthenticated clients; the oldest makes room.
const MOST_STRANGERS: usize = 64;
const ACCEPTS: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Tcp {
    pub(crate) listener: Option<Listener>,
    secret: Option<Secret>,
    /// Their tokens and deadlines, the oldest first.
    strangers: VecDeque<(usize, u64)>,
}

impl Tcp {
    /// Whether more clients may wait for accept.
    pub(crate) fn is_more_waiting(&self) -> bool {
        self.listener
            .as_ref()
            .is_some_and(|listener| listener.is_more_waiting)
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        self.strangers.front().map(|(_, until_ms)| *until_ms)
    }
}

impl Process {
    /// Applies new settings. `None`: stops listening and closes all TCP clients.
    pub(crate) fn set_tcp(&mut self, listening: Option<(OwnedFd, Secret)>) {
        self.stop_listening_tcp();
        let Some((socket, secret)) = listening else {
            return self.end_tcp_clients();
        };
        // Clients with the old secret are closed.
        if self.tcp.secret.as_ref().is_some_and(|before| *before != secret) {
            self.end_tcp_clients();
        }
        self.tcp.secret = Some(secret);
        match Listener::watch(socket, self.connections.registry(), TCP) {
            Ok(listener) => self.tcp.listener = Some(listener),
            Err(error) => log::error!("jobs: epoll_ctl: {error}"),
        }
    }

    pub(crate) fn stop_listening_tcp(&mut self) {
        if let Some(before) = self.tcp.listener.take() {
            before.forget(self.connections.registry());
        }
    }

    fn end_tcp_clients(&mut self) {
        let clients = &mut self.connections.clients;
        clients.retain(|_, client| matches!(client.conversation.origin, Origin::Unix { .. }));
    }

    pub(crate) fn accept_tcp(&mut self) {
        for _ in 0..ACCEPTS {
            let listener = self.tcp.listener.as_mut();
            let Some(accepted) = listener.and_then(|listener| listener.accept(&mut self.pause)) else {
                return;
            };
            let from = socket::peer_name(accepted.as_fd()).unwrap_or_default();
            let now_ms = self.now().mono_ms;
            let client = Client::new(accepted, Rights::Stranger, Origin::Tcp(from), now_ms);
            match self.connections.add_client(client) {
                Ok(token) => {
                    self.tcp.strangers.push_back((token, now_ms + PATIENCE_MS));
                    // Reads the secret before others take the place.
                    self.on_ready(token);
                    self.connections.again.push(token);
                }
                Err(error) => log::error!("jobs: {error}"),
            }
            self.make_room();
        }
    }

    fn is_stranger(&self, token: usize) -> bool {
        self.connections.rights(token) == Rights::Stranger
    }

    fn make_room(&mut self) {
        if self.tcp.strangers.len() <= MOST_STRANGERS {
            return;
        }
        let strangers = std::mem::take(&mut self.tcp.strangers);
        self.tcp.strangers = strangers
            .into_iter()
            .filter(|(token, _)| self.is_stranger(*token))
            .collect();
        while self.tcp.strangers.len() > MOST_STRANGERS {
            if let Some((token, _)) = self.tcp.strangers.pop_front() {
                self.remove(token);
            }
        }
    }

    pub(crate) fn poll_strangers(&mut self, now_ms: u64) {
        while let Some((token, _)) = self
            .tcp
            .strangers
            .front()
            .copied()
            .filter(|(_, until)| *until <= now_ms)
        {
            self.tcp.strangers.pop_front();
            if self.is_stranger(token) {
                self.remove(token);
            }
        }
    }

    /// Reads an unauthenticated client's first line: the secret, or the end.
    pub(crate) fn hear_stranger(&mut self, token: usize, line: &[u8]) {
        let told = serde_json::from_slice::<SecretRequest>(line).ok();
        let told = told.filter(|told| told.command == "secret");
        let own = self.tcp.secret.as_ref();
        let is_right = matches!((&told, own), (Some(told), Some(own)) if own.is(&told.secret));
        if let Some(client) = self.connections.clients.get_mut(&token).filter(|_| is_right) {
            client.rights = Rights::All;
            return self.connections.answer(token, &JobsAnswer::Done {});
        }
        let why = match told {
            Some(_) => "this is not the secret",
            None => {
                "over TCP the first request of a connection is the secret: {\"command\":\"secret\",\"secret\":\"…\"}"
            }
        };
        self.connections.dismiss(token, &JobsAnswer::error(why));
    }
}
