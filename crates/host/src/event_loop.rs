//! The event loop of a small server with one thread and a channel to the master.

use crate::listen::AcceptPause;
use forkyard_base::tick::Tick;
use forkyard_sys::socket::{self, Progress};
use forkyard_sys::{Error, clock};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The time of the last answers after the master closes the channel.
pub const LAST_TIMEOUT: Duration = Duration::from_secs(1);
/// Above this many connections, the connection with the longest wait is closed.
const MOST_CONNECTIONS: usize = 128;
/// Reads from one connection per turn.
const READS: usize = 4;
/// Connections accepted per turn.
const ACCEPTS: usize = 64;
const EVENTS: usize = 64;

const LISTENER: usize = 0;
const FIRST_CHANNEL: usize = 1;
const FIRST_CLIENT: usize = 8;

/// The next event that a connection needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The next request; the connection may be closed.
    Idle,
    /// The rest of a request.
    Request,
    /// The answer to a request.
    Answer,
    /// Buffer space for pending output.
    Room,
    /// The client's end: a socket that is closed with unread input loses its answer.
    End,
    /// Nothing: the answer is complete.
    Over,
}

/// The protocol state of one connection, without its socket.
pub trait Connection {
    /// Returns what the connection waits for.
    fn wait(&self) -> Wait;

    /// Returns the number of answered requests.
    fn served(&self) -> u64;

    /// Returns how many bytes one read may take.
    fn room(&self) -> usize;

    /// Returns the bytes to write.
    fn pending(&mut self) -> &[u8];
}

/// A connected client.
#[derive(Debug)]
pub struct Client<C> {
    pub socket: OwnedFd,
    pub connection: C,
    /// The start of its wait.
    pub since: Tick,
    wait: Wait,
    /// Requests answered when this wait began.
    served: u64,
}

impl<C> Client<C> {
    fn deadline(&self, service: &impl Service<Connection = C>) -> Option<Tick> {
        service.timeout(self.wait).map(|timeout| self.since + timeout)
    }
}

/// The bytes of one read or write.
#[derive(Debug)]
pub enum Exchanged<'a> {
    Received(&'a [u8]),
    Written(usize),
}

/// What differs from server to server.
pub trait Service {
    type Connection: Connection;

    /// Returns the descriptors that `hear` reads.
    fn channels(&self) -> Vec<BorrowedFd<'_>>;

    /// Reads a channel until it is empty. Returns `false` if no more messages of the master come.
    ///
    /// # Errors
    /// The server ends with it.
    fn hear(&mut self, channel: usize) -> Result<bool, Error>;

