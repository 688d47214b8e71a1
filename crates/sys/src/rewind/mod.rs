//! A process, put back to what it was.
//!
//! [`Pages::take`] copies the memory that a process has to itself: heap, data of libraries, anonymous mappings. Each process
//! that is forked of it completes the copy by what is its own ([`Snapshot::take`]), shares the rest, and has the kernel note
//! what is written to from then on (asynchronous write protection of userfaultfd(2) with PAGEMAP_SCAN, Linux 6.7; both work
//! without rights). [`Snapshot::rewind`] copies these pages back, with the stack, and goes on where the snapshot was taken.
//!
//! What the kernel keeps for a process is no memory. Descriptors, umask, working directory, signals, timers, soft limits, rounding
//! of floating point numbers and settings of prctl(2) are put back; what can't be is found by [`Snapshot::check`], and the process has to end. Descriptors that the process goes on using
//! stay open ([`Snapshot::keep_open`]).
//!
//! Nothing of what runs while memory is put back may lie in it. So that code has a stack of its own, in memory that is shared and
//! therefore not put back, like all of its bookkeeping; its system calls go past libc, which would write errno, and it
//! allocates nothing. [`Snapshot::survivors`] is what a caller may keep there, too.
//!
//! How memory can change without a write, and what is done about it:
//!
//! * It is unmapped, or other memory is mapped in its place. The kernel notes writes by mapping, so the new one is not among the
//!   tracked pages: each scan adds up what it has found. Memory of no file is mapped anew, for all else the process ends.
//! * Its pages are dropped (MADV_DONTNEED). A page that was there and is not any more is put back.
//! * Memory is mapped besides. The size of the process tells: the gaps between its mappings are unmapped, and if it still has another
//!   size, /proc/self/maps is read.
//! * The kernel writes to it at any time: the one place (`kernels_area`) is left out.
//! * Other mappings, which can't be written to, go or change: found when the list is read, which is done now and then in any case.
//!
//! To ask for all pages takes longer than to copy those of a small request. The first write to a page is a page fault, and the
//! kernel counts these: without one since the last time, only pages that were written to before can have been written to, and
//! they are copied without a look. Whether pages were dropped or unmapped mincore(2) tells, in a fifth of the time. Now and then
//! all are asked for in any case.
//!
//! A page that was written to once is copied back each time from then on: to protect it anew would cost a page fault in each
//! round. All are protected anew now and then, so that one large request does not weigh for ever.

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
use std::fmt;

pub use book::{MOST_KEPT, SURVIVORS, shared_words};
pub use take::{Pages, is_possible};

/// Why a process can't be put back. It has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unrewindable {
    /// It has more than one thread.
    Thread,
    /// A child process is there.
    Child,
    /// It has another user, group or session, or other rights.
    Identity,
    /// It has another priority or scheduling policy, or may run on other processors.
    Priority,
    /// A hard limit is lower.
    Limit,
    /// Memory of the snapshot is not there any more, or is another kind of memory.
    Memory,
    /// A descriptor of the snapshot can't be put back.
    Descriptor,
    /// A system call failed.
    Failed(&'static str, Errno),
}

impl Unrewindable {
    /// How many kinds there are.
    pub const KINDS: usize = 8;

    /// The number of its kind, below [`Unrewindable::KINDS`].
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

    /// A word for each kind.
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

impl fmt::Display for Unrewindable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unrewindable::Thread => "a thread was left running",
            Unrewindable::Child => "a child process was left behind",
            Unrewindable::Identity => "user, group, session or rights were changed",
            Unrewindable::Priority => {
                "the priority, the scheduling policy or the allowed processors were changed"
            }
            Unrewindable::Limit => "a hard limit was lowered",
            Unrewindable::Memory => "memory of the snapshot was replaced",
            Unrewindable::Descriptor => "a descriptor of the snapshot is lost",
            Unrewindable::Failed(call, errno) => return write!(f, "{call}: {errno}"),
        })
    }
}

impl std::error::Error for Unrewindable {}

/// What a rewinding has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rewound {
    /// Which one it was, from 1 on; 0: there was none yet.
    pub number: u64,
    /// Pages that were copied back.
    pub pages: u64,
    /// Whether the list of mappings had to be read.
    pub has_read_mappings: bool,
    /// Mappings that were made anew.
    pub mapped_anew: u64,
    /// How long it took.
    pub nanos: u64,
}

/// A process as it was. It lasts as long as the process.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot {
    book: *mut Book,
}

impl Snapshot {
    #[expect(clippy::mut_from_ref, reason = "it is no memory of this value's")]
    fn book(&self) -> &mut Book {
        // SAFETY: mapped for good; one thread, and each function asks once.
        unsafe { &mut *self.book }
    }

    /// Words that are not put back.
    ///
    /// # Safety
    /// There is no other reference to them.
    #[expect(clippy::mut_from_ref, reason = "it is no memory of this value's")]
    pub unsafe fn survivors(&self) -> &mut [u64; SURVIVORS] {
        &mut self.book().survivors
    }

    /// What the last rewinding has come to.
    ///
    /// # Errors
    /// The process is not what it was, and has to end.
    pub fn outcome(&self) -> Result<Rewound, Unrewindable> {
        let book = self.book();
        match book.failure {
            Some(failure) => Err(failure),
            None => Ok(book.rewound),
        }
    }

    /// How many pages are known, and how many mappings they are of.
    pub fn extent(&self) -> (usize, usize) {
        (self.book().pages, self.book().count)
    }
}

#[cfg(test)]
mod tests;
