//! What has to outlive a rewinding. In shared memory, which is not put back.

use super::descriptors::Descriptors;
use super::kernel::{PageRegion, call};
use super::kernels_area::KernelsArea;
use super::process_state::ProcessState;
use super::regions::{Mapping, Mappings, PAGE, number};
use super::{Rewound, Unrewindable};
use crate::error::{Error, Result};
use nix::errno::Errno;
use std::sync::atomic::AtomicU64;

/// Words for the caller.
pub const SURVIVORS: usize = 512;
/// Descriptors that [`Snapshot::keep_open`](super::Snapshot::keep_open) keeps.
pub const MOST_KEPT: usize = 64;
/// More mappings than a process with every extension of PHP has.
const MOST_MAPPINGS: usize = 8192;
/// Room for the runs of pages that the kernel names at a time.
pub(super) const MOST_FOUND: usize = 8192;
/// Room for /proc/self/maps.
pub(super) const MOST_TEXT: usize = 2 << 20;
/// The stack of the code that puts memory back.
pub(super) const STACK_BYTES: usize = 512 << 10;

/// A mark of a page: something is in its copy. Else it is all zero.
pub(super) const IS_KEPT: u8 = 1;
/// The page was written to since all were protected.
pub(super) const IS_HOT: u8 = 2;

/// A part of the process' own memory.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Region {
    pub(super) start: usize,
    pub(super) end: usize,
    /// The number of its first page in the copy.
    pub(super) first_page: usize,
    pub(super) protection: u8,
    /// Pages that are not there come from a file.
    pub(super) is_file: bool,
    /// Data of a library or a program, which nothing drops or replaces.
    pub(super) is_data: bool,
    /// A page of it was written to since all were protected.
    pub(super) is_hot: bool,
    /// Pages that the scan has found.
    pub(super) found: usize,
}

impl Region {
    pub(super) fn pages(&self) -> usize {
        (self.end - self.start) / PAGE
    }
}

/// How large the process is, in pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) whole: usize,
    /// What is private and can be written to.
    pub(super) data: usize,
}

/// The descriptors that this needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tools {
    pub(super) pagemap: i32,
    pub(super) maps: i32,
    pub(super) statm: i32,
    /// `/proc/sys/kernel/ns_last_pid`; -1: there is none.
    pub(super) last_pid: i32,
    pub(super) tracker: i32,
}

impl Tools {
    /// Their numbers; -1: it is not there.
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

/// All of it. Zeroes are a value.
pub(super) struct Book {
    pub(super) regions: [Region; MOST_MAPPINGS],
    pub(super) count: usize,
    pub(super) pages: usize,
    /// All mappings as they were, by address.
    pub(super) mappings: [Mapping; MOST_MAPPINGS],
    pub(super) mapping_count: usize,
    /// The end of the heap of brk(2).
    pub(super) program_break: usize,
    pub(super) size: Size,
    /// Page faults of the process when it was last put back.
    pub(super) faults: u64,
    /// Those of threads that have ended, and the last process id of then.
    pub(super) ended_faults: u64,
    pub(super) last_pid: Option<usize>,
    pub(super) tools: Tools,
    pub(super) descriptors: Descriptors,
    /// Those of requests that stay open.
    pub(super) kept: [i32; MOST_KEPT],
    pub(super) kept_count: usize,
    pub(super) state: ProcessState,
    pub(super) area: KernelsArea,
    /// The copy, and a byte of marks for each of its pages.
    pub(super) copy: *mut u8,
    pub(super) marks: *mut u8,
    /// Whether each page was in memory when the process was last put back.
    pub(super) was_there: *mut u8,
    pub(super) capacity: usize,
    /// Where the stack of the snapshot ends.
    pub(super) stack_low: usize,
    /// What is called then, with what.
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
    /// Whether something is in the copy of a page.
    ///
    /// # Safety
    /// There is such a page.
    pub(super) unsafe fn is_kept(&self, number: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { *self.marks.add(number) & IS_KEPT != 0 }
    }

    /// Reads the list of mappings into the text; says its length.
    fn read_maps(&mut self) -> std::result::Result<usize, Errno> {
        let mut length = 0;
        loop {
            let room = MOST_TEXT - length;
            let pointer = self.text.as_mut_ptr() as usize + length;
            let fd = self.tools.maps as usize;
            // SAFETY: there is so much room behind the pointer.
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

    /// Calls `each` for all mappings there are now.
    pub(super) fn each_mapping(
        &mut self,
        mut each: impl FnMut(&mut Book, &Mapping) -> std::result::Result<(), Unrewindable>,
    ) -> std::result::Result<(), Unrewindable> {
        let failed = |errno| Unrewindable::Failed("read /proc/self/maps", errno);
        let length = self.read_maps().map_err(failed)?;
        // SAFETY: the text is the book's, and `each` does not read it anew.
        let text = unsafe { std::slice::from_raw_parts(self.text.as_ptr(), length) };
        for mapping in Mappings::of(text) {
            each(self, &mapping)?;
        }
        Ok(())
    }

    /// Notes all mappings there are now.
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

    /// How large the process is now.
    pub(super) fn size_now(&mut self) -> std::result::Result<Size, Unrewindable> {
        const ROOM: usize = 256;
        // The sixth word.
        const DATA: usize = 5;
        let pointer = self.text.as_mut_ptr() as usize;
        let fd = self.tools.statm as usize;
        // SAFETY: there is so much room.
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

/// A page of words that a process shares with all that are forked of it, and that is not put back.
///
/// # Errors
/// mmap(2).
pub fn shared_words() -> Result<&'static [AtomicU64]> {
    let place = shared(PAGE)?;
    // SAFETY: mapped for good, and zero; all who have it use it by these words.
    Ok(unsafe { std::slice::from_raw_parts(place.cast(), PAGE / size_of::<AtomicU64>()) })
}

/// Zeroes that a fork shares and that are not put back.
pub(super) fn shared(bytes: usize) -> Result<*mut u8> {
    // SAFETY: a new mapping of no file.
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
