//! What a worker that serves several requests at a time knows, and its turn: one look at everything that is ready.

use super::super::access::Recorder;
use super::super::connection::Connection;
use super::super::kit::{Kit, Seat, Settings};
use super::super::memory::Scale;
use super::super::out_of_band::Want;
use super::super::promotion::Promotion;
use super::super::run::most_requests;
use super::super::tell::Teller;
use super::events::{Events, Kind};
use super::leave::Leaving;
use super::place::{Phase, Place};
use super::routed::Router;
use super::shown::Shown;
use super::times::Alarm;
use crate::config::{AccessLog, Application};
use crate::listen::AcceptPause;
use crate::scoreboard::load::Load;
use crate::scoreboard::stamp::Stamp;
use crate::scoreboard::{Reader, Slot};
use crate::sys::{Error, clock};
use crate::tick::Tick;
use fastcgi::Output;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

/// What events are about; all other numbers are connections', by place and by how often the place was used.
pub(super) const LISTENER: u64 = u64::MAX;
pub(super) const QUEUE: u64 = u64::MAX - 1;
pub(super) const RETIRE: u64 = u64::MAX - 2;
pub(super) const ALARM: u64 = u64::MAX - 3;
pub(super) const ROUTER: u64 = u64::MAX - 4;

/// Events taken at once.
const EVENTS: usize = 64;
/// Bytes read at once.
pub(super) const READ_BYTES: usize = 64 * 1024;
/// Closed connections whose memory is kept for the next.
const SPARES: usize = 32;
/// For sources of which the kernel tells once each time that something new is there. All workers are told of a connection:
/// the one with the least to do takes it.
pub(super) const EDGE: EpollFlags = EpollFlags::EPOLLIN.union(EpollFlags::EPOLLET);
const BOTH_EDGES: EpollFlags = EDGE.union(EpollFlags::EPOLLOUT).union(EpollFlags::EPOLLRDHUP);

/// Everything but the thread that watches.
#[derive(Debug)]
pub(super) struct Desk {
    pub settings: Settings,
    pub listener: OwnedFd,
    pub board: Reader,
    pub slot: Slot,
    pub epoll: Epoll,
    pub queue_in: OwnedFd,
    pub queue_out: OwnedFd,
    pub retire: OwnedFd,
    pub router: Option<Router>,
    pub teller: Teller,
    pub alarm: Alarm,
    pub places: Vec<Place>,
    free: Vec<usize>,
    #[expect(clippy::vec_box, reason = "the same boxes come from and go to the places")]
    spare: Vec<Box<Connection>>,
    #[expect(clippy::vec_box, reason = "the same boxes come from and go to the places")]
    spare_outputs: Vec<Box<Output>>,
    pub scratch: Box<[u8]>,
    pub events: Events,
    /// Requests that are not answered yet.
    pub in_flight: usize,
    /// How many there may be.
    pub limit: usize,
    /// Places with a request for which there was no room, the first to come first.
    pub waiting: VecDeque<usize>,
    /// Something may be in the listening socket, or in the hand-over queue.
    pub listener_ready: bool,
    pub queue_ready: bool,
    /// Connections were left to a sibling; if they are still there then, they are not.
    pub insists_at: Option<Tick>,
    pub pause: AcceptPause,
    pub accepted: u64,
    pub served: u64,
    /// How many requests the worker serves.
    pub most: Option<u64>,
    /// Where a pool of one limits memory; in an application pool the router does.
    pub scale: Option<Scale>,
    /// When the last request was taken up.
    pub last_taken: Tick,
    pub shown: Shown,
    /// How often this worker has looked at what is ready.
    pub turns: u64,
    /// Something is ready, and the event loop does not ask for it.
    pub is_held_up: bool,
    pub want: Want,
    pub is_working: bool,
    pub leaving: Leaving,
    pub promotion: Option<Promotion>,
    /// The access log, of which each request has a pen of its own.
    access: Option<(AccessLog, OwnedFd)>,
    pub peak_memory_bytes: u64,
    pub exit_code: i32,
}

