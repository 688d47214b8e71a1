//! The connections of clients and of jobs' requests.

use crate::call::Call;
use crate::client::{Client, Origin, Rights};
use crate::core::Why;
use forkyard_protocol::jobs::{ConnectionView, JobsAnswer};
use forkyard_sys::Error;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

const FIRST: usize = 16;
/// The most clients with limited rights, in all and of one user.
pub(crate) const MOST_CLIENTS: usize = 1_024;
const MOST_OF_USER: usize = 256;
const MOST_BUFFERED: usize = 64 << 20;
const SMALL_BUFFER: usize = 64 << 10;
const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);

#[derive(Debug)]
pub(crate) enum Peer {
    Client(Client),
    Call(Box<Call>),
}

impl Peer {
    fn socket(&self) -> &OwnedFd {
        match self {
            Peer::Client(client) => client.socket(),
            Peer::Call(call) => call.socket(),
        }
    }
}

/// The connections by their token, which is a number.
#[derive(Debug)]
pub(crate) struct Connections {
    poll: Poll,
    peers: HashMap<usize, Peer>,
    next: usize,
    /// Those with more to read or write.
    again: Vec<usize>,
}

impl Connections {
    pub(crate) fn new(poll: Poll) -> Connections {
        Connections {
            poll,
            peers: HashMap::new(),
            next: FIRST,
            again: Vec::new(),
        }
    }

