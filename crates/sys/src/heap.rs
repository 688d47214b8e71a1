//! The heap of a long-lived process.

/// Returns free pages to the kernel. Reading the configuration of thousands of pools needs several times the memory
/// that remains in use, and malloc(3) keeps it.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer, and locks the heap as malloc(3) does.
    unsafe {
        libc::malloc_trim(0);
    }
}