impl Desk {
    pub(super) fn begin(kit: Kit, seat: Seat) -> Result<Desk, Error> {
        let slots = kit.settings.slots as usize;
        let board = Reader::map(kit.board_readable.as_fd(), slots)?;
        let slot = Slot::map(kit.board_writable.as_fd(), seat.slot as usize)?;
        // The descriptor that could map the other pages for writing is closed here.
        drop(kit.board_writable);
        let failed = |call: &'static str| move |errno| Error::new(call, "", errno);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed("epoll_create1"))?;
        let alarm = Alarm::new().map_err(failed("timerfd_create"))?;
        let router = seat
            .channel
            .map(|channel| Router::new(channel, &kit.settings.pool));
        let limit = match &kit.settings.pool.application {
            Application::Wrapped(wrapped) => wrapped.concurrency,
            _ => 1,
        };
        let access = kit.settings.pool.access.clone().zip(kit.access);
        let desk = Desk {
            board,
            slot,
            epoll,
            listener: kit.listener,
            queue_in: kit.queue_in,
            queue_out: kit.queue_out,
            retire: seat.retire,
            teller: Teller::new(seat.slot as usize, kit.child_accept),
            alarm,
            places: Vec::new(),
            free: Vec::new(),
            spare: Vec::new(),
            spare_outputs: Vec::new(),
            scratch: vec![0; READ_BYTES + router.as_ref().map_or(0, |_| super::routed::MESSAGE_BYTES)]
                .into_boxed_slice(),
            router,
            events: Events::default(),
            in_flight: 0,
            limit: limit.max(1) as usize,
            waiting: VecDeque::new(),
            listener_ready: true,
            queue_ready: true,
            insists_at: None,
            pause: AcceptPause::default(),
            accepted: 0,
            served: 0,
            most: most_requests(&kit.settings.pool),
            scale: kit
                .settings
                .pool
                .memory_limit
                .and_then(|_| Scale::new(&kit.settings.pool)),
            last_taken: Tick::ZERO,
            shown: Shown::default(),
            turns: 0,
            is_held_up: false,
            want: Want::Nothing,
            is_working: false,
            leaving: Leaving::Not,
            promotion: None,
            access,
            peak_memory_bytes: 0,
            exit_code: 0,
            settings: kit.settings,
        };
        desk.watch_sources().map_err(failed("epoll_ctl"))?;
        let now = clock::now();
        let pid = std::process::id() as i32;
        desk.stamp().begin(pid, clock::epoch_seconds(), now);
        Ok(desk)
    }

    fn watch_sources(&self) -> nix::Result<()> {
        match &self.router {
            Some(router) => self
                .epoll
                .add(router.channel(), EpollEvent::new(EpollFlags::EPOLLIN, ROUTER))?,
            None => {
                self.epoll.add(&self.listener, EpollEvent::new(EDGE, LISTENER))?;
                self.epoll.add(&self.queue_out, EpollEvent::new(EDGE, QUEUE))?;
            }
        }
        self.epoll
            .add(&self.retire, EpollEvent::new(EpollFlags::EPOLLIN, RETIRE))?;
        self.epoll
            .add(self.alarm.fd(), EpollEvent::new(EpollFlags::EPOLLIN, ALARM))
    }

