//! The heap of a long-lived process.

/// Returns free pages, which malloc(3) would keep, to the kernel.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer, and locks the heap as malloc(3) does.
    unsafe {
        libc::malloc_trim(0);
    }
}
