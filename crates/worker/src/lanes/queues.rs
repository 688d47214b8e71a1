//! The lanes as seen by a worker. The worker peeks at a request, without consuming it. If the request may not begin, the
//! worker parks it in its lane's queue, where a worker without work takes it.

use super::classes::Classes;
use super::priority::Priority;
use super::{Lane, Load, Mark, PerLane, Reserve, Shares, Verdict, judge, next, weight};
use crate::connection::Connection;
use crate::context::{Settings, most_descriptors};
use crate::hand_off::{self, Note};
use crate::page::Page;
use crate::service_order::Waiting;
use fastcgi::{Input, Responder};
use forkyard_base::tick::Tick;
use forkyard_protocol::lanes::PARKED_BYTES;
use forkyard_scoreboard::LaneMapping;
use forkyard_scoreboard::standing::Bound;
use forkyard_sys::fd::{send_with, unread};
use forkyard_sys::socket::{Progress, peek};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Requests with longer parameters are never parked.
const PEEKED_BYTES: usize = 16 * 1024;
/// The kernel limits a user's descriptors in transit, and more parked connections would use them up.
const MOST_PARKED: usize = 1_024;
/// After this many sorted connections a high request begins, even if an older one is parked.
const SORTED_FOR_HIGH: usize = 64;
/// After this many sorted connections a parked request of any lane may begin. Until then, the worker looks for people.
const SORTED_FOR_LOW: usize = 1_024;
/// The interval at which an idle worker checks whether parked requests may begin.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// A worker withdraws its claim after this many looks, because the competing worker may be dead.
const MOST_LOOKS: usize = 1_000;

/// The result of peeking at a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peeked {
    /// The client has sent nothing.
    Silent,
    /// Its lane.
    Lane(Lane),
    /// Incomplete parameters, or no request at all.
    Unknown,
}

/// Whether parked requests may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outlook {
    Nothing,
    Later,
    Now,
}

impl Outlook {
    /// How long an idle worker may sleep; `None`: until it has work.
    pub(crate) fn may_sleep_for(self) -> Option<Duration> {
        match self {
            Outlook::Nothing => None,
            Outlook::Later => Some(LOOK_AGAIN),
            Outlook::Now => Some(Duration::ZERO),
        }
    }
}

/// The lanes of a worker.
#[derive(Debug)]
pub(crate) struct LaneQueues {
    ends: [OwnedFd; 4],
    mapping: LaneMapping,
    classes: Classes,
    peeked: Box<[u8]>,
    responder: Responder,
    /// The configured number of workers that stay idle.
    reserve: Option<u32>,
    most_parked: usize,
    own: usize,
    priority: Priority,
    /// The lane of the present request, and its start.
    present: Option<(Lane, Tick)>,
    /// The present request was parked.
    pub(crate) is_taken: bool,
    /// The present request is refused.
    pub(crate) is_refused: bool,
    /// Connections sorted since the last request began.
    sorted: usize,
}

impl LaneQueues {
    /// Returns `None` if the pool has no lanes.
    pub(crate) fn new(
        settings: &Settings,
        ends: Option<[OwnedFd; 4]>,
        mapping: Option<LaneMapping>,
        own: usize,
    ) -> Option<LaneQueues> {
        let lanes = settings.pool.load.lanes.as_ref()?;
        let (ends, mapping) = ends.zip(mapping)?;
        let priority = Priority::new();
        mapping.pages().set_priority(priority.works());
        let mut responder = Responder::new(settings.wire_limits());
        responder.set_repeated(settings.repeated());
        Some(LaneQueues {
            ends,
            mapping,
            classes: Classes::new(lanes),
            peeked: vec![0; PEEKED_BYTES].into_boxed_slice(),
            responder,
            reserve: lanes.reserve,
            most_parked: MOST_PARKED.min(most_descriptors() / 4),
            own,
            priority,
            present: None,
            is_taken: false,
            is_refused: false,
            sorted: 0,
        })
    }

    /// Returns the queues of the high lanes.
    pub(crate) fn high_ends(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let high = Lane::ALL.into_iter().filter(|lane| lane.is_high());
        high.map(|lane| self.out(lane))
    }

