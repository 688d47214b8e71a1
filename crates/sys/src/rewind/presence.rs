//! Which pages are in memory, by mincore(2): whether any was dropped, unmapped or replaced without a page fault.

use super::book::{Book, MOST_TEXT, Region};
use super::kernel::call;

impl Book {
    /// Whether the same pages are there as when the process was last put back. Also no, if that can't be told.
    pub(super) fn has_same_pages(&mut self) -> bool {
        let room = self.text.as_mut_ptr();
        self.droppable().all(|region| {
            // SAFETY: there is so much room, and a byte for each page.
            unsafe {
                region.pages() <= MOST_TEXT
                    && look(region, room)
                    && is_same(room, self.was_there.add(region.first_page), region.pages())
            }
        })
    }

    /// Notes which pages are there.
    pub(super) fn note_pages(&mut self) {
        for region in self.droppable() {
            // SAFETY: there is a byte for each page. What can't be told is not the same the next time.
            unsafe { look(region, self.was_there.add(region.first_page)) };
        }
    }

    fn droppable(&self) -> impl Iterator<Item = &Region> {
        self.regions[..self.count].iter().filter(|region| !region.is_data)
    }
}

/// Writes a byte for each page of a region. False: not all of it is mapped.
///
/// # Safety
/// There is room.
unsafe fn look(region: &Region, room: *mut u8) -> bool {
    let bytes = region.end - region.start;
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_mincore, [region.start, bytes, room as usize, 0, 0, 0]).is_ok() }
}

/// # Safety
/// There are so many bytes at both.
unsafe fn is_same(one: *const u8, other: *const u8, count: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { libc::memcmp(one.cast(), other.cast(), count) == 0 }
}
