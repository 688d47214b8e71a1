//! The kernel's state of a process, besides memory and descriptors.

use super::Unrewindable;
use super::book::Size;
use super::kernel::call;
use super::regions::{PAGE, number};
use super::status::{PageCounts, Status};
use super::thread_state::ThreadState;
use forkyard_sys::error::{Error, Result};
use nix::errno::Errno;

const SIGNALS: usize = 64;
const LIMITS: usize = 16;
const SET_BYTES: usize = 8;
/// Large enough for every architecture.
type Action = [u64; 4];
const TIMERS: [i32; 3] = [libc::ITIMER_REAL, libc::ITIMER_VIRTUAL, libc::ITIMER_PROF];
/// A request may leave them pending.
const OF_REQUESTS: [i32; 5] = [
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGCHLD,
    libc::SIGPIPE,
];

/// 51 ms in total, because waits double.
const WAITS: u32 = 10;
const FIRST_WAIT_NANOS: u64 = 50_000;
const ROOM: usize = 16 << 10;
const LIMITS_ROOM: usize = 4096;

/// All zeroes is valid.
#[derive(Debug)]
pub(super) struct ProcessState {
    mask: u64,
    status: Status,
    /// Set by [`ProcessState::check`].
    status_now: Status,
    actions: [Action; SIGNALS],
    limits: [[u64; 2]; LIMITS],
    limits_text: [u8; LIMITS_ROOM],
    limits_length: usize,
    /// Set by [`ProcessState::check`].
    changed_limits: u32,
    thread: ThreadState,
    /// The kernel counts timers.
    next_timer: i32,
    directory: i32,
    status_file: i32,
    limits_file: i32,
    timers_file: i32,
    last_pid_file: i32,
    /// The last allocated process id at [`ProcessState::check`].
    last_pid: Option<usize>,
    /// The last process id at the last check without a child. Each process and thread takes one.
    childless: Option<usize>,
    /// /proc/self/status contains whether huge pages are disabled.
    tells_huge_pages: bool,
    text: [u8; ROOM],
}

fn read(fd: i32, room: &mut [u8]) -> std::result::Result<usize, Errno> {
    let arguments = [fd as usize, room.as_mut_ptr() as usize, room.len()];
    // SAFETY: the buffer has this much room.
    unsafe { call(libc::SYS_pread64, arguments) }
}

impl ProcessState {
    pub(super) fn open(&mut self) -> Result<()> {
        self.directory = open(c".", libc::O_PATH | libc::O_DIRECTORY)?;
        self.status_file = open_own(c"/proc/self/status")?;
        self.limits_file = open_own(c"/proc/self/limits").unwrap_or(-1);
        self.timers_file = open_own(c"/proc/self/timers").unwrap_or(-1);
        self.last_pid_file = open_own(c"/proc/sys/kernel/ns_last_pid").unwrap_or(-1);
        self.tells_huge_pages = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
        Ok(())
    }

    pub(super) fn descriptors(&mut self) -> impl Iterator<Item = &mut i32> {
        [
            &mut self.directory,
            &mut self.status_file,
            &mut self.limits_file,
            &mut self.timers_file,
            &mut self.last_pid_file,
        ]
        .into_iter()
    }

    pub(super) fn note(&mut self) -> Result<()> {
        let failed = |errno| Error::new("note the state of the process", "", errno);
        self.mask = change_mask(None).map_err(failed)?;
        self.status = self.status_now().map_err(failed)?;
        for signal in 1..=SIGNALS {
            self.actions[signal - 1] = action(signal).map_err(failed)?;
        }
        for limit in 0..LIMITS {
            self.limits[limit] = limit_of(limit).map_err(failed)?;
        }
        if self.limits_file >= 0 {
            self.limits_length = read(self.limits_file, &mut self.limits_text).map_err(failed)?;
        }
        self.thread = ThreadState::now().map_err(failed)?;
        self.next_timer = next_timer().map_err(failed)?;
        Ok(())
    }

