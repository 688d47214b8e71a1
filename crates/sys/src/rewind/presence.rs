//! Which pages are in memory, by mincore(2): whether any was dropped, unmapped or replaced without a page fault.

use super::book::{Book, MOST_TEXT, Region};
use super::kernel::call;
use super::regions::PAGE;

impl Book {
    /// Whether the same pages are there as when the process was last put back. Also no, if that can't be told.
    pub(super) fn has_same_pages(&mut self) -> bool {
        let room = self.text.as_mut_ptr();
        self.droppable().all(|run| {
            // SAFETY: there is so much room, and a byte for each page.
            unsafe {
                run.pages <= MOST_TEXT
                    && ask_mincore(&run, room)
                    && is_same(room, self.was_there.add(run.first_page), run.pages)
            }
        })
    }

    /// Notes which pages are there.
    pub(super) fn note_pages(&mut self) {
        for run in self.droppable() {
            // SAFETY: there is a byte for each page. What can't be told is not the same the next time.
            unsafe { ask_mincore(&run, self.was_there.add(run.first_page)) };
        }
    }

    /// Regions that are beside each other, with their pages in order, are looked at as one.
    fn droppable(&self) -> impl Iterator<Item = Run> {
        let mut regions = self.regions[..self.count]
            .iter()
            .filter(|region| !region.is_data)
            .peekable();
        std::iter::from_fn(move || {
            let mut run = Run::of(regions.next()?);
            while let Some(next) = regions.next_if(|next| run.goes_on_with(next)) {
                run.pages += next.pages();
            }
            Some(run)
        })
    }
}

/// Pages that are beside each other.
struct Run {
    start: usize,
    first_page: usize,
    pages: usize,
}

impl Run {
    fn of(region: &Region) -> Run {
        Run {
            start: region.start,
            first_page: region.first_page,
            pages: region.pages(),
        }
    }

    fn goes_on_with(&self, next: &Region) -> bool {
        next.start == self.start + self.pages * PAGE
            && next.first_page == self.first_page + self.pages
            && self.pages + next.pages() <= MOST_TEXT
    }
}

/// Writes a byte for each page. False: not all of them are mapped.
///
/// # Safety
/// There is room.
unsafe fn ask_mincore(run: &Run, room: *mut u8) -> bool {
    let arguments = [run.start, run.pages * PAGE, room as usize, 0, 0, 0];
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_mincore, arguments).is_ok() }
}

/// # Safety
/// There are so many bytes at both.
unsafe fn is_same(one: *const u8, other: *const u8, count: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { libc::memcmp(one.cast(), other.cast(), count) == 0 }
}
