//! The state of a worker with several requests, and its turn: one pass over everything that is ready.

use super::super::EXIT_SOFTWARE;
use super::super::accept_notify::AcceptNotifier;
use super::super::access::Recorder;
use super::super::connection::ClientSocket;
use super::super::context::{GenerationContext, Settings, WorkerContext};
use super::super::out_of_band::Want;
use super::super::promotion::Promotion;
use super::accepting::Accepting;
use super::client::{Client, Link};
use super::dispatch::Dispatch;
use super::events::{EventKind, Events};
use super::leave::Life;
use super::native::SOURCES;
use super::quiet::Quiet;
use super::routed::Router;
use super::shown::ShownRequest;
use super::times::Alarm;
use super::wear::Wear;
use fastcgi::{Connection, Output, Phase, Timeouts};
use forkyard_base::tick::Tick;
use forkyard_config::{AccessLog, Pool, Requests};
use forkyard_protocol::channel::FromWorker;
use forkyard_scoreboard::load::Load;
use forkyard_scoreboard::slot_writer::SlotWriter;
use forkyard_scoreboard::{Reader, Slot};
use forkyard_sys::{Error, clock, identity, sender};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Epoll data of the worker's sources; connections use their place and serial.
pub(super) const LISTENER: u64 = SOURCES;
pub(super) const QUEUE: u64 = SOURCES | 1;
pub(super) const STOP_PIPE: u64 = SOURCES | 2;
pub(super) const ALARM: u64 = SOURCES | 3;
pub(super) const ROUTER: u64 = SOURCES | 4;

pub(super) const EVENTS: usize = 64;
pub(super) const READ_BYTES: usize = 128 * 1024;
const SPARES: usize = 32;
/// Edge-triggered. All workers get the event of a new connection, and the least busy accepts it.
pub(super) const EDGE: EpollFlags = EpollFlags::EPOLLIN.union(EpollFlags::EPOLLET);
/// EPOLLOUT is watched only after a full buffer: a unix socket would otherwise wake the worker at every read of its
/// peer.
const CLIENT: EpollFlags = EDGE.union(EpollFlags::EPOLLRDHUP);
const CLIENT_WITHOUT_ROOM: EpollFlags = CLIENT.union(EpollFlags::EPOLLOUT);

const OTHER_DESCRIPTORS: u64 = 64;
/// Idle connections may use a quarter of the descriptors; the rest is for requests and the application.
const IDLE_PART: u64 = 4;

fn most_idle_connections() -> usize {
    let all = identity::most_descriptors().unwrap_or(0);
    usize::try_from(all / IDLE_PART).unwrap_or(usize::MAX)
}

/// Half of the descriptors are for idle streams and WebSockets.
fn most_quiet() -> usize {
    let all = identity::most_descriptors().unwrap_or(0);
    usize::try_from(all / 2).unwrap_or(usize::MAX)
}

fn most_requests_by_descriptors() -> usize {
    let all = identity::most_descriptors().unwrap_or(0);
    usize::try_from(all.saturating_sub(OTHER_DESCRIPTORS) / 2).unwrap_or(usize::MAX)
}

pub(super) fn has_program(pool: &Pool) -> bool {
    pool.application.program().is_some()
}

#[derive(Debug)]
pub(super) struct WorkerState {
    pub settings: Settings,
    pub listener: OwnedFd,
    pub http: Option<OwnedFd>,
    pub board: Reader,
    pub slot: Slot,
    pub epoll: Arc<Epoll>,
    pub queue_in: OwnedFd,
    pub queue_out: OwnedFd,
    pub stop_pipe: OwnedFd,
    pub router: Option<Router>,
    pub notifier: AcceptNotifier,
    pub alarm: Alarm,
    pub clients: Vec<Client>,
    pub free: Vec<usize>,
    #[expect(clippy::vec_box, reason = "the same boxes come from and go to the indices")]
    spare: Vec<Box<Connection<Tick>>>,
    #[expect(clippy::vec_box, reason = "the same boxes come from and go to the indices")]
    pub spare_outputs: Vec<Box<Output>>,
    pub scratch: Box<[u8]>,
    pub events: Events,
    /// Replaces `events` if threads take the requests.
    pub dispatch: Option<Dispatch>,
    pub in_flight: usize,
    pub limit: usize,
    pub quiet: Quiet,
    pub most_idle: usize,
    pub waiting: VecDeque<usize>,
    pub accepting: Accepting,
    pub wear: Wear,
    pub last_taken: Tick,
    pub shown: ShownRequest,
    pub turns: u64,
    /// Events are ready, but the event loop is blocked.
    pub is_held_up: bool,
    /// The event loop only passes requests on ([`super::native`]).
    pub is_native: bool,
    pub is_listening: bool,
    pub want: Want,
    pub life: Life,
    pub departure_due: Option<Tick>,
    pub promotion: Option<Promotion>,
    access: Option<(AccessLog, OwnedFd)>,
    pub exit_code: i32,
}