    /// Returns an accepted client's connection, or `None` to close it.
    fn connect(&self, socket: BorrowedFd<'_>) -> Option<Self::Connection>;

    /// Tells the connection what it received or wrote.
    fn exchanged(&self, client: &mut Client<Self::Connection>, bytes: Exchanged<'_>);

    /// Answers the request of a connection that waits for its answer. Returns `false` if the client has to wait.
    /// `is_last`: the master has closed the channel.
    fn answer(&mut self, _connection: &mut Self::Connection, _is_last: bool) -> bool {
        true
    }

    /// Returns the longest time of a wait.
    fn timeout(&self, wait: Wait) -> Option<Duration>;

    /// Returns when requests that wait for their answers can be answered without the master.
    fn answer_deadline(&self) -> Option<Tick> {
        None
    }

    /// Returns after how long without a client the server exits.
    fn idle_timeout(&self) -> Option<Duration> {
        None
    }
}

/// Serves until the master closes the channel or the server is idle.
///
/// # Errors
/// A system call failed.
pub fn serve<S: Service>(service: S, listener: OwnedFd) -> Result<(), Error> {
    let poll = Poll::new().map_err(|error| Error::from_io("epoll_ctl", "", &error))?;
    let mut server = Server {
        service,
        poll,
        listener,
        clients: HashMap::new(),
        next: FIRST_CLIENT,
        last_close: clock::now(),
        leaving: None,
        pause: AcceptPause::default(),
    };
    server.register(server.listener.as_fd(), LISTENER, Interest::READABLE)?;
    for (number, channel) in server.service.channels().into_iter().enumerate() {
        server.register(channel, FIRST_CHANNEL + number, Interest::READABLE)?;
    }
    server.serve()
}

struct Server<S: Service> {
    service: S,
    poll: Poll,
    listener: OwnedFd,
    clients: HashMap<usize, Client<S::Connection>>,
    next: usize,
    last_close: Tick,
    /// The deadline for the last answers, after the master has closed the channel.
    leaving: Option<Tick>,
    pause: AcceptPause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Waits,
    More,
    Over,
}

impl<S: Service> Server<S> {
    fn register(&self, fd: BorrowedFd<'_>, token: usize, interest: Interest) -> Result<(), Error> {
        let raw = fd.as_raw_fd();
        let registry = self.poll.registry();
        let registered = registry.register(&mut SourceFd(&raw), Token(token), interest);
        registered.map_err(|error| Error::from_io("epoll_ctl", "", &error))
    }

    fn serve(&mut self) -> Result<(), Error> {
        let mut events = Events::with_capacity(EVENTS);
        let mut again: Vec<usize> = Vec::new();
        loop {
            let now = clock::now();
            self.close_late(now);
            if self.is_over(now) {
                return Ok(());
            }
            let timeout = match again.is_empty() {
                true => self.timeout(now),
                false => Some(Duration::ZERO),
            };
            match self.poll.poll(&mut events, timeout) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::from_io("epoll_wait", "", &error)),
            }
            let mut ready = std::mem::take(&mut again);
            for event in &events {
                match event.token().0 {
                    token @ FIRST_CHANNEL..FIRST_CLIENT => {
                        if !self.service.hear(token - FIRST_CHANNEL)? {
                            self.leave();
                        }
                        ready.extend(self.waiting());
                    }
                    token => ready.push(token),
                }
            }
            if self.pause.end(clock::now()) {
                ready.push(LISTENER);
            }
            let deadline = self.service.answer_deadline();
            if deadline.is_some_and(|deadline| deadline <= clock::now()) {
                ready.extend(self.waiting());
            }
            ready.sort_unstable();
            ready.dedup();
            for token in ready {
                if token == LISTENER {
                    self.accept(&mut again);
                } else if self.on_ready(token) {
                    again.push(token);
                }
            }
        }
    }

    fn timeout(&self, now: Tick) -> Option<Duration> {
        let clients = self.clients.values();
        let clients = clients.filter_map(|client| client.deadline(&self.service));
        let is_waited_for = self.waiting().next().is_some();
        let answer = self.service.answer_deadline().filter(|_| is_waited_for);
        let all = clients.chain(answer).chain(self.idle_end());
        let all = all.chain(self.leaving).chain(self.pause.deadline());
        all.min().map(|deadline| {
            let left = deadline.since(now).as_micros().div_ceil(1000);
            Duration::from_millis(u64::try_from(left).unwrap_or(u64::MAX))
        })
    }

    fn idle_end(&self) -> Option<Tick> {
        // During a pause a client may be waiting for accept.
        let may_end = self.clients.is_empty() && self.pause.deadline().is_none();
        let timeout = self.service.idle_timeout().filter(|_| may_end);
        timeout.map(|timeout| self.last_close + timeout)
    }

    fn is_over(&self, now: Tick) -> bool {
        match self.leaving {
            Some(end) => self.clients.is_empty() || end <= now,
            None => self.idle_end().is_some_and(|end| end <= now),
        }
    }

    /// Returns the clients that wait for their answers.
    fn waiting(&self) -> impl Iterator<Item = usize> {
        let clients = self.clients.iter();
        let waiting = clients.filter(|(_, client)| client.wait == Wait::Answer);
        waiting.map(|(id, _)| *id)
    }

    /// Stops accepting. New clients go to the next process of this kind.
    fn leave(&mut self) {
        if self.leaving.is_none() {
            let raw = self.listener.as_raw_fd();
            let _ = self.poll.registry().deregister(&mut SourceFd(&raw));
            self.leaving = Some(clock::now() + LAST_TIMEOUT);
            self.clients.retain(|_, client| client.wait != Wait::Idle);
        }
    }

    fn close_late(&mut self, now: Tick) {
        let before = self.clients.len();
        let is_late = |client: &Client<_>| client.deadline(&self.service).is_some_and(|end| end <= now);
        self.clients.retain(|_, client| !is_late(client));
        if self.clients.len() < before {
            self.last_close = clock::now();
        }
    }