    /// The worker's pen.
    pub(super) fn stamp(&self) -> Stamp<'_> {
        Stamp::new(self.slot.words())
    }

    /// Looks at everything that is ready and does what can be done about it. True: more could be done at once, and this is
    /// to be called again soon.
    pub(super) fn turn(&mut self) -> bool {
        self.turns += 1;
        let now = clock::now();
        if self.turns == 1 {
            // The master counts upon it from the moment at which it is told.
            self.publish_load();
            self.stamp().idle(now);
            self.teller.tell_first();
        }
        if std::mem::take(&mut self.is_held_up) {
            self.publish_load();
        }
        let mut ready = [EpollEvent::empty(); EVENTS];
        let count = match self.epoll.wait(&mut ready, EpollTimeout::ZERO) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(errno) => {
                self.fail(&format!("epoll_wait: {errno}"));
                0
            }
        };
        for event in &ready[..count] {
            match event.data() {
                LISTENER => self.listener_ready = true,
                QUEUE => self.queue_ready = true,
                RETIRE => self.hear_master(now),
                ALARM => self.ring(now),
                ROUTER => self.hear_router(now),
                token => self.see(token, event.events(), now),
            }
        }
        self.take_work(now);
        self.look_for_work(count, now);
        self.look_if_done();
        count == EVENTS || self.could_do_more()
    }

    /// Whether something is known of that could be taken up now.
    pub(super) fn could_do_more(&self) -> bool {
        let is_there = self.queue_ready || !self.waiting.is_empty();
        let accepts = self.listener_ready && self.insists_at.is_none() && self.pause.deadline().is_none();
        self.has_room() && (is_there || (accepts && self.router.is_none()))
    }

    /// Something has happened on a connection.
    fn see(&mut self, token: u64, flags: EpollFlags, now: Tick) {
        let index = (token & 0xffff_ffff) as usize;
        let generation = (token >> 32) as usize;
        let is_it = |place: &&mut Place| {
            let place = place.connection.as_ref().and_then(|connection| connection.place);
            place == Some(generation)
        };
        let Some(place) = self.places.get_mut(index).filter(is_it) else {
            return;
        };
        let mut may_read = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP;
        may_read |= EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
        if flags.intersects(may_read) {
            place.readable = true;
        }
        place.hangs_up |= flags.intersects(may_read.difference(EpollFlags::EPOLLIN));
        if flags.contains(EpollFlags::EPOLLOUT) && place.has_output() {
            self.go_on_sending(index, now);
        }
        self.read(index, now);
    }

    /// Takes a new connection in. `None`: it can't be watched, and is closed.
    pub(super) fn take_in(&mut self, socket: OwnedFd, now: Tick) -> Option<usize> {
        let mut connection = match self.spare.pop() {
            Some(mut spare) => {
                spare.reuse(socket);
                spare
            }
            None => Box::new(Connection::new(socket, &self.settings.pool.limits)),
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() - 1
        });
        let place = &mut self.places[index];
        // Of an event that is on its way still, it can be told for which connection it was.
        place.serial = place.serial.wrapping_add(1);
        let generation = place.serial;
        connection.place = Some(generation as usize);
        let token = u64::from(generation) << 32 | index as u64;
        if let Err(errno) = self
            .epoll
            .add(connection.socket(), EpollEvent::new(BOTH_EDGES, token))
        {
            log::error!("can't keep a connection: epoll_ctl: {errno}");
            self.free.push(index);
            return None;
        }
        place.connection = Some(connection);
        place.phase = Phase::Idle;
        place.readable = true;
        let limit = now + self.settings.pool.client_timeout;
        place.deadline = Some(limit);
        self.alarm.set_by(limit);
        Some(index)
    }

    /// Closes a connection; its place goes on if the application still has a request there.
    pub(super) fn hang_up(&mut self, index: usize) {
        let place = &mut self.places[index];
        if let Some(mut connection) = place.connection.take() {
            // Explicitly, because a process that the application has forked may hold the same open file.
            let _ = self.epoll.delete(connection.socket());
            connection.hang_up();
            if self.spare.len() < SPARES {
                self.spare.push(connection);
            }
        }
        place.deadline = None;
        place.input.clear();
        place.readable = false;
    }

    /// Closes the connection, if there still is one, and frees its place.
    pub(super) fn close(&mut self, index: usize) {
        self.hang_up(index);
        self.end_session(index, None);
        self.give_up(index);
    }

    /// Frees the place of a connection that is gone, or somebody else's.
    pub(super) fn give_up(&mut self, index: usize) {
        let place = &mut self.places[index];
        if let Some(output) = place.output.take() {
            self.keep_output(output);
        }
        let place = &mut self.places[index];
        let mut body = std::mem::take(&mut place.body);
        body.clear();
        body.shrink_to(READ_BYTES);
        *place = Place {
            serial: place.serial,
            body,
            ..Place::default()
        };
        self.waiting.retain(|other| *other != index);
        self.free.push(index);
    }

    pub(super) fn keep_output(&mut self, mut output: Box<Output>) {
        if self.spare_outputs.len() < SPARES {
            output.abandon();
            self.spare_outputs.push(output);
        }
    }

    pub(super) fn new_output(&mut self) -> Box<Output> {
        self.spare_outputs.pop().unwrap_or_default()
    }

    /// A pen for a request's line in the access log.
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

    /// Whether another request may be taken up.
    pub(super) fn has_room(&self) -> bool {
        self.in_flight < self.limit && self.leaving == Leaving::Not && !self.is_working
    }

    /// Tells the siblings and the master how much there is to do.
    pub(super) fn publish_load(&self) {
        self.stamp().load(Load {
            in_flight: u32::try_from(self.in_flight).unwrap_or(u32::MAX),
            has_room: self.has_room() && !self.is_held_up,
            is_told: true,
        });
    }

    /// Tells the scoreboard how many connections wait for a next request.
    pub(super) fn publish_kept(&self) {
        let idle = self.places.iter().filter(|place| place.phase == Phase::Idle);
        self.stamp().kept(idle.count() as u64);
    }

    /// By what the event loop knows a request.
    pub(super) fn token(&self, index: usize) -> u64 {
        u64::from(self.places[index].serial) << 32 | index as u64
    }

    /// The place of a request that the application has, and that is not answered.
    pub(super) fn find(&self, token: u64) -> Option<usize> {
        let index = (token & 0xffff_ffff) as usize;
        let place = self.places.get(index)?;
        let is_it = place.phase == Phase::Serving && u64::from(place.serial) == token >> 32;
        is_it.then_some(index)
    }

    /// The worker can't go on.
    fn fail(&mut self, why: &str) {
        log::error!("worker can't go on: {why}");
        self.exit_code = super::EXIT_SOFTWARE;
        self.leaving = Leaving::Done;
        self.events.put(Kind::End, 0);
    }
}
