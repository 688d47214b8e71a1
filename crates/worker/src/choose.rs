//! Checks a worker's sources and chooses what to serve next.
//!
//! For each connection and each message in the hand-off queue, the kernel wakes one idle worker (EPOLLEXCLUSIVE): the
//! first in order of registration that waits in epoll_wait(2). Busy workers before it get the event too, but workers behind
//! it sleep on. A worker that may have been woken must therefore take the work. If no worker waits, all get the event.

use super::acceptor::{
    Acceptor, BACKEND, EVENTS, EXCLUSIVE, FIRST_KEEPALIVE, LISTENER, PARKED, PROMPT, QUEUE, STOP_PIPE, TURN,
    Work,
};
use super::connection::Connection;
use super::hand_off;
use super::pool_view::{self, count};
use super::promotion::{self, MasterMessage};
use super::run_queue;
use super::service::Service;
use super::service_order::{self, ListenQueueState, Next, Waiting};
use super::turns::requests_only;
use forkyard_base::tick::Tick;
use forkyard_sys::clock;
use forkyard_sys::timeout::{epoll_timeout, poll_timeout};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::epoll::{EpollEvent, EpollTimeout};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// How long a measurement of the backlog stays valid.
const LINE_INTERVAL: Duration = Duration::from_micros(500);
/// After this time without being idle, a worker with several requests passes half of its requests to an idle sibling, at
/// most this often. Passing one costs as much as a small request.
const SHARE_INTERVAL: Duration = Duration::from_millis(1);
const EXPIRY_INTERVAL: Duration = Duration::from_millis(100);

enum QueueMessage {
    None,
    /// A wake-up without a connection.
    Wake,
    /// The message had only connections without a known request, which the worker now holds.
    Silent,
    Request(Box<Connection>),
}

#[derive(Default)]
struct Ready {
    listener: bool,
    queue: bool,
    turn: bool,
    stop_pipe: bool,
    backend: bool,
    keepalive: Vec<usize>,
}

impl Ready {
    fn note(&mut self, token: u64) {
        match token {
            LISTENER => self.listener = true,
            QUEUE => self.queue = true,
            TURN => self.turn = true,
            STOP_PIPE => self.stop_pipe = true,
            BACKEND => self.backend = true,
            // Looked at whenever nothing else has work.
            PARKED => {}
            keepalive => self.keepalive.push((keepalive - FIRST_KEEPALIVE) as usize),
        }
    }
}

impl Acceptor {
    /// Checks all sources, and waits if none has work. `None`: call again.
    pub(super) fn scan(
        &mut self,
        service: &mut Service,
        idle_since: Tick,
        backend: Option<Tick>,
    ) -> Option<Work> {
        let may_sleep = !self.contended && !has_waiting(service);
        let has_left = self.turns.as_ref().is_some_and(|turns| turns.has_left);
        let timeout = match may_sleep && !has_left {
            true => {
                let parked = self
                    .parked_allow(service, idle_since)
                    .map(|limit| clock::now() + limit);
                let others = backend.into_iter().chain(self.pause.deadline()).chain(parked);
                timeout(service, others.min())
            }
            false => EpollTimeout::ZERO,
        };
        let mut events = [EpollEvent::empty(); EVENTS];
        let count = match service.idle_watch.epoll().wait(&mut events, timeout) {
            Ok(count) => count,
            Err(Errno::EINTR) => return None,
            Err(errno) => return Some(Work::Failed(format!("epoll_wait: {errno}"))),
        };
        let now = clock::now();
        if may_sleep {
            if let Some(pause) = self.leaves(service, &events[..count], now) {
                let mut told = [PollFd::new(self.stop_pipe.as_fd(), PollFlags::POLLIN)];
                let _ = poll(&mut told, poll_timeout(pause));
                return None;
            }
        }
        if let Some(turns) = &mut self.turns {
            turns.has_left = false;
            if has_left && count == 0 {
                return None;
            }
            if !has_left && !self.has_turn(service, now) {
                if let Some(work) = self.leave_to_other(service, &events[..count], now) {
                    return work;
                }
            }
        }
        self.looked = now;
        if self.pause.end(now) {
            let watched = EpollEvent::new(EXCLUSIVE, LISTENER);
            if let Err(errno) = service.idle_watch.epoll().add(&service.listener, watched) {
                return Some(Work::Failed(format!("epoll_ctl: {errno}")));
            }
        }
        let mut ready = Ready::default();
        for event in &events[..count] {
            ready.note(event.data());
        }
        let is_prompt = now.since(idle_since) < PROMPT;
        if may_sleep && !is_prompt {
            (self.busy_since, self.runs_since) = (now, now);
        }
        self.eager = ready.listener && is_prompt;
        self.alone = !ready.listener && !ready.queue;
        let is_waited = may_sleep && (count == 0 || timeout != EpollTimeout::NONE);
        if is_waited || now.since(self.expired) >= EXPIRY_INTERVAL {
            self.expired = now;
            self.close_expired(service, now);
        }
        self.note(service, &ready, now);
        let sources = [ready.listener, ready.queue, has_waiting(service)];
        self.contended = sources.into_iter().filter(|is| *is).count() > 1;
        self.share(service, now);
        if ready.stop_pipe && service.settings.refork_at.is_some() {
            if let MasterMessage::Promote(promotion) = promotion::hear(self.stop_pipe.as_fd(), true) {
                self.promotion = Some(promotion);
                ready.stop_pipe = false;
            }
        }
        if ready.stop_pipe {
            if ready.queue {
                service.idle_watch.wake_sibling();
            }
            // The kernel woke only this worker for the connection, so take it before exiting.
            let last = if ready.listener {
                self.accept(service).ok().flatten()
            } else {
                None
            };
            return Some(last.map_or(Work::Retire, Work::Connection));
        }
        if ready.turn {
            if let Some(connection) = self.take_turn(service, &mut ready, now) {
                if may_sleep && (ready.listener || ready.queue) {
                    service.idle_watch.wake_sibling();
                }
                return Some(Work::Connection(connection));
            }
        }
        if let Some(work) = self.choose(service, &mut ready, may_sleep, now) {
            return Some(work);
        }
        if ready.queue {
            return None;
        }
        if let Some(work) = self.take_parked(service, now) {
            return Some(work);
        }
        if self.promotion.is_some() {
            self.take_up(service);
            return Some(Work::Promote);
        }
        // Take requests first: the kernel woke no other worker for them.
        if count == 0
            && service.router.want.due().is_some_and(|due| due <= now)
            && service.router.want.claims(&service.page, &mut self.notifier, now)
        {
            service.taken = now;
            return Some(Work::OutOfBand);
        }
        (ready.backend || backend.is_some_and(|due| due <= now)).then_some(Work::Backend)
    }

