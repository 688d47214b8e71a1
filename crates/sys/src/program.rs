//! The memory of the program and its libraries.

use libc::{PF_W, PT_DYNAMIC, PT_LOAD, dl_iterate_phdr, dl_phdr_info};
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::slice;

/// A dynamic section entry (elf(5), `Elf64_Dyn`).
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: u64,
}

// Text relocations, and the end tag.
const DT_TEXTREL: i64 = 22;
const DT_FLAGS: i64 = 30;
const DT_NULL: i64 = 0;
const DF_TEXTREL: u64 = 4;

/// Drops touched pages of code and constants (madvise(2), `MADV_DONTNEED`), which makes a preloader smaller. They stay
/// in the page cache.
///
/// Only file mappings without `PF_W` of objects without text relocations.
pub fn let_go_of_code() {
    // Code in huge pages (opcache.huge_code_pages) has no file.
    let mut files =
        std::fs::read_to_string("/proc/self/maps").map_or_else(|_| Vec::new(), |maps| of_files(&maps));
    // SAFETY: the callback has the type that dl_iterate_phdr(3) documents and doesn't unwind; the list outlives the
    // call.
    unsafe { dl_iterate_phdr(Some(let_go_of_object), (&raw mut files).cast()) };
}

fn of_files(maps: &str) -> Vec<Range<u64>> {
    let place = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let is_file = words.nth(3).is_some_and(|inode| inode != "0");
        is_file.then_some(number(start)?..number(end)?)
    };
    maps.lines().filter_map(place).collect()
}

unsafe extern "C" fn let_go_of_object(info: *mut dl_phdr_info, _: usize, files: *mut c_void) -> c_int {
    // SAFETY: the list of `let_go_of_code`, which nothing else uses now.
    let files = unsafe { &*files.cast::<Vec<Range<u64>>>() };
    // SAFETY: dl_iterate_phdr passes a valid object with `dlpi_phnum` headers.
    let (base, headers) = unsafe {
        let info = &*info;
        (
            info.dlpi_addr,
            slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)),
        )
    };
    let dynamic = headers.iter().find(|header| header.p_type == PT_DYNAMIC);
    let Some(dynamic) = dynamic else { return 0 };
    // SAFETY: the dynamic section of a loaded object is mapped and ends with DT_NULL.
    if unsafe { is_text_relocated((base + dynamic.p_vaddr) as *const Dynamic) } {
        return 0;
    }
    // SAFETY: sysconf(3) has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    for header in headers {
        if header.p_type != PT_LOAD || header.p_flags & PF_W != 0 {
            continue;
        }
        // A page shared with the next segment may have been written to.
        let start = (base + header.p_vaddr).next_multiple_of(page);
        let end = (base + header.p_vaddr + header.p_filesz) / page * page;
        let is_of_file = files.iter().any(|place| place.start <= start && end <= place.end);
        if start < end && is_of_file {
            // SAFETY: an unmodified file mapping reads the same afterwards. Errors change nothing.
            unsafe { libc::madvise(start as *mut c_void, (end - start) as usize, libc::MADV_DONTNEED) };
        }
    }
    0
}

/// # Safety
/// `entry` is mapped and ends with `DT_NULL`.
unsafe fn is_text_relocated(mut entry: *const Dynamic) -> bool {
    loop {
        // SAFETY: not past DT_NULL yet.
        let (tag, value) = unsafe { ((*entry).tag, (*entry).value) };
        match tag {
            DT_NULL => return false,
            DT_TEXTREL => return true,
            DT_FLAGS if value & DF_TEXTREL != 0 => return true,
            // SAFETY: DT_NULL is still to come.
            _ => entry = unsafe { entry.add(1) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_moved_away_from_its_file_is_not_let_go() {
        let maps = "\
5580-55a0 r-xp 00000000 fe:01 9 /usr/lib/forkyard/forkyard-php
55a0-55c0 r-xp 00000000 00:00 0
7f00-7f10 rw-s 00000000 00:01 77                         /memfd:a name (deleted)
nonsense
";
        assert_eq!(of_files(maps), [0x5580..0x55a0, 0x7f00..0x7f10]);
        let_go_of_code();
    }
}
