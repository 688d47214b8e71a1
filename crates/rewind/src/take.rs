//! Takes snapshots: first the pages shared by all forks, then each process's own.

use super::back::is_same;
use super::book::{Book, IS_KEPT, Region, Tools, shared};
use super::kernel::{self, call};
use super::presence::is_mapped;
use super::process_state::open_own;
use super::regions::{Mapping, PAGE};
use super::stack::here;
use super::wiped::wipe_as_fork_does;
use super::{Rewound, Snapshot, Unrewindable};
use forkyard_sys::error::{Error, Named, Result};
use forkyard_sys::memfile;
use nix::errno::Errno;
use nix::fcntl::SealFlag;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const NAME: &str = "forkyard-snapshot";
/// Pages of address space reserved after [`Pages`]. Unused ones take no memory.
const OWN_PAGES: usize = 32 << 10;
const ENTRIES: usize = 512;
/// Bits of a pagemap entry: present, swapped.
const IS_THERE: u64 = 0b11 << 62;

/// A copy of a process's memory, shared by its forks.
#[derive(Debug)]
pub struct Pages {
    file: OwnedFd,
    regions: Vec<Region>,
    marks: Vec<u8>,
    pages: usize,
    closable: Option<Vec<RawFd>>,
}

/// Checks whether this machine can rewind processes.
///
/// # Errors
/// The kernel is older than Linux 6.7, or a seccomp filter forbids a call.
pub fn is_possible() -> Result<()> {
    // SAFETY: the call takes only a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    if page != PAGE as i64 {
        return Err(Error::new(
            "rewind",
            format!("pages of {page} bytes"),
            Errno::EOPNOTSUPP,
        ));
    }
    let pagemap = open_own(c"/proc/self/pagemap")?;
    // SAFETY: opened above.
    let pagemap = unsafe { OwnedFd::from_raw_fd(pagemap) };
    let tracker = kernel::tracker().map_err(|(call, errno)| Error::new(call, "", errno))?;
    // SAFETY: opened above.
    let tracker = unsafe { OwnedFd::from_raw_fd(tracker) };
    // SAFETY: a new anonymous mapping, unmapped below.
    let place = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if place == libc::MAP_FAILED {
        return Err(Error::last("mmap", ""));
    }
    let range = (place as usize, place as usize + PAGE);
    let result = kernel::track(tracker.as_raw_fd(), range)
        .map_err(|errno| Error::new("UFFDIO_REGISTER", "", errno))
        .and_then(|()| {
            kernel::protect(pagemap.as_raw_fd(), range).map_err(|errno| Error::new("PAGEMAP_SCAN", "", errno))
        });
    // SAFETY: nothing else uses it.
    unsafe { libc::munmap(place, PAGE) };
    result
}

fn own(failure: Unrewindable) -> Error {
    match failure {
        Unrewindable::Failed(call, errno) => Error::new(call, "", errno),
        other => Error::new("take a snapshot", other.to_string(), Errno::EIO),
    }
}

impl Pages {
    /// Copies this process's memory.
    ///
    /// `closable`: descriptors, in addition to the standard streams, that a request can close or replace. A rewind always
    /// restores them; it restores the others if one was closed, and at thorough checks. `None`: requests can run machine
    /// code, so every rewind restores all descriptors.
    ///
    /// # Errors
    /// A system call failed.
    pub fn take(closable: Option<Vec<RawFd>>) -> Result<Pages> {
        let snapshot = Snapshot::new()?;
        let book = snapshot.book();
        book.note_mappings().map_err(own)?;
        let mut regions = Vec::new();
        let mut pages = 0;
        for mapping in &book.mappings[..book.mapping_count] {
            if mapping.is_own() && !mapping.is_stack {
                let region = region(mapping, pages);
                pages += region.pages();
                regions.push(region);
            }
        }
        let file = memfile::create(NAME)?;
        let length = ((pages + OWN_PAGES) * PAGE) as i64;
        nix::unistd::ftruncate(&file, length).named("ftruncate", NAME)?;
        let mut marks = vec![0; pages];
        let pagemap = book.tools.pagemap;
        for region in &regions {
            for_pages_of(pagemap, region, |page, is_there| {
                if !is_there {
                    return Ok(());
                }
                let number = region.first_page + (page - region.start) / PAGE;
                marks[number] = IS_KEPT;
                let arguments = [file.as_raw_fd() as usize, page, PAGE, number * PAGE];
                // SAFETY: the page is mapped and readable.
                match unsafe { call(libc::SYS_pwrite64, arguments) }? {
                    PAGE => Ok(()),
                    _ => Err(Errno::ENOSPC),
                }
            })
            .map_err(|errno| Error::new("copy", format!("{:x}", region.start), errno))?;
        }
        snapshot.forget();
        memfile::seal(&file, SealFlag::F_SEAL_WRITE, NAME)?;
        Ok(Pages {
            file,
            regions,
            marks,
            pages,
            closable,
        })
    }
}

