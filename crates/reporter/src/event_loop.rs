//! The reporter's event loop.

use super::brief::{Brief, DESCRIPTORS, Refusal};
use super::connection::{Connection, Wait};
use super::pages::{Pages, Witness};
use fastcgi::{Limits, Params};
use forkyard_base::tick::Tick;
use forkyard_host::confine::{self, Helper};
use forkyard_host::listen::{AcceptPause, may_connect};
use forkyard_host::logs::Log;
use forkyard_scoreboard::status::Snapshot;
use forkyard_scoreboard::{GatePage, Reader};
use forkyard_sys::fd::receive_with;
use forkyard_sys::socket::{self, Progress};
use forkyard_sys::{Error, clock, identity, title};
use forkyard_worker::{Recorder, description, snapshot};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use nix::errno::Errno;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

/// Above this many connections, the connection with the longest wait is closed.
const MOST_CONNECTIONS: usize = 128;
/// The timeout for receiving a request and for sending an answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of the last answers after the master closes the channel.
const LAST_TIMEOUT: Duration = Duration::from_secs(1);
/// The reporter exits after this long without a client, like php-fpm's status pool.
const IDLE: Duration = Duration::from_secs(10);
/// Reads from one connection per turn.
const READS: usize = 4;
/// Connections accepted per turn.
const ACCEPTS: usize = 64;
const READ_BYTES: usize = 16 << 10;
const EVENTS: usize = 64;
const BRIEF_BYTES: usize = 1 << 20;

const LISTENER: Token = Token(0);
const MASTER: Token = Token(1);
const FIRST_CLIENT: usize = 2;

/// Reads the brief from the channel, then serves until the master closes the channel or the reporter is idle.
///
/// # Errors
/// The brief is incomplete, or a system call failed.
pub fn run(channel: OwnedFd) -> Result<(), Error> {
    let (brief, descriptors) = receive(&channel)?;
    title::take_name(&brief.process_name);
    title::set(&brief.title);
    let ([status, pool, board, messages], mut more) = descriptors;
    Log::install().send_to_master(messages);
    let board = Reader::map(board.as_fd(), brief.slots as usize)?;
    become_user(&brief)?;
    let shelf = (more.len() > 1).then(|| more.pop()).flatten();
    let counts = match more.pop() {
        Some(memory) if board.has_numbers() => Some(GatePage::map(memory.as_fd(), brief.slots as usize)?),
        _ => None,
    };
    let access = brief.access.clone().zip(shelf);
    let recorder = access.map(|(access, shelf)| {
        let recorder = Recorder::new(access, brief.pool.clone(), brief.log_limit, shelf, board.header());
        RefCell::new(recorder)
    });
    if let Err(missing) = confine::keep_to(Helper::Reporter) {
        log::debug!("the reporter is confined less than it could be: {missing}");
    }
    let mut reporter = Reporter::begin(&brief, channel, status, pool, board, counts, recorder)?;
    reporter.serve()
}

/// The descriptors of every reporter, and more descriptors of a 503 responder.
type Descriptors = ([OwnedFd; DESCRIPTORS], Vec<OwnedFd>);

fn receive(channel: &OwnedFd) -> Result<(Brief, Descriptors), Error> {
    let wrong = |what: &str| Error::new("recvmsg", format!("the master's message: {what}"), Errno::EBADMSG);
    let mut buffer = vec![0; BRIEF_BYTES];
    let received = receive_with(channel.as_fd(), &mut buffer, true)?;
    let brief = serde_json::from_slice(&buffer[..received.bytes]).map_err(|e| wrong(&e.to_string()))?;
    let mut descriptors = received.descriptors;
    let more = descriptors.split_off(DESCRIPTORS.min(descriptors.len()));
    let descriptors = descriptors.try_into();
    let descriptors = descriptors.map_err(|_| wrong("the number of descriptors"))?;
    Ok((brief, (descriptors, more)))
}

/// Changes permanently to the brief's user.
fn become_user(brief: &Brief) -> Result<(), Error> {
    if let Some((soft, hard)) = brief.descriptor_limit {
        identity::limit_descriptors(soft, hard)?;
    }
    if let (Some(identity), true) = (&brief.identity, identity::is_root()) {
        identity::become_user(identity)?;
    }
    identity::give_up_new_privileges()
}

struct ReporterClient {
    socket: OwnedFd,
    connection: Connection,
    wait: Wait,
    since: Tick,
    /// Requests answered when this wait began.
    served: u64,
}

struct Reporter<'b> {
    brief: &'b Brief,
    poll: Poll,
    channel: OwnedFd,
    status: OwnedFd,
    pool: OwnedFd,
    board: Reader,
    /// For refused requests.
    counts: Option<GatePage>,
    clients: HashMap<usize, ReporterClient>,
    next: usize,
    idle_since: Tick,
    /// The deadline for the last answers, after the master has closed the channel.
    leaving: Option<Tick>,
    pause: AcceptPause,
    refusal: Option<Refusal>,
    recorder: Option<RefCell<Recorder>>,
}

