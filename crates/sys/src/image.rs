//! Moves a preloader's library data and heap into memory files, which makes fork(2) cheaper.
//!
//! For each private mapping with modified pages, a fork copies the page table and links the child to a tree of all
//! sharers: with a hundred libraries and hundreds of children, most of its time. An unmodified private file mapping
//! costs neither. This module therefore moves each library's written data into a file. One file for all would take twice as
//! long, because the kernel keeps a tree of mappings per file.
//!
//! It also merges a library's constants, which lie around its code, with the code. They become executable, as in programs
//! from before 2018 (`ld -z separate-code`). No executable page is writable.

use super::error::{Error, Result};
use super::memfile;
use super::shared_mappings::{Mapping, Segment, describe, head, map_over, mappings, page_bytes};
use nix::fcntl::SealFlag;
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;

const MAPS: &str = "/proc/self/maps";

/// Replaces the libraries' data and the heap by private mappings of equal files, and merges each library's code and
/// constants. `description`: a current [`describe`].
///
/// # Safety
/// The process has one thread, and no signal handler runs. Since the description the heap has not shrunk, and no mapping
/// has changed.
///
/// # Errors
/// memfd_create(2), ftruncate(2), pwrite(2), fcntl(2), mmap(2). The process is unusable then.
pub unsafe fn put_data_into_file(description: &str, name: &str) -> Result<()> {
    let parts = data(description);
    for library in parts.chunk_by(|_, next| next.offset > 0) {
        let file = File::from(memfile::create(name)?);
        let bytes = library.last().map_or(0, |last| last.offset + last.bytes);
        file.set_len(bytes as u64)
            .map_err(|e| Error::from_io("ftruncate", name, &e))?;
        for part in library {
            // SAFETY: the mapping is readable, and nothing else uses it. Between the calls nothing allocates, which
            // would change the heap.
            unsafe {
                write(&file, part, name)?;
                map_over(part, file.as_fd(), libc::MAP_PRIVATE)?;
            }
        }
        memfile::seal(&file, SealFlag::F_SEAL_WRITE, name)?;
    }
    join_to_code(&beside_code(description));
    Ok(())
}

fn join_to_code(constants: &[Segment]) {
    for part in constants {
        // SAFETY: the mapping stays readable. If the kernel refuses, nothing changes.
        unsafe {
            libc::mprotect(
                part.start as *mut libc::c_void,
                part.bytes,
                libc::PROT_READ | libc::PROT_EXEC,
            )
        };
    }
}

const HUGE: usize = 2 << 20;

/// Like [`put_code_into_huge_pages`], for the first symbol found.
///
/// # Safety
/// As for [`put_code_into_huge_pages`]. The process has one thread.
///
/// # Errors
/// As for [`put_code_into_huge_pages`]; smaps can't be read.
pub unsafe fn put_program_into_huge_pages(symbols: &[&CStr], name: &str) -> Result<bool> {
    // SAFETY: only looks up the symbol.
    let find = |symbol: &&CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) } as usize;
    let Some(address) = symbols.iter().map(find).find(|address| *address != 0) else {
        return Ok(false);
    };
    let description = describe()?;
    let code = mappings(&description)
        .map(|mapping| mapping.segment)
        .find(|it| (it.start..it.start + it.bytes).contains(&address));
    if let Some(code) = code {
        let mut constants = beside_code(&description);
        constants.retain(|it| it.start == code.start + code.bytes || it.start + it.bytes == code.start);
        join_to_code(&constants);
    }
    // SAFETY: the caller's promise.
    unsafe { put_code_into_huge_pages(address, name) }
}

