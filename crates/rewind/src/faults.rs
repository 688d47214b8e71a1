//! The process's page fault counters.
//!
//! RUSAGE_SELF makes the kernel update its time accounting and possibly reschedule, which would cost the CPU and its
//! caches on every rewind. RUSAGE_THREAD doesn't, but excludes ended threads. So RUSAGE_SELF is used only if a process
//! id was allocated since, because each thread takes one.

use super::Unrewindable;
use super::book::Book;
use super::kernel::call;
use super::regions::number;

impl Book {
    /// The process must have one thread.
    pub(super) fn faults_now(&mut self) -> Result<u64, Unrewindable> {
        let last_pid = self.last_pid_now();
        let own = of(libc::RUSAGE_THREAD)?;
        if last_pid.is_none() || last_pid != self.last_pid {
            self.ended_faults = of(libc::RUSAGE_SELF)?.saturating_sub(own);
            self.last_pid = last_pid;
        }
        Ok(own + self.ended_faults)
    }

    /// No thread may have ended since.
    pub(super) fn own_faults_now(&self) -> Result<u64, Unrewindable> {
        Ok(of(libc::RUSAGE_THREAD)? + self.ended_faults)
    }

    fn last_pid_now(&mut self) -> Option<usize> {
        let mut text = [0_u8; 24];
        let (fd, room) = (
            usize::try_from(self.tools.last_pid).ok()?,
            text.as_mut_ptr() as usize,
        );
        // SAFETY: the buffer has this much room.
        let length = unsafe { call(libc::SYS_pread64, [fd, room, text.len(), 0, 0, 0]) }.ok()?;
        number(&text[..length], 10).map(|(pid, _)| pid)
    }
}

fn of(whose: i32) -> Result<u64, Unrewindable> {
    const MINOR: usize = 8;
    const MAJOR: usize = 9;
    let mut usage = [0_u64; 18];
    // SAFETY: the struct outlives the call.
    unsafe {
        call(
            libc::SYS_getrusage,
            [whose as usize, usage.as_mut_ptr() as usize, 0, 0, 0, 0],
        )
    }
    .map_err(|errno| Unrewindable::Failed("getrusage", errno))?;
    Ok(usage[MINOR] + usage[MAJOR])
}