    fn leaves(&mut self, service: &Service, events: &[EpollEvent], now: Tick) -> Option<Duration> {
        let usual = service.cost.usual;
        let is_new = !events.is_empty() && events.iter().all(|event| event.data() == LISTENER);
        if !is_new || !usual.is_long() || self.lanes.is_some() || service.idle_watch.is_holding() {
            return None;
        }
        let processors = *self.processors.get_or_insert_with(|| {
            std::thread::available_parallelism().map_or(usize::MAX, std::num::NonZero::get)
        });
        let enough = (run_queue::MOST_IDLE, usual.at_once(processors));
        let (idle, begun) = pool_view::begun_within(&service.page.board, usual.counts_for(), now, enough);
        (begun >= enough.1).then(|| run_queue::look_again(idle))
    }

    /// Whether it is the turn of the worker's generation. Always `true` if the pool's requests are not shared.
    pub(super) fn has_turn(&self, service: &Service, now: Tick) -> bool {
        self.turns.is_none() || service.page.has_turn(now)
    }

    /// Leaves requests to the other generation for a moment. `None`: the worker takes them now; `Some(None)`: look again.
    fn leave_to_other(
        &mut self,
        service: &mut Service,
        events: &[EpollEvent],
        now: Tick,
    ) -> Option<Option<Work>> {
        let turns = self.turns.as_mut()?;
        let (is_new, places) = requests_only(events)?;
        let mut is_sent = false;
        if !places.is_empty() && !turns.other_has_message() {
            let mut keepalive = service.idle_watch.keepalive();
            for place in &places {
                keepalive.note(*place, Waiting { since: now, turn: 0 });
            }
            is_sent = keepalive.send_away(&places, turns.other_in.as_fd(), service.idle_watch.epoll()) > 0;
            drop(keepalive);
            service.publish_kept();
        } else if is_new {
            turns.wake_other();
        } else {
            return None;
        }
        turns.has_left = true;
        turns.pause(self.stop_pipe.as_fd());
        if !is_sent || !turns.other_has_message() {
            return Some(None);
        }
        let taken = take_message(service, turns.other_out.as_fd(), clock::now());
        let QueueMessage::Request(connection) = taken else {
            return Some(None);
        };
        self.take_up(service);
        Some(Some(Work::Connection(connection)))
    }

    /// Takes a message of the other generation: a request, or the wake-up for a new connection.
    fn take_turn(&mut self, service: &mut Service, ready: &mut Ready, now: Tick) -> Option<Box<Connection>> {
        let turns = self.turns.as_ref()?;
        match take_message(service, turns.own_out.as_fd(), now) {
            QueueMessage::Request(connection) => {
                self.take_up(service);
                Some(connection)
            }
            QueueMessage::Wake => {
                ready.listener = true;
                None
            }
            QueueMessage::Silent | QueueMessage::None => None,
        }
    }

