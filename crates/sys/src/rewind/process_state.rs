//! What the kernel keeps for a process besides memory and descriptors.

use super::Unrewindable;
use super::kernel::call;
use crate::error::{Error, Result};
use nix::errno::Errno;

const SIGNALS: usize = 64;
const LIMITS: usize = 16;
const MOST_GROUPS: usize = 32;
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

/// Who the process is. Nothing of it can be taken back by a process without rights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Identity {
    users: [u32; 3],
    groups: [u32; 3],
    others: [u32; MOST_GROUPS],
    other_count: usize,
    session: usize,
    process_group: usize,
}

/// As it was. Zeroes are a value.
#[derive(Debug)]
pub(super) struct ProcessState {
    mask: u64,
    umask: usize,
    actions: [Action; SIGNALS],
    limits: [[u64; 2]; LIMITS],
    /// Which soft limits have changed, by [`ProcessState::check`].
    changed_limits: u32,
    identity: Identity,
    priority: usize,
    /// The number that the next timer of timer_create(2) had: the kernel counts them.
    next_timer: i32,
    /// The working directory.
    directory: i32,
    /// `/proc/self/task`.
    threads: i32,
}

impl ProcessState {
    /// Opens what is needed.
    pub(super) fn open(&mut self) -> Result<()> {
        self.directory = open(c".", libc::O_PATH | libc::O_DIRECTORY)?;
        self.threads = open(c"/proc/self/task", libc::O_PATH | libc::O_DIRECTORY)?;
        Ok(())
    }

    /// Those that it has opened.
    pub(super) fn descriptors(&mut self) -> impl Iterator<Item = &mut i32> {
        [&mut self.directory, &mut self.threads].into_iter()
    }

    /// Notes the state as it is now.
    pub(super) fn note(&mut self) -> Result<()> {
        let failed = |errno| Error::new("note the state of the process", "", errno);
        self.mask = change_mask(None).map_err(failed)?;
        self.umask = set_umask(0);
        set_umask(self.umask);
        for signal in 1..=SIGNALS {
            self.actions[signal - 1] = action(signal).map_err(failed)?;
        }
        for limit in 0..LIMITS {
            self.limits[limit] = limit_of(limit).map_err(failed)?;
        }
        self.identity = identity().map_err(failed)?;
        self.priority = priority().map_err(failed)?;
        self.next_timer = next_timer().map_err(failed)?;
        Ok(())
    }

    /// Whether all of it can be put back.
    pub(super) fn check(&mut self) -> std::result::Result<(), Unrewindable> {
        let failed = |call| move |errno| Unrewindable::Failed(call, errno);
        if !has_one_thread(self.threads).map_err(failed("fstat"))? {
            return Err(Unrewindable::Thread);
        }
        if has_child().map_err(failed("waitid"))? {
            return Err(Unrewindable::Child);
        }
        if identity().map_err(failed("getresuid"))? != self.identity {
            return Err(Unrewindable::Identity);
        }
        if priority().map_err(failed("getpriority"))? != self.priority {
            return Err(Unrewindable::Priority);
        }
        self.changed_limits = 0;
        for (index, [soft, hard]) in self.limits.iter().enumerate() {
            let [soft_now, hard_now] = limit_of(index).map_err(failed("getrlimit"))?;
            if hard_now != *hard {
                return Err(Unrewindable::Limit);
            }
            self.changed_limits |= u32::from(soft_now != *soft) << index;
        }
        Ok(())
    }

    /// Holds all signals until [`ProcessState::release_signals`].
    pub(super) fn hold_signals() -> std::result::Result<(), Unrewindable> {
        change_mask(Some(u64::MAX))
            .map(|_| ())
            .map_err(|errno| Unrewindable::Failed("rt_sigprocmask", errno))
    }

    /// Puts it back. Signals are held.
    pub(super) fn put_back(&mut self) -> std::result::Result<(), Unrewindable> {
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
        let next = next_timer().map_err(failed("timer_create"))?;
        for timer in self.next_timer + 1..next {
            // The request may have deleted it.
            let _ = delete_timer(timer);
        }
        self.next_timer = next;
        drop_pending();
        for signal in 1..=SIGNALS {
            let before = &self.actions[signal - 1];
            if action(signal).map_err(failed("rt_sigaction"))? != *before {
                let pointer = before.as_ptr() as usize;
                // SAFETY: a disposition that the kernel has given.
                unsafe { call(libc::SYS_rt_sigaction, [signal, pointer, 0, SET_BYTES, 0, 0]) }
                    .map_err(failed("rt_sigaction"))?;
            }
        }
        set_umask(self.umask);
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

fn identity() -> std::result::Result<Identity, Errno> {
    let mut identity = Identity::default();
    let three = |ids: &mut [u32; 3]| {
        let [a, b, c] = ids;
        [a, b, c].map(|id| std::ptr::from_mut(id) as usize)
    };
    let [a, b, c] = three(&mut identity.users);
    // SAFETY: three places for numbers.
    unsafe { call(libc::SYS_getresuid, [a, b, c, 0, 0, 0])? };
    let [a, b, c] = three(&mut identity.groups);
    // SAFETY: the same; and a list with so much room.
    unsafe {
        call(libc::SYS_getresgid, [a, b, c, 0, 0, 0])?;
        let list = identity.others.as_mut_ptr() as usize;
        identity.other_count = match call(libc::SYS_getgroups, [MOST_GROUPS, list, 0, 0, 0, 0]) {
            // More than there is room for are taken for the same.
            Err(Errno::EINVAL) => MOST_GROUPS + 1,
            other => other?,
        };
        identity.session = call(libc::SYS_getsid, [0; 6])?;
        identity.process_group = call(libc::SYS_getpgid, [0; 6])?;
    }
    Ok(identity)
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

/// By the links of the directory: two, and one for each thread.
fn has_one_thread(directory: i32) -> std::result::Result<bool, Errno> {
    // SAFETY: zeroes are a `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    let pointer = &raw mut stat as usize;
    // SAFETY: there is room for the structure.
    unsafe { call(libc::SYS_fstat, [directory as usize, pointer, 0, 0, 0, 0])? };
    Ok(stat.st_nlink == 3)
}

/// Takes away the signals that a request has left.
fn drop_pending() {
    let set = OF_REQUESTS
        .iter()
        .fold(0_u64, |set, signal| set | 1 << (signal - 1));
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
