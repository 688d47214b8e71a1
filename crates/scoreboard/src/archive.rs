//! The last two weeks of all pools: the last day by tens of minutes, and 14 days by hours.
//!
//! The memory is the master's alone, and the next master takes it over. Pages have memory after their first use, so a
//! pool without requests needs none, and the size of the whole is the bound. The master copies tens of minutes from the
//! scoreboards, which have the last hour. It may copy one many times: the copy with more requests stays.

use super::minutes::minute_of;
use super::row::{Row, WORDS};
use super::text;
use forkyard_base::tick::Tick;
use forkyard_protocol::history::{COARSE, Minute, Period};
use forkyard_sys::Result;
use forkyard_sys::shm::{Memory, PAGE_BYTES, PAGE_WORDS, Words};
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// 32 MiB.
pub const PAGES: usize = (32 << 20) / PAGE_BYTES;
const POOL_PAGES: usize = 8;
/// The first page has the layout's number and the count of places that were ever used.
const LAYOUT: u64 = 2;
const MOST_POOLS: usize = PAGES / POOL_PAGES - 1;

const HOUR: u64 = 60;
const DAY: u64 = 24 * HOUR;
/// An hour and some more than a day, so that the same hour of yesterday is there.
const TENS: Rows = Rows {
    first: 0,
    count: 26 * 6,
    minutes: COARSE,
};
const HOURS: Rows = Rows {
    first: TENS.count * WORDS,
    count: 14 * 24 + 1,
    minutes: HOUR,
};
/// The length of the pool's name and the name.
const NAME_LENGTH: usize = HOURS.first + HOURS.count * WORDS;
const NAME: usize = NAME_LENGTH + 1;
const MOST_NAME: usize = (POOL_PAGES * PAGE_WORDS - NAME) * 8;
/// Added to minutes of the monotonic clock, which begins with the machine: no time of the last weeks is below 0.
const BEFORE: u64 = 60 * DAY;

/// A ring of rows in a pool's place.
struct Rows {
    first: usize,
    count: usize,
    minutes: u64,
}

impl Rows {
    fn row<'w>(&self, place: &'w [AtomicU64], begin: u64) -> Row<'w> {
        let index = (begin / self.minutes) as usize % self.count;
        let first = self.first + index * WORDS;
        Row::new(&place[first..first + WORDS])
    }

    /// Returns the row of a time, if it has requests.
    fn read(&self, place: &[AtomicU64], begin: u64) -> Option<Minute> {
        let row = self.row(place, begin).read()?;
        (row.minute == begin).then_some(row)
    }

    fn write(&self, place: &[AtomicU64], minute: &Minute) {
        self.row(place, minute.minute).write(minute);
    }

    /// The times of the ring, oldest first.
    fn begins(&self, now: u64) -> impl Iterator<Item = u64> {
        let present = now / self.minutes * self.minutes;
        let count = self.count as u64;
        (0..count).map(move |index| present - (count - 1 - index) * self.minutes)
    }

    fn all(&self, place: &[AtomicU64], now: u64) -> Vec<Minute> {
        let begins = self.begins(now);
        begins.filter_map(|begin| self.read(place, begin)).collect()
    }

    /// Sums up the times from `begin` to `end`; `None` without a request.
    fn sum(&self, place: &[AtomicU64], begin: u64, end: u64) -> Option<Minute> {
        let begins = (begin..end).step_by(self.minutes as usize);
        let rows = begins.filter_map(|begin| self.read(place, begin));
        rows.reduce(|mut sum, more| {
            sum.add(&more);
            sum
        })
    }
}

/// The same hour a day and a week ago, as near as it is kept.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SameHour {
    pub day_ago: Option<Period>,
    pub week_ago: Option<Period>,
}

/// The hours of all pools.
#[derive(Debug)]
pub struct Archive {
    memory: Memory,
    words: Words,
    /// Places by pool name.
    places: HashMap<String, usize>,
}

impl Archive {
    /// # Errors
    /// memfd_create(2), ftruncate(2), fcntl(2) or mmap(2).
    pub fn create() -> Result<Archive> {
        let archive = Archive::map(Memory::create("forkyard history", PAGES)?)?;
        archive.words.words()[0].store(LAYOUT, Ordering::SeqCst);
        Ok(archive)
    }

    /// Takes over another master's memory, which must be sealed and have [`PAGES`] pages. `None`: it has another layout.
    ///
    /// # Errors
    /// mmap(2).
    pub fn adopt(writable: OwnedFd) -> Result<Option<Archive>> {
        let mut archive = Archive::map(Memory::adopt(writable))?;
        if archive.words.words()[0].load(Ordering::SeqCst) != LAYOUT {
            return Ok(None);
        }
        let used = 0..archive.used().load(Ordering::SeqCst).min(MOST_POOLS as u64) as usize;
        let names = used.filter_map(|index| Some((name(archive.place(index))?, index)));
        archive.places = names.collect();
        Ok(Some(archive))
    }

