//! Finds the writable memory that a process shares with its forks, copies it, and replaces it by a memory file.
//!
//! An application maps such memory for all its children. A child that maps a copy over it shares nothing with the
//! others, and no pointer changes.

use super::error::{Error, Named, Result};
use super::memfile;
use nix::errno::Errno;
use nix::fcntl::SealFlag;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

const MAPPINGS: &str = "/proc/self/smaps";
const DESCRIPTION_BYTES: usize = 1 << 20;
/// Limit on a template; OPcache with all of PHP's strings has 3 MB.
pub const MOST_BYTES: usize = 64 << 20;

/// A mapping and its offset in the memory file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    pub(super) start: usize,
    pub(super) bytes: usize,
    pub(super) protection: i32,
    pub(super) offset: usize,
}

/// Reads this process's smaps (proc(5)), which walks all pages.
///
/// # Errors
/// smaps can't be read.
pub fn describe() -> Result<String> {
    let failed = |e: std::io::Error| Error::from_io("read", MAPPINGS, &e);
    // The heap must not change while it is described.
    let mut text = String::with_capacity(DESCRIPTION_BYTES);
    let mut file = File::open(MAPPINGS).map_err(failed)?;
    file.read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// Finds the writable shared mappings: flags `sh` and `mw` (proc(5), VmFlags).
///
/// # Errors
/// EOPNOTSUPP if such a mapping can't be copied.
pub fn find(description: &str) -> Result<Vec<Segment>> {
    let mut found: Vec<Segment> = Vec::new();
    for mapping in mappings(description).filter(|mapping| mapping.has("sh") && mapping.has("mw")) {
        let Mapping { segment, name, .. } = mapping;
        // Memory of a real file must not be copied.
        let is_file = name.starts_with('/') && !name.ends_with(" (deleted)");
        if is_file || segment.protection & libc::PROT_READ == 0 {
            return Err(Error::new("copy the shared mapping", name, Errno::EOPNOTSUPP));
        }
        let offset = bytes(&found);
        found.push(Segment { offset, ..segment });
    }
    Ok(found)
}

/// The length of the memory file for these mappings.
pub fn bytes(segments: &[Segment]) -> usize {
    segments.last().map_or(0, |last| last.offset + last.bytes)
}

/// A mapping in smaps (proc(5)).
pub(super) struct Mapping<'t> {
    pub(super) segment: Segment,
    pub(super) name: &'t str,
    flags: &'t str,
    pub(super) has_own_pages: bool,
}

impl Mapping<'_> {
    /// Whether it has this flag of VmFlags.
    pub(super) fn has(&self, flag: &str) -> bool {
        self.flags.split_ascii_whitespace().any(|known| known == flag)
    }
}

pub(super) fn mappings(text: &str) -> impl Iterator<Item = Mapping<'_>> {
    let mut current: Option<(Segment, &str)> = None;
    let mut has_own_pages = false;
    text.lines().filter_map(move |line| {
        let own = ["Anonymous:", "Swap:"].iter();
        if let Some(size) = own.filter_map(|kind| line.strip_prefix(kind)).next() {
            has_own_pages |= size.trim() != "0 kB";
        } else if let Some(flags) = line.strip_prefix("VmFlags:") {
            let (segment, name) = current.take()?;
            return Some(Mapping {
                segment,
                name,
                flags,
                has_own_pages: std::mem::take(&mut has_own_pages),
            });
        } else if let Some(begun) = head(line) {
            current = Some(begun);
        }
        None
    })
}

pub(super) fn head(line: &str) -> Option<(Segment, &str)> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let (start, end) = (
        usize::from_str_radix(start, 16).ok()?,
        usize::from_str_radix(end, 16).ok()?,
    );
    let flags = words.next()?;
    let offset = usize::from_str_radix(words.next()?, 16).ok()?;
    let is_set = |letter: char, flag: i32| if flags.contains(letter) { flag } else { 0 };
    let name = words.nth(2).unwrap_or_default().trim_start();
    let segment = Segment {
        start,
        bytes: end.checked_sub(start)?,
        protection: is_set('r', libc::PROT_READ)
            | is_set('w', libc::PROT_WRITE)
            | is_set('x', libc::PROT_EXEC),
        offset,
    };
    Some((segment, name))
}

