//! Where a worker waits for work: the listening socket, held connections, the hand-over queue, the retire channel.

use super::connection::Connection;
use super::held;
use super::promotion::{self, Promotion};
use super::routed;
use super::service::Service;
use crate::listen::{AcceptPause, may_connect};
use crate::scoreboard::{Stage, census, header};
use crate::sys::{clock, socket};
use crate::tick::Tick;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{EpollEvent, EpollFlags, EpollTimeout};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Bits of a word in the child_accept pipe, beside the slot: the worker has called accept for the first time;
pub const IS_UP: u32 = 1 << 31;
/// it has served enough requests for a preloader to be made from it. It says nothing else then.
pub const IS_SEASONED: u32 = 1 << 30;

const LISTENER: u64 = 0;
const QUEUE: u64 = 1;
const RETIRE: u64 = 2;
const COMPANION: u64 = 3;
pub(super) const FIRST_HELD: u64 = 4;

/// Events taken at once.
const EVENTS: usize = 32;
/// A wait shorter than this means that work had been waiting: the next time accept is tried before waiting.
const PROMPT: Duration = Duration::from_micros(10);
/// A busy worker looks at all its sources at least this often: at connections that were handed over, and at its retire
/// channel, which is how it learns that the master is gone.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// How often a worker counts the busy ones for the status page alone, in a pool of more workers than this. A count looks
/// at a page of every worker.
const COUNT_INTERVAL: Duration = Duration::from_millis(10);
const COUNT_ALWAYS: usize = 16;

/// How the sources are watched that siblings watch, too.
const EXCLUSIVE: EpollFlags = EpollFlags::EPOLLIN.union(EpollFlags::EPOLLEXCLUSIVE);
/// Why accept(2) fails while the process or the machine has none left of something.
const SHORT: [Errno; 4] = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ENOBUFS];
/// Held connections that are sent away before a request.
const FEW: usize = 4;

/// What to do next.
#[derive(Debug)]
pub(super) enum Work {
    /// A connection with, probably, a request on it.
    Connection(Box<Connection>),
    /// Make a preloader.
    Promote(Promotion),
    /// Do the application's out-of-band work, which has begun.
    OutOfBand,
    /// The companion has to be looked after.
    Companion,
    /// The same, from a router; it is the current one already.
    Attached,
    /// Finish: told so, or the master is gone.
    Retire,
    /// The worker can't go on.
    Failed(String),
}

/// The worker's half that waits.
#[derive(Debug)]
pub(super) struct Lobby {
    slot: usize,
    /// Watched.
    retire: OwnedFd,
    /// Was told, and is to be done before the next request.
    promotion: Option<Promotion>,
    queue_out: OwnedFd,
    child_accept: OwnedFd,
    /// Work had been waiting the last time.
    eager: bool,
    looked: Tick,
    told_first: bool,
    max_active: u64,
    /// When the busy workers were last counted.
    counted: Tick,
    /// Serve a held connection before a new one next time, so that neither starves the other.
    held_first: bool,
    /// Accepting has failed: when it is tried again.
    pause: AcceptPause,
}

