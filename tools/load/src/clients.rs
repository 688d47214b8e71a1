//! The loop: all clients over one poll.

use crate::arguments::{Address, Arguments};
use crate::exchange::{Exchange, Progress};
use crate::request;
use crate::stream::{Stream, connect};
use crate::tally::{RequestFailure, Tally};
use mio::event::Event;
use mio::{Events, Interest, Poll, Registry, Token};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// A run's result.
pub(crate) struct Measured {
    pub(crate) tally: Tally,
    /// How long requests were started; with a fixed number, until the last answer.
    pub(crate) elapsed: Duration,
}

/// The size of a read; a shorter read is taken for the last one.
const READ_BYTES: usize = 256 * 1024;

/// The pause after a failed connect, so that retries don't take CPU time from the server.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);

const DEFAULT_DURATION: Duration = Duration::from_secs(10);

/// Sends requests as the arguments specify.
pub(crate) fn run(arguments: &Arguments) -> io::Result<Measured> {
    allow_many_descriptors();
    let ends = match (arguments.duration, arguments.requests) {
        (None, Some(_)) => None,
        (duration, _) => Some(duration.unwrap_or(DEFAULT_DURATION)),
    };
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(1024);
    let mut buffer = vec![0; READ_BYTES];
    let mut load = Load {
        registry: poll.registry().try_clone()?,
        wire: request::encode(arguments),
        address: arguments.connect.clone(),
        keep: arguments.keep,
        pause: arguments.pause_ms,
        timeout: arguments.timeout_ms,
        ends,
        left: arguments.requests.unwrap_or(u64::MAX),
        clients: (0..arguments.clients).map(|_| Client::new()).collect(),
        active: 0,
        wakes: BinaryHeap::new(),
        tally: Tally::new(ends),
        clock: Instant::now(),
    };
    let look_every = (arguments.timeout_ms / 10).clamp(Duration::from_millis(1), Duration::from_millis(250));
    let mut next_look = look_every;
    for index in 0..load.clients.len() {
        load.start(index, load.clock.elapsed());
    }
    while load.active > 0 || !load.wakes.is_empty() {
        let now = load.clock.elapsed();
        match poll.poll(
            &mut events,
            Some(load.next_deadline(next_look).saturating_sub(now)),
        ) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            result => result?,
        }
        for event in &events {
            load.handle(event, &mut buffer);
        }
        let now = load.clock.elapsed();
        load.wake(now);
        if now >= next_look {
            load.give_up_the_slow(now);
            next_look = now + look_every;
        }
    }
    let elapsed = ends.unwrap_or_else(|| load.clock.elapsed());
    Ok(Measured {
        tally: load.tally,
        elapsed,
    })
}

/// Each client needs a descriptor. If the limit can't be raised, connecting reports it.
fn allow_many_descriptors() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Times are counted from the start of the measurement.
struct Load {
    registry: Registry,
    wire: Vec<u8>,
    address: Address,
    keep: bool,
    pause: Duration,
    timeout: Duration,
    ends: Option<Duration>,
    /// Requests still to send.
    left: u64,
    clients: Vec<Client>,
    /// Clients that wait for an answer.
    active: usize,
    wakes: BinaryHeap<Reverse<(Duration, usize)>>,
    tally: Tally,
    clock: Instant,
}

struct Client {
    stream: Option<Box<dyn Stream>>,
    exchange: Exchange,
    is_waiting: bool,
    started: Duration,
    /// Bytes of the request already written.
    written: usize,
    /// The connection has served a request before.
    is_reused: bool,
    has_received: bool,
}

impl Client {
    fn new() -> Client {
        Client {
            stream: None,
            exchange: Exchange::default(),
            is_waiting: false,
            started: Duration::ZERO,
            written: 0,
            is_reused: false,
            has_received: false,
        }
    }
}

impl Load {
    fn next_deadline(&self, next_look: Duration) -> Duration {
        let wake = self.wakes.peek().map(|Reverse((wake, _))| *wake);
        [wake, self.ends.filter(|_| wake.is_some())]
            .into_iter()
            .flatten()
            .fold(next_look, Duration::min)
    }

    /// Ends the pauses that are over, or all of them after the last request.
    fn wake(&mut self, now: Duration) {
        if self.is_over(now) {
            self.wakes.clear();
        }
        while let Some(Reverse((wake, index))) = self.wakes.peek().copied()
            && wake <= now
        {
            self.wakes.pop();
            self.start(index, now);
        }
    }

    fn is_over(&self, now: Duration) -> bool {
        self.left == 0 || self.ends.is_some_and(|ends| now >= ends)
    }

    /// Sends a client's next request, if any is left.
    fn start(&mut self, index: usize, now: Duration) {
        if self.is_over(now) {
            return;
        }
        self.left -= 1;
        self.active += 1;
        let client = &mut self.clients[index];
        client.is_waiting = true;
        client.started = now;
        self.send(index);
    }

