//! The one place in a process' own memory to which the kernel writes by itself: where the thread runs (rseq(2)), which glibc has
//! registered since 2.35. To put it back would tell the process that it runs where it ran then.

use std::ffi::CStr;

/// What the kernel writes, at most: `struct rseq`.
const BYTES: usize = 32;
const WORDS: usize = BYTES / size_of::<u64>();

/// Where it is. Zero: nowhere.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KernelsArea {
    start: usize,
}

impl KernelsArea {
    pub(super) fn start(&self) -> usize {
        self.start
    }

    /// Asks libc.
    pub(super) fn find(&mut self) {
        let symbol = |name: &CStr| {
            // SAFETY: a C string.
            unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
        };
        let (offset, size) = (symbol(c"__rseq_offset"), symbol(c"__rseq_size"));
        if offset.is_null() || size.is_null() {
            return;
        }
        // SAFETY: glibc's variables have these types.
        let (offset, size) = unsafe { (offset.cast::<isize>().read(), size.cast::<u32>().read()) };
        if size > 0 {
            self.start = thread_pointer().wrapping_add_signed(offset);
        }
    }

    /// Whether a word belongs to it.
    pub(super) fn contains(&self, at: usize) -> bool {
        self.start != 0 && (self.start..self.start + BYTES).contains(&at)
    }

    /// What is there now.
    pub(super) fn keep(&self) -> [u64; WORDS] {
        match self.start {
            0 => [0; WORDS],
            // SAFETY: glibc has this memory for the thread.
            start => unsafe { (start as *const [u64; WORDS]).read_volatile() },
        }
    }

    /// Writes it again.
    pub(super) fn put(&self, words: [u64; WORDS]) {
        if self.start != 0 {
            // SAFETY: the same.
            unsafe { (self.start as *mut [u64; WORDS]).write_volatile(words) }
        }
    }
}

fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, preserves_flags));
    }
    pointer
}
