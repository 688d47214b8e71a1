//! Mappings of the scoreboard for the master, readers and workers.

use super::gate::Gate;
use super::lanes::{LanePages, Mark};
use super::layout::{
    HEADER_PAGES, NUMBERS_PAGES, gate_page, header, lanes_page, lanes_pages, numbers_page, pages,
    pages_with_lanes, pages_without_numbers, received_page, slot,
};
use super::numbers::Counters;
use forkyard_base::tick::Tick;
use forkyard_protocol::history::History;
use forkyard_protocol::numbers::{Numbers, StatusClass};
use forkyard_sys::Result;
use forkyard_sys::received::{MOST_BYTES, PAGES};
use forkyard_sys::shm::{Memory, PAGE_BYTES, PAGE_WORDS, Words, size_in_pages};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// A mapped scoreboard.
#[derive(Debug)]
pub struct Reader {
    all: Words,
    slots: usize,
}

/// A worker's mapping of the gate page and of its numbers.
#[derive(Debug)]
pub struct Counting {
    gate: Words,
    numbers: Words,
    slots: usize,
}

/// A 503 responder's mapping of the gate page.
#[derive(Debug)]
pub struct GatePage {
    words: Words,
    slots: usize,
}

impl GatePage {
    /// Maps it.
    ///
    /// # Errors
    /// mmap(2).
    pub fn map(memory: BorrowedFd<'_>, slots: usize) -> Result<GatePage> {
        let words = Words::map_writable(memory, gate_page(slots), 1)?;
        Ok(GatePage { words, slots })
    }

    pub fn gate(&self) -> Gate<'_> {
        Gate::new(self.words.words(), self.slots)
    }
}

/// A worker's mapping of the lanes' pages.
#[derive(Debug)]
pub struct LaneMapping {
    words: Words,
}

impl LaneMapping {
    /// Maps them; `None`: the scoreboard has none.
    ///
    /// # Errors
    /// mmap(2).
    pub fn map(memory: BorrowedFd<'_>, slots: usize) -> Result<Option<LaneMapping>> {
        if size_in_pages(memory) != pages_with_lanes(slots) {
            return Ok(None);
        }
        let words = Words::map_writable(memory, lanes_page(slots), lanes_pages(slots))?;
        Ok(Some(LaneMapping { words }))
    }

    pub fn pages(&self) -> LanePages<'_> {
        LanePages::new(self.words.words())
    }
}

impl Counting {
    /// Maps both.
    ///
    /// # Errors
    /// mmap(2).
    pub fn map(memory: BorrowedFd<'_>, slots: usize, index: usize) -> Result<Counting> {
        Ok(Counting {
            gate: Words::map_writable(memory, gate_page(slots), 1)?,
            numbers: Words::map_writable(memory, numbers_page(slots, index), NUMBERS_PAGES)?,
            slots,
        })
    }

    #[inline]
    pub fn gate(&self) -> Gate<'_> {
        Gate::new(self.gate.words(), self.slots)
    }

    #[inline]
    pub fn counters(&self) -> Counters<'_> {
        Counters::new(self.numbers.words())
    }
}

impl Reader {
    /// Maps a scoreboard for reading.
    ///
    /// # Errors
    /// mmap(2).
    pub fn map(memory: BorrowedFd<'_>, slots: usize) -> Result<Reader> {
        Ok(Reader {
            all: Words::map_readable(memory, pages_without_numbers(slots))?,
            slots,
        })
    }

    /// The header's words.
    #[inline]
    pub fn header(&self) -> &[AtomicU64] {
        &self.all.words()[..HEADER_PAGES * PAGE_WORDS]
    }

    /// A slot's words.
    #[inline]
    pub fn slot(&self, index: usize) -> Option<&[AtomicU64]> {
        let first = (HEADER_PAGES + index).checked_mul(PAGE_WORDS)?;
        let words = self.all.words().get(first..first + PAGE_WORDS)?;
        (index < self.slots).then_some(words)
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Whether the scoreboard has a gate page and numbers: older programs make none.
    pub fn has_numbers(&self) -> bool {
        self.header()[header::HAS_NUMBERS].load(Ordering::Relaxed) != 0
    }
}

/// The master's writable scoreboard for one generation.
#[derive(Debug)]
pub struct Board {
    memory: Memory,
    words: Reader,
}

impl Deref for Board {
    type Target = Reader;

    fn deref(&self) -> &Reader {
        &self.words
    }
}

impl Board {
    /// Creates a scoreboard with `slots` slots.
    ///
    /// # Errors
    /// memfd_create(2), ftruncate(2), fcntl(2) or mmap(2).
    pub fn create(name: &str, slots: usize) -> Result<Board> {
        Board::create_sized(name, slots, pages(slots))
    }

