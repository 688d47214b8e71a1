//! Rewinds a process to a snapshot.
//!
//! [`Pages::take`] copies a process's private memory: heap, library data, anonymous mappings. Each forked process adds
//! what differs ([`Snapshot::take`]), and from then on the kernel records written pages (userfaultfd(2) asynchronous
//! write protection and PAGEMAP_SCAN, Linux 6.7, unprivileged). [`Snapshot::rewind`] copies these pages and the stack
//! back and continues where the snapshot was taken.
//!
//! Kernel state is restored separately: descriptors, umask, working directory, signals, timers, soft limits, floating
//! point rounding and prctl(2) settings. [`Snapshot::check`] finds what can't be restored; the process must then exit.
//!
//! The restoring code has its stack and bookkeeping in shared memory, which is not restored. It makes system calls
//! without libc, which would write errno, and does not allocate.
//!
//! Memory can change without a write:
//!
//! * Unmapping, or a new mapping in place. Writes are tracked by mapping, so the scan misses the new pages and counts
//!   too few. Anonymous memory is mapped again; anything else ends the process.
//! * Dropped pages (MADV_DONTNEED). A missing page is restored.
//! * New mappings, which change the process's size. Former gaps are unmapped; if the size still differs,
//!   /proc/self/maps is read.
//! * The kernel's own writes, to one area that is left out (`kernels_area`).
//! * Changes of read-only mappings, found when the list is read now and then.
//!
//! A full scan takes longer than copying the pages of a small request. The first write to a protected page is a counted
//! page fault. Without new faults only hot pages (written to before) can have changed, so they are copied without a
//! scan if no page was dropped or unmapped (`presence`). Now and then a full scan runs anyway.
//!
//! A hot page is copied on every rewind, because protecting it again would cost a page fault each time. All pages are
//! protected again now and then, so that a large request doesn't slow all later ones.

mod back;
mod book;
mod descriptors;
mod faults;
mod kernel;
mod kernels_area;
mod presence;
mod process_state;
mod regions;
mod stack;
mod status;
mod take;
mod thread_state;
mod wiped;

use book::Book;
use nix::errno::Errno;

pub use book::{MOST_KEPT, SURVIVORS, shared_words};
pub use take::{Pages, is_possible};

/// Why a process can't be restored; it must exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unrewindable {
    #[error("a thread was left running")]
    Thread,
    #[error("a child process was left behind")]
    Child,
    #[error("user, group, session or rights were changed")]
    Identity,
    #[error("the priority, the scheduling policy or the allowed processors were changed")]
    Priority,
    #[error("a hard limit was lowered")]
    Limit,
    /// Memory of the snapshot is missing or has changed its kind.
    #[error("memory of the snapshot was replaced")]
    Memory,
    #[error("a descriptor of the snapshot is lost")]
    Descriptor,
    /// A system call failed.
    #[error("{0}: {1}")]
    Failed(&'static str, Errno),
}

impl Unrewindable {
    /// Number of variants.
    pub const KINDS: usize = 8;

    /// Index of the variant, below [`Unrewindable::KINDS`].
    pub fn kind(&self) -> usize {
        match self {
            Unrewindable::Thread => 0,
            Unrewindable::Child => 1,
            Unrewindable::Identity => 2,
            Unrewindable::Priority => 3,
            Unrewindable::Limit => 4,
            Unrewindable::Memory => 5,
            Unrewindable::Descriptor => 6,
            Unrewindable::Failed(..) => 7,
        }
    }

    /// A name for each variant, by index.
    pub const NAMES: [&str; Unrewindable::KINDS] = [
        "thread",
        "child",
        "identity",
        "priority",
        "limit",
        "memory",
        "descriptor",
        "call",
    ];
}

/// Statistics of a rewind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rewound {
    /// Sequence number from 1; 0 before the first rewind.
    pub number: u64,
    /// Pages copied back.
    pub pages: u64,
    /// Whether /proc/self/maps was read.
    pub has_read_mappings: bool,
    /// Mappings created again.
    pub mapped_anew: u64,
    /// Duration in nanoseconds.
    pub nanos: u64,
}

/// A snapshot of this process. It lives as long as the process.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot {
    book: *mut Book,
}

impl Snapshot {
    #[expect(clippy::mut_from_ref, reason = "it is no memory of this value's")]
    fn book(&self) -> &mut Book {
        // SAFETY: mapped forever; one thread, and each function borrows it once.
        unsafe { &mut *self.book }
    }

    /// Words that a rewind doesn't restore.
    ///
    /// # Safety
    /// There is no other reference to them.
    #[expect(clippy::mut_from_ref, reason = "it is no memory of this value's")]
    pub unsafe fn survivors(&self) -> &mut [u64; SURVIVORS] {
        &mut self.book().survivors
    }

    /// Returns the result of the last rewind.
    ///
    /// # Errors
    /// The process was not restored and must exit.
    pub fn outcome(&self) -> Result<Rewound, Unrewindable> {
        let book = self.book();
        match book.failure {
            Some(failure) => Err(failure),
            None => Ok(book.rewound),
        }
    }

    /// Returns the number of pages and of regions.
    pub fn extent(&self) -> (usize, usize) {
        (self.book().pages, self.book().count)
    }
}

#[cfg(test)]
mod tests;