    fn send(&mut self, index: usize) {
        let client = &mut self.clients[index];
        client.written = 0;
        client.has_received = false;
        client.is_reused = client.stream.is_some();
        if client.is_reused {
            client.exchange.next();
        } else {
            client.exchange.restart();
            match connect(&self.address, self.keep) {
                Ok(stream) => client.stream = Some(stream),
                Err(error) => return self.fail(index, RequestFailure::Connect, &connect_fault(error)),
            }
        }
        // Written before it is registered: a connection that takes the whole request at once needs no writable event.
        if let Err(error) = self.write(index) {
            return self.lose(index, error);
        }
        let Client {
            stream: Some(stream),
            written,
            is_reused,
            ..
        } = &mut self.clients[index]
        else {
            return;
        };
        let is_written = *written == self.wire.len();
        let interest = if is_written {
            Interest::READABLE
        } else {
            Interest::READABLE | Interest::WRITABLE
        };
        let registered = match (*is_reused, is_written) {
            (true, true) => Ok(()),
            (true, false) => self.registry.reregister(stream, Token(index), interest),
            (false, _) => self.registry.register(stream, Token(index), interest),
        };
        if let Err(error) = registered {
            self.fail(index, RequestFailure::Connect, &error.to_string());
        }
    }

    /// Writes as much of the request as the connection takes.
    fn write(&mut self, index: usize) -> io::Result<()> {
        let Client {
            stream: Some(stream),
            written,
            is_reused,
            ..
        } = &mut self.clients[index]
        else {
            return Ok(());
        };
        while *written < self.wire.len() {
            match stream.write(&self.wire[*written..]) {
                Ok(count) => *written += count,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::NotConnected => return Ok(()),
                    ErrorKind::Interrupted => {}
                    _ if *written == 0 || *is_reused => return Err(error),
                    _ => return Ok(()),
                },
            }
        }
        Ok(())
    }

    fn handle(&mut self, event: &Event, buffer: &mut [u8]) {
        let Token(index) = event.token();
        let client = &self.clients[index];
        if client.is_waiting
            && client.written < self.wire.len()
            && let Err(error) = self.write(index)
            && !event.is_readable()
        {
            return self.lose(index, error);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            self.read(index, event.is_read_closed(), buffer);
        }
    }

    fn read(&mut self, index: usize, is_closed: bool, buffer: &mut [u8]) {
        loop {
            let client = &mut self.clients[index];
            let Some(stream) = &mut client.stream else { return };
            let count = match stream.read(buffer) {
                Ok(0) => return self.lose(index, ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    ErrorKind::Interrupted => continue,
                    _ => return self.lose(index, error),
                },
            };
            self.tally.received_bytes += count as u64;
            if !client.is_waiting {
                client.stream = None;
                return;
            }
            client.has_received = true;
            match client.exchange.receive(&buffer[..count]) {
                // A short read has emptied the socket; epoll will report more.
                Progress::Unfinished if count < buffer.len() && !is_closed => return,
                Progress::Unfinished => {}
                Progress::Finished(status) => return self.finish(index, status, is_closed),
                Progress::Refused => {
                    return self.fail(
                        index,
                        RequestFailure::Protocol,
                        "not FastCGI, or a refusal in its terms",
                    );
                }
            }
        }
    }

    /// Handles a closed connection. A kept one may close between two requests; the request is then sent on a new one.
    fn lose(&mut self, index: usize, error: io::Error) {
        let client = &mut self.clients[index];
        client.stream = None;
        if !client.is_waiting {
            self.tally.reconnects += 1;
        } else if client.is_reused && !client.has_received {
            self.tally.reconnects += 1;
            self.send(index);
        } else if client.written == 0 {
            self.fail(index, RequestFailure::Connect, &connect_fault(error));
        } else {
            self.fail(index, RequestFailure::Eof, &error.to_string());
        }
    }

    /// `is_closed`: the server has closed the connection after the answer. epoll reports that only once.
    fn finish(&mut self, index: usize, status: u16, is_closed: bool) {
        if is_closed {
            self.tally.reconnects += u64::from(self.keep);
            self.clients[index].stream = None;
        }
        *self.tally.statuses.entry(status).or_default() += 1;
        if status != 200 {
            return self.end(index, Some(RequestFailure::Status), &format!("status {status}"));
        }
        self.end(index, None, "");
    }

    fn fail(&mut self, index: usize, failure: RequestFailure, example: &str) {
        log::debug!("client {index}: {failure:?}: {example}");
        self.clients[index].stream = None;
        self.end(index, Some(failure), example);
    }

    /// Records a finished request and starts the client's next one.
    fn end(&mut self, index: usize, failure: Option<RequestFailure>, example: &str) {
        let now = self.clock.elapsed();
        let client = &mut self.clients[index];
        client.is_waiting = false;
        self.active -= 1;
        if !self.keep || client.written < self.wire.len() {
            client.stream = None;
        }
        match failure {
            None => self.tally.complete(client.started, now),
            Some(failure) => self.tally.fail(failure, || example.to_owned()),
        }
        let pause = if failure == Some(RequestFailure::Connect) {
            CONNECT_PAUSE
        } else {
            Duration::ZERO
        };
        match self.pause.max(pause) {
            Duration::ZERO => self.start(index, now),
            pause => self.wakes.push(Reverse((now + pause, index))),
        }
    }

    fn give_up_the_slow(&mut self, now: Duration) {
        for index in 0..self.clients.len() {
            let client = &self.clients[index];
            if client.is_waiting && now.saturating_sub(client.started) >= self.timeout {
                self.fail(index, RequestFailure::Timeout, "no complete answer in time");
            }
        }
    }
}

fn connect_fault(error: io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock => "the listen queue is full".to_owned(),
        _ => error.to_string(),
    }
}
