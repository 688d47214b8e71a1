//! Waits for work on the listening socket, the held connections, the hand-off queue and the stop pipe.

use super::accept_notify::AcceptNotifier;
use super::connection::Connection;
use super::gauge::Gauge;
use super::lanes::LaneQueues;
use super::promotion::Promotion;
use super::service::Service;
use super::service_order::{LOOK_INTERVAL, ListenQueueState, RUN_INTERVAL};
use super::stderr_errors;
use super::turns::TurnQueues;
use forkyard_base::tick::Tick;
use forkyard_host::listen::AcceptPause;
use forkyard_sys::timeout::{epoll_timeout, poll_timeout};
use forkyard_sys::{Error, clock};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{EpollEvent, EpollFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

pub(super) const LISTENER: u64 = 0;
pub(super) const QUEUE: u64 = 1;
pub(super) const STOP_PIPE: u64 = 2;
pub(super) const BACKEND: u64 = 3;
pub(super) const PARKED: u64 = 4;
pub(super) const TURN: u64 = 5;
pub(super) const FIRST_KEEPALIVE: u64 = 6;

pub(super) const EVENTS: usize = 32;
pub(super) const PROMPT: Duration = Duration::from_micros(10);
/// For sources that siblings watch too. The kernel wakes one sleeping worker, in order of registration (`open`), not
/// the one that fell asleep last. A woken worker may leave the connection to busy siblings (`leaves` in `choose.rs`).
/// After a lack of descriptors a worker registers again, as the last one (`scan` in `choose.rs`). Workers with several
/// requests use `concurrent/accept.rs`.
pub(super) const EXCLUSIVE: EpollFlags = EpollFlags::EPOLLIN.union(EpollFlags::EPOLLEXCLUSIVE);
const SHORT: [Errno; 4] = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ENOBUFS];

/// The process, the machine or the kernel has no descriptors or memory left.
pub(super) fn is_short(error: &Error) -> bool {
    SHORT.contains(&error.errno)
}

/// Pauses a listening socket after accept(2) has failed.
pub(super) fn pause(pause: &mut AcceptPause, error: &Error) {
    if !pause.begin(clock::now()) {
        return;
    }
    match error.errno {
        Errno::EINVAL => log::error!(
            "can't accept a connection: the listening socket was shut down; a reload binds it again"
        ),
        _ => log::error!("can't accept a connection: {error}; trying again"),
    }
}

#[derive(Debug)]
pub(super) enum Work {
    Connection(Box<Connection>),
    Promote,
    OutOfBand,
    Backend,
    Attached,
    Retire,
    Failed(String),
}

#[derive(Debug)]
pub(super) struct Acceptor {
    pub(super) notifier: AcceptNotifier,
    pub(super) stop_pipe: OwnedFd,
    pub(super) promotion: Option<Promotion>,
    pub(super) queue_out: OwnedFd,
    /// The last wait was short: call accept before waiting again.
    pub(super) eager: bool,
    /// The last check of all sources.
    pub(super) looked: Tick,
    /// On the last check, only held connections had requests.
    pub(super) alone: bool,
    /// On the last check, several sources had requests.
    pub(super) contended: bool,
    pub(super) busy_since: Tick,
    /// Since when it has neither waited nor yielded the processor.
    pub(super) runs_since: Tick,
    /// When it last passed requests to an idle sibling.
    pub(super) shared: Tick,
    /// When it last closed expired connections.
    pub(super) expired: Tick,
    /// The last measurement of the backlog, and its time.
    pub(super) line: (ListenQueueState, Tick),
    pub(super) processors: Option<usize>,
    pub(super) gauge: Gauge,
    pub(super) pause: AcceptPause,
    /// `None`: the pool has no lanes.
    pub(super) lanes: Option<Box<LaneQueues>>,
    /// `None`: no other generation shares the pool's requests.
    pub(super) turns: Option<TurnQueues>,
}

