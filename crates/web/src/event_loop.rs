//! The event loop of the web process.

use super::connection::{Connection, Wait};
use super::hosts::Hosts;
use super::numbers::Numbers;
use super::pages::{self, Shown};
use super::source::{Found, Source};
use forkyard_base::tick::Tick;
use forkyard_host::confine::{self, Helper};
use forkyard_host::listen::AcceptPause;
use forkyard_host::logs::Log;
use forkyard_protocol::web::{FromWeb, MOST_BYTES, ToWeb};
use forkyard_sys::fd::receive_with;
use forkyard_sys::identity::Identity;
use forkyard_sys::socket::{self, Progress};
use forkyard_sys::{Error, clock, heap, identity, memfile};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use nix::errno::Errno;
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;
use time::OffsetDateTime;
use time::macros::format_description;

/// Above this many connections, the connection with the longest wait is closed.
const MOST_CONNECTIONS: usize = 128;
/// The timeout for receiving a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout for sending an answer.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout of an idle connection: scrapers ask every 15 to 60 seconds.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// The time for the client to close, and the time of the last answers after the master closes the channel.
const LAST_TIMEOUT: Duration = Duration::from_secs(1);
/// Reads from one connection per turn.
const READS: usize = 4;
/// Connections accepted per turn.
const ACCEPTS: usize = 64;
const EVENTS: usize = 64;
/// The most bytes of numbers.
const MOST_NUMBERS: usize = 256 << 20;

const LISTENER: Token = Token(0);
const MASTER: Token = Token(1);
const HEARTBEAT: Token = Token(2);
const FIRST_CLIENT: usize = 3;

/// The start of the web process.
#[derive(Debug)]
pub struct WebStart {
    /// The process's user. `None`: the master's.
    pub identity: Option<Identity>,
    pub hosts: Vec<String>,
    pub listener: OwnedFd,
    pub master: OwnedFd,
    pub messages: OwnedFd,
    /// Bytes from the master that must be read.
    pub heartbeat: OwnedFd,
}

/// Serves until the master closes its channel.
///
/// # Errors
/// A system call failed.
pub fn run(start: WebStart) -> Result<(), Error> {
    Log::install().send_to_master(start.messages);
    if let (Some(identity), true) = (&start.identity, identity::is_root()) {
        identity::become_user(identity)?;
        identity::forbid_dumps()?;
    }
    identity::give_up_new_privileges()?;
    // Like a router, it needs only existing sockets and memory.
    if let Err(missing) = confine::keep_to(Helper::Router) {
        log::debug!("the web process is confined less than it could be: {missing}");
    }
    Server::begin(
        start.listener,
        start.master,
        start.heartbeat,
        Hosts::new(start.hosts),
    )?
    .serve()
}

struct WebClient {
    socket: OwnedFd,
    connection: Connection,
    wait: Wait,
    since: Tick,
    /// Requests answered when this wait began.
    served: u64,
}

struct Server {
    poll: Poll,
    listener: OwnedFd,
    master: OwnedFd,
    heartbeat: Option<OwnedFd>,
    hosts: Hosts,
    source: Source<Shown>,
    clients: HashMap<usize, WebClient>,
    next: usize,
    pause: AcceptPause,
    /// The deadline for the last answers, after the master has closed the channel.
    leaving: Option<Tick>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Waits,
    More,
    Over,
}

