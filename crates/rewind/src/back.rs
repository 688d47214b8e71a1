//! Restores a process to its snapshot.

use super::book::{Book, IS_HOT, IS_KEPT, MOST_FOUND, Region, STACK_BYTES};
use super::kernel::{self, call};
use super::regions::{Mapping, PAGE};
use super::stack::leave_for;
use super::{Rewound, Snapshot, Unrewindable};
use nix::errno::Errno;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Rewinds between full renewals.
const RENEWAL: u64 = 1000;
/// Rewinds between thorough checks.
const LOOK: u64 = 32;

impl Snapshot {
    /// Stops timers and checks whether the kernel state can be restored. Blocks signals until the rewind.
    ///
    /// # Errors
    /// It can't be restored; the process must exit.
    pub fn check(&self) -> Result<(), Unrewindable> {
        self.book().state.check()
    }

    /// Keeps up to [`MOST_KEPT`](super::MOST_KEPT) new descriptors open, for [`Snapshot::take_kept`] after the next
    /// rewind.
    pub fn keep_open(&self, numbers: impl Iterator<Item = RawFd>) {
        let book = self.book();
        book.kept_count = 0;
        for (place, number) in book.kept.iter_mut().zip(numbers) {
            *place = number;
            book.kept_count += 1;
        }
    }

    /// Takes the kept descriptors, in order. Only the first call returns any.
    pub fn take_kept(&self) -> impl Iterator<Item = OwnedFd> {
        // SAFETY: mapped forever, and one thread. The survivors, which may be borrowed, are other fields.
        let (number, kept, count) = unsafe {
            let book = self.book;
            (
                (*book).rewound.number,
                (*book).kept,
                std::mem::take(&mut (*book).kept_count),
            )
        };
        let count = if number == 0 { 0 } else { count };
        kept.into_iter().take(count).map(|number| {
            // SAFETY: nothing else owns it, as described above.
            unsafe { OwnedFd::from_raw_fd(number) }
        })
    }

    /// Restores the process and continues at the snapshot, where [`Snapshot::outcome`] reports the result.
    ///
    /// # Safety
    /// The snapshot was taken, and [`Snapshot::check`] has just succeeded. No destructors run.
    pub unsafe fn rewind(&self) -> ! {
        let top = (self.book().stack.as_ptr() as usize + STACK_BYTES) & !15;
        // SAFETY: the stack is the book's, and the current one is no longer needed.
        unsafe { leave_for(top, put_back, self.book.cast()) }
    }

    /// Calls `each` for words that differ, except on the unused stack.
    pub fn differences(&self, mut each: impl FnMut(usize)) {
        let book = self.book();
        for region in &book.regions[..book.count] {
            let is_under_us = (region.start..region.end).contains(&book.stack_low);
            for page in 0..region.pages() {
                let start = region.start + page * PAGE;
                if is_under_us && start <= book.stack_low {
                    continue;
                }
                let number = region.first_page + page;
                let (now, before) = (start as *const u8, book.copy.wrapping_add(number * PAGE));
                // SAFETY: the page is mapped and has a copy.
                if unsafe { book.is_kept(number) && is_same(now, before) } {
                    continue;
                }
                for word in 0..PAGE / size_of::<u64>() {
                    let at = start + word * size_of::<u64>();
                    // SAFETY: the page is mapped and has a copy.
                    let (now, before) = unsafe {
                        let before = book.copy.add(number * PAGE + word * size_of::<u64>());
                        let before = match book.is_kept(number) {
                            true => before.cast::<u64>().read_volatile(),
                            false => 0,
                        };
                        ((at as *const u64).read_volatile(), before)
                    };
                    if now != before && !book.area.contains(at) {
                        each(at);
                    }
                }
            }
        }
    }
}

/// # Safety
/// `book` belongs to a snapshot.
unsafe extern "C" fn put_back(book: *mut libc::c_void) -> ! {
    // SAFETY: the caller's promise.
    let book = unsafe { &mut *book.cast::<Book>() };
    let begun = now();
    let mut rewound = Rewound {
        number: book.rewound.number + 1,
        ..Rewound::default()
    };
    if let Err(failure) = put_all_back(book, &mut rewound) {
        book.failure = Some(failure);
    }
    rewound.nanos = now().saturating_sub(begun);
    book.rewound = rewound;
    let (low, context) = (book.stack_low, book.context);
    let Some(resume) = book.resume else {
        // SAFETY: ends the process; unreachable for a taken snapshot.
        unsafe { libc::_exit(70) }
    };
    book.state.release_signals();
    // SAFETY: the stack above is restored.
    unsafe { leave_for(low, resume, context) }
}