/// Copies the mappings to a sealed memory file, without zero and untouched pages.
///
/// # Errors
/// memfd_create(2), ftruncate(2), mincore(2), pwrite(2) or fcntl(2).
pub fn copy(segments: &[Segment], name: &str) -> Result<OwnedFd> {
    let page = page_bytes();
    let file = File::from(memfile::create(name)?);
    file.set_len(bytes(segments) as u64)
        .map_err(|e| Error::from_io("ftruncate", name, &e))?;
    for segment in segments {
        let mut resident = vec![0_u8; segment.bytes.div_ceil(page)];
        // SAFETY: the mapping exists, and there is a byte for each page.
        let done = unsafe {
            libc::mincore(
                segment.start as *mut libc::c_void,
                segment.bytes,
                resident.as_mut_ptr(),
            )
        };
        if done != 0 {
            return Err(Error::last("mincore", name));
        }
        for (index, _) in resident.iter().enumerate().filter(|(_, flags)| **flags & 1 != 0) {
            let at = index * page;
            let length = page.min(segment.bytes - at);
            // SAFETY: part of a readable mapping; the process has one thread and no child.
            let bytes = unsafe { std::slice::from_raw_parts((segment.start + at) as *const u8, length) };
            if bytes.iter().any(|byte| *byte != 0) {
                file.write_all_at(bytes, (segment.offset + at) as u64)
                    .map_err(|e| Error::from_io("pwrite", name, &e))?;
            }
        }
    }
    let file = OwnedFd::from(file);
    memfile::seal(&file, SealFlag::F_SEAL_WRITE, name)?;
    Ok(file)
}

/// Content from which equal files are created.
#[derive(Debug)]
pub struct Template {
    length: u64,
    pieces: Vec<(u64, Vec<u8>)>,
}

impl Template {
    /// Reads a memory file.
    ///
    /// # Errors
    /// fstat(2), lseek(2) or pread(2); EFBIG for more than [`MOST_BYTES`].
    pub fn read(file: OwnedFd, name: &str) -> Result<Template> {
        let failed = |call| move |e: std::io::Error| Error::from_io(call, name, &e);
        let file = File::from(file);
        let length = file.metadata().map_err(failed("fstat"))?.len();
        let (mut pieces, mut at, mut left) = (Vec::new(), 0, MOST_BYTES);
        while let Some((start, end)) = data(&file, at).named("lseek", name)? {
            let bytes = usize::try_from(end - start).unwrap_or(usize::MAX);
            left = left
                .checked_sub(bytes)
                .ok_or_else(|| Error::new("pread", name, Errno::EFBIG))?;
            let mut piece = vec![0; bytes];
            file.read_exact_at(&mut piece, start).map_err(failed("pread"))?;
            pieces.push((start, piece));
            at = end;
        }
        Ok(Template { length, pieces })
    }

    /// Creates a writable file with these bytes and fixed length.
    ///
    /// # Errors
    /// memfd_create(2), ftruncate(2), pwrite(2) or fcntl(2).
    pub fn fill(&self, name: &str) -> Result<OwnedFd> {
        let failed = |call| move |e: std::io::Error| Error::from_io(call, name, &e);
        let file = File::from(memfile::create(name)?);
        file.set_len(self.length).map_err(failed("ftruncate"))?;
        for (start, bytes) in &self.pieces {
            file.write_all_at(bytes, *start).map_err(failed("pwrite"))?;
        }
        let file = OwnedFd::from(file);
        memfile::seal(&file, SealFlag::empty(), name)?;
        Ok(file)
    }
}