    fn map(memory: Memory) -> Result<Archive> {
        Ok(Archive {
            words: Words::map_writable(memory.writable.as_fd(), 0, PAGES)?,
            memory,
            places: HashMap::new(),
        })
    }

    /// The descriptor for the next master.
    pub fn memory(&self) -> &OwnedFd {
        &self.memory.writable
    }

    fn used(&self) -> &AtomicU64 {
        &self.words.words()[1]
    }

    fn place(&self, index: usize) -> &[AtomicU64] {
        let first = (1 + index) * POOL_PAGES * PAGE_WORDS;
        &self.words.words()[first..first + POOL_PAGES * PAGE_WORDS]
    }

    fn of(&self, pool: &str) -> Option<&[AtomicU64]> {
        Some(self.place(*self.places.get(pool)?))
    }

    /// Returns the place of a pool. If all are used, the pool gets the one whose pool had no request for longest, if
    /// that is a day at least.
    fn claim(&mut self, pool: &str, now: u64) -> Option<usize> {
        if let Some(index) = self.places.get(pool) {
            return Some(*index);
        }
        if pool.len() > MOST_NAME {
            return None;
        }
        let taken: HashSet<usize> = self.places.values().copied().collect();
        let index = match (0..MOST_POOLS).find(|index| !taken.contains(index)) {
            Some(free) => free,
            None => {
                let last = |index: usize| HOURS.all(self.place(index), now).last().map(|it| it.minute);
                let all = self
                    .places
                    .iter()
                    .map(|(name, index)| (last(*index), name, *index));
                let (last, name, index) = all.min()?;
                if last.is_some_and(|last| now.saturating_sub(last) < DAY) {
                    return None;
                }
                let name = name.clone();
                self.places.remove(&name);
                index
            }
        };
        let place = self.place(index);
        place.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        text::store(&place[NAME..], pool.as_bytes());
        place[NAME_LENGTH].store(pool.len() as u64, Ordering::SeqCst);
        self.used().fetch_max(index as u64 + 1, Ordering::SeqCst);
        self.places.insert(pool.to_owned(), index);
        Some(index)
    }

    /// Keeps tens of minutes of a pool, as the scoreboards have them. Returns `false` if there is no place. Minutes
    /// before the machine's start are negative: they wrap around.
    pub fn keep(&mut self, pool: &str, tens: &[Minute], now: Tick) -> bool {
        let now = BEFORE + minute_of(now);
        if tens.is_empty() {
            return true;
        }
        let Some(index) = self.claim(pool, now) else {
            return false;
        };
        let place = self.place(index);
        for ten in tens {
            let ten = Minute {
                minute: BEFORE.wrapping_add(ten.minute),
                ..*ten
            };
            let had = TENS.read(place, ten.minute);
            if had.is_none_or(|had| had.requests < ten.requests) && ten.minute <= now {
                TENS.write(place, &ten);
                let hour = ten.minute / HOUR * HOUR;
                if let Some(sum) = TENS.sum(place, hour, hour + HOUR) {
                    HOURS.write(place, &Minute { minute: hour, ..sum });
                }
            }
        }
        true
    }

    /// Returns the hours of two weeks and the tens of minutes of the last day, each in order. `epoch`: the present time in
    /// seconds since 1970.
    pub fn periods(&self, pool: &str, now: Tick, epoch: u64) -> Vec<Period> {
        let Some(place) = self.of(pool) else {
            return Vec::new();
        };
        let minute = BEFORE + minute_of(now);
        let of = |rows: &Rows| -> Vec<Period> {
            let all = rows.all(place, minute).into_iter();
            all.map(|row| period(&row, rows.minutes, now, epoch)).collect()
        };
        [of(&HOURS), of(&TENS)].concat()
    }

    /// Returns the last hour's counterparts.
    pub fn same_hour(&self, pool: &str, now: Tick, epoch: u64) -> SameHour {
        let Some(place) = self.of(pool) else {
            return SameHour::default();
        };
        let minute = BEFORE + minute_of(now);
        let before = |rows: &Rows, end: u64| {
            let end = end / rows.minutes * rows.minutes;
            let begin = end - HOUR;
            let sum = rows.sum(place, begin, end)?;
            Some(period(&Minute { minute: begin, ..sum }, HOUR, now, epoch))
        };
        SameHour {
            day_ago: before(&TENS, minute - DAY),
            week_ago: before(&HOURS, minute - 7 * DAY + HOUR / 2),
        }
    }
}

fn period(row: &Minute, minutes: u64, now: Tick, epoch: u64) -> Period {
    let seconds = now.as_nanos() / 1_000_000_000 + BEFORE * 60;
    Period::new(row, minutes, seconds.saturating_sub(row.minute * 60), epoch)
}

