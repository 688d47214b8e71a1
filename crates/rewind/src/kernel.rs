//! System calls without libc, whose functions write errno into the process's memory.

use nix::errno::Errno;

/// Arguments that are left out are 0.
///
/// # Safety
/// That of the system call.
#[inline(always)]
pub(super) unsafe fn call<const N: usize>(
    number: libc::c_long,
    arguments: [usize; N],
) -> Result<usize, Errno> {
    let at = |place| if place < N { arguments[place] } else { 0 };
    let result: isize;
    // SAFETY: the kernel's register convention; the caller guarantees the call itself.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") at(0),
            in("rsi") at(1),
            in("rdx") at(2),
            in("r10") at(3),
            in("r8") at(4),
            in("r9") at(5),
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            "svc 0",
            in("x8") number as usize,
            inlateout("x0") at(0) as isize => result,
            in("x1") at(1),
            in("x2") at(2),
            in("x3") at(3),
            in("x4") at(4),
            in("x5") at(5),
            options(nostack),
        );
    }
    match result {
        -4095..=-1 => Err(Errno::from_raw(-result as i32)),
        _ => Ok(result as usize),
    }
}

/// `struct page_region` of PAGEMAP_SCAN(2const).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PageRegion {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

const PAGE_IS_WPALLOWED: u64 = 1 << 0;
const PAGE_IS_WRITTEN: u64 = 1 << 1;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PM_SCAN_WP_MATCHING: u64 = 1 << 0;
/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: usize = (3 << 30) | (size_of::<ScanArguments>() << 16) | ((b'f' as usize) << 8) | 16;

impl PageRegion {
    /// Written to since it was protected.
    pub(super) fn is_written(&self) -> bool {
        self.categories & PAGE_IS_WRITTEN != 0
    }

    /// Dropped, or never there.
    pub(super) fn is_empty(&self) -> bool {
        self.categories & (PAGE_IS_WRITTEN | PAGE_IS_PRESENT | PAGE_IS_SWAPPED) == 0
    }
}

/// Returns the number of tracked runs, and where to continue if `found` was too small. Unregistered mappings, such as
/// replacements, are missing.
///
/// # Safety
/// `found` has room for `room` runs.
pub(super) unsafe fn tracked(
    pagemap: i32,
    range: (usize, usize),
    found: *mut PageRegion,
    room: usize,
) -> Result<(usize, Option<usize>), Errno> {
    let mut arguments = ScanArguments {
        size: size_of::<ScanArguments>() as u64,
        start: range.0 as u64,
        end: range.1 as u64,
        vec: found as u64,
        vec_len: room as u64,
        category_mask: PAGE_IS_WPALLOWED,
        return_mask: PAGE_IS_WRITTEN | PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
        ..ScanArguments::default()
    };
    // SAFETY: the caller's promise; the struct outlives the call.
    let count = unsafe { scan(pagemap, &mut arguments)? };
    // The kernel collects runs in batches of 512 and sets `walk_end` where the last full batch ended: at the end of the
    // range unless `room` is used up, and then no later than the end of the last run.
    if count < room {
        return Ok((count, None));
    }
    // SAFETY: the kernel wrote this many.
    let last = count
        .checked_sub(1)
        .map_or(0, |last| unsafe { (*found.add(last)).end });
    let next = arguments.walk_end.max(last);
    Ok((count, (next < arguments.end).then_some(next as usize)))
}

/// Records the next write to each page.
pub(super) fn protect(pagemap: i32, range: (usize, usize)) -> Result<(), Errno> {
    let mut arguments = ScanArguments {
        size: size_of::<ScanArguments>() as u64,
        flags: PM_SCAN_WP_MATCHING,
        start: range.0 as u64,
        end: range.1 as u64,
        category_mask: PAGE_IS_WPALLOWED | PAGE_IS_WRITTEN,
        ..ScanArguments::default()
    };
    // SAFETY: the struct outlives the call, and there is no vector.
    unsafe { scan(pagemap, &mut arguments).map(|_| ()) }
}

unsafe fn scan(pagemap: i32, arguments: &mut ScanArguments) -> Result<usize, Errno> {
    let pointer = std::ptr::from_mut(arguments) as usize;
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_ioctl, [pagemap as usize, PAGEMAP_SCAN, pointer]) }
}

