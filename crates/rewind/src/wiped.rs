//! Memory that fork(2) wipes (`MADV_WIPEONFORK`, `MAP_DROPPABLE`), for random number state, as in glibc 2.41. A
//! snapshot omits it, because a rewound process resembles a fork.

use super::regions::number;
use forkyard_sys::error::{Error, Named, Result};
use std::fs::File;
use std::io::{self, BufRead, BufReader};

const WIPED: &[u8] = b"wf";

pub(super) fn wipe_as_fork_does() -> Result<()> {
    const SMAPS: &str = "/proc/self/smaps";
    let failed = |error| Error::from_io("read", SMAPS, &error);
    let smaps = BufReader::new(File::open(SMAPS).map_err(failed)?);
    for range in wiped(smaps) {
        let (start, end) = range.map_err(failed)?;
        // SAFETY: a fork could have wiped it at any time, so its users expect that.
        let result = unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_DONTNEED) };
        nix::errno::Errno::result(result).named("madvise", "memory that a fork wipes")?;
    }
    Ok(())
}

fn wiped(smaps: impl BufRead) -> impl Iterator<Item = io::Result<(usize, usize)>> {
    let mut range = (0, 0);
    smaps.split(b'\n').filter_map(move |line| {
        let line = match line {
            Ok(line) => line,
            Err(error) => return Some(Err(error)),
        };
        let Some(flags) = line.strip_prefix(b"VmFlags:") else {
            range = head(&line).unwrap_or(range);
            return None;
        };
        let is_wiped = flags.split(u8::is_ascii_whitespace).any(|flag| flag == WIPED);
        is_wiped.then_some(Ok(range))
    })
}

fn head(line: &[u8]) -> Option<(usize, usize)> {
    let (start, rest) = number(line, 16)?;
    let (end, _) = number(rest.strip_prefix(b"-")?, 16)?;
    Some((start, end))
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_a_fork_wipes_is_found_by_its_flags() {
        let smaps = "\
7f0000000000-7f0000001000 rw-p 00000000 00:00 0
Size:                  4 kB
VmFlags: rd wr mr mw me ac sd
7f0000001000-7f0000003000 rw-p 00000000 00:00 0    [anon: glibc: getrandom]
Size:                  8 kB
VmFlags: rd wr mr mw me wf dd dp
7f0000003000-7f0000004000 rw-s 00000000 00:01 9    /tmp/\u{fffd} (deleted)
VmFlags: rd wr sh mr mw me ms sd
";
        let found: Result<Vec<_>, _> = super::wiped(smaps.as_bytes()).collect();
        assert_eq!(found.expect("a text"), [(0x7f00_0000_1000, 0x7f00_0000_3000)]);
    }

    #[test]
    fn such_memory_is_zero_then_and_no_other() {
        let page = || {
            // SAFETY: a new anonymous mapping.
            let page = unsafe {
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0)
            };
            assert_ne!(page, libc::MAP_FAILED);
            page
        };
        let (wiped, kept) = (page(), page());
        // SAFETY: both pages belong to this test.
        unsafe {
            assert_eq!(libc::madvise(wiped, 4096, libc::MADV_WIPEONFORK), 0);
            *wiped.cast::<u8>() = 7;
            *kept.cast::<u8>() = 7;
        }
        super::wipe_as_fork_does().expect("the list can be read");
        // SAFETY: as above.
        let found = unsafe { (*wiped.cast::<u8>(), *kept.cast::<u8>()) };
        // SAFETY: as above, for the last time.
        unsafe { (libc::munmap(wiped, 4096), libc::munmap(kept, 4096)) };
        assert_eq!(found, (0, 7));
    }
}