fn put_all_back(book: &mut Book, rewound: &mut Rewound) -> Result<(), Unrewindable> {
    let is_due = rewound.number % RENEWAL == 0;
    let is_thorough = rewound.number % LOOK == 0 || is_due;
    book.descriptors
        .put_back(&book.kept[..book.kept_count], is_thorough)?;
    book.state.put_back()?;
    if is_due || (!book.has_same_size()? && !book.unmap_between()?) {
        rewound.has_read_mappings = true;
        book.unmap_new()?;
        // The stack may have grown; all else is restored.
        book.size = book.size_now()?;
    }
    let area = book.area.keep();
    // The first write to a protected page is a page fault. Without faults, only hot pages were written to, and no new
    // mapping has a page.
    let is_known = !rewound.has_read_mappings
        && !is_thorough
        && book.faults_now()? == Some(book.faults)
        && book.has_same_pages();
    match is_known {
        true => book.put_hot_pages_back(rewound),
        false => book.put_pages_back(rewound)?,
    }
    book.area.put(area);
    if is_due {
        book.protect()?;
        book.forget_hot_pages();
    }
    book.heat_area();
    if !is_known {
        book.note_pages();
        book.faults = book.own_faults_now()?;
    }
    Ok(())
}

impl Book {
    /// Restores the brk(2) heap if the size differs.
    fn has_same_size(&mut self) -> Result<bool, Unrewindable> {
        if self.state.has_size(self.size) {
            return Ok(true);
        }
        self.put_break_back()?;
        Ok(self.size_now()? == self.size)
    }

    fn put_break_back(&self) -> Result<(), Unrewindable> {
        let failed = |errno| Unrewindable::Failed("brk", errno);
        // SAFETY: nothing that was created since is used any more.
        unsafe {
            let now = call(libc::SYS_brk, []).map_err(failed)?;
            if now != self.program_break {
                let now = call(libc::SYS_brk, [self.program_break]).map_err(failed)?;
                if now != self.program_break {
                    return Err(failed(Errno::ENOMEM));
                }
            }
        }
        Ok(())
    }

    /// Unmaps former gaps without reading the list of mappings, the slowest step. Skips the gap below the stack, which
    /// may have grown.
    fn unmap_between(&mut self) -> Result<bool, Unrewindable> {
        for pair in self.mappings[..self.mapping_count].windows(2) {
            let (start, next) = (pair[0].end, &pair[1]);
            if start < next.start && !next.is_stack && !next.is_kernels {
                unmap(start, next.start)?;
            }
        }
        Ok(self.size_now()? == self.size)
    }

    fn unmap_new(&mut self) -> Result<(), Unrewindable> {
        let mut untracked = 0;
        self.each_mapping(|book, mapping| {
            untracked += book.unmap_new_of(mapping)?;
            Ok(())
        })?;
        let all = &self.mappings[..self.mapping_count];
        let expected: usize = all
            .iter()
            .filter(|it| !it.is_own())
            .map(|it| it.end - it.start)
            .sum();
        match untracked == expected {
            true => Ok(()),
            false => Err(Unrewindable::Memory),
        }
    }

    fn unmap_new_of(&self, mapping: &Mapping) -> Result<usize, Unrewindable> {
        let known = &self.mappings[..self.mapping_count];
        let mut untracked = 0;
        let mut at = mapping.start;
        let first = known.partition_point(|known| known.end <= mapping.start);
        for known in known[first..]
            .iter()
            .take_while(|known| known.start < mapping.end)
        {
            if known.start > at {
                self.unmap(mapping, at, known.start)?;
            }
            let end = known.end.min(mapping.end);
            if !known.is_own() {
                let start = known.start.max(at);
                if known.is_reserve() && !mapping.is_shared && !known.is_like(mapping) {
                    map(start, end, known.protection)?;
                } else if !known.is_like(mapping) {
                    return Err(Unrewindable::Memory);
                }
                untracked += end - start;
            } else if mapping.protection != known.protection {
                self.protect_as_before(known.start.max(at), end, known.protection)?;
            }
            at = end;
        }
        if at < mapping.end {
            self.unmap(mapping, at, mapping.end)?;
        }
        Ok(untracked)
    }

