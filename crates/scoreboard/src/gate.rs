//! The gate page, which every worker of a generation writes: the time with all workers busy, and the queue's times.
//!
//! The kernel reports the length of the queue, but not the age of its connections. The page keeps the last measurements
//! of the queue: the n-th accepted connection had come at the first measurement with at least n accepted and waiting
//! connections. The wait since then is a lower bound.

use super::layout::{gate, header};
use super::standing::{self, Bound};
use super::stopwatch;
use forkyard_base::tick::{Tick, nanos};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bits of a measurement's number of connections; the time in milliseconds is above them.
const NUMBER_BITS: u32 = 24;
const NUMBER: u64 = (1 << NUMBER_BITS) - 1;
const MILLI: u64 = 1_000_000;
/// Older measurements are not used: the numbers of connections repeat.
const LONGEST: Duration = Duration::from_secs(3600);
/// The time that the kept measurements cover in a pool that measures often.
const COVERED: Duration = Duration::from_secs(4);
/// How many requests the usual time is a mean of.
const USUAL_OF: u64 = 16;

/// The gate page of a generation.
#[derive(Debug, Clone, Copy)]
pub struct Gate<'a> {
    words: &'a [AtomicU64],
    slots: usize,
}

impl<'a> Gate<'a> {
    #[inline]
    pub(super) fn new(words: &'a [AtomicU64], slots: usize) -> Gate<'a> {
        Gate { words, slots }
    }

    fn word(&self, index: usize) -> &'a AtomicU64 {
        &self.words[index]
    }