impl Lobby {
    /// Registers the worker's sources.
    pub(super) fn open(
        service: &Service,
        slot: u32,
        retire: OwnedFd,
        queue_out: OwnedFd,
        child_accept: OwnedFd,
    ) -> nix::Result<Lobby> {
        let epoll = service.minder.epoll();
        match routed::watched(service) {
            Some(channel) => epoll.add(channel, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?,
            None => {
                epoll.add(&service.listener, EpollEvent::new(EXCLUSIVE, LISTENER))?;
                epoll.add(&queue_out, EpollEvent::new(EXCLUSIVE, QUEUE))?;
            }
        }
        epoll.add(&retire, EpollEvent::new(EpollFlags::EPOLLIN, RETIRE))?;
        Ok(Lobby {
            slot: slot as usize,
            retire,
            promotion: None,
            queue_out,
            child_accept,
            eager: true,
            looked: Tick::ZERO,
            told_first: false,
            max_active: 0,
            counted: Tick::ZERO,
            held_first: false,
            pause: AcceptPause::default(),
        })
    }

    /// Watches what the runtime keeps beside the worker, too.
    pub(super) fn accompany(&self, service: &Service, watch: BorrowedFd<'_>) -> nix::Result<()> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, COMPANION);
        service.minder.epoll().add(watch, event)
    }

    /// Waits until `watch` is readable or `limit` is over; `true`: the worker has to finish.
    pub(super) fn is_told_to_finish(&self, watch: BorrowedFd<'_>, limit: Option<Duration>) -> bool {
        let mut both = [
            PollFd::new(self.retire.as_fd(), PollFlags::POLLIN),
            PollFd::new(watch, PollFlags::POLLIN),
        ];
        // Whatever the wait came to, the companion is looked after next.
        let _ = poll(&mut both, limit.map_or(PollTimeout::NONE, poll_timeout));
        both[0].any().unwrap_or(true)
    }

    /// Waits for work, or until `companion` has to be looked after in any case. The worker is idle from here until work is
    /// returned.
    pub(super) fn next(&mut self, service: &mut Service, companion: Option<Tick>) -> Work {
        if let Some(promotion) = self.promotion.take() {
            return Work::Promote(promotion);
        }
        let idle_since = clock::now();
        service.stamp().idle(idle_since);
        if self.must_retire(service) {
            return Work::Retire;
        }
        if self.looked == Tick::ZERO {
            self.looked = idle_since;
        }
        if service.channel.is_some() {
            return self.next_routed(service);
        }
        let holds = service.minder.held().idle() > 0;
        if self.eager && !holds && idle_since.since(self.looked) < LOOK_INTERVAL {
            match self.accept(service) {
                Ok(Some(connection)) => return Work::Connection(connection),
                Ok(None) => self.eager = false,
                Err(failure) => return Work::Failed(failure),
            }
        }
        loop {
            let work = self.wait(service, idle_since, companion);
            if let Some(work) = work {
                return work;
            }
        }
    }

    /// The worker's slot.
    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    fn must_retire(&self, service: &Service) -> bool {
        header::retire(service.board.header(), self.slot)
    }

    fn wait(&mut self, service: &mut Service, idle_since: Tick, companion: Option<Tick>) -> Option<Work> {
        let mut events = [EpollEvent::empty(); EVENTS];
        let timeout = timeout(service, companion.into_iter().chain(self.pause.deadline()).min());
        let count = match service.minder.epoll().wait(&mut events, timeout) {
            Ok(count) => count,
            Err(Errno::EINTR) => return None,
            Err(errno) => return Some(Work::Failed(format!("epoll_wait: {errno}"))),
        };
        let now = clock::now();
        self.looked = now;
        if self.pause.end(now) {
            if let Err(errno) = service
                .minder
                .epoll()
                .add(&service.listener, EpollEvent::new(EXCLUSIVE, LISTENER))
            {
                return Some(Work::Failed(format!("epoll_ctl: {errno}")));
            }
        }
        let mut ready = Ready::default();
        for event in &events[..count] {
            ready.note(event.data());
        }
        self.eager = ready.listener && now.since(idle_since) < PROMPT;
        if count == 0 || timeout != EpollTimeout::NONE {
            self.close_expired(service, now);
        }
        if ready.queue {
            if self.adopt(service, now) {
                // The next look tells which of them have requests ready, beside everything that is ready now.
                return None;
            }
            // Nothing but a wake-up, passed on from a worker that died with it: what it was for is still waiting.
            ready.listener = true;
        }
        self.share(service, &mut ready);
        if ready.retire && service.settings.refork_at.is_some() {
            self.promotion = promotion::receive(self.retire.as_fd());
            ready.retire = self.promotion.is_none();
        }
        if ready.retire {
            // A wake-up that came for a connection must not be lost with this worker: nobody else was woken for it.
            let last = if ready.listener {
                self.accept(service).ok().flatten()
            } else {
                None
            };
            return Some(last.map_or(Work::Retire, Work::Connection));
        }
        // Neither of the two may starve the other. While a sibling is idle, `share` has sent the held ones to it and
        // the new connection, which nobody else was woken for, is this worker's.
        self.held_first = !self.held_first;
        if ready.listener && (ready.held.is_empty() || !self.held_first) {
            match self.accept(service) {
                Ok(Some(connection)) => return Some(Work::Connection(connection)),
                Ok(None) => self.eager = false,
                Err(failure) => return Some(Work::Failed(failure)),
            }
        }
        let taken = ready
            .held
            .iter()
            .find_map(|place| service.minder.held().take(*place));
        if let Some(connection) = taken {
            self.take_up(service);
            return Some(Work::Connection(connection));
        }
        if let Some(promotion) = self.promotion.take() {
            // Nobody is to count upon this worker meanwhile.
            self.take_up(service);
            return Some(Work::Promote(promotion));
        }
        // Requests come first: nobody else was woken for them.
        if count == 0 && service.want.due().is_some_and(|due| due <= now) && self.claims_work(service) {
            return Some(Work::OutOfBand);
        }
        (ready.companion || companion.is_some_and(|due| due <= now)).then_some(Work::Companion)
    }

    /// Waits until the router has sent something; `true`: the worker is to retire.
    pub(super) fn wait_for_router(&mut self, service: &Service) -> nix::Result<bool> {
        let mut events = [EpollEvent::empty(); EVENTS];
        let count = match service.minder.epoll().wait(&mut events, EpollTimeout::NONE) {
            Err(Errno::EINTR) => 0,
            other => other?,
        };
        Ok(events[..count].iter().any(|event| event.data() == RETIRE))
    }

    /// One accept. The master is told of the first whatever comes of it, and of each that it asked for.
    fn accept(&mut self, service: &mut Service) -> Result<Option<Box<Connection>>, String> {
        let accepted = socket::accept(service.listener.as_fd());
        let socket = match accepted {
            Ok(socket) => socket,
            // What is short may be there again in a moment; the connection waits.
            Err(error) if SHORT.contains(&error.errno) => {
                let _ = service.minder.epoll().delete(&service.listener);
                if self.pause.begin(clock::now()) {
                    log::error!("can't accept a connection: {error}; trying again");
                }
                return Ok(None);
            }
            Err(error) => return Err(error.to_string()),
        };
        let Some(socket) = socket else {
            self.tell_first();
            return Ok(None);
        };
        let connection = service.connection(socket);
        self.take_up(service);
        if !may_connect(&service.settings.pool.listen.allowed_clients, connection.socket()) {
            service.close(connection);
            service.stamp().idle(clock::now());
            return Ok(None);
        }
        Ok(Some(connection))
    }

    /// The worker has work from now on. ACCEPTED is there to be seen before the pipe is written to, and before the
    /// master's wish is read: if the master's wish comes too late to be seen here, its census sees this worker busy.
    pub(super) fn take_up(&mut self, service: &mut Service) {
        let now = clock::now();
        service.stamp().accepted(now);
        let notify = header::notify(service.board.header());
        let mut tell = notify.always;
        let slots = service.board.slots();
        let may_be_more = self.max_active < slots as u64
            && (slots <= COUNT_ALWAYS || now.since(self.counted) >= COUNT_INTERVAL);
        if notify.idle_below > 0 || may_be_more {
            self.counted = now;
            let (idle, busy) = count(service);
            tell |= idle < u64::from(notify.idle_below);
            if busy > self.max_active {
                self.max_active = busy;
                service.stamp().max_active(busy);
            }
        }
        if !self.told_first {
            self.tell_first();
        } else if tell {
            self.tell(0);
        }
    }

    pub(super) fn tell_first(&mut self) {
        if !self.told_first {
            self.told_first = true;
            self.tell(IS_UP);
        }
    }

    /// The worker has served enough requests for a preloader to be made from it. Where the pipe is full, it says so another
    /// time.
    pub(super) fn tell_seasoned(&self) {
        self.tell(IS_SEASONED);
    }

    /// A full pipe is no loss: the master has unread words then, and one is as good as many.
    fn tell(&self, flag: u32) {
        let word = self.slot as u32 | flag;
        let _ = nix::unistd::write(&self.child_accept, &word.to_ne_bytes());
    }

    /// Takes connections out of the hand-over queue; the epoll says at once which have requests ready.
    /// Takes a message out of the hand-over queue; false: it was a wake-up without a connection.
    fn adopt(&mut self, service: &mut Service, now: Tick) -> bool {
        let Some((spoken, sockets)) = held::receive(self.queue_out.as_fd()) else {
            // A sibling was faster.
            return true;
        };
        let has_any = !sockets.is_empty();
        for socket in sockets {
            let mut connection = service.connection(socket);
            (connection.spoken, connection.asked) = (spoken, spoken);
            service.hold(connection, now);
        }
        has_any
    }

    /// More requests are ready than this worker can serve at once, and a sibling is idle: it gets the held
    /// connections if a new one waits, else half of them.
    fn share(&self, service: &mut Service, ready: &mut Ready) {
        if ready.held.len() + usize::from(ready.listener) < 2 || count(service).0 < 2 {
            return;
        }
        let stay = if ready.listener {
            0
        } else {
            ready.held.len().div_ceil(2)
        };
        let away = ready.held.split_off(stay);
        service.minder.send_away(&away);
        service.publish_kept();
    }

    /// A request is about to be served: a few connections that are held go to an idle sibling first, so that a request
    /// that kills its worker takes none of them along. A new one, whose request is most likely on its way, goes in any
    /// case and waits in the queue. Many are left to the minder: each costs system calls.
    pub(super) fn part_with_few(&self, service: &mut Service) {
        if service.minder.held().idle() == 0 {
            return;
        }
        let few = service.minder.held().idle() <= FEW && count(service).0 > 0;
        let held = service.minder.held();
        let places = if few {
            held.idle_places()
        } else {
            held.silent_places()
        };
        drop(held);
        service.minder.send_away(&places);
        service.publish_kept();
    }

    fn close_expired(&self, service: &mut Service, now: Tick) {
        let expired = service.minder.held().take_expired(now);
        for connection in expired {
            if !connection.spoken {
                log::debug!("closed a connection on which nothing was said");
            }
            service.close(connection);
        }
        service.publish_kept();
    }

    /// Sends every held connection to the siblings; for a worker that is about to leave.
    pub(super) fn hand_over_all(&self, service: &mut Service) {
        if service.channel.is_some() {
            return service.hand_back_all();
        }
        let places = service.minder.held().idle_places();
        service.minder.send_away(&places);
    }
}

/// Which sources are ready.
#[derive(Default)]
struct Ready {
    listener: bool,
    queue: bool,
    retire: bool,
    companion: bool,
    held: Vec<usize>,
}

impl Ready {
    fn note(&mut self, token: u64) {
        match token {
            LISTENER => self.listener = true,
            QUEUE => self.queue = true,
            RETIRE => self.retire = true,
            COMPANION => self.companion = true,
            held => self.held.push((held - FIRST_HELD) as usize),
        }
    }
}

/// How long to wait at most: until a held connection expires, or the companion or out-of-band work is due.
fn timeout(service: &Service, companion: Option<Tick>) -> EpollTimeout {
    let expiry = service.minder.held().next_expiry();
    let work = service.want.due();
    match expiry.into_iter().chain(companion).chain(work).min() {
        None => EpollTimeout::NONE,
        Some(due) => EpollTimeout::try_from(millis(due.since(clock::now()))).unwrap_or(EpollTimeout::MAX),
    }
}

fn poll_timeout(limit: Duration) -> PollTimeout {
    PollTimeout::try_from(millis(limit)).unwrap_or(PollTimeout::MAX)
}

/// Whole milliseconds, rounded up.
fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
}

/// How many workers of the generation are idle and how many busy, by their stages.
fn count(service: &Service) -> (u64, u64) {
    let words = service.board.header();
    let (mut idle, mut busy) = (0, 0);
    for index in 0..service.board.slots() {
        if !header::used(words, index) {
            continue;
        }
        match service.board.slot(index).map(census::stage) {
            Some(Stage::Accepting) => idle += 1,
            Some(Stage::Creating) | None => {}
            Some(_) => busy += 1,
        }
    }
    (idle, busy)
}
