//! State that survives a rewind, in shared memory, which is not restored.

use super::descriptors::Descriptors;
use super::kernel::{PageRegion, call};
use super::kernels_area::KernelsArea;
use super::process_state::ProcessState;
use super::regions::{Mapping, Mappings, PAGE, number};
use super::status::PageCounts;
use super::{Rewound, Unrewindable};
use forkyard_sys::error::{Error, Result};
use nix::errno::Errno;
use std::sync::atomic::AtomicU64;

/// Number of words for the caller.
pub const SURVIVORS: usize = 512;
/// Limit of [`Snapshot::keep_open`](super::Snapshot::keep_open).
pub const MOST_KEPT: usize = 64;
const MOST_MAPPINGS: usize = 8192;
pub(super) const MOST_SPANS: usize = 64;
pub(super) const MOST_FOUND: usize = 8192;
pub(super) const MOST_TEXT: usize = 2 << 20;
pub(super) const STACK_BYTES: usize = 512 << 10;

/// The page has a copy; pages without one are zero.
pub(super) const IS_KEPT: u8 = 1;
/// Written to since pages were protected.
pub(super) const IS_HOT: u8 = 2;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Region {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Index in the copy.
    pub(super) first_page: usize,
    pub(super) protection: u8,
    pub(super) is_file: bool,
    /// Never unmapped or dropped.
    pub(super) is_data: bool,
    /// Each page counts as an anonymous one.
    pub(super) is_full: bool,
    pub(super) is_hot: bool,
    pub(super) found: usize,
}

impl Region {
    pub(super) fn pages(&self) -> usize {
        (self.end - self.start) / PAGE
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) whole: usize,
    pub(super) data: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Tools {
    pub(super) pagemap: i32,
    pub(super) maps: i32,
    pub(super) statm: i32,
    pub(super) tracker: i32,
}

impl Tools {
    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut i32> {
        [
            &mut self.pagemap,
            &mut self.maps,
            &mut self.statm,
            &mut self.tracker,
        ]
        .into_iter()
    }
}

/// All zeroes is valid.
pub(super) struct Book {
    pub(super) regions: [Region; MOST_MAPPINGS],
    pub(super) count: usize,
    pub(super) pages: usize,
    pub(super) mappings: [Mapping; MOST_MAPPINGS],
    pub(super) mapping_count: usize,
    pub(super) program_break: usize,
    pub(super) size: Size,
    pub(super) faults: u64,
    pub(super) ended_faults: u64,
    pub(super) last_pid: Option<usize>,
    /// The kernel counts each anonymous page, and requests can't run machine code, which could fill pages without a
    /// fault (`UFFDIO_COPY`).
    pub(super) is_counted: bool,
    /// `None`: unknown.
    pub(super) page_counts: Option<PageCounts>,
    pub(super) spans: [(usize, usize); MOST_SPANS],
    pub(super) span_count: usize,
    pub(super) tools: Tools,
    pub(super) descriptors: Descriptors,
    pub(super) kept: [i32; MOST_KEPT],
    pub(super) kept_count: usize,
    pub(super) state: ProcessState,
    pub(super) area: KernelsArea,
    pub(super) copy: *mut u8,
    pub(super) marks: *mut u8,
    pub(super) was_there: *mut u8,
    pub(super) capacity: usize,
    pub(super) stack_low: usize,
    pub(super) resume: Option<unsafe extern "C" fn(*mut libc::c_void) -> !>,
    pub(super) context: *mut libc::c_void,
    pub(super) rewound: Rewound,
    pub(super) failure: Option<Unrewindable>,
    pub(super) survivors: [u64; SURVIVORS],
    pub(super) found: [PageRegion; MOST_FOUND],
    pub(super) text: [u8; MOST_TEXT],
    pub(super) stack: [u8; STACK_BYTES],
}

impl Book {
    /// # Safety
    /// The page exists.
    pub(super) unsafe fn is_kept(&self, number: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { *self.marks.add(number) & IS_KEPT != 0 }
    }

    /// Returns the length.
    fn read_maps(&mut self) -> std::result::Result<usize, Errno> {
        let mut length = 0;
        loop {
            let room = MOST_TEXT - length;
            let pointer = self.text.as_mut_ptr() as usize + length;
            let fd = self.tools.maps as usize;
            // SAFETY: the buffer has this much room.
            let count = unsafe { call(libc::SYS_pread64, [fd, pointer, room, length])? };
            length += count;
            if count == 0 {
                return Ok(length);
            }
            if length == MOST_TEXT {
                return Err(Errno::E2BIG);
            }
        }
    }

    pub(super) fn each_mapping(
        &mut self,
        mut each: impl FnMut(&mut Book, &Mapping) -> std::result::Result<(), Unrewindable>,
    ) -> std::result::Result<(), Unrewindable> {
        let failed = |errno| Unrewindable::Failed("read /proc/self/maps", errno);
        let length = self.read_maps().map_err(failed)?;
        // SAFETY: the text belongs to the book, and `each` does not overwrite it.
        let text = unsafe { std::slice::from_raw_parts(self.text.as_ptr(), length) };
        for mapping in Mappings::of(text) {
            each(self, &mapping)?;
        }
        Ok(())
    }

    pub(super) fn note_mappings(&mut self) -> std::result::Result<(), Unrewindable> {
        self.mapping_count = 0;
        self.each_mapping(|book, mapping| {
            let Some(place) = book.mappings.get_mut(book.mapping_count) else {
                return Err(Unrewindable::Failed("too many mappings", Errno::E2BIG));
            };
            *place = *mapping;
            book.mapping_count += 1;
            Ok(())
        })
    }

    pub(super) fn size_now(&mut self) -> std::result::Result<Size, Unrewindable> {
        const ROOM: usize = 256;
        const DATA: usize = 5;
        let pointer = self.text.as_mut_ptr() as usize;
        let fd = self.tools.statm as usize;
        // SAFETY: the buffer has this much room.
        let length = unsafe { call(libc::SYS_pread64, [fd, pointer, ROOM]) }
            .map_err(|errno| Unrewindable::Failed("read /proc/self/statm", errno))?;
        let mut size = Size::default();
        for (place, word) in self.text[..length].split(|byte| *byte == b' ').enumerate() {
            let value = || number(word, 10).map_or(0, |(value, _)| value);
            match place {
                0 => size.whole = value(),
                DATA => size.data = value(),
                _ => {}
            }
        }
        Ok(size)
    }
}

/// Maps a page of words, shared with forks and not restored.
///
/// # Errors
/// mmap(2).
pub fn shared_words() -> Result<&'static [AtomicU64]> {
    let place = shared(PAGE)?;
    // SAFETY: mapped forever and zero; all users access it through these atomics.
    Ok(unsafe { std::slice::from_raw_parts(place.cast(), PAGE / size_of::<AtomicU64>()) })
}

pub(super) fn shared(bytes: usize) -> Result<*mut u8> {
    // SAFETY: a new anonymous mapping.
    let place = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    match place == libc::MAP_FAILED {
        true => Err(Error::last("mmap", format!("{bytes} bytes"))),
        false => Ok(place.cast()),
    }
}