/// Moves a library into a file of huge pages at the same address: a page fault per 2 MB instead of 64 KB in each child.
/// `false` if it is not aligned or there are no huge pages.
///
/// # Safety
/// This function is not in the library, and none of the library's code runs.
///
/// # Errors
/// maps can't be read (proc(5)); memfd_create(2), ftruncate(2), mmap(2) or fcntl(2).
pub unsafe fn put_code_into_huge_pages(address: usize, name: &str) -> Result<bool> {
    let text = std::fs::read_to_string(MAPS).map_err(|e| Error::from_io("read", MAPS, &e))?;
    let Some(code) = code_at(&text, address) else {
        return Ok(false);
    };
    let length = code.bytes.next_multiple_of(HUGE);
    let file = File::from(memfile::create(name)?);
    file.set_len(length as u64)
        .map_err(|e| Error::from_io("ftruncate", name, &e))?;
    // The kernel collapses a page and the holes around it.
    for start in (0..length).step_by(HUGE) {
        file.write_all_at(&[0], start as u64)
            .map_err(|e| Error::from_io("pwrite", name, &e))?;
    }
    // SAFETY: a new mapping, and one over an aligned part of it. The code is readable and no longer than the copy.
    let is_huge = unsafe {
        let (none, nowhere) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, std::ptr::null_mut());
        let room = libc::mmap(nowhere, length + HUGE, libc::PROT_NONE, none, -1, 0);
        if room == libc::MAP_FAILED {
            return Err(Error::last("mmap", name));
        }
        let place = (room as usize).next_multiple_of(HUGE) as *mut libc::c_void;
        let (protection, shared) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_FIXED,
        );
        let copy = libc::mmap(place, length, protection, shared, file.as_raw_fd(), 0);
        let is_huge = copy != libc::MAP_FAILED && libc::madvise(copy, length, libc::MADV_COLLAPSE) == 0;
        if is_huge {
            libc::madvise(
                code.start as *mut libc::c_void,
                code.bytes,
                libc::MADV_POPULATE_READ,
            );
            std::ptr::copy_nonoverlapping(code.start as *const u8, copy.cast(), code.bytes);
        }
        libc::munmap(room, length + HUGE);
        is_huge
    };
    if !is_huge {
        return Ok(false);
    }
    memfile::seal(&file, SealFlag::F_SEAL_WRITE, name)?;
    // SAFETY: the bytes are equal, and nothing uses them now.
    unsafe { map_over(&code, file.as_fd(), libc::MAP_PRIVATE)? };
    Ok(true)
}

fn code_at(text: &str, address: usize) -> Option<Segment> {
    let mut all = text.lines().filter_map(head);
    let (found, name) = all.find(|(it, _)| (it.start..it.start + it.bytes).contains(&address))?;
    let is_code = found.protection == libc::PROT_READ | libc::PROT_EXEC && name.starts_with('/');
    let is_fit = found.start % HUGE == 0 && found.bytes >= HUGE;
    (is_code && is_fit).then_some(Segment { offset: 0, ..found })
}

/// Zero pages become holes, which take no memory.
///
/// # Safety
/// The mapping is readable, and nothing writes to it.
unsafe fn write(file: &File, part: &Segment, name: &str) -> Result<()> {
    // SAFETY: the caller's promise about the mapping.
    let bytes = unsafe { std::slice::from_raw_parts(part.start as *const u8, part.bytes) };
    let page = page_bytes();
    let mut begun = None;
    for at in (0..=part.bytes).step_by(page) {
        let rest = &bytes[at..];
        let is_filled = !is_zero(&rest[..rest.len().min(page)]);
        match begun {
            None if is_filled => begun = Some(at),
            Some(from) if !is_filled => {
                file.write_all_at(&bytes[from..at], (part.offset + from) as u64)
                    .map_err(|e| Error::from_io("pwrite", name, &e))?;
                begun = None;
            }
            _ => {}
        }
    }
    Ok(())
}

fn is_zero(bytes: &[u8]) -> bool {
    const ZEROES: [u8; 4096] = [0; 4096];
    bytes
        .chunks(ZEROES.len())
        .all(|some| *some == ZEROES[..some.len()])
}