impl Acceptor {
    /// Registers the sources. Idle workers are woken in this order ([`EXCLUSIVE`]), and may leave a connection to a sibling (`wait_for_cpu`).
    pub(super) fn open(
        service: &Service,
        slot: u32,
        stop_pipe: OwnedFd,
        (queue_out, lanes, turns): (OwnedFd, Option<LaneQueues>, Option<TurnQueues>),
        accept_notify: OwnedFd,
    ) -> nix::Result<Acceptor> {
        let epoll = service.idle_watch.epoll();
        match service.router.fd() {
            Some(channel) => epoll.add(channel, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?,
            None => {
                epoll.add(&service.listener, EpollEvent::new(EXCLUSIVE, LISTENER))?;
                epoll.add(&queue_out, EpollEvent::new(EXCLUSIVE, QUEUE))?;
            }
        }
        if let Some(turns) = turns.as_ref().filter(|_| !service.router.is_there()) {
            epoll.add(&turns.own_out, EpollEvent::new(EXCLUSIVE, TURN))?;
        }
        for end in lanes.iter().flat_map(LaneQueues::high_ends) {
            epoll.add(end, EpollEvent::new(EXCLUSIVE, PARKED))?;
        }
        epoll.add(&stop_pipe, EpollEvent::new(EpollFlags::EPOLLIN, STOP_PIPE))?;
        Ok(Acceptor {
            processors: None,
            notifier: AcceptNotifier::new(slot as usize, accept_notify, &service.settings),
            stop_pipe,
            promotion: None,
            queue_out,
            eager: true,
            looked: Tick::ZERO,
            alone: false,
            contended: false,
            busy_since: Tick::ZERO,
            runs_since: Tick::ZERO,
            shared: Tick::ZERO,
            expired: Tick::ZERO,
            line: (ListenQueueState::default(), Tick::ZERO),
            gauge: Gauge::default(),
            pause: AcceptPause::default(),
            lanes: lanes.map(Box::new),
            turns,
        })
    }

    pub(super) fn watch_backend(&self, service: &Service, watch: BorrowedFd<'_>) -> nix::Result<()> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, BACKEND);
        service.idle_watch.epoll().add(watch, event)
    }

    pub(super) fn is_told_to_finish(&self, watch: BorrowedFd<'_>, limit: Option<Duration>) -> bool {
        let mut both = [
            PollFd::new(self.stop_pipe.as_fd(), PollFlags::POLLIN),
            PollFd::new(watch, PollFlags::POLLIN),
        ];
        let _ = poll(&mut both, limit.map_or(PollTimeout::NONE, poll_timeout));
        both[0].any().unwrap_or(true)
    }

    /// Waits for work, or for the backend's deadline. The worker counts as idle until this returns.
    pub(super) fn next(&mut self, service: &mut Service, backend: Option<Tick>) -> Work {
        if self.promotion.is_some() {
            return Work::Promote;
        }
        let idle_since = clock::now();
        service.slot_writer().idle(idle_since);
        if service.page.must_retire() {
            service.page.rest(idle_since);
            return Work::Retire;
        }
        if self.looked == Tick::ZERO {
            self.looked = idle_since;
        }
        if self.lanes.as_ref().is_some_and(|lanes| lanes.has_sorted_most())
            && let Some(work) = self.take_parked(service, idle_since)
        {
            return work;
        }
        if service.router.is_there() {
            service.page.rest(idle_since);
            return self.next_routed(service, backend);
        }
        let has_run = idle_since.since(self.runs_since) >= RUN_INTERVAL;
        // Not with held connections, whose requests would wait, nor with long requests, which lose their processor
        // caches to others.
        let is_short = !service.cost.usual.is_long();
        if self.eager && has_run && is_short && !service.idle_watch.is_holding() {
            self.runs_since = idle_since;
            std::thread::yield_now();
        }
        let has_turn = self.has_turn(service, idle_since);
        if !has_turn {
            self.notifier.tell_first();
        }
        if has_turn && idle_since.since(self.looked) < LOOK_INTERVAL {
            if let Some(work) = self.at_once(service) {
                return work;
            }
        }
        service.page.rest(idle_since);
        if let Some(lanes) = &mut self.lanes {
            lanes.rest();
        }
        loop {
            let work = self.scan(service, idle_since, backend);
            if let Some(work) = work {
                return work;
            }
        }
    }

    fn at_once(&mut self, service: &mut Service) -> Option<Work> {
        if self.alone {
            let first = service.idle_watch.keepalive().take_first();
            if let Some(connection) = first {
                self.take_up(service);
                return Some(Work::Connection(connection));
            }
        }
        if !self.eager || service.idle_watch.is_holding() {
            return None;
        }
        match self.accept(service) {
            Ok(Some(connection)) => Some(Work::Connection(connection)),
            Ok(None) => {
                self.eager = false;
                None
            }
            Err(failure) => Some(Work::Failed(failure.to_string())),
        }
    }

    /// Waits for a message of the router, or other work.
    pub(super) fn wait_for_router(&mut self, service: &Service, backend: Option<Tick>) -> Option<Work> {
        let mut events = [EpollEvent::empty(); EVENTS];
        let count = match service
            .idle_watch
            .epoll()
            .wait(&mut events, epoll_timeout(backend))
        {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(errno) => return Some(Work::Failed(format!("epoll_wait: {errno}"))),
        };
        let is = |token| events[..count].iter().any(|event| event.data() == token);
        let is_due = || backend.is_some_and(|due| due <= clock::now());
        match () {
            () if is(STOP_PIPE) => Some(Work::Retire),
            () if is(LISTENER) => None,
            () => (is(BACKEND) || is_due()).then_some(Work::Backend),
        }
    }

    /// Accepts one connection. Notifies the master of the first accept, even if it fails, and of later ones that it
    /// asked for.
    pub(super) fn accept(&mut self, service: &mut Service) -> Result<Option<Box<Connection>>, Error> {
        if self.gauge.sample(service, self.eager, self.looked) {
            self.notifier.tell_crowded(&service.page);
        }
        let socket = match service.page.accept(&service.listener) {
            Ok(socket) => socket,
            Err(error) if is_short(&error) || error.errno == Errno::EINVAL => {
                let _ = service.idle_watch.epoll().delete(&service.listener);
                pause(&mut self.pause, &error);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let Some(socket) = socket else {
            self.notifier.tell_first();
            return Ok(None);
        };
        let connection = service.connection(socket);
        let listen = &service.settings.pool.listen;
        let refusal = self.gauge.admit(&service.page, listen, connection.socket());
        let now = self.take_up(service);
        service.tally.waited = service
            .page
            .gate()
            .map_or(Duration::ZERO, |gate| gate.accepted(now));
        service.tally.found_waiting = self.eager;
        if let Some(why) = refusal {
            stderr_errors::error(&service.settings.pool, &why);
            service.close(connection);
            service.page.idle(now);
            return Ok(None);
        }
        Ok(Some(connection))
    }

    pub(super) fn take_up(&mut self, service: &mut Service) -> Tick {
        let now = clock::now();
        service.page.accepted(now);
        self.notifier.take_up(&service.page, now);
        now
    }

    pub(super) fn begin_work(&mut self, service: &mut Service, now: Tick) {
        service.router.want.begin(&service.page, &mut self.notifier, now);
        service.taken = now;
    }

    /// Passes connections without an answered request to the queue before a request starts, so that a request that
    /// kills its worker affects no others.
    pub(super) fn part_with_new(&self, service: &mut Service) {
        if !service.idle_watch.is_holding() {
            return;
        }
        let indices = service.idle_watch.keepalive().new_indices();
        if !indices.is_empty() {
            service.idle_watch.send_away(&indices);
            service.publish_kept();
        }
    }

    pub(super) fn hand_off_all(&self, service: &mut Service) {
        if service.router.is_there() {
            return service.hand_back_all();
        }
        let indices = service.idle_watch.keepalive().idle_indices();
        service.idle_watch.send_away(&indices);
    }
}
