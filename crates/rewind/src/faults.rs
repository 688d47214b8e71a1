//! The process's page fault counters.
//!
//! RUSAGE_SELF makes the kernel update its time accounting and possibly reschedule, which would cost the CPU and its
//! caches on every rewind. RUSAGE_THREAD doesn't, but excludes ended threads, and children that ran in this process's
//! memory (vfork(2), posix_spawn(3)). So RUSAGE_SELF and RUSAGE_CHILDREN are used only if a process id was allocated
//! since, because each thread and each child takes one. A child that nobody waits for isn't counted.

use super::Unrewindable;
use super::book::Book;
use super::kernel::call;

impl Book {
    /// The process must have one thread.
    /// `None`: unknown.
    pub(super) fn faults_now(&mut self) -> Result<Option<u64>, Unrewindable> {
        let last_pid = self.state.last_pid();
        let own = of(libc::RUSAGE_THREAD)?;
        let mut is_known = true;
        if last_pid.is_none() || last_pid != self.last_pid {
            self.ended_faults = of(libc::RUSAGE_SELF)?.saturating_sub(own) + of(libc::RUSAGE_CHILDREN)?;
            self.last_pid = last_pid;
            is_known = !self.state.waits_for_no_child();
        }
        Ok(is_known.then_some(own + self.ended_faults))
    }

    /// No thread may have ended since.
    pub(super) fn own_faults_now(&self) -> Result<u64, Unrewindable> {
        Ok(of(libc::RUSAGE_THREAD)? + self.ended_faults)
    }
}

fn of(whose: i32) -> Result<u64, Unrewindable> {
    const MINOR: usize = 8;
    const MAJOR: usize = 9;
    let mut usage = [0_u64; 18];
    // SAFETY: the struct outlives the call.
    unsafe { call(libc::SYS_getrusage, [whose as usize, usage.as_mut_ptr() as usize]) }
        .map_err(|errno| Unrewindable::Failed("getrusage", errno))?;
    Ok(usage[MINOR] + usage[MAJOR])
}