fn region(mapping: &Mapping, first_page: usize) -> Region {
    Region {
        start: mapping.start,
        end: mapping.end,
        first_page,
        protection: mapping.protection,
        is_file: mapping.file != 0,
        ..Region::default()
    }
}

/// Calls `each` for each page, with its address and whether it has content. File pages always count as having content.
fn for_pages_of(
    pagemap: i32,
    region: &Region,
    mut each: impl FnMut(usize, bool) -> std::result::Result<(), Errno>,
) -> std::result::Result<(), Errno> {
    let mut entries = [0_u64; ENTRIES];
    let mut page = region.start;
    while page < region.end {
        let count = ENTRIES.min((region.end - page) / PAGE);
        let bytes = count * size_of::<u64>();
        let offset = page / PAGE * size_of::<u64>();
        let pointer = entries.as_mut_ptr() as usize;
        // SAFETY: the buffer has this many bytes.
        let read = unsafe { call(libc::SYS_pread64, [pagemap as usize, pointer, bytes, offset])? };
        if read != bytes {
            return Err(Errno::EIO);
        }
        for entry in &entries[..count] {
            each(page, region.is_file || entry & IS_THERE != 0)?;
            page += PAGE;
        }
    }
    Ok(())
}

impl Snapshot {
    fn new() -> Result<Snapshot> {
        let book: *mut Book = shared(size_of::<Book>())?.cast();
        let snapshot = Snapshot { book };
        snapshot.book().failure = None;
        snapshot.book().tools = Tools {
            pagemap: open_own(c"/proc/self/pagemap")?,
            maps: open_own(c"/proc/self/maps")?,
            statm: open_own(c"/proc/self/statm")?,
            tracker: -1,
        };
        Ok(snapshot)
    }

    fn forget(self) {
        for fd in self.book().tools.all() {
            // SAFETY: owned by this value; a missing one is -1.
            unsafe { libc::close(*fd) };
        }
        // SAFETY: mapped by `new`, and no longer referenced.
        unsafe { libc::munmap(self.book.cast(), size_of::<Book>()) };
    }

