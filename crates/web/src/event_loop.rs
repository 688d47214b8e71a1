//! The event loop of the web process.

use super::connection::Connection;
use super::hosts::Hosts;
use super::numbers::Numbers;
use super::pages::{self, Shown};
use super::source::{Found, Source};
use forkyard_base::tick::Tick;
use forkyard_host::confine::{self, Helper};
use forkyard_host::event_loop::{Client, Exchanged, LAST_TIMEOUT, Service, Wait, serve};
use forkyard_host::logs::Log;
use forkyard_protocol::web::{FromWeb, MOST_BYTES, ToWeb};
use forkyard_sys::fd::receive_with;
use forkyard_sys::identity::Identity;
use forkyard_sys::{Error, clock, heap, identity, memfile, socket};
use nix::errno::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use time::OffsetDateTime;
use time::macros::format_description;

/// The timeout for receiving a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout for sending an answer.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout of an idle connection: scrapers ask every 15 to 60 seconds.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// The most bytes of numbers.
const MOST_NUMBERS: usize = 256 << 20;
/// The heartbeat's place among the channels.
const HEARTBEAT: usize = 1;

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
    let web = Web {
        master: start.master,
        heartbeat: Some(start.heartbeat),
        hosts: Hosts::new(start.hosts),
        source: Source::new(),
    };
    serve(web, start.listener)
}

struct Web {
    master: OwnedFd,
    heartbeat: Option<OwnedFd>,
    hosts: Hosts,
    source: Source<Shown>,
}

impl Service for Web {
    type Connection = Connection;

    fn channels(&self) -> Vec<BorrowedFd<'_>> {
        let heartbeat = self.heartbeat.iter();
        [&self.master]
            .into_iter()
            .chain(heartbeat)
            .map(AsFd::as_fd)
            .collect()
    }

    /// Takes numbers from the master.
    fn hear(&mut self, channel: usize) -> Result<bool, Error> {
        if channel == HEARTBEAT {
            self.heartbeat
                .take_if(|heartbeat| socket::drain(heartbeat.as_fd()).is_err());
            return Ok(true);
        }
        let mut buffer = [0; MOST_BYTES];
        loop {
            let received = match receive_with(self.master.as_fd(), &mut buffer, false) {
                Ok(received) if received.bytes > 0 => received,
                Err(error) if matches!(error.errno, Errno::EAGAIN | Errno::EINTR) => return Ok(true),
                Ok(_) | Err(_) => return Ok(false),
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
            heap::trim();
        }
    }

    fn connect(&self, _: BorrowedFd<'_>) -> Option<Connection> {
        Some(Connection::new())
    }

    fn exchanged(&self, client: &mut Client<Connection>, bytes: Exchanged<'_>) {
        match bytes {
            Exchanged::Received(bytes) => client.connection.receive(bytes, &self.hosts, &date()),
            Exchanged::Written(count) => client.connection.written(count, &self.hosts, &date()),
        }
    }

    /// Answers a request, or asks the master.
    fn answer(&mut self, connection: &mut Connection, is_last: bool) -> bool {
        let Some(request) = connection.request() else {
            return true;
        };
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

    fn timeout(&self, wait: Wait) -> Option<Duration> {
        match wait {
            Wait::Idle => Some(IDLE_TIMEOUT),
            Wait::Request => Some(HEAD_TIMEOUT),
            Wait::Room => Some(SEND_TIMEOUT),
            Wait::End | Wait::Over => Some(LAST_TIMEOUT),
            // The master's answer has its own time limit.
            Wait::Answer => None,
        }
    }

    fn answer_deadline(&self) -> Option<Tick> {
        self.source.deadline()
    }
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
