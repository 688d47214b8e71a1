//! The state of a worker with several requests, and its turn: one pass over everything that is ready.

use super::super::EXIT_SOFTWARE;
use super::super::accept_notify::AcceptNotifier;
use super::super::access::Recorder;
use super::super::connection::ClientSocket;
use super::super::context::{GenerationContext, Settings, WorkerContext, most_descriptors};
use super::super::page::Page;
use super::super::release::ReleasePaths;
use super::super::route::RouteFinder;
use super::super::router_channel::Router;
use super::super::stderr_errors;
use super::super::turns::TurnQueues;
use super::super::wear::Wear;
use super::accepting::{self, Accepting};
use super::client::Link;
use super::clients::Clients;
use super::dispatch::Dispatch;
use super::events::{EventKind, Events};
use super::leave::{Departure, Life};
use super::quiet::Quiet;
use super::shown::ShownRequest;
use super::sources::{ALARM, EDGE, LISTENER, QUEUE, ROUTER, STOP_PIPE, Sources, TURN};
use super::times::Alarm;
use fastcgi::{Connection, Phase, Timeouts};
use forkyard_base::tick::Tick;
use forkyard_config::{Pool, Requests};
use forkyard_protocol::channel::FromWorker;
use forkyard_scoreboard::load::Load;
use forkyard_scoreboard::slot_writer::SlotWriter;
use forkyard_sys::error::Named;
use forkyard_sys::{Error, clock, sender};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

pub(super) const EVENTS: usize = 64;
pub(super) const READ_BYTES: usize = 128 * 1024;
/// EPOLLOUT is watched only after a full buffer: a unix socket would otherwise wake the worker at every read of its
/// peer.
const CLIENT: EpollFlags = EDGE.union(EpollFlags::EPOLLRDHUP);
const CLIENT_WITHOUT_ROOM: EpollFlags = CLIENT.union(EpollFlags::EPOLLOUT);

const OTHER_DESCRIPTORS: usize = 64;
/// Idle connections may use a quarter of the descriptors; the rest is for requests and the application.
const IDLE_PART: usize = 4;
/// Half of the descriptors are for idle streams and WebSockets.
const QUIET_PART: usize = 2;

pub(super) fn has_program(pool: &Pool) -> bool {
    pool.application.program().is_some()
}

/// How many requests and connections the worker takes.
#[derive(Debug)]
pub(super) struct Capacity {
    /// The number of requests without an end.
    pub in_flight: usize,
    /// The most requests that are not quiet.
    pub limit: usize,
    pub quiet: Quiet,
    pub most_idle: usize,
}

impl Capacity {
    fn new(limit: usize) -> Capacity {
        Capacity {
            in_flight: 0,
            limit: limit.max(1),
            quiet: Quiet::new(most_descriptors() / QUIET_PART),
            most_idle: most_descriptors() / IDLE_PART,
        }
    }

    /// `has_room`: whether the worker takes another request.
    pub(super) fn load(&self, has_room: bool) -> Load {
        Load {
            in_flight: u32::try_from(self.in_flight).unwrap_or(u32::MAX),
            quiet: u32::try_from(self.quiet.count()).unwrap_or(u32::MAX),
            has_room,
            is_told: true,
        }
    }
}

/// The passes over ready events.
#[derive(Debug, Default)]
pub(super) struct Turns {
    pub count: u64,
    /// Events are ready, but the event loop is blocked.
    pub is_held_up: bool,
}

#[derive(Debug)]
pub(super) struct WorkerState {
    pub settings: Settings,
    pub(super) release: ReleasePaths,
    pub sources: Sources,
    pub page: Page,
    pub router: Router,
    pub notifier: AcceptNotifier,
    pub alarm: Alarm,
    pub clients: Clients,
    pub scratch: Box<[u8]>,
    pub events: Events,
    /// Replaces `events` if threads take the requests.
    pub dispatch: Option<Dispatch>,
    pub capacity: Capacity,
    pub accepting: Accepting,
    pub wear: Wear,
    pub shown: ShownRequest,
    pub routes: RouteFinder,
    pub turns: Turns,
    pub departure: Departure,
}