    /// Prepares a snapshot of this process, a fork of the one in `pages`. The result survives rewinds.
    ///
    /// # Errors
    /// A system call failed.
    pub fn prepare(pages: &Pages) -> Result<Snapshot> {
        let snapshot = Snapshot::new()?;
        let book = snapshot.book();
        book.tools.tracker = kernel::tracker().map_err(|(call, errno)| Error::new(call, "", errno))?;
        book.state.open()?;
        book.is_counted = pages.closable.is_some()
            && is_mapped((here() & !(PAGE - 1), here()))
            && book.state.counts_each_page();
        book.capacity = pages.pages + OWN_PAGES;
        // SAFETY: a new private mapping of the copy; writes to it stay in this process.
        let copy = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                book.capacity * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_NORESERVE,
                pages.file.as_raw_fd(),
                0,
            )
        };
        if copy == libc::MAP_FAILED {
            return Err(Error::last("mmap", "the copy"));
        }
        book.copy = copy.cast();
        book.marks = shared(book.capacity)?;
        book.was_there = shared(book.capacity)?;
        // SAFETY: the marks have this much room.
        unsafe { std::ptr::copy_nonoverlapping(pages.marks.as_ptr(), book.marks, pages.pages) };
        Ok(snapshot)
    }

    /// Takes the snapshot. [`Snapshot::rewind`] restores this moment, including the current stack frames, and calls
    /// `resume`.
    ///
    /// # Errors
    /// A system call failed.
    ///
    /// # Safety
    /// The process has one thread, and was prepared with these pages.
    pub unsafe fn take(
        &self,
        pages: &Pages,
        resume: unsafe extern "C" fn(*mut libc::c_void) -> !,
        context: *mut libc::c_void,
    ) -> Result<()> {
        wipe_as_fork_does()?;
        let book = self.book();
        (book.resume, book.context) = (Some(resume), context);
        let needed = book.tools.all().chain(book.state.descriptors());
        book.descriptors.note(needed, pages.closable.as_deref())?;
        book.state.note()?;
        book.area.find();
        // Includes the red zone.
        book.stack_low = (here() - 256) & !15;
        // No code allocates from here on.
        // SAFETY: the copy is a private mapping.
        let writable = |book: &Book, protection| unsafe {
            let arguments = [book.copy as usize, book.capacity * PAGE, protection];
            call(libc::SYS_mprotect, arguments).map_err(|errno| Error::new("mprotect", "the copy", errno))
        };
        writable(book, libc::PROT_READ as usize)?;
        book.note_mappings().map_err(own)?;
        writable(book, (libc::PROT_READ | libc::PROT_WRITE) as usize)?;
        list_regions(book, pages)?;
        // SAFETY: brk(0) changes nothing; the raw call returns the current break.
        book.program_break =
            unsafe { call(libc::SYS_brk, []) }.map_err(|errno| Error::new("brk", "", errno))?;
        fill_small_regions(book);
        complete_copy(book, pages)?;
        writable(book, libc::PROT_READ as usize)?;
        track_regions(book)?;
        book.is_counted = book.is_counted && book.note_spans();
        book.size = book.size_now().map_err(own)?;
        (book.rewound, book.failure) = (Rewound::default(), None);
        book.protect().map_err(own)
    }
}

impl Book {
    pub(super) fn range(&self) -> (usize, usize) {
        match self.regions[..self.count] {
            [first, .., last] => (first.start, last.end),
            _ => (0, 0),
        }
    }

    pub(super) fn protect(&self) -> std::result::Result<(), Unrewindable> {
        kernel::protect(self.tools.pagemap, self.range())
            .map_err(|errno| Unrewindable::Failed("PAGEMAP_SCAN", errno))
    }
}

/// Starts tracking writes. Drops droppable regions from the list, because no code relies on their content.
fn track_regions(book: &mut Book) -> Result<()> {
    let mut tracked = 0;
    for index in 0..book.count {
        let region = book.regions[index];
        let range = (region.start, region.end);
        match kernel::track(book.tools.tracker, range) {
            Ok(()) => {
                book.regions[tracked] = region;
                tracked += 1;
            }
            Err(Errno::EINVAL) if !region.is_file && kernel::is_droppable(range) => {
                book.pages -= region.pages();
                let of = |mapping: &&mut Mapping| mapping.start <= region.start && region.end <= mapping.end;
                if let Some(mapping) = book.mappings[..book.mapping_count].iter_mut().find(of) {
                    mapping.is_droppable = true;
                }
            }
            Err(errno) => return Err(Error::new("UFFDIO_REGISTER", "", errno)),
        }
    }
    book.count = tracked;
    Ok(())
}

/// Lists the regions to rewind. Pages that the parent's copy has keep their numbers.
fn list_regions(book: &mut Book, pages: &Pages) -> Result<()> {
    let mut next_page = pages.pages;
    (book.count, book.pages) = (0, 0);
    for index in 0..book.mapping_count {
        let mapping = book.mappings[index];
        if !mapping.is_own() {
            continue;
        }
        let mut at = mapping.start;
        for known in &pages.regions {
            if known.end <= at || known.start >= mapping.end || known.is_file != (mapping.file != 0) {
                continue;
            }
            if known.start > at {
                add(book, index, at, known.start, &mut next_page, None)?;
                at = known.start;
            }
            let end = known.end.min(mapping.end);
            let first_page = known.first_page + (at - known.start) / PAGE;
            add(book, index, at, end, &mut next_page, Some(first_page))?;
            at = end;
        }
        if at < mapping.end {
            add(book, index, at, mapping.end, &mut next_page, None)?;
        }
    }
    Ok(())
}