    pub(crate) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    pub(crate) fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<(), Error> {
        match self.poll.poll(events, timeout) {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                Err(Error::from_io("epoll_wait", "", &error))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn add(&mut self, peer: Peer) -> Result<usize, Error> {
        let interest = match &peer {
            Peer::Call(call) if !call.is_connecting() => Interest::READABLE,
            _ => BOTH,
        };
        let token = self.next;
        self.next += 1;
        (self.poll.registry())
            .register(&mut SourceFd(&peer.socket().as_raw_fd()), Token(token), interest)
            .map_err(|error| Error::from_io("epoll_ctl", "", &error))?;
        self.peers.insert(token, peer);
        Ok(token)
    }

    pub(crate) fn begin_call(&mut self, token: usize) {
        let Some(call) = self.call(token) else {
            return;
        };
        if call.is_connecting() || call.begin() {
            return;
        }
        let raw = call.socket().as_raw_fd();
        let watched = (self.poll.registry()).reregister(&mut SourceFd(&raw), Token(token), BOTH);
        if let Err(error) = watched {
            log::error!("jobs: epoll_ctl: {error}");
        }
        self.again.push(token);
    }

    pub(crate) fn remove(&mut self, token: usize) -> Option<Peer> {
        self.peers.remove(&token)
    }

    pub(crate) fn remove_call(&mut self, token: usize) -> Option<Box<Call>> {
        match self.peers.remove(&token) {
            Some(Peer::Call(call)) => Some(call),
            _ => None,
        }
    }

    pub(crate) fn look_again(&mut self, token: usize) {
        self.again.push(token);
    }

    pub(crate) fn has_more(&self) -> bool {
        !self.again.is_empty()
    }

    pub(crate) fn take_again(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.again)
    }

    pub(crate) fn peer(&mut self, token: usize) -> Option<&mut Peer> {
        self.peers.get_mut(&token)
    }

    pub(crate) fn call(&mut self, token: usize) -> Option<&mut Call> {
        match self.peers.get_mut(&token) {
            Some(Peer::Call(call)) => Some(call),
            _ => None,
        }
    }

    pub(crate) fn client(&mut self, token: usize) -> Option<&mut Client> {
        match self.peers.get_mut(&token) {
            Some(Peer::Client(client)) => Some(client),
            _ => None,
        }
    }

    pub(crate) fn has(&self, token: usize) -> bool {
        self.peers.contains_key(&token)
    }

    /// A client's rights; one that is gone has none.
    pub(crate) fn rights(&self, token: usize) -> Rights {
        match self.peers.get(&token) {
            Some(Peer::Client(client)) => client.rights,
            _ => Rights::Own(u32::MAX),
        }
    }

    fn clients(&self) -> impl Iterator<Item = (usize, &Client)> {
        self.peers.iter().filter_map(|(token, peer)| match peer {
            Peer::Client(client) => Some((*token, client)),
            Peer::Call(_) => None,
        })
    }

    fn calls(&self) -> impl Iterator<Item = (usize, &Call)> {
        self.peers.iter().filter_map(|(token, peer)| match peer {
            Peer::Call(call) => Some((*token, &**call)),
            Peer::Client(_) => None,
        })
    }

    pub(crate) fn views(&self, now_ms: u64) -> Vec<ConnectionView> {
        let views = self.clients().map(|(token, client)| client.view(token, now_ms));
        let mut views: Vec<ConnectionView> = views.collect();
        views.sort_by_key(|connection| connection.id);
        views
    }

    /// Whether a client has a request or an answer under way.
    pub(crate) fn has_busy_client(&self) -> bool {
        self.clients()
            .any(|(_, client)| !client.is_idle() && client.rights != Rights::Stranger)
    }

    pub(crate) fn has_place(&self, rights: Rights) -> bool {
        let limited = self.clients().map(|(_, client)| client.rights);
        let (mut all, mut own) = (0, 0);
        for other in limited.filter(|rights| matches!(rights, Rights::Own(_))) {
            all += 1;
            own += usize::from(other == rights);
        }
        rights == Rights::All || (all < MOST_CLIENTS && own < MOST_OF_USER)
    }

    /// Whether this client and the others with limited rights have sent too much of unfinished lines.
    pub(crate) fn is_too_much(&self, token: usize) -> bool {
        let Some(Peer::Client(client)) = self.peers.get(&token) else {
            return false;
        };
        let limited = self.clients().filter(|(_, client)| client.rights != Rights::All);
        client.rights != Rights::All
            && client.buffered() > SMALL_BUFFER
            && limited.map(|(_, client)| client.buffered()).sum::<usize>() > MOST_BUFFERED
    }

    pub(crate) fn answer(&mut self, token: usize, answer: &JobsAnswer) {
        if let Some(client) = self.client(token) {
            client.answer(answer);
            self.again.push(token);
        }
    }

    /// Answers a client and closes its connection.
    pub(crate) fn dismiss(&mut self, token: usize, answer: &JobsAnswer) {
        if let Some(client) = self.client(token) {
            client.give_up();
        }
        self.answer(token, answer);
    }

    pub(crate) fn look_at_clients(&mut self) {
        let clients = (self.peers.iter()).filter(|(_, peer)| matches!(peer, Peer::Client(_)));
        self.again.extend(clients.map(|(token, _)| *token));
    }

    /// Closes each client's connection after its next answer.
    pub(crate) fn end_clients(&mut self) {
        for peer in self.peers.values_mut() {
            if let Peer::Client(client) = peer {
                client.is_last = true;
            }
        }
        self.look_at_clients();
    }

    pub(crate) fn drop_tcp_clients(&mut self) {
        self.peers.retain(|_, peer| match peer {
            Peer::Client(client) => matches!(client.conversation.origin, Origin::Unix { .. }),
            Peer::Call(_) => true,
        });
    }

    pub(crate) fn abort_calls(&mut self, why: Why, now_ms: u64) {
        for (token, peer) in &mut self.peers {
            if let Peer::Call(call) = peer {
                call.abort(why, now_ms);
                self.again.push(*token);
            }
        }
    }

    pub(crate) fn call_deadline(&self) -> Option<u64> {
        self.calls().filter_map(|(_, call)| call.deadline()).min()
    }

    pub(crate) fn due_calls(&self, now_ms: u64) -> Vec<usize> {
        let is_due = |call: &Call| call.deadline().is_some_and(|due| due <= now_ms);
        let due = self.calls().filter(|(_, call)| is_due(call));
        due.map(|(token, _)| token).collect()
    }
}
