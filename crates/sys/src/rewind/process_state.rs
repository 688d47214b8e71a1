//! What the kernel keeps for a process besides memory and descriptors.

use super::Unrewindable;
use super::book::Size;
use super::kernel::call;
use super::status::Status;
use super::thread_state::ThreadState;
use crate::error::{Error, Result};
use nix::errno::Errno;

const SIGNALS: usize = 64;
const LIMITS: usize = 16;
/// Bytes of the kernel's set of signals.
const SET_BYTES: usize = 8;
/// `struct sigaction` of the kernel, which is nowhere larger.
type Action = [u64; 4];
/// The interval timers.
const TIMERS: [i32; 3] = [libc::ITIMER_REAL, libc::ITIMER_VIRTUAL, libc::ITIMER_PROF];
/// Signals that a request may have left pending: of its timers, its children and its connections.
const OF_REQUESTS: [i32; 5] = [
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGCHLD,
    libc::SIGPIPE,
];

/// How long a thread that has been joined may take to leave the kernel's list, in waits that double: 51 ms.
const WAITS: u32 = 10;
const FIRST_WAIT_NANOS: u64 = 50_000;
/// Room for a file of /proc. A list of some thousand groups does not fit.
const ROOM: usize = 16 << 10;
/// Room for /proc/self/limits.
const LIMITS_ROOM: usize = 4096;

/// As it was. Zeroes are a value.
#[derive(Debug)]
pub(super) struct ProcessState {
    mask: u64,
    status: Status,
    /// By [`ProcessState::check`].
    status_now: Status,
    actions: [Action; SIGNALS],
    limits: [[u64; 2]; LIMITS],
    /// The text of /proc/self/limits, and its length.
    limits_text: [u8; LIMITS_ROOM],
    limits_length: usize,
    /// Which soft limits have changed, by [`ProcessState::check`].
    changed_limits: u32,
    priority: usize,
    thread: ThreadState,
    /// The number that the next timer of timer_create(2) had: the kernel counts them.
    next_timer: i32,
    /// The working directory.
    directory: i32,
    /// Files of /proc/self; -1: the kernel has none.
    status_file: i32,
    limits_file: i32,
    timers_file: i32,
    /// What was read last.
    text: [u8; ROOM],
}

/// Reads the beginning of a file into the room; says how much.
fn read(fd: i32, room: &mut [u8]) -> std::result::Result<usize, Errno> {
    let arguments = [fd as usize, room.as_mut_ptr() as usize, room.len(), 0, 0, 0];
    // SAFETY: there is so much room.
    unsafe { call(libc::SYS_pread64, arguments) }
}

impl ProcessState {
    /// Opens the files that it reads.
    pub(super) fn open(&mut self) -> Result<()> {
        self.directory = open(c".", libc::O_PATH | libc::O_DIRECTORY)?;
        self.status_file = open_own(c"/proc/self/status")?;
        self.limits_file = open_own(c"/proc/self/limits").unwrap_or(-1);
        self.timers_file = open_own(c"/proc/self/timers").unwrap_or(-1);
        Ok(())
    }

    /// The files that it has open.
    pub(super) fn descriptors(&mut self) -> impl Iterator<Item = &mut i32> {
        [
            &mut self.directory,
            &mut self.status_file,
            &mut self.limits_file,
            &mut self.timers_file,
        ]
        .into_iter()
    }

    /// Notes the state as it is now.
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
        self.priority = priority().map_err(failed)?;
        self.thread = ThreadState::now().map_err(failed)?;
        self.next_timer = next_timer().map_err(failed)?;
        Ok(())
    }

    /// Stops timers, and finds whether the rest can be put back. If so, all signals are held until
    /// [`ProcessState::release_signals`].
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
        // After the timers were stopped: what they have sent is pending now.
        self.status_now = self.status_of_one_thread()?;
        if has_child().map_err(failed("waitid"))? {
            return Err(Unrewindable::Child);
        }
        if self.status_now.identity != self.status.identity {
            return Err(Unrewindable::Identity);
        }
        let is_planned_alike = priority().map_err(failed("getpriority"))? == self.priority
            && self.status_now.processors == self.status.processors
            && self
                .thread
                .has_same_policy()
                .map_err(failed("sched_getscheduler"))?;
        if !is_planned_alike {
            return Err(Unrewindable::Priority);
        }
        self.compare_limits()
    }

    /// A thread that has been joined is listed for a moment longer.
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

    /// Whether the process has this size, by [`ProcessState::check`].
    pub(super) fn has_size(&self, size: Size) -> bool {
        self.status_now.size == size
    }

    fn stop_timers(&mut self) -> std::result::Result<(), Unrewindable> {
        let failed = |call| move |errno| Unrewindable::Failed(call, errno);
        for timer in TIMERS {
            let never = [0_u64; 4];
            // SAFETY: a structure that lives until the call is done.
            unsafe {
                call(
                    libc::SYS_setitimer,
                    [timer as usize, never.as_ptr() as usize, 0, 0, 0, 0],
                )
            }
            .map_err(failed("setitimer"))?;
        }
        if read(self.timers_file, &mut self.text) == Ok(0) {
            return Ok(());
        }
        let next = next_timer().map_err(failed("timer_create"))?;
        for timer in self.next_timer + 1..next {
            // The request may have deleted it.
            let _ = delete_timer(timer);
        }
        self.next_timer = next;
        Ok(())
    }

    /// Puts it back, after [`ProcessState::check`].
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
                // SAFETY: a disposition that the kernel has given.
                unsafe { call(libc::SYS_rt_sigaction, [signal, pointer, 0, SET_BYTES, 0, 0]) }
                    .map_err(failed("rt_sigaction"))?;
            }
        }
        self.thread.put_back().map_err(failed("prctl"))?;
        if self.status_now.umask != self.status.umask {
            set_umask(self.status.umask);
        }
        // SAFETY: a descriptor of a directory.
        unsafe { call(libc::SYS_fchdir, [self.directory as usize, 0, 0, 0, 0, 0]) }
            .map_err(failed("fchdir"))?;
        for (index, limit) in self.limits.iter().enumerate() {
            if self.changed_limits >> index & 1 == 1 {
                set_limit(index, limit).map_err(failed("setrlimit"))?;
            }
        }
        Ok(())
    }

    /// Lets signals come as before.
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
    // SAFETY: a structure that lives until the call is done.
    let _ = unsafe { call(libc::SYS_nanosleep, [time.as_ptr() as usize, 0, 0, 0, 0, 0]) };
}