    fn unmap(&self, mapping: &Mapping, start: usize, end: usize) -> Result<(), Unrewindable> {
        let has_grown = mapping.end > self.stack_low && mapping.start <= self.stack_low;
        if has_grown || mapping.is_kernels {
            return match mapping.is_kernels {
                true => Err(Unrewindable::Memory),
                false => drop_pages(start, end),
            };
        }
        unmap(start, end)
    }

    fn protect_as_before(&self, start: usize, end: usize, protection: u8) -> Result<(), Unrewindable> {
        let arguments = [start, end - start, usize::from(protection)];
        // SAFETY: restores the old protection.
        unsafe { call(libc::SYS_mprotect, arguments) }
            .map(|_| ())
            .map_err(|errno| Unrewindable::Failed("mprotect", errno))
    }

    fn put_hot_pages_back(&mut self, rewound: &mut Rewound) {
        for region in self.regions[..self.count].iter().filter(|region| region.is_hot) {
            // SAFETY: it is mapped as in the snapshot.
            rewound.pages += unsafe { self.copy_hot_pages_back(region) };
        }
    }

    fn put_pages_back(&mut self, rewound: &mut Rewound) -> Result<(), Unrewindable> {
        for region in &mut self.regions[..self.count] {
            region.found = 0;
        }
        self.scan(rewound)?;
        let is_short = |region: &Region| region.found != region.pages();
        if self.regions[..self.count].iter().any(is_short) && !rewound.has_read_mappings {
            rewound.has_read_mappings = true;
            self.unmap_new()?;
        }
        for index in 0..self.count {
            let region = self.regions[index];
            if is_short(&region) {
                self.map_anew(&region)?;
                self.regions[index].is_hot = true;
                rewound.mapped_anew += 1;
                // SAFETY: it is mapped and zero.
                rewound.pages += unsafe { self.copy_back(&region, region.start, region.end, false) };
            }
        }
        Ok(())
    }

    fn scan(&mut self, rewound: &mut Rewound) -> Result<(), Unrewindable> {
        let (start, end) = self.range();
        let mut at_region = 0;
        let mut next = Some(start);
        while let Some(from) = next {
            let found = self.found.as_mut_ptr();
            // SAFETY: the buffer has this capacity.
            let (count, goes_on) =
                unsafe { kernel::tracked(self.tools.pagemap, (from, end), found, MOST_FOUND) }
                    .map_err(|errno| Unrewindable::Failed("PAGEMAP_SCAN", errno))?;
            for index in 0..count {
                let run = self.found[index];
                let is_written = run.is_written();
                if is_written || run.is_empty() {
                    rewound.pages +=
                        self.put_run_back(run.start as usize, run.end as usize, is_written, &mut at_region)?;
                } else {
                    self.count_run(run.start as usize, run.end as usize, &mut at_region);
                }
            }
            next = goes_on;
        }
        Ok(())
    }

    fn parts(
        &mut self,
        start: usize,
        end: usize,
        at_region: &mut usize,
        mut each: impl FnMut(&mut Book, usize, usize, usize),
    ) -> usize {
        let mut at = start;
        while at < end && *at_region < self.count {
            let region = self.regions[*at_region];
            if region.end <= at {
                *at_region += 1;
                continue;
            }
            if region.start >= end {
                break;
            }
            let (from, to) = (at.max(region.start), end.min(region.end));
            self.regions[*at_region].found += (to - from) / PAGE;
            each(self, *at_region, from, to);
            at = to;
        }
        at
    }

    fn count_run(&mut self, start: usize, end: usize, at_region: &mut usize) {
        self.parts(start, end, at_region, |_, _, _, _| {});
    }

    fn put_run_back(
        &mut self,
        start: usize,
        end: usize,
        is_written: bool,
        at_region: &mut usize,
    ) -> Result<u64, Unrewindable> {
        let stack = self.stack_low;
        let mut pages = 0;
        let region_at = self.regions[..self.count].partition_point(|region| region.end <= start);
        if let Some(region) = self.regions[..self.count].get(region_at) {
            if start < region.start && (region.start..region.end).contains(&stack) {
                drop_pages(start, end.min(region.start))?;
            }
        }
        self.parts(start, end, at_region, |book, index, from, to| {
            book.regions[index].is_hot = true;
            let region = book.regions[index];
            // SAFETY: the pages are mapped, and the copy has a slot for each.
            pages += unsafe { book.copy_back(&region, from, to, is_written) };
        });
        Ok(pages)
    }