/// Private file mappings with modified pages, anonymous mappings that follow one (`.bss`), and the heap. Adjacent ones
/// share a file.
fn data(text: &str) -> Vec<Segment> {
    let mut found: Vec<Segment> = Vec::new();
    let mut end = 0;
    for mapping in mappings(text).filter(|mapping| !mapping.has("sh")) {
        let Segment {
            start,
            bytes,
            protection,
            ..
        } = mapping.segment;
        let is_of_file = mapping.name.starts_with('/') && mapping.has_own_pages;
        let is_bss = mapping.name.is_empty() && start == end && protection & libc::PROT_WRITE != 0;
        let is_data = protection & libc::PROT_READ != 0 && protection & libc::PROT_EXEC == 0;
        let is_heap = mapping.name == "[heap]";
        if is_data && (is_of_file || is_bss || is_heap) {
            let before = found.last().filter(|_| start == end);
            let offset = before.map_or(0, |last| last.offset + last.bytes);
            end = start + bytes;
            found.push(Segment {
                offset,
                ..mapping.segment
            });
        }
    }
    found
}

fn beside_code(text: &str) -> Vec<Segment> {
    let all: Vec<Mapping<'_>> = mappings(text).collect();
    let is_of_file = |one: &Mapping<'_>| !one.has("sh") && !one.has_own_pages && one.name.starts_with('/');
    let follows = |one: &Mapping<'_>, next: &Mapping<'_>| {
        one.name == next.name
            && one.segment.start + one.segment.bytes == next.segment.start
            && one.segment.offset + one.segment.bytes == next.segment.offset
    };
    let code = libc::PROT_READ | libc::PROT_EXEC;
    let pairs = all
        .windows(2)
        .filter(|pair| is_of_file(&pair[0]) && is_of_file(&pair[1]) && follows(&pair[0], &pair[1]));
    pairs
        .filter_map(
            |pair| match (pair[0].segment.protection, pair[1].segment.protection) {
                (libc::PROT_READ, protection) if protection == code => Some(pair[0].segment.clone()),
                (protection, libc::PROT_READ) if protection == code => Some(pair[1].segment.clone()),
                _ => None,
            },
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Ended, Side, exit_now, fork, reap_pid};
    use crate::shared_mappings::describe;

    const LIBRARY: &str = "\
560000004000-56000000a000 rw-p 00000000 00:00 0 [heap]
Anonymous:            16 kB
VmFlags: rd wr mr mw me ac
7f0000000000-7f0000002000 r--p 00000000 fe:00 9 /usr/lib/a.so
Anonymous:             0 kB
VmFlags: rd mr mw me
7f0000002000-7f0000005000 r-xp 00002000 fe:00 9 /usr/lib/a.so
Anonymous:             0 kB
VmFlags: rd ex mr mw me
7f0000005000-7f0000006000 r--p 00005000 fe:00 9 /usr/lib/a.so
Anonymous:             0 kB
VmFlags: rd mr mw me
7f0000006000-7f0000007000 r--p 00005000 fe:00 9 /usr/lib/a.so
Anonymous:             4 kB
VmFlags: rd mr mw me ac
7f0000007000-7f0000008000 rw-p 00006000 fe:00 9 /usr/lib/a.so
Anonymous:             0 kB
Swap:                  4 kB
VmFlags: rd wr mr mw me ac
7f0000008000-7f000000b000 rw-p 00000000 00:00 0
Anonymous:             0 kB
VmFlags: rd wr mr mw me ac
7f000000c000-7f000000d000 rw-p 00000000 00:00 0
Anonymous:             4 kB
VmFlags: rd wr mr mw me ac
7f000000d000-7f000000e000 rw-s 00000000 00:01 8 /dev/zero (deleted)
Anonymous:             4 kB
VmFlags: rd wr sh mr mw me ms
7f000000e000-7f000000f000 r--p 00000000 fe:00 7 /usr/lib/locale/LC_CTYPE
Anonymous:             0 kB
VmFlags: rd mr mw me
7ffeadcc8000-7ffeadce9000 rw-p 00000000 00:00 0 [stack]
Anonymous:            84 kB
VmFlags: rd wr mr mw me gd ac
";

    #[test]
    fn data_is_what_was_relocated_or_may_be_written_and_what_follows_it_and_the_heap() {
        let found = data(LIBRARY);
        let places: Vec<(usize, usize)> = found.iter().map(|one| (one.start & 0xffff, one.offset)).collect();
        assert_eq!(
            places,
            [(0x4000, 0), (0x6000, 0), (0x7000, 0x1000), (0x8000, 0x2000)]
        );
        assert_eq!(found[1].protection, libc::PROT_READ);
        assert_eq!(found[3].bytes, 0x3000);
        assert_eq!(data(""), []);
    }

    #[test]
    fn pages_of_zeroes_are_holes() {
        let page = page_bytes();
        let mut memory = memmap2::MmapMut::map_anon(page * 6).unwrap();
        memory[page] = 1;
        memory[page * 2 + 9] = 2;
        memory[page * 5 + 1] = 3;
        let part = Segment {
            start: memory.as_ptr() as usize,
            bytes: memory.len(),
            protection: libc::PROT_READ,
            offset: page,
        };
        let file = File::from(memfile::create("test").unwrap());
        file.set_len((page * 7) as u64).unwrap();
        // SAFETY: the mapping exists, and nothing writes to it.
        unsafe { write(&file, &part, "test").unwrap() };
        let mut written = vec![0; memory.len()];
        file.read_exact_at(&mut written, page as u64).unwrap();
        assert!(written[..] == memory[..]);
        let blocks = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap());
        assert_eq!(blocks * 512, 3 * page as u64);
    }

    #[test]
    fn code_is_moved_where_it_begins_at_a_huge_page() {
        let text = "7f0000200000-7f0000500000 r-xp 00000000 fe:00 9 /usr/lib/a.so\n\
                    7f0000600000-7f0000700000 r-xp 00000000 fe:00 9 /usr/lib/small.so\n\
                    7f0000701000-7f0000a00000 r-xp 00000000 fe:00 9 /usr/lib/aside.so\n\
                    7f0000c00000-7f0000f00000 rw-p 00000000 fe:00 9 /usr/lib/data.so\n";
        let found = code_at(text, 0x7f00_0040_0000).unwrap();
        assert_eq!(
            (found.start, found.bytes, found.offset),
            (0x7f00_0020_0000, 0x30_0000, 0)
        );
        for place in [
            0x7f00_0060_0000,
            0x7f00_0080_0000,
            0x7f00_00c0_0000,
            0x7f00_0010_0000,
        ] {
            assert_eq!(code_at(text, place), None);
        }
    }

    #[test]
    fn constants_are_joined_to_code_of_the_same_file_that_they_lie_beside_there_too() {
        let found = beside_code(LIBRARY);
        let places: Vec<usize> = found.iter().map(|one| one.start & 0xffff).collect();
        assert_eq!(places, [0, 0x5000]);
    }

    #[test]
    fn a_process_goes_on_with_its_data_in_a_file() {
        static VALUE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(7);
        use std::sync::atomic::Ordering;
        // SAFETY: the child has one thread, and leaves by _exit.
        match unsafe { fork() }.unwrap() {
            Side::Child => {
                VALUE.store(8, Ordering::Relaxed);
                let description = describe().unwrap_or_default();
                // SAFETY: as above; signals have no handlers here.
                let is_done = unsafe { put_data_into_file(&description, "data") }.is_ok();
                let before = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
                VALUE.fetch_add(1, Ordering::Relaxed);
                let is_well = is_done
                    && VALUE.load(Ordering::Relaxed) == 9
                    && before.contains("/memfd:data")
                    && std::env::current_dir().is_ok();
                exit_now(i32::from(!is_well))
            }
            Side::Parent(pid) => assert_eq!(reap_pid(pid).unwrap(), Ended::Code(0)),
        }
        assert_eq!(VALUE.load(Ordering::Relaxed), 7);
    }
}