impl WorkerState {
    pub(super) fn begin(mut context: GenerationContext, own: WorkerContext) -> Result<WorkerState, Error> {
        stderr_errors::at_begin(&context.settings.pool);
        context.keep_accept_from_waiting();
        sender::install(None, context.settings.records_faults);
        let page = Page::open(&context, own.slot)?;
        let turn_queues = TurnQueues::of(&mut context);
        drop(context.board_writable);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).named("epoll_create1", "")?;
        let sources = Sources {
            epoll: Arc::new(epoll),
            listener: context.listener,
            http: context.http,
            queue_in: context.queue_in,
            queue_out: context.queue_out,
            turns: turn_queues,
            stop_pipe: own.stop_pipe,
            access: context.access,
            is_listening: false,
        };
        let router = Router::new(own.channel);
        let application = &context.settings.pool.application;
        let is_native = application.traits().requests == Requests::Forwarded;
        let limit = match is_native {
            true => most_descriptors().saturating_sub(OTHER_DESCRIPTORS) / 2,
            false => application.concurrency() as usize,
        };
        let is_routed = router.is_there();
        let room_for_router = if is_routed {
            super::routed::MESSAGE_BYTES
        } else {
            0
        };
        let mut wear = Wear::new(&context.settings);
        if has_program(&context.settings.pool) {
            // The program has a limit of requests itself.
            wear.most = None;
        }
        let processors = || std::thread::available_parallelism().map_or(1, NonZero::get);
        let enough = is_native.then(|| accepting::enough(processors()));
        let mut state = WorkerState {
            page,
            sources,
            notifier: AcceptNotifier::new(own.slot as usize, context.accept_notify, &context.settings),
            alarm: Alarm::new().named("timerfd_create", "")?,
            clients: Clients::default(),
            scratch: vec![0; READ_BYTES + room_for_router].into_boxed_slice(),
            router,
            events: Events::default(),
            dispatch: None,
            capacity: Capacity::new(limit),
            accepting: Accepting::begin(enough, is_routed),
            wear,
            shown: ShownRequest::default(),
            routes: RouteFinder::default(),
            turns: Turns::default(),
            departure: Departure::default(),
            release: ReleasePaths::of(&context.settings),
            settings: context.settings,
        };
        state
            .sources
            .watch(state.alarm.fd(), state.router.fd())
            .and_then(|()| state.mind_listener())
            .named("epoll_ctl", "")?;
        state.page.begin();
        Ok(state)
    }

    pub(super) fn slot_writer(&self) -> SlotWriter<'_> {
        self.page.writer()
    }

    pub(super) fn turn(&mut self) -> bool {
        let mut ready = [EpollEvent::empty(); EVENTS];
        let count = match self.sources.epoll.wait(&mut ready, EpollTimeout::ZERO) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(errno) => {
                self.fail(&format!("epoll_wait: {errno}"));
                0
            }
        };
        self.on_ready(&ready[..count]);
        count == EVENTS || self.could_do_more()
    }

    pub(super) fn on_ready(&mut self, ready: &[EpollEvent]) {
        self.turns.count += 1;
        let now = clock::now();
        if self.turns.count == 1 {
            self.publish_load();
            self.page.idle(now);
            self.notifier.tell_first();
        }
        if std::mem::take(&mut self.turns.is_held_up) {
            self.accepting.gauge.was_strained = true;
            self.publish_load();
            self.router.tell_held_up(false);
        }
        for event in ready {
            match event.data() {
                LISTENER => self.accepting.is_ready = true,
                QUEUE => self.accepting.queue_is_ready = true,
                TURN => self.accepting.turn_is_ready = true,
                STOP_PIPE => self.hear_master(now),
                ALARM => self.ring(now),
                ROUTER => self.hear_router(now),
                token => self.see(token, event.events(), now),
            }
        }
        self.take_work(now);
        self.look_for_work(ready.len(), now);
        self.look_if_done();
        self.update_listening(now);
    }

    pub(super) fn tell(&mut self, kind: EventKind, token: u64) {
        match &mut self.dispatch {
            Some(dispatch) => dispatch.hear(kind, token),
            None => self.events.put(kind, token),
        }
    }

    pub(super) fn occupied(&self) -> usize {
        let given = self.dispatch.as_ref().map_or(0, Dispatch::given);
        self.capacity.in_flight.max(given)
    }

    pub(super) fn could_do_more(&self) -> bool {
        let is_sent = self.accepting.queue_is_ready
            || self.sources.turns.is_some() && self.accepting.turn_is_ready && !self.router.is_there();
        let is_there = is_sent || !self.clients.waiting.is_empty();
        let in_flight = self.capacity.in_flight;
        self.has_room() && (is_there || self.accepting.could_take(in_flight, clock::now))
    }

    fn see(&mut self, token: u64, flags: EpollFlags, now: Tick) {
        let Some((index, link)) = self.clients.link(token) else {
            return;
        };
        let mut may_read = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP;
        may_read |= EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
        if flags.intersects(may_read) {
            link.readable = true;
        }
        link.hangs_up |= flags.intersects(may_read.difference(EpollFlags::EPOLLIN));
        if flags.contains(EpollFlags::EPOLLOUT) && self.connection(index).is_some_and(|it| it.has_output()) {
            self.go_on_sending(index, now);
        }
        self.read(index, now);
    }

    /// Adds a connection, to be read next and then watched ([`WorkerState::watch`]).
    pub(super) fn take_in(&mut self, socket: OwnedFd, now: Tick) -> usize {
        let connection = match self.clients.spare() {
            Some(spare) => spare.reuse(now),
            None => {
                let pool = &self.settings.pool;
                let timeouts = Timeouts {
                    client: pool.serving.client_timeout,
                    keepalive: pool.serving.keepalive_timeout,
                };
                let limits = self.settings.wire_limits();
                Box::new(Connection::new(limits, self.settings.repeated(), timeouts, now))
            }
        };
        let index = self.clients.take();
        let client = &mut self.clients[index];
        client.link = Some(Link {
            socket: ClientSocket::new(socket),
            generation: client.next_serial(),
            watched: None,
            readable: true,
            hangs_up: false,
            waited: Duration::ZERO,
            waits_since: None,
            has_turn: false,
        });
        client.connection = Some(connection);
        self.heed_deadline(index);
        index
    }

    /// Registers a connection once something may be waited for. A request that a thread answers at once needs no
    /// registration.
    pub(super) fn watch(&mut self, index: usize) {
        let client = &self.clients[index];
        let (Some(link), Some(connection)) = (&client.link, &client.connection) else {
            return;
        };
        let is_waited_for = match connection.phase() {
            Phase::Idle | Phase::Reading | Phase::Lingering => true,
            Phase::Serving => !connection.body_ended() || self.dispatch.is_none(),
            Phase::Waiting | Phase::Ending | Phase::Closed => false,
        };
        if is_waited_for && link.watched.is_none() {
            self.watch_for(index, CLIENT);
        }
    }

    pub(super) fn watch_room(&mut self, index: usize, is_wanted: bool) {
        let watched = self.clients[index].link.as_ref().and_then(|link| link.watched);
        if is_wanted != (watched == Some(CLIENT_WITHOUT_ROOM)) {
            self.watch_for(index, if is_wanted { CLIENT_WITHOUT_ROOM } else { CLIENT });
        }
    }

    fn watch_for(&mut self, index: usize, flags: EpollFlags) {
        let Some(link) = &mut self.clients[index].link else {
            return;
        };
        let mut event = EpollEvent::new(flags, u64::from(link.generation) << 32 | index as u64);
        let watched = match link.watched {
            Some(_) => self.sources.epoll.modify(link.socket.fd(), &mut event),
            None => self.sources.epoll.add(link.socket.fd(), event),
        };
        match watched {
            Ok(()) => link.watched = Some(flags),
            Err(errno) => {
                log::error!("can't keep a connection: epoll_ctl: {errno}");
                self.lose_client(index);
            }
        }
    }

    pub(super) fn hang_up(&mut self, index: usize) {
        if let Some(mut link) = self.clients[index].link.take() {
            if link.watched.is_some() {
                let _ = self.sources.epoll.delete(link.socket.fd());
            }
            link.socket.hang_up();
        }
    }

    pub(super) fn close(&mut self, index: usize) {
        self.hang_up(index);
        self.end_session(index, FromWorker::Closed);
        self.clients.release(index);
    }

    pub(super) fn recorder(&self) -> Option<Box<Recorder>> {
        let shelf = self.sources.access.as_ref()?.try_clone().ok();
        self.page.recorder(&self.settings, shelf)
    }

    pub(super) fn has_room(&self) -> bool {
        !self.is_full() && self.departure.life == Life::Serving
    }

    pub(super) fn publish_load(&self) {
        let has_room = self.has_room() && !self.turns.is_held_up;
        self.slot_writer().load(self.capacity.load(has_room));
        self.page.show_full(!has_room && !self.is_leaving());
    }

    /// Shows the worker as busy, with the master's notices ([`AcceptNotifier::take_up`]).
    pub(super) fn show_busy(&mut self, now: Tick) {
        self.notifier.take_up(&self.page, now);
    }

    pub(super) fn publish_kept(&self) {
        self.slot_writer().kept(self.clients.idle().len() as u64);
    }

    pub(super) fn fail(&mut self, why: &str) {
        log::error!("worker can't go on: {why}");
        self.departure.exit_code = EXIT_SOFTWARE;
        self.departure.life = Life::Done;
        self.tell(EventKind::End, 0);
    }
}
