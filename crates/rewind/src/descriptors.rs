//! Restores descriptors from duplicates at high numbers.

use super::Unrewindable;
use super::kernel::call;
use forkyard_sys::error::{Error, Result};
use nix::errno::Errno;

const MOST: usize = 1024;

/// Highest gap to fill.
const MOST_FILLED: i32 = 256;

#[derive(Debug, Clone, Copy, Default)]
struct Descriptor {
    number: i32,
    copy: i32,
    is_close_on_exec: bool,
    is_closable: bool,
}

/// All zeroes is valid.
#[derive(Debug)]
pub(super) struct Descriptors {
    all: [Descriptor; MOST],
    count: usize,
    first_copy: i32,
    last: i32,
    /// Everything is restored each time. Otherwise no number up to the last is unused.
    is_exact: bool,
}

impl Descriptors {
    /// Fills the gaps between open descriptors, and moves `needed`, which the rewind uses, to high numbers. `closable`:
    /// see [`Pages::take`](super::Pages::take).
    pub(super) fn note<'o>(
        &mut self,
        needed: impl Iterator<Item = &'o mut i32>,
        closable: Option<&[i32]>,
    ) -> Result<()> {
        let mut numbers: Vec<i32> = forkyard_sys::fd::open_ones()?
            .into_iter()
            .map(|(number, _)| number)
            .collect();
        numbers.sort_unstable();
        let failed = |call, number: i32| Error::last(call, format!("descriptor {number}"));
        let first_copy = numbers.last().map_or(0, |last| last + 1);
        (self.count, self.first_copy, self.last) = (0, first_copy, first_copy - 1);
        for own in needed.filter(|own| **own >= 0) {
            // SAFETY: the caller's descriptor; its number changes.
            let moved = unsafe { libc::fcntl(*own, libc::F_DUPFD_CLOEXEC, first_copy) };
            if moved < 0 {
                return Err(failed("fcntl", *own));
            }
            // SAFETY: nothing uses this number any more.
            unsafe { libc::close(*own) };
            numbers.retain(|number| number != own);
            self.last = self.last.max(moved);
            *own = moved;
        }
        self.is_exact = closable.is_none() || first_copy > MOST_FILLED;
        let before = numbers.len();
        if !self.is_exact {
            fill_gaps(first_copy, &mut numbers)?;
        }
        let mut of_gaps = None;
        for (index, number) in numbers.into_iter().enumerate() {
            // SAFETY: the call takes only numbers; this table alone owns the duplicate.
            let (flags, copy) = unsafe {
                let flags = libc::fcntl(number, libc::F_GETFD);
                let copy = match of_gaps {
                    Some(copy) => copy,
                    None => libc::fcntl(number, libc::F_DUPFD_CLOEXEC, first_copy),
                };
                (flags, copy)
            };
            if index >= before {
                of_gaps = Some(copy);
            }
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
                is_closable: number <= libc::STDERR_FILENO
                    || closable.is_some_and(|closable| closable.contains(&number)),
            };
            self.count += 1;
            self.last = self.last.max(copy);
        }
        self.all[..self.count].sort_unstable_by_key(|descriptor| descriptor.number);
        Ok(())
    }

    /// Closes all others except `kept`. `is_thorough`: also restores unchanged ones.
    pub(super) fn put_back(&self, kept: &[i32], is_thorough: bool) -> std::result::Result<(), Unrewindable> {
        let all = &self.all[..self.count];
        if !self.is_exact && !is_thorough {
            for descriptor in all.iter().filter(|descriptor| descriptor.is_closable) {
                descriptor.put_back()?;
            }
            if self.has_no_gap()? {
                return close_before(self.last + 1, i32::MAX, kept);
            }
        }
        let mut next = 0;
        for descriptor in all {
            descriptor.put_back()?;
            close_before(next, descriptor.number, kept)?;
            next = descriptor.number + 1;
        }
        close_before(next, self.first_copy, kept)?;
        close_before(self.last + 1, i32::MAX, kept)
    }

    /// A descriptor that this opens is closed with those above the last.
    fn has_no_gap(&self) -> std::result::Result<bool, Unrewindable> {
        let arguments = [self.last as usize, libc::F_DUPFD_CLOEXEC as usize];
        // SAFETY: a descriptor of this table.
        match unsafe { call(libc::SYS_fcntl, arguments) } {
            Ok(lowest) => Ok(lowest as i32 > self.last),
            Err(Errno::EMFILE) => Ok(false),
            Err(errno) => Err(Unrewindable::Failed("fcntl", errno)),
        }
    }
}

impl Descriptor {
    fn put_back(&self) -> std::result::Result<(), Unrewindable> {
        let flags = if self.is_close_on_exec { libc::O_CLOEXEC } else { 0 };
        let arguments = [self.copy as usize, self.number as usize, flags as usize];
        // SAFETY: from now on the process has the snapshot's descriptors; nothing that runs here owns
        // another one.
        match unsafe { call(libc::SYS_dup3, arguments) } {
            Ok(_) => Ok(()),
            Err(_) => Err(Unrewindable::Descriptor),
        }
    }
}

fn fill_gaps(end: i32, numbers: &mut Vec<i32>) -> Result<()> {
    loop {
        // SAFETY: a C string.
        let number = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if number < 0 {
            return Err(Error::last("open", "/dev/null"));
        }
        if number >= end {
            // SAFETY: opened above.
            unsafe { libc::close(number) };
            return Ok(());
        }
        numbers.push(number);
    }
}

fn close_before(mut first: i32, end: i32, kept: &[i32]) -> std::result::Result<(), Unrewindable> {
    while let Some(number) = kept.iter().filter(|number| (first..end).contains(number)).min() {
        close_range(first, *number)?;
        first = number + 1;
    }
    close_range(first, end)
}

fn close_range(first: i32, end: i32) -> std::result::Result<(), Unrewindable> {
    if first >= end {
        return Ok(());
    }
    let arguments = [first as usize, end as usize - 1];
    // SAFETY: as above.
    unsafe { call(libc::SYS_close_range, arguments) }
        .map(|_| ())
        .map_err(|errno| Unrewindable::Failed("close_range", errno))
}
