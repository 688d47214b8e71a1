//! The descriptors of a snapshot: each has a copy at a high number, by which it is put back.

use super::Unrewindable;
use super::kernel::call;
use crate::error::{Error, Result};
use nix::errno::Errno;

/// More than a worker has open before its first request.
const MOST: usize = 1024;

/// One that was open.
#[derive(Debug, Clone, Copy, Default)]
struct Descriptor {
    number: i32,
    /// Of the copy.
    copy: i32,
    is_close_on_exec: bool,
}

/// All that were open, by number. Zeroes are a value.
#[derive(Debug)]
pub(super) struct Descriptors {
    all: [Descriptor; MOST],
    count: usize,
    /// From where to where the copies are, and what putting back needs.
    first_copy: i32,
    last: i32,
}

impl Descriptors {
    /// Notes those that are open now. `needed`: by what puts them back. They get a number as high as a copy's, which is as
    /// safe from requests, and so need none.
    pub(super) fn note<'o>(&mut self, needed: impl Iterator<Item = &'o mut i32>) -> Result<()> {
        let mut numbers: Vec<i32> = crate::fd::open_ones()?
            .into_iter()
            .map(|(number, _)| number)
            .collect();
        numbers.sort_unstable();
        let failed = |call, number: i32| Error::last(call, format!("descriptor {number}"));
        let first_copy = numbers.last().map_or(0, |last| last + 1);
        (self.count, self.first_copy, self.last) = (0, first_copy, first_copy - 1);
        for own in needed.filter(|own| **own >= 0) {
            // SAFETY: the caller's, whose number is changed.
            let moved = unsafe { libc::fcntl(*own, libc::F_DUPFD_CLOEXEC, first_copy) };
            if moved < 0 {
                return Err(failed("fcntl", *own));
            }
            // SAFETY: nothing has this number any more.
            unsafe { libc::close(*own) };
            numbers.retain(|number| number != own);
            self.last = self.last.max(moved);
            *own = moved;
        }
        for number in numbers {
            // SAFETY: numbers; the copy is nothing's but this table's.
            let (flags, copy) = unsafe {
                let flags = libc::fcntl(number, libc::F_GETFD);
                (flags, libc::fcntl(number, libc::F_DUPFD_CLOEXEC, first_copy))
            };
            if flags < 0 || copy < 0 {
                return Err(failed("fcntl", number));
            }
            let Some(place) = self.all.get_mut(self.count) else {
                return Err(Error::new(
                    "fcntl",
                    "more descriptors than can be kept",
                    Errno::EMFILE,
                ));
            };
            *place = Descriptor {
                number,
                copy,
                is_close_on_exec: flags & libc::FD_CLOEXEC != 0,
            };
            self.count += 1;
            self.last = self.last.max(copy);
        }
        Ok(())
    }

    /// Puts all of them back, and closes the others, except those of `kept`.
    pub(super) fn put_back(&self, kept: &[i32]) -> std::result::Result<(), Unrewindable> {
        let mut next = 0;
        for descriptor in &self.all[..self.count] {
            let flags = if descriptor.is_close_on_exec {
                libc::O_CLOEXEC
            } else {
                0
            };
            let arguments = [
                descriptor.copy as usize,
                descriptor.number as usize,
                flags as usize,
                0,
                0,
                0,
            ];
            // SAFETY: the process' descriptors are what they were from now on; nothing that runs here owns one of the others.
            unsafe { call(libc::SYS_dup3, arguments) }.map_err(|_| Unrewindable::Descriptor)?;
            close_before(next, descriptor.number, kept)?;
            next = descriptor.number + 1;
        }
        close_before(next, self.first_copy, kept)?;
        close_before(self.last + 1, i32::MAX, kept)
    }
}

/// Closes a range without its end and without those that are kept.
fn close_before(mut first: i32, end: i32, kept: &[i32]) -> std::result::Result<(), Unrewindable> {
    while let Some(number) = kept.iter().filter(|number| (first..end).contains(number)).min() {
        close_range(first, *number)?;
        first = number + 1;
    }
    close_range(first, end)
}

/// Closes a range without its end.
fn close_range(first: i32, end: i32) -> std::result::Result<(), Unrewindable> {
    if first >= end {
        return Ok(());
    }
    let arguments = [first as usize, end as usize - 1, 0, 0, 0, 0];
    // SAFETY: as above.
    unsafe { call(libc::SYS_close_range, arguments) }
        .map(|_| ())
        .map_err(|errno| Unrewindable::Failed("close_range", errno))
}
