//! State that survives a rewind, in shared memory, which is not restored.

use super::descriptors::Descriptors;
use super::kernel::{PageRegion, call};
use super::kernels_area::KernelsArea;
use super::process_state::ProcessState;
use super::regions::{Mapping, Mappings, PAGE, number};
use super::{Rewound, Unrewindable};
use crate::error::{Error, Result};
use nix::errno::Errno;
use std::sync::atomic::AtomicU64;

/// Number of words for the caller.
pub const SURVIVORS: usize = 512;
/// Limit of [`Snapshot::keep_open`](super::Snapshot::keep_open).
pub const MOST_KEPT: usize = 64;
/// Exceeds the mappings of PHP with every extension.
const MOST_MAPPINGS: usize = 8192;
/// Page runs per scan.
pub(super) const MOST_FOUND: usize = 8192;
/// Buffer size for /proc/self/maps.
pub(super) const MOST_TEXT: usize = 2 << 20;
/// Stack of the restoring code.
pub(super) const STACK_BYTES: usize = 512 << 10;

/// Mark: the page has a copy. Pages without one are zero.
pub(super) const IS_KEPT: u8 = 1;
/// Mark: the page was written to since pages were protected.
pub(super) const IS_HOT: u8 = 2;

/// A part of the process's private memory.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Region {
    pub(super) start: usize,
    pub(super) end: usize,
    /// Index of its first page in the copy.
    pub(super) first_page: usize,
    pub(super) protection: u8,
    /// Missing pages come from a file.
    pub(super) is_file: bool,
    /// Data of a program or library, which is never unmapped or dropped.
    pub(super) is_data: bool,
    /// Has a hot page.
    pub(super) is_hot: bool,
    /// Pages found by the scan.
    pub(super) found: usize,
}

impl Region {
    pub(super) fn pages(&self) -> usize {
        (self.end - self.start) / PAGE
    }
}

/// Process size in pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) whole: usize,
    /// Private and writable.
    pub(super) data: usize,
}

/// Descriptors needed for a rewind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tools {
    pub(super) pagemap: i32,
    pub(super) maps: i32,
    pub(super) statm: i32,
    /// `/proc/sys/kernel/ns_last_pid`; -1 if missing.
    pub(super) last_pid: i32,
    pub(super) tracker: i32,
}

impl Tools {
    /// Their numbers; -1 if missing.
    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut i32> {
        [
            &mut self.pagemap,
            &mut self.maps,
            &mut self.statm,
            &mut self.last_pid,
            &mut self.tracker,
        ]
        .into_iter()
    }
}

/// The whole state; all zeroes is valid.
pub(super) struct Book {
    pub(super) regions: [Region; MOST_MAPPINGS],
    pub(super) count: usize,
    pub(super) pages: usize,
    /// All mappings of the snapshot, by address.
    pub(super) mappings: [Mapping; MOST_MAPPINGS],
    pub(super) mapping_count: usize,
    /// End of the brk(2) heap.
    pub(super) program_break: usize,
    pub(super) size: Size,
    /// Page faults up to the last rewind.
    pub(super) faults: u64,
    /// Page faults of ended threads, and the last process id at that time.
    pub(super) ended_faults: u64,
    pub(super) last_pid: Option<usize>,
    pub(super) tools: Tools,
    pub(super) descriptors: Descriptors,
    /// Descriptors that stay open.
    pub(super) kept: [i32; MOST_KEPT],
    pub(super) kept_count: usize,
    pub(super) state: ProcessState,
    pub(super) area: KernelsArea,
    /// The copy, and a byte of marks for each page.
    pub(super) copy: *mut u8,
    pub(super) marks: *mut u8,
    /// Whether each page was in memory after the last rewind.
    pub(super) was_there: *mut u8,
    pub(super) capacity: usize,
    /// Lowest address of the snapshot's stack.
    pub(super) stack_low: usize,
    /// Called after a rewind, with its argument.
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
    /// Whether a page has a copy.
    ///
    /// # Safety
    /// The page exists.
    pub(super) unsafe fn is_kept(&self, number: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { *self.marks.add(number) & IS_KEPT != 0 }
    }

    /// Reads /proc/self/maps into the text and returns its length.
    fn read_maps(&mut self) -> std::result::Result<usize, Errno> {
        let mut length = 0;
        loop {
            let room = MOST_TEXT - length;
            let pointer = self.text.as_mut_ptr() as usize + length;
            let fd = self.tools.maps as usize;
            // SAFETY: the buffer has this much room.
            let count = unsafe { call(libc::SYS_pread64, [fd, pointer, room, length, 0, 0])? };
            length += count;
            if count == 0 {
                return Ok(length);
            }
            if length == MOST_TEXT {
                return Err(Errno::E2BIG);
            }
        }
    }

    /// Calls `each` for all current mappings.
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

    /// Records all current mappings.
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
        let length = unsafe { call(libc::SYS_pread64, [fd, pointer, ROOM, 0, 0, 0]) }
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

/// Maps a page of words that a process shares with all its forks and that a rewind doesn't restore.
///
/// # Errors
/// mmap(2).
pub fn shared_words() -> Result<&'static [AtomicU64]> {
    let place = shared(PAGE)?;
    // SAFETY: mapped forever and zero; all users access it through these atomics.
    Ok(unsafe { std::slice::from_raw_parts(place.cast(), PAGE / size_of::<AtomicU64>()) })
}

/// Maps shared zeroes, which are not restored.
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