fn data(file: &File, from: u64) -> nix::Result<Option<(u64, u64)>> {
    use nix::unistd::{Whence, lseek};
    let start = match lseek(file, from as libc::off_t, Whence::SeekData) {
        Ok(start) => start,
        Err(Errno::ENXIO) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let end = lseek(file, start, Whence::SeekHole)?;
    Ok(Some((start as u64, end as u64)))
}

/// Keeps the protection.
///
/// # Safety
/// `segment` is a mapping of this process, and the file has the expected bytes.
///
/// # Errors
/// mmap(2).
pub(super) unsafe fn map_over(segment: &Segment, file: BorrowedFd<'_>, sharing: i32) -> Result<()> {
    // SAFETY: the caller's promise: the range is a whole mapping, which is replaced.
    let address = unsafe {
        libc::mmap(
            segment.start as *mut libc::c_void,
            segment.bytes,
            segment.protection,
            sharing | libc::MAP_FIXED,
            file.as_raw_fd(),
            segment.offset as libc::off_t,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(Error::last("mmap", format!("{:x}", segment.start)));
    }
    Ok(())
}

/// Replaces the mappings by a memory file.
///
/// # Safety
/// [`find`] has found `segments` in this process or its parent. The file has the expected bytes.
///
/// # Errors
/// fstat(2) or mmap(2); EINVAL for a wrong length. The process is unusable then.
pub unsafe fn replace(segments: &[Segment], file: BorrowedFd<'_>) -> Result<()> {
    let length = nix::sys::stat::fstat(file).named("fstat", "")?.st_size;
    if usize::try_from(length) != Ok(bytes(segments)) {
        return Err(Error::new("mmap", "memory of another start", Errno::EINVAL));
    }
    for segment in segments {
        // SAFETY: the caller's promise.
        unsafe { map_over(segment, file, libc::MAP_SHARED)? };
    }
    Ok(())
}

pub(super) fn page_bytes() -> usize {
    // SAFETY: sysconf(3) has no preconditions.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Replaces an open descriptor, close-on-exec.
///
/// # Safety
/// The owner of `place` can use the new one.
///
/// # Errors
/// dup3(2).
pub unsafe fn replace_descriptor(place: i32, by: &impl AsFd) -> Result<()> {
    // SAFETY: the call takes only numbers; the caller guarantees the replacement.
    let done = unsafe { libc::dup3(by.as_fd().as_raw_fd(), place, libc::O_CLOEXEC) };
    if done < 0 {
        return Err(Error::last("dup3", place.to_string()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Ended, Side, exit_now, fork, reap_pid};

    #[test]
    fn what_may_become_writable_is_found_and_what_may_not_is_left_alone() {
        let text = "\
7f0000000000-7f0000002000 rw-s 00000000 00:01 77                         /dev/zero (deleted)
Size:                  8 kB
VmFlags: rd wr sh mr mw me ms sd
7f0000002000-7f0000003000 r-xs 00000000 00:01 78                         /dev/zero (deleted)
VmFlags: rd ex sh mr mw me ms sd
7f0000004000-7f0000005000 r--s 00000000 fe:01 79                         /usr/lib/gconv-modules.cache
VmFlags: rd sh mr me ms
7f0000006000-7f0000007000 rw-p 00000000 00:00 0                          [heap]
VmFlags: rd wr mr mw me ac
";
        let found = find(text).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].bytes, found[0].offset), (0x2000, 0));
        assert_eq!((found[1].bytes, found[1].offset), (0x1000, 0x2000));
        assert_eq!(found[1].protection, libc::PROT_READ | libc::PROT_EXEC);
        assert_eq!(bytes(&found), 0x3000);
    }

    #[test]
    fn a_real_file_and_what_can_t_be_read_are_refused_by_name() {
        let file = "7f00-8f00 rw-s 00000000 fe:01 9 /var/lib/counter\nVmFlags: rd wr sh mw\n";
        assert_eq!(
            find(file),
            Err(Error::new(
                "copy the shared mapping",
                "/var/lib/counter",
                Errno::EOPNOTSUPP
            ))
        );
        let closed = "7f00-8f00 ---s 00000000 00:01 9 /dev/zero (deleted)\nVmFlags: sh mw\n";
        assert!(find(closed).is_err());
        for nonsense in [
            "",
            "VmFlags: sh mw",
            "zz-yy rw-s\nVmFlags: sh mw",
            "9-1 rw-s 0 0 0 \nVmFlags: sh mw",
        ] {
            assert_eq!(find(nonsense), Ok(Vec::new()), "{nonsense:?}");
        }
    }

    #[test]
    fn a_child_with_a_copy_writes_into_its_own() {
        let page = page_bytes();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            libc::mmap(
                std::ptr::null_mut(),
                page * 64,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        let word = |index: usize| (start as usize + page * index) as *mut u8;
        // SAFETY: within the mapping.
        unsafe { *word(5) = 7 };
        let all = find(&describe().unwrap()).unwrap();
        let own: Vec<Segment> = all
            .into_iter()
            .filter(|segment| {
                segment.start <= start as usize && start as usize + page * 64 <= segment.start + segment.bytes
            })
            .map(|segment| Segment { offset: 0, ..segment })
            .collect();
        assert_eq!(own.len(), 1);
        let template = copy(&own, "template").unwrap();
        let read = Template::read(template.try_clone().unwrap(), "template").unwrap();
        let (first, second) = (read.fill("a").unwrap(), read.fill("b").unwrap());
        let blocks = nix::sys::stat::fstat(&first).unwrap().st_blocks;
        assert!(blocks * 512 <= 2 * page as i64, "only what was touched: {blocks}");
        // SAFETY: the child uses the mapping and leaves by _exit.
        match unsafe { fork() }.unwrap() {
            Side::Child => {
                // SAFETY: the mapping that was found, which nothing else uses.
                let code = unsafe {
                    let is_replaced = replace(&own, first.as_fd()).is_ok() && *word(5) == 7;
                    *word(5) = 8;
                    i32::from(!is_replaced)
                };
                exit_now(code)
            }
            Side::Parent(pid) => assert_eq!(reap_pid(pid).unwrap(), Ended::Code(0)),
        }
        // SAFETY: within the mapping.
        assert_eq!(unsafe { *word(5) }, 7);
        let byte = |file: &OwnedFd| {
            let offset = start as usize - own[0].start + page * 5;
            let mut byte = [0];
            File::from(file.try_clone().unwrap())
                .read_exact_at(&mut byte, offset as u64)
                .unwrap();
            byte[0]
        };
        assert_eq!((byte(&first), byte(&second), byte(&template)), (8, 7, 7));
        let short = File::from(memfile::create("short").unwrap());
        short.set_len(page as u64).unwrap();
        // SAFETY: fails before it replaces anything.
        assert!(unsafe { replace(&own, short.as_fd()) }.is_err());
    }
}