fn add(
    book: &mut Book,
    mapping: usize,
    start: usize,
    end: usize,
    next_page: &mut usize,
    known: Option<usize>,
) -> Result<()> {
    let count = (end - start) / PAGE;
    let first_page = known.unwrap_or(*next_page);
    if known.is_none() {
        *next_page += count;
    }
    let is_full = *next_page > book.capacity;
    let of = book.mappings[mapping];
    let Some(place) = book.regions.get_mut(book.count).filter(|_| !is_full) else {
        return Err(Error::new(
            "take a snapshot",
            "too much private memory",
            Errno::E2BIG,
        ));
    };
    *place = Region {
        start,
        end,
        is_data: is_data(&book.mappings[..=mapping]),
        ..region(&of, first_page)
    };
    book.count += 1;
    book.pages += count;
    Ok(())
}

/// Whether the last mapping directly follows another part of its file. An anonymous mapping counts if it directly
/// follows
/// such a mapping (`.bss`).
fn is_data(mappings: &[Mapping]) -> bool {
    let is_part = |mappings: &[Mapping]| match mappings {
        [.., before, it] => it.file != 0 && before.file == it.file && before.end == it.start,
        _ => false,
    };
    match mappings {
        [rest @ .., it] if it.file == 0 => {
            is_part(rest) && rest.last().is_some_and(|before| before.end == it.start)
        }
        all => is_part(all),
    }
}

/// Marks small regions that consist of counted anonymous pages.
fn fill_small_regions(book: &mut Book) {
    const MOST: usize = 4;
    /// A pagemap entry's bits: present, and of a file or shared.
    const PRESENT: u64 = 1 << 63;
    const IS_FILES: u64 = 1 << 61;
    for region in &mut book.regions[..book.count] {
        if !book.is_counted || region.pages() > MOST {
            continue;
        }
        let first = if region.is_file { region.end } else { region.start };
        for page in (first..region.end).step_by(PAGE) {
            let word = page as *mut u64;
            // A read maps the zero page, which the kernel doesn't count.
            // SAFETY: the page is mapped and writable, and this is the only thread.
            unsafe { word.write_volatile(word.read_volatile()) };
        }
        let mut entries = [0_u64; MOST];
        let bytes = region.pages() * size_of::<u64>();
        let offset = region.start / PAGE * size_of::<u64>();
        let pagemap = book.tools.pagemap as usize;
        // SAFETY: the buffer has this many bytes.
        let read = unsafe {
            let room = entries.as_mut_ptr() as usize;
            call(libc::SYS_pread64, [pagemap, room, bytes, offset])
        };
        let is_anonymous = |entry: &u64| entry & (PRESENT | IS_FILES) == PRESENT;
        region.is_full = read == Ok(bytes) && entries[..region.pages()].iter().all(is_anonymous);
    }
}

fn complete_copy(book: &mut Book, pages: &Pages) -> Result<()> {
    let (pagemap, copy, marks, low) = (book.tools.pagemap, book.copy, book.marks, book.stack_low);
    let known = pages.pages;
    for index in 0..book.count {
        let region = book.regions[index];
        let is_under_us = (region.start..region.end).contains(&low);
        for_pages_of(pagemap, &region, |page, is_there| {
            let number = region.first_page + (page - region.start) / PAGE;
            let is_there = is_there && !(is_under_us && page + PAGE <= low);
            // SAFETY: the page is mapped and readable; the copy has a slot for it.
            unsafe {
                let (from, to) = (page as *const u8, copy.add(number * PAGE));
                let was_there = *marks.add(number) == IS_KEPT;
                *marks.add(number) = if is_there { IS_KEPT } else { 0 };
                // Writes only pages that differ, because a written page of the copy becomes private memory.
                if is_there && !(number < known && was_there && is_same(from, to)) {
                    std::ptr::copy_nonoverlapping(from, to, PAGE);
                }
            }
            Ok(())
        })
        .map_err(|errno| Error::new("copy", format!("{:x}", region.start), errno))?;
    }
    Ok(())
}