    /// Stops timers. On success all signals stay blocked until [`ProcessState::release_signals`].
    pub(super) fn check(&mut self) -> std::result::Result<(), Unrewindable> {
        hold_signals()?;
        let outcome = self.stop_timers().and_then(|()| self.compare());
        if outcome.is_err() {
            self.release_signals();
        }
        outcome
    }

    fn compare(&mut self) -> std::result::Result<(), Unrewindable> {
        let failed = |call| move |errno| Unrewindable::Failed(call, errno);
        self.status_now = self.status_of_one_thread()?;
        self.last_pid = self.read_last_pid();
        let is_childless = self.last_pid.is_some() && self.last_pid == self.childless;
        if !is_childless && has_child().map_err(failed("waitid"))? {
            return Err(Unrewindable::Child);
        }
        self.childless = self.last_pid;
        if self.status_now.identity != self.status.identity {
            return Err(Unrewindable::Identity);
        }
        let is_planned_alike = self.status_now.processors == self.status.processors
            && self.thread.has_same_schedule().map_err(failed("sched_getattr"))?;
        if !is_planned_alike {
            return Err(Unrewindable::Priority);
        }
        self.compare_limits()
    }

    fn status_of_one_thread(&mut self) -> std::result::Result<Status, Unrewindable> {
        for wait in 0..=WAITS {
            let status = self
                .status_now()
                .map_err(|errno| Unrewindable::Failed("read /proc/self/status", errno))?;
            if status.threads <= 1 {
                return Ok(status);
            }
            if wait < WAITS {
                sleep(FIRST_WAIT_NANOS << wait);
            }
        }
        Err(Unrewindable::Thread)
    }

    fn read_last_pid(&self) -> Option<usize> {
        let mut text = [0_u8; 24];
        if self.last_pid_file < 0 {
            return None;
        }
        let length = read(self.last_pid_file, &mut text).ok()?;
        number(&text[..length], 10).map(|(pid, _)| pid)
    }

    /// `None`: unknown.
    pub(super) fn last_pid(&self) -> Option<usize> {
        self.last_pid
    }

    /// Whether SIGCHLD was ignored at [`ProcessState::check`], so that nobody waits for children.
    pub(super) fn waits_for_no_child(&self) -> bool {
        self.status_now.ignored & 1 << (libc::SIGCHLD - 1) != 0
    }

    /// At [`ProcessState::check`]. `None`: some pages may be swapped.
    pub(super) fn page_counts(&self) -> Option<PageCounts> {
        self.status_now.page_counts()
    }

    pub(super) fn page_counts_now(&mut self) -> Option<PageCounts> {
        self.status_now().ok()?.page_counts()
    }

    fn anonymous_pages_now(&mut self) -> Option<usize> {
        self.page_counts_now().map(|counts| counts.anonymous)
    }

    /// Whether the kernel counts anonymous pages exactly, as since Linux 6.16. Older kernels omit some for each CPU.
    pub(super) fn counts_each_page(&mut self) -> bool {
        const TIMES: usize = 4;
        // The first call may touch a new page itself.
        (0..=TIMES).filter(|_| self.counts_a_page()).count() >= TIMES
    }