    fn out(&self, lane: Lane) -> BorrowedFd<'_> {
        self.ends[lane.out_end()].as_fd()
    }

    /// Finds the lane of a connection's request, which stays in the socket.
    pub(crate) fn peek(&mut self, connection: &Connection) -> Peeked {
        let count = match peek(connection.socket(), &mut self.peeked) {
            Ok(Progress::WouldBlock) => return Peeked::Silent,
            Ok(Progress::Done(0)) | Err(_) => return Peeked::Unknown,
            Ok(Progress::Done(count)) => count,
        };
        self.responder.reset();
        let mut at = 0;
        loop {
            let (used, input) = self.responder.receive(&self.peeked[at..count]);
            at += used;
            match input {
                Input::Request => break,
                Input::Reply(_) if used > 0 => {}
                Input::More
                | Input::Reply(_)
                | Input::Body(_)
                | Input::BodyEnd
                | Input::Abort
                | Input::Broken(_) => return Peeked::Unknown,
            }
        }
        Peeked::Lane(self.classes.lane(self.responder.params()))
    }

    fn parked(&self, lane: Lane) -> usize {
        unread(self.out(lane)) / PARKED_BYTES
    }

    /// Whether a request of a high lane is parked.
    pub(crate) fn has_high(&self) -> bool {
        self.high_ends().any(|end| unread(end) > 0)
    }

    /// Whether the worker has sorted enough connections to begin a high request.
    pub(crate) fn has_sorted_enough(&self) -> bool {
        self.sorted >= SORTED_FOR_HIGH
    }

    /// Whether the worker has sorted enough connections to begin any parked request.
    pub(crate) fn has_sorted_most(&self) -> bool {
        self.sorted >= SORTED_FOR_LOW
    }

    /// Whether the present request is of a low lane.
    pub(crate) fn is_low(&self) -> bool {
        self.present.is_some_and(|(lane, _)| !lane.is_high())
    }

    /// Parks a connection with a request that waits since `since`. Returns `false` if the queue is full.
    pub(crate) fn park(
        &mut self,
        page: &Page,
        lane: Lane,
        connection: &Connection,
        (since, latest): (Tick, Tick),
    ) -> bool {
        self.sorted += 1;
        let parked = self.parked(lane);
        if parked >= self.most_parked {
            return false;
        }
        if parked == 0 {
            self.wake(page, lane);
        }
        let expires = match connection.expires {
            Tick::ZERO => latest,
            expires => expires,
        };
        let note = Note {
            is_spoken: connection.client.spoken,
            waiting: Some(Waiting { since, turn: 0 }),
            expires: vec![expires],
        };
        let socket = connection.socket().as_raw_fd();
        send_with(self.ends[lane.index()].as_fd(), &note.encode(), &[socket]).is_ok()
    }

    /// Marks the present request as refused, because the queue of its lane is full.
    pub(crate) fn refuse(&mut self, lane: Lane) {
        self.is_refused = true;
        self.mapping.pages().refused(lane);
    }

    /// Shows that a request begins.
    pub(crate) fn begin(&mut self, page: &Page, lane: Lane, now: Tick) {
        let pages = self.mapping.pages();
        pages.mark(self.own, Mark::Runs(lane), now);
        self.present = Some((lane, now));
        self.sorted = 0;
        self.priority.set(!lane.is_high());
        if lane.is_high() && self.parked(lane) == 0 {
            self.wake(page, lane);
        }
    }

    /// Counts the present request and its wait.
    pub(crate) fn count(&self, waited: Duration) {
        if let Some((lane, _)) = self.present {
            self.mapping.pages().begun(lane, waited);
        }
    }

    /// Counts the wait of the present request. Returns the bound if the queue of its lane is a standing queue.
    pub(crate) fn standing(&self, waited: Duration, usual: Duration, now: Tick) -> Option<Bound> {
        let (lane, _) = self.present?;
        self.mapping.pages().standing(lane, waited, usual, now)
    }

    /// Ends the present request.
    pub(crate) fn end(&mut self, now: Tick) {
        (self.is_taken, self.is_refused) = (false, false);
        let Some((lane, begun)) = self.present.take() else {
            return;
        };
        let pages = self.mapping.pages();
        let busy = now.since(begun);
        pages.ended(lane, busy);
        let paid = u64::try_from((busy / weight(lane)).as_nanos()).unwrap_or(u64::MAX);
        pages.paid(lane).fetch_add(paid, Ordering::SeqCst);
        pages.mark(self.own, Mark::Idle, now);
    }

    /// Shows that the worker has no work, and takes its usual priority.
    pub(crate) fn rest(&mut self) {
        self.priority.set(false);
    }

    /// Takes back the credit that a lane gathered without requests.
    fn wake(&self, page: &Page, lane: Lane) {
        let mut active = PerLane::default();
        for other in Lane::ALL {
            *active.get_mut(other) = self.parked(other) > 0;
        }
        for (_, mark, _) in self.marks(page) {
            if let Mark::Runs(other) = mark {
                *active.get_mut(other) = true;
            }
        }
        let mut shares = self.shares(page, Tick::ZERO);
        let before = *shares.paid(lane);
        shares.wake(lane, &active);
        let after = *shares.paid(lane);
        if after > before {
            let after = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
            let paid = self.mapping.pages().paid(lane);
            paid.fetch_max(after, Ordering::SeqCst);
        }
    }

    fn marks<'p>(&'p self, page: &'p Page) -> impl Iterator<Item = (usize, Mark, Tick)> {
        let board = &page.board;
        self.mapping.pages().marks(board.header(), board.slots())
    }

    /// Returns the time of each lane, including running requests.
    fn shares(&self, page: &Page, now: Tick) -> Shares {
        let pages = self.mapping.pages();
        let mut shares = Shares::default();
        for lane in Lane::ALL {
            let paid = pages.paid(lane).load(Ordering::SeqCst);
            shares.set(lane, Duration::from_nanos(paid));
        }
        for (_, mark, begun) in self.marks(page) {
            if let Mark::Runs(lane) = mark {
                shares.pay(lane, now.since(begun));
            }
        }
        shares
    }

    fn reserve(&self, now: Tick) -> u32 {
        let word = self.mapping.pages().reserve().load(Ordering::SeqCst);
        self.reserve
            .unwrap_or_else(|| Reserve::from_word(word, now).rest(now).workers())
    }

    fn load(&self, page: &Page, now: Tick) -> Load {
        let mut load = Load {
            high: 0,
            low: 0,
            total: total(page),
            reserve: self.reserve(now),
        };
        for (slot, mark, _) in self.marks(page).filter(|(slot, ..)| *slot != self.own) {
            match mark {
                Mark::Runs(lane) if lane.is_high() => load.high += 1,
                Mark::Runs(_) => load.low += 1,
                Mark::Claims if slot < self.own => load.low += 1,
                Mark::Claims | Mark::Idle => {}
            }
        }
        load
    }

    /// Raises the automatic reserve, because a high request found no idle worker.
    pub(crate) fn high_waited(&self, page: &Page, now: Tick) {
        if self.reserve.is_some() {
            return;
        }
        let load = self.load(page, now);
        let reserve = self.mapping.pages().reserve();
        let word = reserve.load(Ordering::SeqCst);
        let grown = Reserve::from_word(word, now).wanted(load.low, load.total, now);
        let _ = reserve.compare_exchange(word, grown.word(), Ordering::SeqCst, Ordering::SeqCst);
    }

    fn waits(&self) -> PerLane<bool> {
        let mut waits = PerLane::default();
        for lane in Lane::ALL {
            *waits.get_mut(lane) = unread(self.out(lane)) > 0;
        }
        waits
    }

    /// Whether parked requests may begin in a worker without work.
    pub(crate) fn outlook(&self, page: &Page, now: Tick) -> Outlook {
        let waits = self.waits();
        if waits == PerLane::default() {
            return Outlook::Nothing;
        }
        match next(&waits, self.load(page, now), &Shares::default()) {
            Some(_) => Outlook::Now,
            None => Outlook::Later,
        }
    }

    /// Takes the next parked request. `None`: none may begin.
    pub(crate) fn take(&mut self, page: &Page, now: Tick, latest: Tick) -> Option<Parked> {
        let mut waits = self.waits();
        while waits != PerLane::default() {
            let lane = next(&waits, self.load(page, now), &self.shares(page, now))?;
            if !lane.is_high() && !self.claim(page, now) {
                self.mapping.pages().mark(self.own, Mark::Idle, now);
                for low in Lane::ALL.into_iter().filter(|lane| !lane.is_high()) {
                    *waits.get_mut(low) = false;
                }
                continue;
            }
            self.mapping.pages().mark(self.own, Mark::Runs(lane), now);
            let received = hand_off::receive(self.out(lane), latest);
            let parked = received.and_then(|(note, mut connections)| {
                let (socket, expires) = connections.next()?;
                Some(Parked {
                    socket,
                    expires: expires.unwrap_or(latest),
                    is_spoken: note.is_spoken,
                    waiting: note.waiting,
                })
            });
            if parked.is_some() {
                if lane.is_high() {
                    self.high_waited(page, now);
                }
                self.begin(page, lane, now);
                self.is_taken = true;
                return parked;
            }
            // A sibling was faster.
            self.mapping.pages().mark(self.own, Mark::Idle, now);
            *waits.get_mut(lane) = false;
        }
        None
    }

    /// Claims the right to begin a low request, and returns whether this worker got it.
    fn claim(&self, page: &Page, now: Tick) -> bool {
        let pages = self.mapping.pages();
        pages.mark(self.own, Mark::Claims, now);
        let (total, reserve) = (total(page), self.reserve(now));
        let slots = page.board.slots();
        for _ in 0..MOST_LOOKS {
            let mut marks = vec![Mark::Idle; slots];
            for (slot, mark, _) in self.marks(page) {
                marks[slot] = mark;
            }
            match judge(marks, self.own, total, reserve) {
                Verdict::Begin => return true,
                Verdict::Withdraw => return false,
                Verdict::LookAgain => std::thread::yield_now(),
            }
        }
        false
    }
}

/// A connection from the queue of a lane.
#[derive(Debug)]
pub(crate) struct Parked {
    pub socket: OwnedFd,
    pub expires: Tick,
    pub is_spoken: bool,
    pub waiting: Option<Waiting>,
}

/// How many workers the pool may have.
fn total(page: &Page) -> u32 {
    let slots = page.board.slots();
    let most = page.gate().and_then(|gate| gate.limit()).unwrap_or(slots);
    u32::try_from(most).unwrap_or(u32::MAX)
}