    /// With `is_written`, clears pages that were zero; otherwise they already are.
    unsafe fn copy_back(&self, region: &Region, from: usize, to: usize, is_written: bool) -> u64 {
        let mut count = 0;
        let mut page = from;
        while page < to {
            let number = region.first_page + (page - region.start) / PAGE;
            // SAFETY: the caller's promise.
            unsafe {
                if is_written || self.is_kept(number) {
                    self.copy_page_back(page, number);
                    count += 1;
                }
            }
            page += PAGE;
        }
        count
    }

    unsafe fn copy_hot_pages_back(&self, region: &Region) -> u64 {
        const HOT: u64 = u64::from_ne_bytes([IS_HOT; size_of::<u64>()]);
        let mut count = 0;
        let mut page = 0;
        while page < region.pages() {
            let number = region.first_page + page;
            // SAFETY: the caller's promise; there is a byte for each page.
            unsafe {
                let marks = self.marks.add(number);
                let is_cold = page + size_of::<u64>() <= region.pages()
                    && marks.cast::<u64>().read_unaligned() & HOT == 0;
                if is_cold {
                    page += size_of::<u64>();
                    continue;
                }
                if *marks & IS_HOT != 0 {
                    self.copy_page_back(region.start + page * PAGE, number);
                    count += 1;
                }
            }
            page += 1;
        }
        count
    }

    unsafe fn copy_page_back(&self, page: usize, number: usize) {
        // SAFETY: the caller's promise: the page is mapped, and the copy has a slot for it.
        unsafe {
            *self.marks.add(number) |= IS_HOT;
            if self.is_kept(number) {
                std::ptr::copy_nonoverlapping(self.copy.add(number * PAGE), page as *mut u8, PAGE);
            } else {
                std::ptr::write_bytes(page as *mut u8, 0, PAGE);
            }
        }
    }

    fn heat_area(&mut self) {
        let at = self.area.start();
        let index = self.regions[..self.count].partition_point(|region| region.end <= at);
        let Some(region) = self.regions[..self.count].get_mut(index) else {
            return;
        };
        if region.start <= at {
            region.is_hot = true;
            let number = region.first_page + (at - region.start) / PAGE;
            // SAFETY: there is a byte for each page.
            unsafe { *self.marks.add(number) |= IS_HOT };
        }
    }

    fn forget_hot_pages(&mut self) {
        for index in 0..self.count {
            let region = self.regions[index];
            if region.is_hot {
                for number in region.first_page..region.first_page + region.pages() {
                    // SAFETY: there is a byte for each page.
                    unsafe { *self.marks.add(number) &= IS_KEPT };
                }
            }
            self.regions[index].is_hot = false;
        }
    }

    fn map_anew(&self, region: &Region) -> Result<(), Unrewindable> {
        if region.is_file || (region.start..region.end).contains(&self.stack_low) {
            return Err(Unrewindable::Memory);
        }
        map(region.start, region.end, region.protection)?;
        kernel::track(self.tools.tracker, (region.start, region.end))
            .map_err(|errno| Unrewindable::Failed("UFFDIO_REGISTER", errno))
    }
}

fn map(start: usize, end: usize, protection: u8) -> Result<(), Unrewindable> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let arguments = [
        start,
        end - start,
        usize::from(protection),
        flags as usize,
        usize::MAX,
    ];
    // SAFETY: the range belongs to the snapshot and was empty or is copied back.
    unsafe { call(libc::SYS_mmap, arguments) }
        .map(|_| ())
        .map_err(|errno| Unrewindable::Failed("mmap", errno))
}

/// The range must contain nothing of the snapshot.
fn unmap(start: usize, end: usize) -> Result<(), Unrewindable> {
    // SAFETY: the caller's promise; nothing else is used from now on.
    unsafe { call(libc::SYS_munmap, [start, end - start]) }
        .map(|_| ())
        .map_err(|errno| Unrewindable::Failed("munmap", errno))
}

fn drop_pages(start: usize, end: usize) -> Result<(), Unrewindable> {
    let arguments = [start, end - start, libc::MADV_DONTNEED as usize];
    // SAFETY: they are below the snapshot's frames.
    unsafe { call(libc::SYS_madvise, arguments) }
        .map(|_| ())
        .map_err(|errno| Unrewindable::Failed("madvise", errno))
}

/// # Safety
/// Both are readable pages.
pub(super) unsafe fn is_same(one: *const u8, other: *const u8) -> bool {
    // SAFETY: the caller's promise.
    unsafe { libc::memcmp(one.cast(), other.cast(), PAGE) == 0 }
}

/// Nanoseconds. libc reads the vDSO and writes nothing else.
fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the struct outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