    fn counts_a_page(&mut self) -> bool {
        let before = self.anonymous_pages_now();
        // SAFETY: a new mapping that nothing else uses; unmapped below.
        let during = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let page = libc::mmap(std::ptr::null_mut(), PAGE, protection, flags, -1, 0);
            if page == libc::MAP_FAILED {
                return false;
            }
            page.cast::<u8>().write_volatile(1);
            let during = self.anonymous_pages_now();
            libc::munmap(page, PAGE);
            during
        };
        during.is_some() && during == before.map(|pages| pages + 1) && before == self.anonymous_pages_now()
    }

    fn status_now(&mut self) -> std::result::Result<Status, Errno> {
        let length = read(self.status_file, &mut self.text)?;
        match length < ROOM {
            true => Ok(Status::of(&self.text[..length])),
            false => Err(Errno::E2BIG),
        }
    }

    fn compare_limits(&mut self) -> std::result::Result<(), Unrewindable> {
        let failed = |errno| Unrewindable::Failed("getrlimit", errno);
        self.changed_limits = 0;
        let before = &self.limits_text[..self.limits_length];
        let length = read(self.limits_file, &mut self.text).unwrap_or(0);
        if length > 0 && self.text[..length] == *before {
            return Ok(());
        }
        for (index, [soft, hard]) in self.limits.iter().enumerate() {
            let [soft_now, hard_now] = limit_of(index).map_err(failed)?;
            if hard_now != *hard {
                return Err(Unrewindable::Limit);
            }
            self.changed_limits |= u32::from(soft_now != *soft) << index;
        }
        Ok(())
    }

    pub(super) fn has_size(&self, size: Size) -> bool {
        self.status_now.size == size
    }

    fn stop_timers(&mut self) -> std::result::Result<(), Unrewindable> {
        let failed = |call| move |errno| Unrewindable::Failed(call, errno);
        for timer in TIMERS {
            let never = [0_u64; 4];
            // SAFETY: the struct outlives the call.
            unsafe { call(libc::SYS_setitimer, [timer as usize, never.as_ptr() as usize]) }
                .map_err(failed("setitimer"))?;
        }
        if read(self.timers_file, &mut self.text) == Ok(0) {
            return Ok(());
        }
        let next = next_timer().map_err(failed("timer_create"))?;
        for timer in self.next_timer + 1..next {
            let _ = delete_timer(timer);
        }
        self.next_timer = next;
        Ok(())
    }

    pub(super) fn put_back(&mut self) -> std::result::Result<(), Unrewindable> {
        let failed = |call| move |errno| Unrewindable::Failed(call, errno);
        if self.status_now.pending & of_requests() != 0 {
            drop_pending();
        }
        let may_differ = |signal: &usize| self.status.may_differ(&self.status_now, *signal);
        for signal in (1..=SIGNALS).filter(may_differ) {
            let before = &self.actions[signal - 1];
            if action(signal).map_err(failed("rt_sigaction"))? != *before {
                let pointer = before.as_ptr() as usize;
                // SAFETY: an action that the kernel returned.
                unsafe { call(libc::SYS_rt_sigaction, [signal, pointer, 0, SET_BYTES]) }
                    .map_err(failed("rt_sigaction"))?;
            }
        }
        let has_no_huge_pages =
            self.tells_huge_pages && self.status.has_no_huge_pages && self.status_now.has_no_huge_pages;
        self.thread.put_back(has_no_huge_pages).map_err(failed("prctl"))?;
        if self.status_now.umask != self.status.umask {
            set_umask(self.status.umask);
        }
        // SAFETY: an open directory.
        unsafe { call(libc::SYS_fchdir, [self.directory as usize]) }.map_err(failed("fchdir"))?;
        for (index, limit) in self.limits.iter().enumerate() {
            if self.changed_limits >> index & 1 == 1 {
                set_limit(index, limit).map_err(failed("setrlimit"))?;
            }
        }
        Ok(())
    }

    pub(super) fn release_signals(&self) {
        let _ = change_mask(Some(self.mask));
    }
}

fn hold_signals() -> std::result::Result<(), Unrewindable> {
    change_mask(Some(u64::MAX))
        .map(|_| ())
        .map_err(|errno| Unrewindable::Failed("rt_sigprocmask", errno))
}

fn sleep(nanos: u64) {
    let time = [0, nanos];
    // SAFETY: the struct outlives the call.
    let _ = unsafe { call(libc::SYS_nanosleep, [time.as_ptr() as usize]) };
}

