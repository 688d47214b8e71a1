//! Detects pages that were dropped, unmapped or replaced without a page fault.
//!
//! Each new anonymous page needs a page fault, so a smaller number of them means a dropped page. msync(2) detects unmapped
//! memory, which may have had no page. /proc/self/status has the size of the stack. mincore(2) looks at each page instead
//! if the number is unknown, which takes ten times as long.

use super::book::{Book, MOST_SPANS, MOST_TEXT, Region};
use super::kernel::call;
use super::regions::PAGE;

/// Mappings between two spans that become one.
const MOST_BETWEEN: usize = 64;

impl Book {
    /// `false` if unknown.
    pub(super) fn has_same_pages(&mut self) -> bool {
        match self.is_counted && self.page_counts.is_some() {
            true => self.has_as_many_pages(),
            false => self.has_each_page(),
        }
    }

    fn has_as_many_pages(&mut self) -> bool {
        if self.state.page_counts() != self.page_counts {
            return false;
        }
        self.spans[..self.span_count].iter().all(|span| is_mapped(*span))
    }

    /// Lists the ranges for msync(2). Returns false if there are too many.
    pub(super) fn note_spans(&mut self) -> bool {
        let mut spans = [(0, 0); MOST_SPANS];
        let mut count = 0;
        let stack = self.stack_low;
        for run in self.droppable(|region| !region.is_full && !(region.start..region.end).contains(&stack)) {
            let end = run.start + run.pages * PAGE;
            if count > 0 && self.goes_on_from(spans[count - 1].1, run.start) {
                spans[count - 1].1 = end;
                continue;
            }
            let Some(place) = spans.get_mut(count) else {
                return false;
            };
            *place = (run.start, end);
            count += 1;
        }
        (self.spans, self.span_count) = (spans, count);
        true
    }

    /// Whether a few mappings fill the range.
    fn goes_on_from(&self, end: usize, start: usize) -> bool {
        let mappings = &self.mappings[..self.mapping_count];
        let first = mappings.partition_point(|mapping| mapping.end <= end);
        let between = mappings[first..]
            .iter()
            .take_while(|mapping| mapping.start < start)
            .take(MOST_BETWEEN + 1);
        let reached = between
            .clone()
            .try_fold(end, |at, mapping| (mapping.start <= at).then_some(mapping.end));
        between.count() <= MOST_BETWEEN && reached.is_some_and(|reached| reached >= start)
    }

    fn has_each_page(&mut self) -> bool {
        let room = self.text.as_mut_ptr();
        self.droppable(|_| true).all(|run| {
            // SAFETY: the buffer has this much room, and there is a byte for each page.
            unsafe {
                run.pages <= MOST_TEXT
                    && ask_mincore(&run, room)
                    && is_same(room, self.was_there.add(run.first_page), run.pages)
            }
        })
    }

    pub(super) fn note_pages(&mut self) {
        if self.is_counted {
            self.page_counts = self.state.page_counts_now();
        }
        if self.page_counts.is_some() {
            return;
        }
        for run in self.droppable(|_| true) {
            // SAFETY: there is a byte for each page. Pages that can't be read count as changed next time.
            unsafe { ask_mincore(&run, self.was_there.add(run.first_page)) };
        }
    }

    fn droppable(&self, is_asked: impl Fn(&Region) -> bool) -> impl Iterator<Item = Run> {
        let mut regions = self.regions[..self.count]
            .iter()
            .filter(move |region| !region.is_data && is_asked(region))
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

/// MS_ASYNC only detects gaps.
pub(super) fn is_mapped(range: (usize, usize)) -> bool {
    let arguments = [range.0, range.1 - range.0, libc::MS_ASYNC as usize];
    // SAFETY: the call reads and writes no memory.
    unsafe { call(libc::SYS_msync, arguments).is_ok() }
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
    let arguments = [run.start, run.pages * PAGE, room as usize];
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_mincore, arguments).is_ok() }
}

/// # Safety
/// Both have `count` bytes.
unsafe fn is_same(one: *const u8, other: *const u8, count: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { libc::memcmp(one.cast(), other.cast(), count) == 0 }
}
