//! Mappings of the scoreboard for the master, readers and workers.

use super::layout::{HEADER_PAGES, slot};
use forkyard_sys::Result;
use forkyard_sys::shm::{Memory, PAGE_BYTES, PAGE_WORDS, Words};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// A mapped scoreboard.
#[derive(Debug)]
pub struct Reader {
    all: Words,
    slots: usize,
}

impl Reader {
    /// Maps a scoreboard for reading.
    ///
    /// # Errors
    /// mmap(2).
    pub fn map(memory: BorrowedFd<'_>, slots: usize) -> Result<Reader> {
        Ok(Reader {
            all: Words::map_readable(memory, HEADER_PAGES + slots)?,
            slots,
        })
    }

    /// The header's words.
    pub fn header(&self) -> &[AtomicU64] {
        &self.all.words()[..HEADER_PAGES * PAGE_WORDS]
    }

    /// A slot's words.
    pub fn slot(&self, index: usize) -> Option<&[AtomicU64]> {
        let first = (HEADER_PAGES + index).checked_mul(PAGE_WORDS)?;
        self.all.words().get(first..first + PAGE_WORDS)
    }

    pub fn slots(&self) -> usize {
        self.slots
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
        let pages = HEADER_PAGES + slots;
        Board::map(Memory::create(name, pages)?, slots)
    }

    /// Takes over another master's scoreboard. `writable` must have the right size and be sealed.
    ///
    /// # Errors
    /// mmap(2).
    pub fn adopt(writable: OwnedFd, slots: usize) -> Result<Board> {
        Board::map(Memory::adopt(writable), slots)
    }

    fn map(memory: Memory, slots: usize) -> Result<Board> {
        let all = Words::map_writable(memory.writable.as_fd(), 0, HEADER_PAGES + slots)?;
        let words = Reader { all, slots };
        Ok(Board { memory, words })
    }

    /// The descriptors for workers.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Clears a free slot before the next worker gets it.
    pub fn wipe(&self, index: usize) {
        for word in self.slot(index).unwrap_or_default() {
            word.store(0, Ordering::SeqCst);
        }
    }
}

/// A worker's page.
#[derive(Debug)]
pub struct Slot {
    page: Words,
}

impl Slot {
    /// Maps a slot's page.
    ///
    /// # Errors
    /// mmap(2).
    pub fn map(memory: BorrowedFd<'_>, index: usize) -> Result<Slot> {
        Ok(Slot {
            page: Words::map_writable(memory, HEADER_PAGES + index, 1)?,
        })
    }

    /// Records the senders of fatal signals in the page.
    pub fn note_senders(&self) {
        self.page.note_senders_at(slot::SENDER);
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
    use forkyard_base::tick::Tick;
    use forkyard_sys::process::{Ended, Side, exit_now, fork, reap_pid};

    #[test]
    fn a_slot_is_seen_by_all_processes() {
        let board = Board::create("test", 3).unwrap();
        let reader = Reader::map(board.memory().readable().unwrap().as_fd(), 3).unwrap();
        let own = Slot::map(board.memory().writable.as_fd(), 1).unwrap();
        SlotWriter::new(own.words()).begin(7, 8, Tick::from_nanos(9));
        assert_eq!(slot_reader::read(reader.slot(1).unwrap()).pid, 7);
        assert_eq!(slot_reader::read(board.slot(1).unwrap()).pid, 7);
        assert_eq!(slot_reader::read(board.slot(0).unwrap()).pid, 0);
        assert!(board.slot(3).is_none());
        header::set_retire(board.header(), 2, true);
        assert!(header::retire(reader.header(), 2) && !header::retire(reader.header(), 1));
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
        let own = Slot::map(board.memory().writable.as_fd(), 0).unwrap();
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