fn change_mask(mask: Option<u64>) -> std::result::Result<u64, Errno> {
    let new = mask.unwrap_or(0);
    let mut old = 0_u64;
    let pointer = mask.map_or(0, |_| &raw const new as usize);
    let how = libc::SIG_SETMASK as usize;
    // SAFETY: both outlive the call.
    unsafe {
        call(
            libc::SYS_rt_sigprocmask,
            [how, pointer, &raw mut old as usize, SET_BYTES],
        )?
    };
    Ok(old)
}

/// Shows the next number.
fn next_timer() -> std::result::Result<i32, Errno> {
    let mut timer = 0_i32;
    let clock = libc::CLOCK_MONOTONIC as usize;
    // SAFETY: the kernel writes one number; without a `sigevent` it uses a default.
    unsafe { call(libc::SYS_timer_create, [clock, 0, &raw mut timer as usize])? };
    delete_timer(timer)?;
    Ok(timer)
}

fn delete_timer(timer: i32) -> std::result::Result<(), Errno> {
    // SAFETY: a number.
    unsafe { call(libc::SYS_timer_delete, [timer as usize]).map(|_| ()) }
}

fn set_umask(mask: usize) -> usize {
    // SAFETY: a number.
    unsafe { call(libc::SYS_umask, [mask]) }.unwrap_or(mask)
}

fn action(signal: usize) -> std::result::Result<Action, Errno> {
    let mut action = Action::default();
    let pointer = action.as_mut_ptr() as usize;
    // SAFETY: the struct outlives the call.
    unsafe { call(libc::SYS_rt_sigaction, [signal, 0, pointer, SET_BYTES])? };
    Ok(action)
}

/// prlimit(2) would look up the process.
fn limit_of(limit: usize) -> std::result::Result<[u64; 2], Errno> {
    let mut now = [0_u64; 2];
    // SAFETY: the struct outlives the call.
    unsafe { call(libc::SYS_getrlimit, [limit, now.as_mut_ptr() as usize])? };
    Ok(now)
}

fn set_limit(limit: usize, new: &[u64; 2]) -> std::result::Result<(), Errno> {
    // SAFETY: the struct outlives the call.
    unsafe { call(libc::SYS_setrlimit, [limit, new.as_ptr() as usize]).map(|_| ()) }
}

fn has_child() -> std::result::Result<bool, Errno> {
    let options = (libc::WEXITED | libc::WNOHANG | libc::WNOWAIT) as usize;
    // SAFETY: nothing is written.
    match unsafe { call(libc::SYS_waitid, [libc::P_ALL as usize, 0, 0, options]) } {
        Ok(_) => Ok(true),
        Err(Errno::ECHILD) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn of_requests() -> u64 {
    OF_REQUESTS.iter().fold(0, |set, signal| set | 1 << (signal - 1))
}

fn drop_pending() {
    let set = of_requests();
    let at_once = [0_u64; 2];
    let arguments = [&raw const set as usize, 0, at_once.as_ptr() as usize, SET_BYTES];
    for _ in 0..SIGNALS {
        // SAFETY: structs that outlive the call.
        if unsafe { call(libc::SYS_rt_sigtimedwait, arguments) }.is_err() {
            return;
        }
    }
}

fn open(path: &std::ffi::CStr, flags: i32) -> Result<i32> {
    // SAFETY: a C string and flags.
    let fd = unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) };
    match fd < 0 {
        true => Err(Error::last("open", path.to_string_lossy())),
        false => Ok(fd),
    }
}

/// After a change of user, a process must be dumpable to open these.
pub(super) fn open_own(path: &std::ffi::CStr) -> Result<i32> {
    // SAFETY: numbers.
    let before = unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) };
    let set = |value: libc::c_ulong| {
        // SAFETY: numbers.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, value, 0, 0, 0) }
    };
    if before != 1 {
        set(1);
    }
    let file = open(path, libc::O_RDONLY);
    if before != 1 {
        set(0);
    }
    file
}
