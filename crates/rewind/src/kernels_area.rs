//! The only private memory that the kernel itself writes: the thread's current CPU (rseq(2)), registered by glibc since
//! 2.35. It must not be restored.

use std::ffi::CStr;

const BYTES: usize = 32;
const WORDS: usize = BYTES / size_of::<u64>();

/// 0 if there is none.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KernelsArea {
    start: usize,
}

impl KernelsArea {
    pub(super) fn start(&self) -> usize {
        self.start
    }

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

    pub(super) fn contains(&self, at: usize) -> bool {
        self.start != 0 && (self.start..self.start + BYTES).contains(&at)
    }

    pub(super) fn keep(&self) -> [u64; WORDS] {
        match self.start {
            0 => [0; WORDS],
            // SAFETY: glibc has allocated this memory for the thread.
            start => unsafe { (start as *const [u64; WORDS]).read_volatile() },
        }
    }

    pub(super) fn put(&self, words: [u64; WORDS]) {
        if self.start != 0 {
            // SAFETY: as above.
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