/// Counts and logs a request.
#[derive(Debug)]
struct SeenRequest<'r> {
    recorder: Option<&'r RefCell<Recorder>>,
    counts: Option<&'r GatePage>,
    board: &'r Reader,
    begun: Tick,
    peer: Option<IpAddr>,
}

impl Witness for SeenRequest<'_> {
    fn refused(&self, output: &[u8]) {
        if let Some(counts) = self.counts {
            counts.gate().refused(output.len() as u64);
        }
    }

    fn answered(&self, params: &Params, output: &[u8]) {
        let Some(recorder) = self.recorder else { return };
        let mut recorder = recorder.borrow_mut();
        recorder.begin(self.begun);
        recorder.describe(&description(params), params, self.peer);
        recorder.output(output);
        recorder.end(clock::now());
        recorder.finish(self.board.header());
    }
}

impl<'b> Reporter<'b> {
    fn begin(
        brief: &'b Brief,
        channel: OwnedFd,
        status: OwnedFd,
        pool: OwnedFd,
        board: Reader,
        counts: Option<GatePage>,
        recorder: Option<RefCell<Recorder>>,
    ) -> Result<Reporter<'b>, Error> {
        let failed = |error: std::io::Error| Error::from_io("epoll_ctl", "", &error);
        let poll = Poll::new().map_err(failed)?;
        for (fd, token) in [(&status, LISTENER), (&channel, MASTER)] {
            let raw = fd.as_raw_fd();
            poll.registry()
                .register(&mut SourceFd(&raw), token, Interest::READABLE)
                .map_err(failed)?;
        }
        Ok(Reporter {
            brief,
            poll,
            channel,
            status,
            pool,
            board,
            counts,
            clients: HashMap::new(),
            next: FIRST_CLIENT,
            idle_since: clock::now(),
            leaving: None,
            pause: AcceptPause::default(),
            refusal: brief.refusal.clone(),
            recorder,
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
            let timeout = if again.is_empty() {
                self.deadline().map(|deadline| {
                    let left = deadline.since(now).as_micros().div_ceil(1000);
                    Duration::from_millis(u64::try_from(left).unwrap_or(u64::MAX))
                })
            } else {
                Some(Duration::ZERO)
            };
            match self.poll.poll(&mut events, timeout) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::from_io("epoll_wait", "", &error)),
            }
            let mut ready = std::mem::take(&mut again);
            for event in &events {
                match event.token() {
                    MASTER => self.hear_master(),
                    Token(other) => ready.push(other),
                }
            }
            if self.pause.end(clock::now()) {
                ready.push(LISTENER.0);
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

    /// Reads the channel. A 503 responder may receive a new failure; other reporters only receive the end.
    fn hear_master(&mut self) {
        let mut buffer = vec![0; BRIEF_BYTES];
        loop {
            let told = match socket::receive(self.channel.as_fd(), &mut buffer) {
                Ok(Progress::WouldBlock) => return,
                Ok(Progress::Done(count)) if self.refusal.is_some() => {
                    serde_json::from_slice(&buffer[..count]).ok()
                }
                Ok(Progress::Done(_)) | Err(_) => None,
            };
            if told.is_none() {
                break;
            }
            self.refusal = told;
        }
        let raw = self.status.as_raw_fd();
        // The next reporter accepts the clients that connect from now on.
        let _ = self.poll.registry().deregister(&mut SourceFd(&raw));
        self.leaving.get_or_insert(clock::now() + LAST_TIMEOUT);
        self.clients.retain(|_, client| client.wait != Wait::Idle);
    }

    fn is_over(&self, now: Tick) -> bool {
        match self.leaving {
            Some(end) => self.clients.is_empty() || end <= now,
            // A 503 responder doesn't exit when idle.
            None if self.refusal.is_some() => false,
            // A client may be waiting for accept.
            None if self.pause.deadline().is_some() => false,
            None => self.clients.is_empty() && now.since(self.idle_since) >= IDLE,
        }
    }

    fn deadline(&self) -> Option<Tick> {
        let clients = self.clients.values().map(|client| self.deadline_of(client));
        let pause = self.pause.deadline();
        let may_idle = self.clients.is_empty() && self.refusal.is_none() && pause.is_none();
        let idle = may_idle.then(|| self.idle_since + IDLE);
        clients.chain(idle).chain(self.leaving).chain(pause).min()
    }

    fn deadline_of(&self, client: &ReporterClient) -> Tick {
        client.since
            + match client.wait {
                Wait::Idle => self.brief.keepalive_timeout,
                Wait::Request | Wait::Room | Wait::Over => TIMEOUT,
            }
    }

    fn close_late(&mut self, now: Tick) {
        let late = |(id, client): (&usize, &ReporterClient)| (self.deadline_of(client) <= now).then_some(*id);
        let late: Vec<usize> = self.clients.iter().filter_map(late).collect();
        for id in late {
            self.close(id);
        }
    }

    fn close(&mut self, id: usize) {
        if self.clients.remove(&id).is_some() && self.clients.is_empty() {
            self.idle_since = clock::now();
        }
    }

    fn accept(&mut self, again: &mut Vec<usize>) {
        if self.leaving.is_some() || self.pause.deadline().is_some() {
            return;
        }
        for _ in 0..ACCEPTS {
            let socket = match socket::accept(self.status.as_fd()) {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                Err(error) => return self.rest(&error),
            };
            if !may_connect(&self.brief.allowed_clients, socket.as_fd()) {
                continue;
            }
            if self.clients.len() >= MOST_CONNECTIONS {
                self.make_room();
            }
            let id = self.next;
            self.next += 1;
            let raw = socket.as_raw_fd();
            let both = Interest::READABLE | Interest::WRITABLE;
            let registered = self
                .poll
                .registry()
                .register(&mut SourceFd(&raw), Token(id), both);
            if let Err(error) = registered {
                // More connections may be waiting, and epoll won't report them again.
                return self.rest(&Error::from_io("epoll_ctl", "", &error));
            }
            let limits = Limits {
                params_bytes: self.brief.limits.params_bytes,
                params_count: self.brief.limits.params_count,
            };
            let client = ReporterClient {
                socket,
                connection: Connection::new(limits),
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

    /// Closes the connection that has waited longest, if possible one without an answer in progress.
    fn make_room(&mut self) {
        let oldest = self
            .clients
            .iter()
            .min_by_key(|(_, client)| (client.wait == Wait::Room, client.since))
            .map(|(id, _)| *id);
        if let Some(id) = oldest {
            self.close(id);
        }
    }

    /// Writes and reads without blocking. Returns `true` if there may be more to read.
    fn on_ready(&mut self, id: usize) -> bool {
        let Some(mut client) = self.clients.remove(&id) else {
            return false;
        };
        let outcome = self.exchange(&mut client);
        if outcome == Outcome::Over {
            if self.clients.is_empty() {
                self.idle_since = clock::now();
            }
            return false;
        }
        self.clients.insert(id, client);
        outcome == Outcome::More
    }

    fn exchange(&self, client: &mut ReporterClient) -> Outcome {
        let wants_peer = |recorder: &RefCell<Recorder>| recorder.borrow().wants_peer();
        let seen = SeenRequest {
            recorder: self.recorder.as_ref(),
            counts: self.counts.as_ref(),
            board: &self.board,
            begun: client.since,
            peer: match self.recorder.as_ref().is_some_and(wants_peer) {
                true => socket::peer_address(client.socket.as_fd()).ok().flatten(),
                false => None,
            },
        };
        let pages = Pages::new(self.brief, self.refusal.as_ref(), Some(&seen));
        let mut snapshot = || self.snapshot();
        let mut buffer = [0; READ_BYTES];
        let mut outcome = Outcome::More;
        for _ in 0..READS {
            let connection = &mut client.connection;
            let wait = connection.wait();
            let progress = match wait {
                Wait::Over => return Outcome::Over,
                Wait::Room => {
                    let sent = socket::send(client.socket.as_fd(), connection.pending());
                    if let Ok(Progress::Done(count)) = sent {
                        connection.written(count, &pages, &mut snapshot);
                    }
                    sent
                }
                Wait::Idle | Wait::Request => {
                    let received = socket::receive(client.socket.as_fd(), &mut buffer);
                    match received {
                        Ok(Progress::Done(0)) => return Outcome::Over,
                        Ok(Progress::Done(count)) => {
                            connection.receive(&buffer[..count], &pages, &mut snapshot);
                        }
                        Ok(Progress::WouldBlock) | Err(_) => {}
                    }
                    received
                }
            };
            match progress {
                Ok(Progress::Done(_)) => {}
                Ok(Progress::WouldBlock) => {
                    outcome = Outcome::Waits;
                    break;
                }
                Err(_) => return Outcome::Over,
            }
        }
        let wait = client.connection.wait();
        if wait == Wait::Over {
            return Outcome::Over;
        }
        // Single bytes don't extend the timeout, and the timeout of a first request is not longer.
        let served = client.connection.served();
        let wait = match wait {
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

    fn snapshot(&self) -> Snapshot {
        let brief = self.brief;
        snapshot::take(
            &brief.pool,
            brief.pm.name(),
            brief.started,
            &self.board,
            self.pool.as_fd(),
            brief.has_memory_peak,
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Waits,
    More,
    Over,
}