#[repr(C)]
struct UffdApi {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct UffdRegister {
    start: u64,
    length: u64,
    mode: u64,
    ioctls: u64,
}

const UFFD_API: u64 = 0xaa;
const UFFD_USER_MODE_ONLY: usize = 1;
const FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const FEATURE_WP_ASYNC: u64 = 1 << 15;
const REGISTER_MODE_WP: u64 = 1 << 1;
/// `_IOWR(0xaa, 0x3f, struct uffdio_api)`.
const UFFDIO_API: usize = (3 << 30) | (size_of::<UffdApi>() << 16) | (0xaa << 8) | 0x3f;
/// `_IOWR(0xaa, 0x00, struct uffdio_register)`.
const UFFDIO_REGISTER: usize = (3 << 30) | (size_of::<UffdRegister>() << 16) | (0xaa << 8);

/// Records writes without notifications. Needs no privileges.
pub(super) fn tracker() -> Result<i32, (&'static str, Errno)> {
    let flags = UFFD_USER_MODE_ONLY | libc::O_CLOEXEC as usize;
    // SAFETY: the call takes only a number.
    let fd = unsafe { call(libc::SYS_userfaultfd, [flags]) };
    let fd = fd.map_err(|errno| ("userfaultfd", errno))? as i32;
    let mut api = UffdApi {
        api: UFFD_API,
        features: FEATURE_WP_ASYNC | FEATURE_WP_UNPOPULATED,
        ioctls: 0,
    };
    // SAFETY: the struct outlives the call.
    let done = unsafe { call(libc::SYS_ioctl, [fd as usize, UFFDIO_API, &raw mut api as usize]) };
    if let Err(errno) = done {
        // SAFETY: opened above.
        let _ = unsafe { call(libc::SYS_close, [fd as usize]) };
        return Err(("UFFDIO_API", errno));
    }
    Ok(fd)
}

pub(super) fn track(tracker: i32, range: (usize, usize)) -> Result<(), Errno> {
    let mut register = UffdRegister {
        start: range.0 as u64,
        length: (range.1 - range.0) as u64,
        mode: REGISTER_MODE_WP,
        ioctls: 0,
    };
    // SAFETY: the struct outlives the call.
    unsafe {
        call(
            libc::SYS_ioctl,
            [tracker as usize, UFFDIO_REGISTER, &raw mut register as usize],
        )
        .map(|_| ())
    }
}

/// Whether it is `MAP_DROPPABLE`, where glibc 2.41 keeps random number state. The kernel rejects MADV_DODUMP for it.
pub(super) fn is_droppable(range: (usize, usize)) -> bool {
    let arguments = [range.0, range.1 - range.0, libc::MADV_DODUMP as usize];
    // SAFETY: affects only core dumps.
    let advised = unsafe { call(libc::SYS_madvise, arguments) };
    advised == Err(Errno::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_state::open_own;
    use crate::regions::PAGE;

    #[test]
    fn each_run_is_found_once() {
        const PAGES: usize = 2048;
        let pagemap = open_own(c"/proc/self/pagemap").unwrap();
        let tracker = tracker().unwrap();
        // SAFETY: a new mapping that nothing else uses.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), PAGES * PAGE, 3, flags, -1, 0) as usize
        };
        let range = (start, start + PAGES * PAGE);
        track(tracker, range).unwrap();
        protect(pagemap, range).unwrap();
        for page in (0..PAGES).step_by(2) {
            // SAFETY: within the mapping.
            unsafe { ((start + page * PAGE) as *mut u8).write_volatile(1) };
        }
        for room in [PAGES + 1, PAGES, 700, 512, 1] {
            let mut found = vec![PageRegion::default(); room];
            let (mut from, mut written) = (start, Vec::new());
            loop {
                // SAFETY: the buffer has this much room.
                let (count, next) =
                    unsafe { tracked(pagemap, (from, range.1), found.as_mut_ptr(), room) }.unwrap();
                written.extend(
                    found[..count]
                        .iter()
                        .filter(|run| run.is_written())
                        .map(|run| run.start),
                );
                let Some(next) = next else { break };
                from = next;
            }
            let expected: Vec<u64> = (0..PAGES)
                .step_by(2)
                .map(|page| (start + page * PAGE) as u64)
                .collect();
            assert!(written == expected, "room for {room}: {} runs", written.len());
        }
        // SAFETY: the test's own mapping.
        unsafe {
            libc::munmap(start as *mut libc::c_void, PAGES * PAGE);
            libc::close(pagemap);
            libc::close(tracker);
        }
    }
}