    /// Creates a scoreboard for a pool with lanes.
    ///
    /// # Errors
    /// As [`Board::create`].
    pub fn create_with_lanes(name: &str, slots: usize) -> Result<Board> {
        Board::create_sized(name, slots, pages_with_lanes(slots))
    }

    fn create_sized(name: &str, slots: usize, size: usize) -> Result<Board> {
        let board = Board::map(Memory::create(name, size)?, slots, size)?;
        board.header()[header::HAS_NUMBERS].store(1, Ordering::Relaxed);
        Ok(board)
    }

    /// Takes over another master's scoreboard. `writable` must have the right size and be sealed.
    ///
    /// # Errors
    /// mmap(2).
    pub fn adopt(writable: OwnedFd, slots: usize) -> Result<Board> {
        let least = pages_without_numbers(slots);
        let memory = Memory::adopt(writable);
        let size = memory.pages();
        let is_known = size == pages(slots) || size == pages_with_lanes(slots);
        let all = if is_known { size } else { least };
        Board::map(memory, slots, all)
    }

    fn map(memory: Memory, slots: usize, pages: usize) -> Result<Board> {
        let all = Words::map_writable(memory.writable.as_fd(), 0, pages)?;
        let words = Reader { all, slots };
        Ok(Board { memory, words })
    }

    /// Counts the unfinished request of a slot's dead worker.
    pub fn settle(&self, index: usize, now: Tick) {
        if let (Some(counters), Some(page)) = (self.counters(index), self.slot(index)) {
            counters.settle(page, now);
        }
        if index >= self.slots {
            return;
        }
        if let Some(gate) = self.gate() {
            gate.leave(index, now);
        }
        if let Some(lanes) = self.lanes() {
            lanes.mark(index, Mark::Idle, now);
        }
    }

    /// Returns the sums of all slots. Untrusted.
    pub fn numbers(&self, now: Tick) -> Numbers {
        let mut sum = Numbers::default();
        for counters in (0..self.slots).filter_map(|index| self.counters(index)) {
            sum.add(&counters.read(now));
        }
        if let Some(gate) = self.gate() {
            sum.saturated_ns = gate.saturated_ns(now);
            sum.queue_ns = gate.queue_ns();
            let (requests, bytes) = gate.count_refused();
            let refused = &mut sum.classes[StatusClass::ServerError.index()];
            *refused = refused.saturating_add(requests);
            sum.bytes_out = sum.bytes_out.saturating_add(bytes);
        }
        sum
    }

    /// Returns the last hour of all slots. Untrusted.
    pub fn history(&self) -> History {
        let mut sum = History::default();
        for counters in (0..self.slots).filter_map(|index| self.counters(index)) {
            sum.add(&counters.history());
        }
        sum
    }

    fn pages_from(&self, first: usize, count: usize) -> Option<&[AtomicU64]> {
        let words = self.all.words();
        words.get(first * PAGE_WORDS..(first + count) * PAGE_WORDS)
    }

    /// The gate page; `None` on an older program's scoreboard.
    pub fn gate(&self) -> Option<Gate<'_>> {
        let words = self.pages_from(gate_page(self.slots), 1)?;
        Some(Gate::new(words, self.slots))
    }

    /// The lanes' pages; `None` for a pool without lanes.
    pub fn lanes(&self) -> Option<LanePages<'_>> {
        let words = self.pages_from(lanes_page(self.slots), lanes_pages(self.slots))?;
        Some(LanePages::new(words))
    }

    /// A slot's numbers; `None` if no worker has counted there. Looking at pages that nobody has touched would create
    /// them.
    pub fn counters(&self, index: usize) -> Option<Counters<'_>> {
        self.gate().filter(|gate| gate.is_touched(index))?;
        let words = self.pages_from(numbers_page(self.slots, index), NUMBERS_PAGES)?;
        Some(Counters::new(words))
    }

    /// The descriptors for workers.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Takes the first `most` bytes of the request that a dead worker has kept. The bytes are untrusted.
    ///
    /// # Errors
    /// mmap(2).
    pub fn received(&self, index: usize, most: usize) -> Result<Vec<u8>> {
        let first = received_page(self.words.slots, index);
        Words::take_from(self.memory.writable.as_fd(), first, most.min(MOST_BYTES))
    }

    /// Clears a free slot before the next worker gets it.
    pub fn wipe(&self, index: usize) {
        for word in self.slot(index).unwrap_or_default() {
            word.store(0, Ordering::SeqCst);
        }
    }
}

/// A worker's pages.
#[derive(Debug)]
pub struct Slot {
    page: Words,
    /// For the bytes of a request ([`forkyard_sys::received`]); `None`: the scoreboard is of an older program.
    received: Option<Words>,
}