    fn load(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::SeqCst)
    }

    fn bit(&self, first: usize, slot: usize) -> (&'a AtomicU64, u64) {
        (&self.words[first + slot / 64], 1 << (slot % 64))
    }

    /// Records that a worker counts in this slot's numbers.
    pub fn touch(&self, slot: usize) {
        let (word, bit) = self.bit(gate::TOUCHED, slot);
        word.fetch_or(bit, Ordering::SeqCst);
    }

    /// Whether a worker has counted in this slot's numbers.
    pub fn is_touched(&self, slot: usize) -> bool {
        if slot >= header::MAX_SLOTS {
            return false;
        }
        let (word, bit) = self.bit(gate::TOUCHED, slot);
        word.load(Ordering::SeqCst) & bit != 0
    }

    /// Marks a worker as busy: it can't take a request at once.
    pub fn enter(&self, slot: usize, now: Tick) {
        let (word, bit) = self.bit(gate::BUSY, slot);
        let before = word.fetch_or(bit, Ordering::SeqCst);
        // Without a limit the time can only begin if this word is full now.
        let room = (self.slots - slot / 64 * 64).min(64);
        let may_be_full = (before | bit).count_ones() as usize >= room || self.load(gate::LIMIT) > 0;
        if before & bit == 0 && may_be_full {
            self.settle(now);
        }
    }

    /// Marks a worker as not busy, or as gone.
    pub fn leave(&self, slot: usize, now: Tick) {
        let (word, bit) = self.bit(gate::BUSY, slot);
        if self.has_entered(slot) {
            word.fetch_and(!bit, Ordering::SeqCst);
            if stopwatch::runs(self.load(gate::SATURATED)) {
                self.settle(now);
            }
        }
    }

    /// Whether a worker is marked as busy.
    pub fn has_entered(&self, slot: usize) -> bool {
        let (word, bit) = self.bit(gate::BUSY, slot);
        word.load(Ordering::SeqCst) & bit != 0
    }

    /// Returns the limit of workers below the number of slots, if there is one.
    pub fn limit(&self) -> Option<usize> {
        match self.load(gate::LIMIT) {
            0 => None,
            limit => Some(limit as usize),
        }
    }

    /// Sets how many busy workers are all workers, fewer than there are slots; 0: as many as slots.
    pub fn limit_to(&self, most: usize, now: Tick) {
        self.word(gate::LIMIT).store(most as u64, Ordering::SeqCst);
        self.settle(now);
    }

    /// Whether all workers that the pool may have are busy. `accepts`: the slot of a worker that counts as busy, because
    /// it is about to take a request.
    pub fn is_full(&self, accepts: Option<usize>) -> bool {
        let words = self.slots.div_ceil(64);
        let busy = (0..words).map(|index| {
            let own = accepts.filter(|slot| slot / 64 == index);
            self.load(gate::BUSY + index) | own.map_or(0, |slot| 1 << (slot % 64))
        });
        match self.limit() {
            Some(limit) => busy.map(|word| word.count_ones() as usize).sum::<usize>() >= limit,
            None => busy.enumerate().all(|(index, word)| {
                let used = (self.slots - index * 64).min(64);
                word & (u64::MAX >> (64 - used)) == u64::MAX >> (64 - used)
            }),
        }
    }

    /// Starts or stops the time until it fits the bits. Each change of a bit is followed by a call, and the call after
    /// the last change sees all bits.
    fn settle(&self, now: Tick) {
        loop {
            let is_full = self.is_full(None);
            let word = self.load(gate::SATURATED);
            if stopwatch::runs(word) == is_full {
                return;
            }
            let next = match is_full {
                true => stopwatch::started(word, now),
                false => stopwatch::stopped(word, now),
            };
            let saturated = self.word(gate::SATURATED);
            let _ = saturated.compare_exchange(word, next, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// Whether all workers are busy now.
    pub fn is_saturated(&self) -> bool {
        stopwatch::runs(self.load(gate::SATURATED))
    }

    /// Returns how long all workers were busy, in nanoseconds.
    pub fn saturated_ns(&self, now: Tick) -> u64 {
        stopwatch::total(self.load(gate::SATURATED), now)
    }

    /// Counts a request that was refused because no worker could start.
    pub fn refused(&self, sent: u64) {
        self.word(gate::REFUSED).fetch_add(1, Ordering::Relaxed);
        self.word(gate::REFUSED_BYTES).fetch_add(sent, Ordering::Relaxed);
    }

    /// Returns the number of refused requests, and the bytes of their answers.
    pub fn count_refused(&self) -> (u64, u64) {
        (self.load(gate::REFUSED), self.load(gate::REFUSED_BYTES))
    }

    /// Returns how long a connection was known to wait, in nanoseconds.
    pub fn queue_ns(&self) -> u64 {
        self.load(gate::QUEUE_TOTAL)
    }

    /// Ignores measurements until this time, because another generation also accepts connections.
    pub fn count_from(&self, time: Tick) {
        self.word(gate::COUNTS_FROM)
            .store(time.as_nanos(), Ordering::SeqCst);
    }

    /// Must be called before accept(2).
    pub fn begin_accept(&self) {
        self.word(gate::ACCEPTS_BEGUN).fetch_add(1, Ordering::SeqCst);
    }

    /// Takes back [`Gate::begin_accept`] after a failure. `is_empty`: no connection was there.
    pub fn accept_failed(&self, is_empty: bool, now: Tick) {
        self.word(gate::ACCEPTS_BEGUN).fetch_sub(1, Ordering::SeqCst);
        if is_empty {
            self.word(gate::EMPTY_AT).store(now.as_nanos(), Ordering::SeqCst);
        }
    }

    /// Counts a connection after accept(2). Returns its wait, or less.
    pub fn accepted(&self, now: Tick) -> Duration {
        self.word(gate::ACCEPTED).fetch_add(1, Ordering::SeqCst);
        // Earlier connections may be accepted and not counted yet. A number that is too high only shortens the wait.
        let number = self.load(gate::ACCEPTS_BEGUN);
        if self.load(gate::HIGHEST) < number {
            return Duration::ZERO;
        }
        let waited = self.waited(number, now);
        self.had_queue(waited, now);
        waited
    }

    /// Returns the number of accepted connections. Call it before a measurement of the queue.
    pub fn count_accepted(&self) -> u64 {
        self.load(gate::ACCEPTED)
    }

    /// Keeps a measurement: `accepted` connections before it, and those waiting.
    pub fn measured(&self, accepted: u64, waiting: u64, now: Tick) {
        if self.has_enough_measurements(now) {
            return;
        }
        let highest = accepted.saturating_add(waiting);
        let millis = now.as_nanos().div_ceil(MILLI);
        let at = self.word(gate::MEASURED).fetch_add(1, Ordering::SeqCst) as usize % gate::MEASUREMENTS_KEPT;
        self.word(gate::MEASUREMENTS + at)
            .store(millis << NUMBER_BITS | highest & NUMBER, Ordering::SeqCst);
        self.word(gate::HIGHEST).fetch_max(highest, Ordering::SeqCst);
    }

    /// Whether another measurement would displace one that is still of use.
    fn has_enough_measurements(&self, now: Tick) -> bool {
        let count = self.load(gate::MEASURED) as usize;
        let age = |at: usize| {
            let word = self.load(gate::MEASUREMENTS + at % gate::MEASUREMENTS_KEPT);
            let time = Tick::from_nanos((word >> NUMBER_BITS).saturating_mul(MILLI));
            (word != 0).then(|| now.since(time))
        };
        let (oldest, last) = (age(count), age(count.wrapping_sub(1)));
        let is_recent = |age: Option<Duration>, limit| age.is_some_and(|age| age < limit);
        is_recent(oldest, COVERED) && is_recent(last, COVERED / gate::MEASUREMENTS_KEPT as u32)
    }

    fn waited(&self, number: u64, now: Tick) -> Duration {
        let begin = self.load(gate::COUNTS_FROM);
        let mut first = None;
        for index in 0..gate::MEASUREMENTS_KEPT {
            let word = self.load(gate::MEASUREMENTS + index);
            let time = Tick::from_nanos((word >> NUMBER_BITS).saturating_mul(MILLI));
            let ahead = (word & NUMBER).wrapping_sub(number) & NUMBER;
            let is_there = word != 0 && ahead <= NUMBER / 2;
            if is_there && time.as_nanos() > begin && now.since(time) < LONGEST {
                first = Some(first.map_or(time, |first: Tick| first.min(time)));
            }
        }
        let empty = Tick::from_nanos(self.load(gate::EMPTY_AT));
        first.map_or(Duration::ZERO, |first| now.since(first.max(empty)))
    }

    /// Adds the time of a wait that ends now, without the part that another wait has added.
    pub fn had_queue(&self, waited: Duration, now: Tick) {
        if waited.is_zero() {
            return;
        }
        let before = self
            .word(gate::QUEUE_UNTIL)
            .fetch_max(now.as_nanos(), Ordering::SeqCst);
        let new = now.since((now - waited).max(Tick::from_nanos(before)));
        self.word(gate::QUEUE_TOTAL)
            .fetch_add(nanos(new), Ordering::SeqCst);
    }
}

impl Gate<'_> {
    /// Counts a request's time. Two workers at once may count one of them.
    pub fn had_run(&self, time: Duration) {
        let time = nanos(time).max(1);
        let usual = self.word(gate::USUAL);
        let next = match usual.load(Ordering::Relaxed) {
            0 => time,
            before => before - before / USUAL_OF + time / USUAL_OF,
        };
        usual.store(next.max(1), Ordering::Relaxed);
    }

    /// Returns how long requests usually take; zero: unknown.
    pub fn usual(&self) -> Duration {
        Duration::from_nanos(self.word(gate::USUAL).load(Ordering::Relaxed)).min(LONGEST)
    }

    /// Counts a request whose script is in no release. Returns how many there were before.
    pub fn count_outside(&self) -> u64 {
        self.word(gate::OUTSIDE).fetch_add(1, Ordering::Relaxed)
    }

    /// Returns how many requests had a script that is in no release.
    pub fn outside(&self) -> u64 {
        self.word(gate::OUTSIDE).load(Ordering::Relaxed)
    }

    /// Counts a file of another release that a request has included. Returns how many there were before.
    pub fn count_foreign(&self) -> u64 {
        self.word(gate::FOREIGN).fetch_add(1, Ordering::Relaxed)
    }

    /// Returns how many files of another release requests have included.
    pub fn foreign(&self) -> u64 {
        self.word(gate::FOREIGN).load(Ordering::Relaxed)
    }

    /// Whether this worker should log that requests are refused: once in this time for all workers.
    pub fn may_say_refused(&self, interval: Duration, now: Tick) -> bool {
        let said = self.word(gate::SAID_REFUSED);
        let last = said.load(Ordering::Relaxed);
        let is_due = last == 0 || now.since(Tick::from_nanos(last)) >= interval;
        let next = now.as_nanos();
        is_due
            && said
                .compare_exchange(last, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Counts the wait of a request that is taken. Returns the bound if the queue stands. `known`: the wait that this pool
    /// saw, or less. A long wait that the pool hardly saw is no evidence: the web server's clock is wrong, or another server had
    /// the request before.
    pub fn standing(&self, waited: Duration, known: Duration, now: Tick) -> Option<Bound> {
        let bound = Bound::of(self.usual());
        if waited > bound.refused() && known < bound.refused() / 4 {
            return None;
        }
        let words = (self.word(gate::STANDING), self.word(gate::STANDING_UNTIL));
        standing::count(words, waited, bound, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_sys::shm::PAGE_WORDS;
    use std::collections::VecDeque;

    fn page() -> Vec<AtomicU64> {
        (0..PAGE_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn at(millis: u64) -> Tick {
        Tick::from_nanos(millis * MILLI)
    }

    #[test]
    fn time_is_saturated_while_every_slot_is_busy() {
        for slots in [1, 2, 63, 64, 65, 130] {
            let page = page();
            let gate = Gate::new(&page, slots);
            for slot in 0..slots {
                assert_eq!(gate.saturated_ns(at(50)), 0, "{slots}");
                gate.enter(slot, at(10 + slot as u64));
            }
            gate.enter(0, at(999));
            let full = at(10 + slots as u64 - 1);
            assert_eq!(gate.saturated_ns(full + Duration::from_millis(7)), 7 * MILLI);
            gate.leave(slots / 2, full + Duration::from_millis(9));
            gate.leave(slots / 2, full + Duration::from_millis(10));
            assert_eq!(gate.saturated_ns(at(9_999)), 9 * MILLI);
            gate.enter(slots / 2, at(20_000));
            assert_eq!(gate.saturated_ns(at(20_001)), 10 * MILLI);
        }
    }

    #[test]
    fn time_is_saturated_from_the_autopilot_s_number_on() {
        let page = page();
        let gate = Gate::new(&page, 130);
        gate.limit_to(2, at(1));
        gate.enter(0, at(10));
        assert!(!gate.is_saturated());
        gate.enter(129, at(20));
        assert_eq!(gate.saturated_ns(at(30)), 10 * MILLI);
        gate.limit_to(3, at(40));
        assert_eq!(gate.saturated_ns(at(99)), 20 * MILLI);
        gate.enter(64, at(100));
        gate.leave(0, at(101));
        assert_eq!(gate.saturated_ns(at(999)), 21 * MILLI);
    }

    #[test]
    fn a_worker_that_accepts_completes_all_that_the_pool_may_have() {
        for (slots, limit) in [
            (1, 0),
            (2, 0),
            (64, 0),
            (65, 0),
            (130, 0),
            (8, 3),
            (130, 70),
            (130, 1),
        ] {
            let page = page();
            let gate = Gate::new(&page, slots);
            gate.limit_to(limit, at(1));
            let all = if limit == 0 { slots } else { limit };
            // Slots beyond the limit are free, or have other workers than the first.
            for slot in (0..slots).rev().take(all - 1) {
                assert!(!gate.is_full(None), "{slots} {limit}");
                gate.enter(slot, at(2));
            }
            assert!(!gate.is_full(None) && gate.is_full(Some(0)), "{slots} {limit}");
            if all > 1 {
                assert!(!gate.is_full(Some(slots - 1)), "{slots} {limit}");
            }
        }
    }

    #[test]
    fn the_time_fits_the_bits_after_any_race() {
        let page = page();
        let gate = Gate::new(&page, 3);
        std::thread::scope(|scope| {
            for slot in 0..3 {
                scope.spawn(move || {
                    for round in 0..20_000 {
                        gate.enter(slot, at(round));
                        gate.leave(slot, at(round));
                    }
                    gate.enter(slot, at(30_000));
                });
            }
        });
        let before = gate.saturated_ns(at(30_000));
        assert_eq!(gate.saturated_ns(at(30_005)), before + 5 * MILLI);
        gate.leave(1, at(30_006));
        assert_eq!(gate.saturated_ns(at(40_000)), before + 6 * MILLI);
    }

    /// Connections come and are accepted at random, and the queue is measured now and then.
    #[test]
    fn a_wait_is_never_too_long() {
        let (mut state, mut waits, mut known) = (7_u64, 0, 0);
        let mut random = move |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let page = page();
            let gate = Gate::new(&page, 4);
            let (mut queue, mut now) = (VecDeque::new(), Tick::from_nanos(5_000));
            let load = 1 + random(4);
            for _ in 0..500 {
                now = now + Duration::from_micros(random(3_000));
                match random(6) {
                    kind if kind <= load => queue.push_back(now),
                    5 if random(3) == 0 => gate.measured(gate.count_accepted(), queue.len() as u64, now),
                    _ => {
                        gate.begin_accept();
                        let is_counted = random(4) > 0;
                        match queue.pop_front() {
                            Some(came) if is_counted => {
                                let waited = gate.accepted(now);
                                assert!(waited <= now.since(came), "{waited:?} {:?}", now.since(came));
                                waits += 1;
                                known += usize::from(!waited.is_zero());
                            }
                            // Its worker died.
                            Some(_) => {}
                            None => gate.accept_failed(true, now),
                        }
                    }
                }
            }
            assert!(gate.queue_ns() <= now.as_nanos());
        }
        assert!(known * 20 > waits, "{known} of {waits}");
    }

    /// Many workers measure often, and connections wait for long.
    #[test]
    fn long_waits_are_known_however_often_the_queue_is_measured() {
        for every in [5, 30, 100, 500] {
            let page = page();
            let gate = Gate::new(&page, 4);
            let (waits, mut known) = (3_000, Duration::ZERO);
            for number in 0..2_000 {
                let now = 10_000 + number * every;
                gate.measured(number, waits / every, at(now));
                gate.begin_accept();
                known = gate.accepted(at(now));
            }
            let missing = Duration::from_millis(waits) - known;
            assert!(
                missing <= Duration::from_millis(250.max(every)),
                "{every}: {missing:?}"
            );
        }
    }

    #[test]
    fn the_usual_time_follows_the_requests() {
        let page = page();
        let gate = Gate::new(&page, 1);
        assert_eq!(gate.usual(), Duration::ZERO);
        gate.had_run(Duration::from_millis(500));
        assert_eq!(gate.usual(), Duration::from_millis(500));
        (0..200).for_each(|_| gate.had_run(Duration::from_millis(20)));
        assert!(gate.usual().abs_diff(Duration::from_millis(20)) < Duration::from_millis(1));
        gate.had_run(Duration::MAX);
        assert!(gate.usual() <= LONGEST);
    }

    #[test]
    fn a_wait_is_found_and_adds_to_the_queue_s_time_once() {
        let page = page();
        let gate = Gate::new(&page, 1);
        gate.measured(0, 3, at(100));
        for (now, waited) in [(150, 50), (180, 80), (200, 100), (210, 0)] {
            gate.begin_accept();
            assert_eq!(gate.accepted(at(now)), Duration::from_millis(waited));
        }
        assert_eq!(gate.queue_ns(), 100 * MILLI);
        gate.count_from(at(300));
        gate.measured(4, 1, at(250));
        gate.begin_accept();
        assert_eq!(gate.accepted(at(400)), Duration::ZERO);
    }
}
