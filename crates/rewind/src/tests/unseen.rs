//! Changes of memory that the process itself causes no page fault for.

use super::*;

/// A round after many that changed nothing, and between two thorough checks.
const LATE: u64 = 150;

#[test]
fn what_changes_without_a_page_fault_is_put_back() {
    // Dropped pages.
    assert_put_back(200, |round, large| {
        let (start, bytes) = whole_pages(large);
        match round {
            // SAFETY: the test's slice.
            LATE => unsafe {
                libc::madvise(start, bytes, libc::MADV_DONTNEED);
            },
            _ if round == LATE + 1 && large[1 << 19] != 1 => leave(LEFT),
            _ => {}
        }
    });
    // Memory without a page, and as much elsewhere.
    const BYTES: usize = 192 << 10;
    for closable in [None, Some(Vec::new())] {
        let code = in_child(|| {
            // SAFETY: one thread.
            unsafe { MAPPED = map_untouched(BYTES).cast() };
            rounds_with(closable, 200, |round, _| {
                let mut there = [0; BYTES / PAGE];
                // SAFETY: the test's mapping; one thread.
                unsafe {
                    if round == LATE {
                        map_untouched(BYTES);
                        libc::munmap(MAPPED.cast(), BYTES);
                    }
                    if round == LATE + 1 && libc::mincore(MAPPED.cast(), BYTES, there.as_mut_ptr()) != 0 {
                        leave(LEFT);
                    }
                }
            })
        });
        assert_eq!(code, OK);
    }
}

fn leave(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

fn map_untouched(bytes: usize) -> *mut libc::c_void {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping.
    unsafe { libc::mmap(std::ptr::null_mut(), bytes, 3, flags, -1, 0) }
}

#[test]
fn memory_that_a_child_in_the_same_memory_wrote_to_is_put_back() {
    assert_put_back(12, |round, large| {
        let place = &raw mut large[(round as usize % 100) * 8 * PAGE];
        let mut stack = [0_u64; 512];
        // SAFETY: the child runs on its own stack, in this memory, while this thread waits.
        let child = unsafe {
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            let top = stack.as_mut_ptr().add(512).cast();
            libc::clone(write_and_leave, top, flags, place.cast())
        };
        // SAFETY: the child from above.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    });
}

extern "C" fn write_and_leave(place: *mut libc::c_void) -> i32 {
    // SAFETY: a byte of the test's slice.
    unsafe { place.cast::<u8>().write_volatile(77) };
    0
}
