//! The heap of a process that goes on for long.

/// Gives the pages back that nothing is in. Reading the configuration of thousands of pools takes several times the memory that
/// they have afterwards, and the C library keeps it.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and locks the heap as malloc(3) does.
    unsafe {
        libc::malloc_trim(0);
    }
}
