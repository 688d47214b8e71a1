//! The pages of a pool with lanes, which every worker of a generation writes: what each worker does for the lanes, and
//! the lanes' numbers.

use super::header;
use super::layout::lanes as at;
use super::reserve::Reserve;
use super::standing::{self, Bound};
use forkyard_base::tick::{Tick, nanos};
use forkyard_protocol::lanes::{Lane, Lanes, WAIT_BOUNDS_MS};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Low bits of a mark; the time above them is rounded.
const CODE: u64 = 0xff;
const CLAIMS: u64 = 0x10;
const NANOS_IN_MILLI: u64 = 1_000_000;

/// A worker's state, for the lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mark {
    /// No request, or none that has begun.
    #[default]
    Idle,
    /// It wants to begin a low request.
    Claims,
    /// A request of the lane has begun.
    Runs(Lane),
}

/// The pages of a generation.
#[derive(Debug, Clone, Copy)]
pub struct LanePages<'a> {
    words: &'a [AtomicU64],
}

impl<'a> LanePages<'a> {
    pub(super) fn new(words: &'a [AtomicU64]) -> LanePages<'a> {
        LanePages { words }
    }

    fn word(&self, index: usize) -> &'a AtomicU64 {
        &self.words[index]
    }

    /// Shows the state of the worker in a slot, since `now`.
    pub fn mark(&self, slot: usize, mark: Mark, now: Tick) {
        let code = match mark {
            Mark::Idle => 0,
            Mark::Claims => CLAIMS,
            Mark::Runs(lane) => lane.index() as u64 + 1,
        };
        let word = if code == 0 {
            0
        } else {
            now.as_nanos() & !CODE | code
        };
        self.word(at::MARKS + slot).store(word, Ordering::SeqCst);
    }

    /// Returns the marks of the used slots, with their times.
    pub fn marks(
        self,
        header: &'a [AtomicU64],
        slots: usize,
    ) -> impl Iterator<Item = (usize, Mark, Tick)> + use<'a> {
        let pages = self;
        let used = (0..slots).filter(|slot| header::used(header, *slot));
        used.map(move |slot| {
            let word = pages.word(at::MARKS + slot).load(Ordering::SeqCst);
            let mark = match word & CODE {
                CLAIMS => Mark::Claims,
                code => match code
                    .checked_sub(1)
                    .and_then(|index| Lane::ALL.get(index as usize))
                {
                    Some(lane) => Mark::Runs(*lane),
                    None => Mark::Idle,
                },
            };
            (slot, mark, Tick::from_nanos(word & !CODE))
        })
    }

    /// The word of the reserve; its meaning is the workers'.
    pub fn reserve(&self) -> &'a AtomicU64 {
        self.word(at::RESERVE)
    }

    /// Returns how many workers low lanes leave idle, if the workers decide.
    pub fn idle_workers(&self, now: Tick) -> u32 {
        let word = self.reserve().load(Ordering::SeqCst);
        Reserve::from_word(word, now).rest(now).workers()
    }

    /// The time of each lane for its weight, in nanoseconds.
    pub fn paid(&self, lane: Lane) -> &'a AtomicU64 {
        self.word(at::PAID + lane.index())
    }

    /// Counts a request that begins.
    pub fn begun(&self, lane: Lane, waited: Duration) {
        let index = lane.index();
        self.word(at::REQUESTS + index).fetch_add(1, Ordering::Relaxed);
        self.word(at::WAIT_SUM + index)
            .fetch_add(nanos(waited), Ordering::Relaxed);
        let millis = waited.as_millis();
        let bucket = WAIT_BOUNDS_MS
            .iter()
            .position(|bound| millis <= u128::from(*bound));
        let bucket = bucket.unwrap_or(WAIT_BOUNDS_MS.len());
        self.word(at::WAITS + index * at::WAITS_ROOM + bucket)
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the time of a request that has ended.
    pub fn ended(&self, lane: Lane, busy: Duration) {
        self.word(at::BUSY + lane.index())
            .fetch_add(nanos(busy), Ordering::Relaxed);
    }

    /// Counts a request that was refused because too many waited.
    pub fn refused(&self, lane: Lane) {
        self.word(at::REFUSED + lane.index())
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the wait of a parked request that is taken. Returns the bound if the lane's queue stands. `usual`: the usual
    /// time of requests; zero: unknown.
    pub fn standing(&self, lane: Lane, waited: Duration, usual: Duration, now: Tick) -> Option<Bound> {
        let (since, until) = (at::STANDING + lane.index(), at::STANDING_UNTIL + lane.index());
        let words = (self.word(since), self.word(until));
        standing::count(words, waited, Bound::of(usual), now)
    }

    /// Shows whether low requests give way to others on a processor.
    pub fn set_priority(&self, has_priority: bool) {
        self.word(at::PRIORITY)
            .store(u64::from(has_priority), Ordering::Relaxed);
    }

    /// Returns the numbers, without the requests that wait and the reserve. Untrusted.
    pub fn read(&self) -> Lanes {
        let mut numbers = Lanes {
            has_priority: self.word(at::PRIORITY).load(Ordering::Relaxed) == 1,
            ..Lanes::default()
        };
        for (index, lane) in numbers.each_mut().into_iter().enumerate() {
            let load = |first: usize| self.word(first + index).load(Ordering::Relaxed);
            lane.requests = load(at::REQUESTS);
            lane.busy_ms = load(at::BUSY) / NANOS_IN_MILLI;
            lane.refused = load(at::REFUSED);
            lane.wait_ms = load(at::WAIT_SUM) / NANOS_IN_MILLI;
            for (bucket, count) in lane.waits.iter_mut().enumerate() {
                let word = at::WAITS + index * at::WAITS_ROOM + bucket;
                *count = self.word(word).load(Ordering::Relaxed);
            }
        }
        numbers
    }
}
