//! The reporter's event loop.

use super::brief::{Brief, DESCRIPTORS, Refusal};
use super::connection::Connection;
use super::pages::{Pages, Witness};
use fastcgi::{Limits, Params};
use forkyard_base::tick::Tick;
use forkyard_host::confine::{self, Helper};
use forkyard_host::event_loop::{Client, Exchanged, Service, Wait, serve};
use forkyard_host::listen::may_connect;
use forkyard_host::logs::Log;
use forkyard_scoreboard::status::Snapshot;
use forkyard_scoreboard::{GatePage, Reader};
use forkyard_sys::fd::receive_with;
use forkyard_sys::socket::{self, Progress};
use forkyard_sys::{Error, clock, identity, title};
use forkyard_worker::{Recorder, description, snapshot};
use nix::errno::Errno;
use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The timeout for receiving a request and for sending an answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The reporter exits after this long without a client, like php-fpm's status pool.
const IDLE: Duration = Duration::from_secs(10);
const BRIEF_BYTES: usize = 1 << 20;

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
    let reporter = Reporter {
        refusal: brief.refusal.clone(),
        brief,
        channel,
        pool,
        board,
        counts,
        recorder,
    };
    serve(reporter, status)
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

struct Reporter {
    brief: Brief,
    channel: OwnedFd,
    pool: OwnedFd,
    board: Reader,
    /// For refused requests.
    counts: Option<GatePage>,
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
    socket: BorrowedFd<'r>,
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
        let peer = match recorder.wants_peer() {
            true => socket::peer_address(self.socket).ok().flatten(),
            false => None,
        };
        recorder.begin(self.begun);
        recorder.describe(&description(params), params, peer);
        recorder.output(output);
        recorder.end(clock::now());
        recorder.finish(self.board.header());
    }
}

impl Service for Reporter {
    type Connection = Connection;

    fn channels(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.channel.as_fd()]
    }

    /// Reads the channel. A 503 responder may receive a new failure; other reporters only receive the end.
    fn hear(&mut self, _: usize) -> Result<bool, Error> {
        let mut buffer = vec![0; BRIEF_BYTES];
        loop {
            let told = match socket::receive(self.channel.as_fd(), &mut buffer) {
                Ok(Progress::WouldBlock) => return Ok(true),
                Ok(Progress::Done(count)) if self.refusal.is_some() => {
                    serde_json::from_slice(&buffer[..count]).ok()
                }
                Ok(Progress::Done(_)) | Err(_) => None,
            };
            if told.is_none() {
                return Ok(false);
            }
            self.refusal = told;
        }
    }

    fn connect(&self, socket: BorrowedFd<'_>) -> Option<Connection> {
        let limits = Limits {
            params_bytes: self.brief.limits.params_bytes,
            params_count: self.brief.limits.params_count,
        };
        may_connect(&self.brief.allowed_clients, socket).then(|| Connection::new(limits))
    }

    fn exchanged(&self, client: &mut Client<Connection>, bytes: Exchanged<'_>) {
        let seen = SeenRequest {
            recorder: self.recorder.as_ref(),
            counts: self.counts.as_ref(),
            board: &self.board,
            begun: client.since,
            socket: client.socket.as_fd(),
        };
        let pages = Pages::new(&self.brief, self.refusal.as_ref(), Some(&seen));
        let mut snapshot = || self.snapshot();
        match bytes {
            Exchanged::Received(bytes) => client.connection.receive(bytes, &pages, &mut snapshot),
            Exchanged::Written(count) => client.connection.written(count, &pages, &mut snapshot),
        }
    }

    fn timeout(&self, wait: Wait) -> Option<Duration> {
        Some(match wait {
            Wait::Idle => self.brief.keepalive_timeout,
            _ => TIMEOUT,
        })
    }

    /// A 503 responder doesn't exit when idle.
    fn idle_timeout(&self) -> Option<Duration> {
        self.refusal.is_none().then_some(IDLE)
    }
}

impl Reporter {
    fn snapshot(&self) -> Snapshot {
        let brief = &self.brief;
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