impl Server {
    fn begin(listener: OwnedFd, master: OwnedFd, heartbeat: OwnedFd, hosts: Hosts) -> Result<Server, Error> {
        let failed = |error: std::io::Error| Error::from_io("epoll_ctl", "", &error);
        let poll = Poll::new().map_err(failed)?;
        for (fd, token) in [(&listener, LISTENER), (&master, MASTER), (&heartbeat, HEARTBEAT)] {
            let raw = fd.as_raw_fd();
            poll.registry()
                .register(&mut SourceFd(&raw), token, Interest::READABLE)
                .map_err(failed)?;
        }
        Ok(Server {
            poll,
            listener,
            master,
            heartbeat: Some(heartbeat),
            hosts,
            source: Source::new(),
            clients: HashMap::new(),
            next: FIRST_CLIENT,
            pause: AcceptPause::default(),
            leaving: None,
        })
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
                match event.token() {
                    MASTER => self.hear_master(&mut ready)?,
                    HEARTBEAT => self.take_heartbeat(),
                    Token(other) => ready.push(other),
                }
            }
            if self.pause.end(clock::now()) {
                ready.push(LISTENER.0);
            }
            if self
                .source
                .deadline()
                .is_some_and(|deadline| deadline <= clock::now())
            {
                ready.extend(self.waiting());
            }
            ready.sort_unstable();
            ready.dedup();
            for token in ready {
                if token == LISTENER.0 {
                    self.accept(&mut again);
                } else if self.on_ready(token) {
                    again.push(token);
                }
            }
        }
    }

    fn timeout(&self, now: Tick) -> Option<Duration> {
        let clients = self.clients.values().filter_map(deadline_of);
        // Answers wait for it only if a client does.
        let is_waited_for = self.waiting().next().is_some();
        let source = self.source.deadline().filter(|_| is_waited_for);
        let all = clients
            .chain(source)
            .chain(self.leaving)
            .chain(self.pause.deadline());
        all.min().map(|deadline| {
            let left = deadline.since(now).as_micros().div_ceil(1000);
            Duration::from_millis(u64::try_from(left).unwrap_or(u64::MAX))
        })
    }

    fn is_over(&self, now: Tick) -> bool {
        self.leaving
            .is_some_and(|end| self.clients.is_empty() || end <= now)
    }

    fn waiting(&self) -> impl Iterator<Item = usize> {
        let waiting = self.clients.iter();
        waiting
            .filter(|(_, client)| client.wait == Wait::Answer)
            .map(|(id, _)| *id)
    }

    fn take_heartbeat(&mut self) {
        self.heartbeat
            .take_if(|heartbeat| socket::drain(heartbeat.as_fd()).is_err());
    }

    /// Takes numbers from the master, or leaves if the channel has ended.
    fn hear_master(&mut self, ready: &mut Vec<usize>) -> Result<(), Error> {
        let mut buffer = [0; MOST_BYTES];
        loop {
            let received = match receive_with(self.master.as_fd(), &mut buffer, false) {
                Ok(received) if received.bytes > 0 => received,
                Err(error) if matches!(error.errno, Errno::EAGAIN | Errno::EINTR) => return Ok(()),
                Ok(_) | Err(_) => {
                    self.leave(ready);
                    return Ok(());
                }
            };
            let wrong =
                |what: String| Error::new("recvmsg", format!("the master's message: {what}"), Errno::EBADMSG);
            let message = serde_json::from_slice(&buffer[..received.bytes])
                .map_err(|error| wrong(error.to_string()))?;
            let ToWeb::Numbers { fresh_ms } = message;
            let [memory] = &received.descriptors[..] else {
                return Err(wrong("the number of descriptors".to_owned()));
            };
            let bytes = memfile::read(memory.as_fd(), MOST_NUMBERS)?;
            let numbers: Numbers =
                serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
            let fresh = Duration::from_millis(fresh_ms);
            self.source.answered(Shown::new(numbers), fresh, clock::now());
            ready.extend(self.waiting());
            heap::trim();
        }
    }

    /// Stops accepting. New clients go to the next process of this kind.
    fn leave(&mut self, ready: &mut Vec<usize>) {
        if self.leaving.is_some() {
            return;
        }
        for fd in [&self.listener, &self.master] {
            let raw = fd.as_raw_fd();
            let _ = self.poll.registry().deregister(&mut SourceFd(&raw));
        }
        self.leaving = Some(clock::now() + LAST_TIMEOUT);
        self.clients.retain(|_, client| client.wait != Wait::Idle);
        ready.extend(self.waiting());
    }

    fn close_late(&mut self, now: Tick) {
        self.clients
            .retain(|_, client| deadline_of(client).is_none_or(|deadline| deadline > now));
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
            if self.clients.len() >= MOST_CONNECTIONS {
                self.make_room();
            }
            let id = self.next;
            self.next += 1;
            let raw = socket.as_raw_fd();
            let both = Interest::READABLE | Interest::WRITABLE;
            let registry = self.poll.registry();
            if let Err(error) = registry.register(&mut SourceFd(&raw), Token(id), both) {
                // More connections may be waiting, and epoll won't report them again.
                return self.rest(&Error::from_io("epoll_ctl", "", &error));
            }
            let client = WebClient {
                socket,
                connection: Connection::new(),
                wait: Wait::Request,
                since: clock::now(),
                served: 0,
            };
            self.clients.insert(id, client);
            if self.on_ready(id) {
                again.push(id);
            }
        }
        again.push(LISTENER.0);
    }

    /// Pauses accepting.
    fn rest(&mut self, error: &Error) {
        if self.pause.begin(clock::now()) {
            log::error!("can't accept a connection: {error}; trying again");
        }
    }

    /// Closes the connection that has waited longest, if possible one without a request.
    fn make_room(&mut self) {
        let oldest = self
            .clients
            .iter()
            .min_by_key(|(_, client)| (matches!(client.wait, Wait::Room | Wait::Answer), client.since))
            .map(|(id, _)| *id);
        if let Some(id) = oldest {
            self.clients.remove(&id);
        }
    }

    /// Writes and reads without waiting. Returns `true` if more input may be there.
    fn on_ready(&mut self, id: usize) -> bool {
        let Some(mut client) = self.clients.remove(&id) else {
            return false;
        };
        let outcome = self.exchange(&mut client);
        if outcome != Outcome::Over {
            self.clients.insert(id, client);
        }
        outcome == Outcome::More
    }

    fn exchange(&mut self, client: &mut WebClient) -> Outcome {
        let mut outcome = Outcome::More;
        for _ in 0..READS {
            let progress = match client.connection.wait() {
                Wait::Answer => match self.answer(&mut client.connection) {
                    true => continue,
                    false => {
                        outcome = Outcome::Waits;
                        break;
                    }
                },
                Wait::Room => self.send(client),
                Wait::Idle | Wait::Request | Wait::End => self.receive(client),
            };
            match progress {
                Ok(Progress::Done(0)) | Err(_) => return Outcome::Over,
                Ok(Progress::Done(_)) => {}
                Ok(Progress::WouldBlock) => {
                    outcome = Outcome::Waits;
                    break;
                }
            }
        }
        self.note(client, outcome)
    }

    fn send(&self, client: &mut WebClient) -> Result<Progress, Error> {
        let sent = socket::send(client.socket.as_fd(), client.connection.pending());
        if let Ok(Progress::Done(count)) = sent {
            if client.connection.written(count, &self.hosts, &date()) {
                socket::shutdown_write(client.socket.as_fd());
            }
        }
        sent
    }

    fn receive(&self, client: &mut WebClient) -> Result<Progress, Error> {
        let mut buffer = vec![0; client.connection.room()];
        let received = socket::receive(client.socket.as_fd(), &mut buffer);
        if let (Ok(Progress::Done(count)), false) = (&received, client.connection.wait() == Wait::End) {
            if *count > 0 {
                client.connection.receive(&buffer[..*count], &self.hosts, &date());
            }
        }
        received
    }

    /// Starts the next wait. Single bytes don't extend a timeout, and a client that has not sent a request has no longer
    /// one.
    fn note(&self, client: &mut WebClient, outcome: Outcome) -> Outcome {
        let served = client.connection.served();
        let wait = match client.connection.wait() {
            Wait::Idle if served == 0 => Wait::Request,
            wait => wait,
        };
        // A connection accepted just now has a request on its way that no other process can answer.
        if self.leaving.is_some() && wait == Wait::Idle {
            return Outcome::Over;
        }
        if wait != client.wait || served != client.served {
            client.wait = wait;
            client.served = served;
            client.since = clock::now();
        }
        outcome
    }

    /// Answers a request, or asks the master. Returns `false` if the client has to wait.
    fn answer(&mut self, connection: &mut Connection) -> bool {
        let Some(request) = connection.request() else {
            return true;
        };
        let is_last = self.leaving.is_some();
        if let Some(answer) = pages::without_numbers(request) {
            connection.answer(answer, is_last, &date());
            return true;
        }
        let answer = match self.source.look(clock::now()) {
            Found::Fresh(shown) => pages::answer(request, Some(shown)),
            // The channel has ended.
            Found::Ask | Found::Wait if is_last => pages::answer(request, self.source.last()),
            Found::Wait => return false,
            Found::Ask => {
                let asked = serde_json::to_vec(&FromWeb::Numbers).unwrap_or_default();
                // If the channel is full or has ended, no answer comes, and the client learns that.
                let _ = socket::send(self.master.as_fd(), &asked);
                return false;
            }
            Found::Missing => pages::answer(request, None),
        };
        connection.answer(answer, is_last, &date());
        true
    }
}

fn deadline_of(client: &WebClient) -> Option<Tick> {
    let time = match client.wait {
        Wait::Idle => IDLE_TIMEOUT,
        Wait::Request => HEAD_TIMEOUT,
        Wait::Room => SEND_TIMEOUT,
        Wait::End => LAST_TIMEOUT,
        // The master's answer has its own time limit.
        Wait::Answer => return None,
    };
    Some(client.since + time)
}

/// Returns the time for a header (RFC 9110, section 5.6.7).
fn date() -> String {
    let seconds = i64::try_from(clock::epoch_seconds()).unwrap_or(0);
    let time = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let format = format_description!(
        "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
    );
    time.format(&format).unwrap_or_default()
}
