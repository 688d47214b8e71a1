//! Detects pages that were dropped, unmapped or replaced without a page fault (mincore(2)).

use super::book::{Book, MOST_TEXT, Region};
use super::kernel::call;
use super::regions::PAGE;

impl Book {
    /// `false` if unknown.
    pub(super) fn has_same_pages(&mut self) -> bool {
        let room = self.text.as_mut_ptr();
        self.droppable().all(|run| {
            // SAFETY: the buffer has this much room, and there is a byte for each page.
            unsafe {
                run.pages <= MOST_TEXT
                    && ask_mincore(&run, room)
                    && is_same(room, self.was_there.add(run.first_page), run.pages)
            }
        })
    }

    pub(super) fn note_pages(&mut self) {
        for run in self.droppable() {
            // SAFETY: there is a byte for each page. Pages that can't be read count as changed next time.
            unsafe { ask_mincore(&run, self.was_there.add(run.first_page)) };
        }
    }

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

/// `false` if not all pages are mapped.
///
/// # Safety
/// `room` is large enough.
unsafe fn ask_mincore(run: &Run, room: *mut u8) -> bool {
    let arguments = [run.start, run.pages * PAGE, room as usize, 0, 0, 0];
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_mincore, arguments).is_ok() }
}

/// # Safety
/// Both have `count` bytes.
unsafe fn is_same(one: *const u8, other: *const u8, count: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { libc::memcmp(one.cast(), other.cast(), count) == 0 }
}