impl WorkerState {
    pub(super) fn begin(context: GenerationContext, own: WorkerContext) -> Result<WorkerState, Error> {
        context.keep_accept_from_waiting();
        let slots = context.settings.slots as usize;
        let board = Reader::map(context.board_readable.as_fd(), slots)?;
        let slot = Slot::map(context.board_writable.as_fd(), own.slot as usize)?;
        sender::install(None);
        slot.note_senders();
        drop(context.board_writable);
        let failed = |call: &'static str| move |errno| Error::new(call, "", errno);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed("epoll_create1"))?;
        let alarm = Alarm::new().map_err(failed("timerfd_create"))?;
        let router = own.channel.map(Router::new);
        let application = &context.settings.pool.application;
        let is_native = application.traits().requests == Requests::Forwarded;
        let limit = match is_native {
            true => most_requests_by_descriptors(),
            false => application.concurrency() as usize,
        };
        let access = context.settings.pool.logs.access.clone().zip(context.access);
        let mut state = WorkerState {
            board,
            slot,
            epoll: Arc::new(epoll),
            listener: context.listener,
            http: context.http,
            queue_in: context.queue_in,
            queue_out: context.queue_out,
            stop_pipe: own.stop_pipe,
            notifier: AcceptNotifier::new(own.slot as usize, context.accept_notify, &context.settings),
            alarm,
            clients: Vec::new(),
            free: Vec::new(),
            spare: Vec::new(),
            spare_outputs: Vec::new(),
            scratch: vec![0; READ_BYTES + router.as_ref().map_or(0, |_| super::routed::MESSAGE_BYTES)]
                .into_boxed_slice(),
            router,
            events: Events::default(),
            dispatch: None,
            in_flight: 0,
            limit: limit.max(1),
            quiet: Quiet::new(most_quiet()),
            most_idle: most_idle_connections(),
            waiting: VecDeque::new(),
            accepting: Accepting::begin(is_native),
            wear: Wear::new(&context.settings.pool),
            last_taken: Tick::ZERO,
            shown: ShownRequest::default(),
            turns: 0,
            is_held_up: false,
            is_native,
            is_listening: false,
            want: Want::Nothing,
            life: Life::Serving,
            departure_due: None,
            promotion: None,
            access,
            exit_code: 0,
            settings: context.settings,
        };
        state
            .watch_sources()
            .and_then(|()| state.mind_listener())
            .map_err(failed("epoll_ctl"))?;
        let now = clock::now();
        let pid = std::process::id() as i32;
        state.slot_writer().begin(pid, clock::epoch_seconds(), now);
        Ok(state)
    }

    fn watch_sources(&self) -> nix::Result<()> {
        match &self.router {
            Some(router) => self
                .epoll
                .add(router.channel(), EpollEvent::new(EpollFlags::EPOLLIN, ROUTER))?,
            None => self.epoll.add(&self.queue_out, EpollEvent::new(EDGE, QUEUE))?,
        }
        self.epoll
            .add(&self.stop_pipe, EpollEvent::new(EpollFlags::EPOLLIN, STOP_PIPE))?;
        self.epoll
            .add(self.alarm.fd(), EpollEvent::new(EpollFlags::EPOLLIN, ALARM))
    }