/// Returns the name of a place's pool.
fn name(place: &[AtomicU64]) -> Option<String> {
    let length = place[NAME_LENGTH].load(Ordering::SeqCst);
    let bytes = text::load(&place[NAME..], length);
    String::from_utf8(bytes).ok().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_protocol::history::History;

    const EPOCH: u64 = 1_700_000_000;

    fn at(minute: u64) -> Tick {
        Tick::from_nanos(minute * 60_000_000_000)
    }

    fn minute(minute: u64, requests: u64) -> Minute {
        Minute {
            minute,
            requests,
            errors: requests / 2,
            dead: [0, requests, 0, 0],
            run_micros: requests * 1_000_000,
            waits: [requests, 0, 0, 0, 0, 0, 0, 0],
        }
    }

    #[test]
    fn places_and_their_parts_fit() {
        const { assert!(NAME < POOL_PAGES * PAGE_WORDS && MOST_NAME >= 1024) };
        const { assert!((MOST_POOLS + 1) * POOL_PAGES <= PAGES && TENS.count as u64 * COARSE >= DAY + 2 * HOUR) };
    }

    /// A pool has a request a minute for three weeks. The master copies every 50 minutes, is replaced now and then, and
    /// the ring of the scoreboard has an hour.
    #[test]
    fn nothing_is_lost_in_three_weeks() {
        let mut archive = Archive::create().unwrap();
        let mut ring = std::collections::BTreeMap::new();
        let end = 21 * DAY + 7;
        for now in 3..=end {
            ring.insert(now % HOUR, minute(now, 1));
            if now % 50 == 0 || now == end {
                let mut history = History::default();
                ring.values().for_each(|it| history.add_minute(it));
                assert!(archive.keep("www", &history.tens(now), at(now)));
            }
            if now % 999 == 0 {
                let memory = archive.memory().try_clone().unwrap();
                archive = Archive::adopt(memory).unwrap().unwrap();
            }
        }
        let periods = archive.periods("www", at(end), EPOCH);
        let (hours, tens): (Vec<_>, Vec<_>) = periods.iter().partition(|it| it.minutes == HOUR);
        assert_eq!((hours.len(), tens.len()), (HOURS.count, TENS.count));
        let (last_ten, tens) = tens.split_last().unwrap();
        assert_eq!((last_ten.requests, last_ten.began), (8, EPOCH - 7 * 60));
        assert!(
            tens.iter()
                .all(|it| (it.requests, it.dead_work.deadline, it.busy_workers) == (10, 10, 1.0 / 60.0))
        );
        let (last_hour, hours) = hours.split_last().unwrap();
        assert_eq!(last_hour.requests, 8);
        assert!(hours.iter().all(|it| it.requests == 60));
        assert_eq!(hours[0].began, EPOCH - (14 * DAY + 7) * 60);
        let same = archive.same_hour("www", at(end), EPOCH);
        let (day, week) = (same.day_ago.unwrap(), same.week_ago.unwrap());
        assert_eq!((day.requests, day.began), (60, EPOCH - (25 * HOUR + 7) * 60));
        assert_eq!(
            (week.requests, week.began),
            (60, EPOCH - (7 * DAY + HOUR + 7) * 60)
        );
        let much_later = at(end + 15 * DAY);
        assert_eq!(archive.periods("www", much_later, EPOCH), []);
        assert_eq!(archive.same_hour("www", much_later, EPOCH), SameHour::default());
    }

    #[test]
    fn a_copy_with_fewer_requests_does_no_harm() {
        let mut archive = Archive::create().unwrap();
        assert_eq!(archive.periods("www", at(70), EPOCH), []);
        for requests in [5, 9, 2] {
            archive.keep("www", &[minute(60, requests)], at(70));
        }
        // Workers may write any minute and any number.
        archive.keep("www", &[minute(80, 3), minute(u64::MAX / 2, 1)], at(70));
        let requests: Vec<u64> = archive
            .periods("www", at(70), EPOCH)
            .iter()
            .map(|it| it.requests)
            .collect();
        assert_eq!(requests, [9, 9]);
    }

    #[test]
    fn the_pool_without_requests_for_longest_makes_room() {
        let mut archive = Archive::create().unwrap();
        for index in 0..MOST_POOLS as u64 {
            let last = 10 * index.min(9);
            assert!(archive.keep(&format!("p{index}"), &[minute(last, 1)], at(last)));
        }
        assert!(!archive.keep("new", &[minute(100, 1)], at(100)));
        assert!(!archive.keep(&"n".repeat(MOST_NAME + 1), &[minute(100, 1)], at(100)));
        let later = 2 * DAY;
        assert!(archive.keep("p1", &[minute(later, 1)], at(later)));
        assert!(archive.keep("new", &[minute(later, 7)], at(later)));
        assert_eq!(archive.periods("p0", at(later), EPOCH), []);
        let periods = archive.periods("new", at(later), EPOCH);
        assert_eq!(periods.len(), 2);
        let adopted = Archive::adopt(archive.memory().try_clone().unwrap()).unwrap();
        assert_eq!(adopted.unwrap().periods("new", at(later), EPOCH), periods);
    }
}