    /// Serves the oldest known request. `None`: a sibling took it.
    fn choose(
        &mut self,
        service: &mut Service,
        ready: &mut Ready,
        may_have_slept: bool,
        now: Tick,
    ) -> Option<Work> {
        let mut queue = ready.queue;
        loop {
            let own = match service.idle_watch.is_holding() {
                true => service.idle_watch.keepalive().first(),
                false => None,
            };
            let mut first_in_queue = None;
            if queue && (own.is_some() || ready.listener) {
                match hand_off::first_in(self.queue_out.as_fd()) {
                    Some(note) => first_in_queue = note.waiting,
                    None => queue = false,
                }
            }
            let next = if queue && first_in_queue.is_none() {
                Next::Queue
            } else if ready.listener && (own.is_some() || first_in_queue.is_some()) {
                service_order::next(Some(self.line(service, now)), first_in_queue, own)
            } else {
                service_order::next(
                    ready.listener.then(ListenQueueState::default),
                    first_in_queue,
                    own,
                )
            };
            let leaves = (ready.listener && next != Next::Accept) || (queue && next != Next::Queue);
            let found = match next {
                Next::Accept => match self.accept(service) {
                    Ok(Some(connection)) => Some(connection),
                    Ok(None) => {
                        (self.eager, ready.listener) = (false, false);
                        None
                    }
                    Err(failure) => return Some(Work::Failed(failure.to_string())),
                },
                Next::Queue => match take_message(service, self.queue_out.as_fd(), now) {
                    QueueMessage::Request(connection) => Some(connection),
                    QueueMessage::Wake => {
                        ready.listener = true;
                        None
                    }
                    QueueMessage::Silent => return None,
                    QueueMessage::None => {
                        queue = false;
                        None
                    }
                },
                Next::Own => Some(service.idle_watch.keepalive().take_first()?),
                Next::Nothing => return None,
            };
            let Some(connection) = found else { continue };
            if leaves && may_have_slept {
                service.idle_watch.wake_sibling();
            }
            if next != Next::Accept {
                self.take_up(service);
            }
            return Some(Work::Connection(connection));
        }
    }

    fn note(&mut self, service: &mut Service, ready: &Ready, now: Tick) {
        if ready.keepalive.is_empty() && !has_waiting(service) {
            return;
        }
        let turn = match ready.listener && !ready.keepalive.is_empty() {
            true => self.line(service, now).end(),
            false => 0,
        };
        let mut keepalive = service.idle_watch.keepalive();
        for index in &ready.keepalive {
            keepalive.note(*index, Waiting { since: now, turn });
        }
        let rest = keepalive.waiting_behind(service_order::stays(
            service.likely_time(),
            keepalive.second(),
            now,
        ));
        drop(keepalive);
        if !rest.is_empty() && service.page.board.slots() > 1 {
            service.idle_watch.send_away(&rest);
            service.publish_kept();
        }
    }

    fn share(&mut self, service: &mut Service, now: Tick) {
        if !service.idle_watch.is_holding() {
            return;
        }
        let waiting = service.idle_watch.keepalive().waiting();
        let is_due = |since: Tick| now.since(since) >= SHARE_INTERVAL;
        if waiting < 2 || !is_due(self.busy_since) || !is_due(self.shared) || count(&service.page.board).0 < 2
        {
            return;
        }
        self.shared = now;
        let half = service.idle_watch.keepalive().waiting_behind(waiting.div_ceil(2));
        service.idle_watch.send_away(&half);
        service.publish_kept();
    }

    fn line(&mut self, service: &Service, now: Tick) -> ListenQueueState {
        let (line, measured) = self.line;
        if measured != Tick::ZERO && now.since(measured) < LINE_INTERVAL {
            return line.at(pool_view::accepted(&service.page.board));
        }
        let line = pool_view::line(&service.page.board, &service.listener);
        self.line = (line, now);
        line
    }

    fn close_expired(&self, service: &mut Service, now: Tick) {
        let expired = service.idle_watch.keepalive().take_expired(now);
        for connection in expired {
            if !connection.client.spoken {
                log::debug!("closed a silent connection");
            }
            service.close(connection);
        }
        service.publish_kept();
    }
}

fn take_message(service: &mut Service, queue_out: BorrowedFd<'_>, now: Tick) -> QueueMessage {
    let latest = hand_off::latest(&service.settings.pool, now);
    let Some((note, connections)) = hand_off::receive(queue_out, latest) else {
        return QueueMessage::None;
    };
    let (mut came, mut waiting) = (QueueMessage::Wake, note.waiting);
    for (socket, expires) in connections {
        let mut connection = service.connection(socket);
        connection.client.spoken = note.is_spoken;
        match expires {
            Some(expires) => connection.expires = expires,
            None => connection.asked = note.is_spoken,
        }
        match waiting.take() {
            Some(waiting) => {
                connection.waiting = Some(waiting);
                came = QueueMessage::Request(connection);
            }
            None => {
                service.hold(connection, now);
                if matches!(came, QueueMessage::Wake) {
                    came = QueueMessage::Silent;
                }
            }
        }
    }
    came
}

fn has_waiting(service: &Service) -> bool {
    service.idle_watch.is_holding() && service.idle_watch.keepalive().waiting() > 0
}

fn timeout(service: &Service, backend: Option<Tick>) -> EpollTimeout {
    let expiry = match service.idle_watch.is_holding() {
        true => service.idle_watch.keepalive().next_expiry(),
        false => None,
    };
    let work = service.router.want.due();
    epoll_timeout(expiry.into_iter().chain(backend).chain(work).min())
}