    pub(super) fn slot_writer(&self) -> SlotWriter<'_> {
        SlotWriter::new(self.slot.words())
    }

    pub(super) fn turn(&mut self) -> bool {
        let mut ready = [EpollEvent::empty(); EVENTS];
        let count = match self.epoll.wait(&mut ready, EpollTimeout::ZERO) {
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
        self.turns += 1;
        let now = clock::now();
        if self.turns == 1 {
            self.publish_load();
            self.slot_writer().idle(now);
            self.notifier.tell_first();
        }
        if std::mem::take(&mut self.is_held_up) {
            self.accepting.was_strained = true;
            self.publish_load();
            self.tell_held_up();
        }
        for event in ready {
            match event.data() {
                LISTENER => self.accepting.is_ready = true,
                QUEUE => self.accepting.queue_is_ready = true,
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
        self.in_flight.max(given)
    }

    pub(super) fn could_do_more(&self) -> bool {
        let is_there = self.accepting.queue_is_ready || !self.waiting.is_empty();
        // Without a request it leaves nothing to siblings, unless connections are concentrated.
        let leaves_nothing = self.in_flight == 0 && !self.is_native;
        let insists_at = self.accepting.insists_at();
        let may_accept = || leaves_nothing || insists_at.is_none_or(|due| due <= clock::now());
        let accepts = self.accepting.may_look() && may_accept();
        self.has_room() && (is_there || (accepts && self.router.is_none()))
    }

    fn see(&mut self, token: u64, flags: EpollFlags, now: Tick) {
        let index = (token & 0xffff_ffff) as usize;
        let link = self
            .clients
            .get_mut(index)
            .and_then(|client| client.link.as_mut());
        let Some(link) = link.filter(|link| u64::from(link.generation) == token >> 32) else {
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

    pub(super) fn free_index(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.clients.push(Client::default());
            self.clients.len() - 1
        })
    }

    /// Adds a connection, to be read next and then watched ([`WorkerState::watch`]).
    pub(super) fn take_in(&mut self, socket: OwnedFd, now: Tick) -> usize {
        let connection = match self.spare.pop() {
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
        let index = self.free_index();
        let client = &mut self.clients[index];
        client.link = Some(Link {
            socket: ClientSocket::new(socket),
            generation: client.next_serial(),
            watched: None,
            readable: true,
            hangs_up: false,
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
            Some(_) => self.epoll.modify(link.socket.fd(), &mut event),
            None => self.epoll.add(link.socket.fd(), event),
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
                let _ = self.epoll.delete(link.socket.fd());
            }
            link.socket.hang_up();
        }
    }

    pub(super) fn close(&mut self, index: usize) {
        self.hang_up(index);
        self.end_session(index, FromWorker::Closed);
        self.give_up(index);
    }

    pub(super) fn give_up(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let spare = client.connection.take();
        self.spare.extend(spare.filter(|_| self.spare.len() < SPARES));
        *client = Client {
            serial: client.serial,
            ..Client::default()
        };
        self.waiting.retain(|other| *other != index);
        self.free.push(index);
    }

    pub(super) fn idle_clients(&self) -> Vec<usize> {
        let clients = self.clients.iter().enumerate();
        let idle = clients.filter(|(_, client)| client.is_in(Phase::Idle));
        idle.map(|(index, _)| index).collect()
    }

    pub(super) fn keep_output(&mut self, mut output: Box<Output>) {
        if self.spare_outputs.len() < SPARES {
            output.abandon();
            self.spare_outputs.push(output);
        }
    }

    pub(super) fn recorder(&self) -> Option<Box<Recorder>> {
        let (access, shelf) = self.access.as_ref()?;
        let name = self.settings.pool.name.clone();
        let shelf = shelf.try_clone().ok()?;
        let limit = self.settings.log_limit;
        Some(Box::new(Recorder::new(
            access.clone(),
            name,
            limit,
            shelf,
            self.board.header(),
        )))
    }

    pub(super) fn has_room(&self) -> bool {
        !self.is_full() && self.life == Life::Serving
    }

    pub(super) fn publish_load(&self) {
        self.slot_writer()
            .load(self.load(self.has_room() && !self.is_held_up));
    }

    pub(super) fn load(&self, has_room: bool) -> Load {
        Load {
            in_flight: u32::try_from(self.in_flight).unwrap_or(u32::MAX),
            quiet: u32::try_from(self.quiet.count()).unwrap_or(u32::MAX),
            has_room,
            is_told: true,
        }
    }

    /// Shows the worker as busy, with the master's notices ([`AcceptNotifier::take_up`]).
    pub(super) fn show_busy(&mut self, now: Tick) {
        let slot_writer = SlotWriter::new(self.slot.words());
        self.notifier.take_up(&self.board, &slot_writer, now);
    }

    pub(super) fn publish_kept(&self) {
        self.slot_writer().kept(self.idle_clients().len() as u64);
    }

    pub(super) fn token(&self, index: usize) -> u64 {
        u64::from(self.clients[index].serial) << 32 | index as u64
    }

    pub(super) fn find(&self, token: u64) -> Option<usize> {
        let index = (token & 0xffff_ffff) as usize;
        let client = self.clients.get(index)?;
        let is_it = client.request.is_some() && u64::from(client.serial) == token >> 32;
        is_it.then_some(index)
    }

    pub(super) fn fail(&mut self, why: &str) {
        log::error!("worker can't go on: {why}");
        self.exit_code = EXIT_SOFTWARE;
        self.life = Life::Done;
        self.tell(EventKind::End, 0);
    }
}