/// Sets the mask of signals; says what it was.
fn change_mask(mask: Option<u64>) -> std::result::Result<u64, Errno> {
    let new = mask.unwrap_or(0);
    let mut old = 0_u64;
    let pointer = mask.map_or(0, |_| &raw const new as usize);
    let how = libc::SIG_SETMASK as usize;
    // SAFETY: both live until the call is done.
    unsafe {
        call(
            libc::SYS_rt_sigprocmask,
            [how, pointer, &raw mut old as usize, SET_BYTES, 0, 0],
        )?
    };
    Ok(old)
}

/// Makes a timer, to see its number.
fn next_timer() -> std::result::Result<i32, Errno> {
    let mut timer = 0_i32;
    let clock = libc::CLOCK_MONOTONIC as usize;
    // SAFETY: there is room for a number; without a `sigevent` the kernel has a default.
    unsafe {
        call(
            libc::SYS_timer_create,
            [clock, 0, &raw mut timer as usize, 0, 0, 0],
        )?
    };
    delete_timer(timer)?;
    Ok(timer)
}

fn delete_timer(timer: i32) -> std::result::Result<(), Errno> {
    // SAFETY: a number.
    unsafe { call(libc::SYS_timer_delete, [timer as usize, 0, 0, 0, 0, 0]).map(|_| ()) }
}

fn set_umask(mask: usize) -> usize {
    // SAFETY: a number.
    unsafe { call(libc::SYS_umask, [mask, 0, 0, 0, 0, 0]) }.unwrap_or(mask)
}

fn action(signal: usize) -> std::result::Result<Action, Errno> {
    let mut action = Action::default();
    let pointer = action.as_mut_ptr() as usize;
    // SAFETY: there is room for the structure.
    unsafe { call(libc::SYS_rt_sigaction, [signal, 0, pointer, SET_BYTES, 0, 0])? };
    Ok(action)
}

/// prlimit(2) would do the same, and look up first who asks whom.
fn limit_of(limit: usize) -> std::result::Result<[u64; 2], Errno> {
    let mut now = [0_u64; 2];
    // SAFETY: there is room for the structure.
    unsafe {
        call(
            libc::SYS_getrlimit,
            [limit, now.as_mut_ptr() as usize, 0, 0, 0, 0],
        )?
    };
    Ok(now)
}

fn set_limit(limit: usize, new: &[u64; 2]) -> std::result::Result<(), Errno> {
    // SAFETY: a structure that lives until the call is done.
    unsafe { call(libc::SYS_setrlimit, [limit, new.as_ptr() as usize, 0, 0, 0, 0]).map(|_| ()) }
}

fn priority() -> std::result::Result<usize, Errno> {
    // SAFETY: numbers.
    unsafe {
        call(
            libc::SYS_getpriority,
            [libc::PRIO_PROCESS as usize, 0, 0, 0, 0, 0],
        )
    }
}

fn has_child() -> std::result::Result<bool, Errno> {
    let options = (libc::WEXITED | libc::WNOHANG | libc::WNOWAIT) as usize;
    // SAFETY: nothing is written.
    match unsafe { call(libc::SYS_waitid, [libc::P_ALL as usize, 0, 0, options, 0, 0]) } {
        Ok(_) => Ok(true),
        Err(Errno::ECHILD) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// [`OF_REQUESTS`] as a set.
fn of_requests() -> u64 {
    OF_REQUESTS.iter().fold(0, |set, signal| set | 1 << (signal - 1))
}

/// Takes away the signals that a request has left.
fn drop_pending() {
    let set = of_requests();
    let at_once = [0_u64; 2];
    let arguments = [
        &raw const set as usize,
        0,
        at_once.as_ptr() as usize,
        SET_BYTES,
        0,
        0,
    ];
    for _ in 0..SIGNALS {
        // SAFETY: structures that live until the call is done.
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

/// Opens a file of this process in /proc. A process that has changed its user may not, unless others of its user may look into it,
/// too: that is so for the moment of the call.
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