    fn accept(&mut self, again: &mut Vec<usize>) {
        if self.leaving.is_some() || self.pause.deadline().is_some() {
            return;
        }
        for _ in 0..ACCEPTS {
            let socket = match socket::accept(self.listener.as_fd()) {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                Err(error) => return self.rest(&error),
            };
            let Some(connection) = self.service.connect(socket.as_fd()) else {
                continue;
            };
            if self.clients.len() >= MOST_CONNECTIONS {
                self.make_room();
            }
            let id = self.next;
            self.next += 1;
            let both = Interest::READABLE | Interest::WRITABLE;
            if let Err(error) = self.register(socket.as_fd(), id, both) {
                // More connections may be waiting, and epoll won't report them again.
                return self.rest(&error);
            }
            let client = Client {
                socket,
                connection,
                since: clock::now(),
                wait: Wait::Request,
                served: 0,
            };
            self.clients.insert(id, client);
            if self.on_ready(id) {
                again.push(id);
            }
        }
        again.push(LISTENER);
    }

    /// Pauses accepting.
    fn rest(&mut self, error: &Error) {
        if self.pause.begin(clock::now()) {
            log::error!("can't accept a connection: {error}; trying again");
        }
    }

    /// Closes the connection that has waited longest, if possible one without an answer in progress.
    fn make_room(&mut self) {
        let rank = |client: &Client<_>| (matches!(client.wait, Wait::Room | Wait::Answer), client.since);
        let oldest = self.clients.iter().min_by_key(|(_, client)| rank(client));
        if let Some(id) = oldest.map(|(id, _)| *id) {
            self.clients.remove(&id);
        }
    }

    /// Writes and reads without blocking. Returns `true` if there may be more to read.
    fn on_ready(&mut self, id: usize) -> bool {
        let Some(mut client) = self.clients.remove(&id) else {
            return false;
        };
        let outcome = self.exchange(&mut client);
        match outcome {
            Outcome::Over => self.last_close = clock::now(),
            Outcome::Waits | Outcome::More => _ = self.clients.insert(id, client),
        }
        outcome == Outcome::More
    }

    fn exchange(&mut self, client: &mut Client<S::Connection>) -> Outcome {
        let is_last = self.leaving.is_some();
        for _ in 0..READS {
            let progress = match client.connection.wait() {
                Wait::Over => return Outcome::Over,
                Wait::Answer => match self.service.answer(&mut client.connection, is_last) {
                    true => continue,
                    false => Ok(Progress::WouldBlock),
                },
                Wait::Room => self.send(client),
                Wait::Idle | Wait::Request | Wait::End => self.receive(client),
            };
            match progress {
                Ok(Progress::Done(0)) | Err(_) => return Outcome::Over,
                Ok(Progress::Done(_)) => {}
                Ok(Progress::WouldBlock) => return self.note(client, Outcome::Waits),
            }
        }
        self.note(client, Outcome::More)
    }

    fn send(&self, client: &mut Client<S::Connection>) -> Result<Progress, Error> {
        let sent = socket::send(client.socket.as_fd(), client.connection.pending());
        if let Ok(Progress::Done(count)) = sent {
            self.service.exchanged(client, Exchanged::Written(count));
            if client.connection.wait() == Wait::End {
                socket::shutdown_write(client.socket.as_fd());
            }
        }
        sent
    }

    fn receive(&self, client: &mut Client<S::Connection>) -> Result<Progress, Error> {
        let mut buffer = vec![0; client.connection.room()];
        let received = socket::receive(client.socket.as_fd(), &mut buffer);
        match received {
            Ok(Progress::Done(count)) if count > 0 && client.connection.wait() != Wait::End => {
                let bytes = Exchanged::Received(&buffer[..count]);
                self.service.exchanged(client, bytes);
            }
            _ => {}
        }
        received
    }

    /// Starts the next wait. Single bytes don't extend a timeout, and a client that has not sent a request has no longer
    /// one.
    fn note(&self, client: &mut Client<S::Connection>, outcome: Outcome) -> Outcome {
        let served = client.connection.served();
        let wait = match client.connection.wait() {
            Wait::Over => return Outcome::Over,
            Wait::Idle if served == 0 => Wait::Request,
            // A connection accepted just now has a request on its way that no other process can answer.
            Wait::Idle if self.leaving.is_some() => return Outcome::Over,
            wait => wait,
        };
        if wait != client.wait || served != client.served {
            client.wait = wait;
            client.served = served;
            client.since = clock::now();
        }
        outcome
    }
}