impl Slot {
    /// Maps a slot's pages in a scoreboard of `slots` slots.
    ///
    /// # Errors
    /// mmap(2).
    pub fn map(memory: BorrowedFd<'_>, slots: usize, index: usize) -> Result<Slot> {
        let received = (size_in_pages(memory) >= pages(slots))
            .then(|| Words::map_writable(memory, received_page(slots, index), PAGES));
        Ok(Slot {
            page: Words::map_writable(memory, HEADER_PAGES + index, 1)?,
            received: received.transpose()?,
        })
    }

    /// Records the senders of fatal signals in the page, and the requests and answers that they end.
    pub fn note_senders(&self) {
        self.page.note_senders_at(slot::SENDER);
        self.page.count_last_answer_at(slot::LAST_ANSWER);
        if let Some(received) = &self.received {
            received.keep_received();
        }
    }

    /// The page's words.
    pub fn words(&self) -> &[AtomicU64] {
        self.page.words()
    }
}

/// Byte offset of a slot's sender words in the memory.
pub fn sender_offset(index: usize) -> u64 {
    ((HEADER_PAGES + index) * PAGE_BYTES + slot::SENDER * size_of::<u64>()) as u64
}

#[cfg(test)]
mod tests {
    use super::super::slot_writer::SlotWriter;
    use super::super::{header, slot_reader};
    use super::*;
    use forkyard_sys::process::{Ended, Side, exit_now, fork, reap_pid};

    #[test]
    fn a_slot_is_seen_by_all_processes() {
        let board = Board::create("test", 3).unwrap();
        let reader = Reader::map(board.memory().readable().unwrap().as_fd(), 3).unwrap();
        let own = Slot::map(board.memory().writable.as_fd(), 3, 1).unwrap();
        SlotWriter::new(own.words()).begin(7, 8, Tick::from_nanos(9));
        assert_eq!(slot_reader::read(reader.slot(1).unwrap()).pid, 7);
        assert_eq!(slot_reader::read(board.slot(1).unwrap()).pid, 7);
        assert_eq!(slot_reader::read(board.slot(0).unwrap()).pid, 0);
        assert!(board.slot(3).is_none());
        header::set_retire(board.header(), 2, true);
        assert!(header::retire(reader.header(), 2) && !header::retire(reader.header(), 1));
    }

    #[test]
    fn a_request_is_taken_once_and_an_old_scoreboard_has_none() {
        let board = Board::create("test", 2).unwrap();
        let first = received_page(2, 1);
        let place = Words::map_writable(board.memory().writable.as_fd(), first, PAGES).unwrap();
        place.words()[0].store(u64::from_ne_bytes(*b"GET /x.p"), Ordering::Relaxed);
        assert_eq!(board.received(1, 5).unwrap(), b"GET /");
        assert_eq!(board.received(1, 5).unwrap(), [0; 5]);
        assert_eq!(board.received(1, usize::MAX).unwrap().len(), MOST_BYTES);
        assert_eq!(board.received(2, 1).unwrap(), b"", "there is no such slot");
        let old = Memory::create("test", HEADER_PAGES + 2).unwrap();
        let slot = Slot::map(old.writable.as_fd(), 2, 1).unwrap();
        assert!(slot.received.is_none());
        let old = Board::adopt(old.writable, 2).unwrap();
        assert_eq!(old.received(0, 5).unwrap(), b"");
    }

    fn child_dies_of(act: impl FnOnce()) -> Ended {
        // SAFETY: the child only stores to memory and exits, so locks of other threads don't matter.
        #[expect(unsafe_code, reason = "forks to be killed by its own store")]
        match unsafe { fork() }.unwrap() {
            Side::Child => {
                forkyard_sys::signal::reset_in_child();
                act();
                exit_now(0)
            }
            Side::Parent(pid) => reap_pid(pid).unwrap(),
        }
    }

    #[test]
    fn a_store_outside_the_own_page_is_a_segmentation_fault() {
        let board = Board::create("test", 2).unwrap();
        let reader = Reader::map(board.memory().readable().unwrap().as_fd(), 2).unwrap();
        let own = Slot::map(board.memory().writable.as_fd(), 2, 0).unwrap();
        assert_eq!(
            child_dies_of(|| own.words()[0].store(1, Ordering::Relaxed)),
            Ended::Code(0)
        );
        let segfault = Ended::killed(libc::SIGSEGV);
        let strip = |ended| match ended {
            Ended::Signal { number: signal, .. } => Ended::killed(signal),
            code => code,
        };
        let other = || reader.slot(1).unwrap()[0].store(1, Ordering::Relaxed);
        assert_eq!(strip(child_dies_of(other)), segfault);
        assert_eq!(
            strip(child_dies_of(|| reader.header()[0].store(1, Ordering::Relaxed))),
            segfault
        );
    }
}
