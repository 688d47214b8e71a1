//! The page faults that the kernel counts for the process.
//!
//! To ask for those of all threads, it brings its account of their time up to date, and may then find that another process is to
//! run: this one would lose the processor, and its caches, in each round. To ask for one thread's costs nothing of the kind. Threads
//! that have ended are not in it, but each took a process id. So only where ids were given since the last time are all asked for.

use super::Unrewindable;
use super::book::Book;
use super::kernel::call;
use super::regions::number;

impl Book {
    /// How many page faults the process has had. It has one thread now.
    pub(super) fn faults_now(&mut self) -> Result<u64, Unrewindable> {
        let last_pid = self.last_pid_now();
        let own = of(libc::RUSAGE_THREAD)?;
        if last_pid.is_none() || last_pid != self.last_pid {
            self.ended_faults = of(libc::RUSAGE_SELF)?.saturating_sub(own);
            self.last_pid = last_pid;
        }
        Ok(own + self.ended_faults)
    }

    /// The same where no thread can have ended since.
    pub(super) fn own_faults_now(&self) -> Result<u64, Unrewindable> {
        Ok(of(libc::RUSAGE_THREAD)? + self.ended_faults)
    }

    /// The last process id that was given. `None`: the kernel does not tell.
    fn last_pid_now(&mut self) -> Option<usize> {
        let mut text = [0_u8; 24];
        let (fd, room) = (
            usize::try_from(self.tools.last_pid).ok()?,
            text.as_mut_ptr() as usize,
        );
        // SAFETY: there is so much room.
        let length = unsafe { call(libc::SYS_pread64, [fd, room, text.len(), 0, 0, 0]) }.ok()?;
        number(&text[..length], 10).map(|(pid, _)| pid)
    }
}

fn of(whose: i32) -> Result<u64, Unrewindable> {
    // `ru_minflt` and `ru_majflt` of `struct rusage`.
    const MINOR: usize = 8;
    const MAJOR: usize = 9;
    let mut usage = [0_u64; 18];
    // SAFETY: there is room for the structure.
    unsafe {
        call(
            libc::SYS_getrusage,
            [whose as usize, usage.as_mut_ptr() as usize, 0, 0, 0, 0],
        )
    }
    .map_err(|errno| Unrewindable::Failed("getrusage", errno))?;
    Ok(usage[MINOR] + usage[MAJOR])
}
