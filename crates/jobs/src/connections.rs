//! The connections of clients and of jobs' requests.

use crate::call::Call;
use crate::client::{Client, Rights};
use forkyard_protocol::jobs::JobsAnswer;
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

/// The connections by their token.
#[derive(Debug)]
pub(crate) struct Connections {
    poll: Poll,
    pub(crate) clients: HashMap<usize, Client>,
    pub(crate) calls: HashMap<usize, Call>,
    next: usize,
    /// Those with more to read or write.
    pub(crate) again: Vec<usize>,
}

impl Connections {
    pub(crate) fn new(poll: Poll) -> Connections {
        Connections {
            poll,
            clients: HashMap::new(),
            calls: HashMap::new(),
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

    fn watch(&mut self, socket: &OwnedFd, interest: Interest) -> Result<usize, Error> {
        let token = self.next;
        self.next += 1;
        (self.poll.registry())
            .register(&mut SourceFd(&socket.as_raw_fd()), Token(token), interest)
            .map_err(|error| Error::from_io("epoll_ctl", "", &error))?;
        Ok(token)
    }

    pub(crate) fn add_client(&mut self, client: Client) -> Result<usize, Error> {
        let token = self.watch(client.socket(), BOTH)?;
        self.clients.insert(token, client);
        Ok(token)
    }

    pub(crate) fn begin_call(&mut self, mut call: Call) -> Result<usize, Error> {
        let interest = match call.is_connecting() {
            true => BOTH,
            false => Interest::READABLE,
        };
        let token = self.watch(call.socket(), interest)?;
        if !call.is_connecting() && !call.begin() {
            let raw = call.socket().as_raw_fd();
            let watched = (self.poll.registry()).reregister(&mut SourceFd(&raw), Token(token), BOTH);
            if let Err(error) = watched {
                log::error!("jobs: epoll_ctl: {error}");
            }
            self.again.push(token);
        }
        self.calls.insert(token, call);
        Ok(token)
    }

    /// A client's rights; one that is gone has none.
    pub(crate) fn rights(&self, token: usize) -> Rights {
        let client = self.clients.get(&token);
        client.map_or(Rights::Own(u32::MAX), |client| client.rights)
    }

    pub(crate) fn has_place(&self, rights: Rights) -> bool {
        let limited = self.clients.values().map(|client| client.rights);
        let (mut all, mut own) = (0, 0);
        for other in limited.filter(|rights| matches!(rights, Rights::Own(_))) {
            all += 1;
            own += usize::from(other == rights);
        }
        rights == Rights::All || (all < MOST_CLIENTS && own < MOST_OF_USER)
    }

    /// Whether a client with limited rights holds a long unfinished line while such lines take too much together.
    pub(crate) fn is_too_much(&self, token: usize) -> bool {
        let limited = || (self.clients.iter()).filter(|(_, client)| client.rights != Rights::All);
        limited().any(|(other, client)| *other == token && client.buffered() > SMALL_BUFFER)
            && limited().map(|(_, client)| client.buffered()).sum::<usize>() > MOST_BUFFERED
    }

    pub(crate) fn answer(&mut self, token: usize, answer: &JobsAnswer) {
        if let Some(client) = self.clients.get_mut(&token) {
            client.answer(answer);
            self.again.push(token);
        }
    }

    /// Answers a client and closes its connection.
    pub(crate) fn dismiss(&mut self, token: usize, answer: &JobsAnswer) {
        if let Some(client) = self.clients.get_mut(&token) {
            client.give_up();
        }
        self.answer(token, answer);
    }

    pub(crate) fn look_at_clients(&mut self) {
        self.again.extend(self.clients.keys());
    }
}
