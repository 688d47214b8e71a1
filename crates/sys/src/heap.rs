//! The heap of a long-lived process.

/// Returns free pages to the kernel: reading a large configuration frees much memory, which malloc(3) keeps.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer, and locks the heap as malloc(3) does.
    unsafe {
        libc::malloc_trim(0);
    }
}
