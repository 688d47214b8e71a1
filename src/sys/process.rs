//! Processes: fork, exec, reap, kill.

use super::error::{Error, Named, Result};
use super::signal;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid};
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Which side of a fork this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The process that called; the child's pid.
    Parent(i32),
    /// The new process, with every signal still blocked and the parent's handlers installed.
    Child,
}

/// Forks with every signal blocked in both; the parent's mask is back when this returns there.
///
/// # Safety
/// The process has one thread. The child must reset its signals, never use or drop what it shares with the parent
/// (epoll descriptors, signal pipes), and must not return into code that does.
pub unsafe fn fork() -> Result<Side> {
    let mask = signal::block_all();
    // SAFETY: the caller's promise.
    let result = unsafe { nix::unistd::fork() };
    match result {
        Ok(ForkResult::Child) => Ok(Side::Child),
        Ok(ForkResult::Parent { child }) => {
            signal::restore(&mask);
            Ok(Side::Parent(child.as_raw()))
        }
        Err(errno) => {
            signal::restore(&mask);
            Err(Error::new("fork", "", errno))
        }
    }
}

/// Forks a process that does one thing and ends with the exit code of that; says its pid. Of the descriptors from 3 up it
/// has those in `keep`, and every signal does what it does by default.
///
/// This process has one thread.
pub fn fork_child(keep: &[RawFd], child: impl FnOnce() -> i32) -> Result<i32> {
    let mut keep = keep.to_vec();
    keep.sort_unstable();
    // SAFETY: there is one thread; the child leaves by _exit, so what owned the descriptors is not used or dropped.
    match unsafe { fork() }? {
        Side::Parent(pid) => Ok(pid),
        Side::Child => {
            signal::reset_in_child();
            // SAFETY: as above.
            unsafe { super::fd::close_all_but(&keep) };
            exit_now(child())
        }
    }
}

/// Forks a sibling: a child of this process' own parent, which reaps it (clone(2), CLONE_PARENT). Falls back to a
/// double fork, which ends at the nearest child subreaper, where the kernel refuses.
///
/// # Safety
/// As [`fork`]. No fork handlers run (pthread_atfork(3)).
pub unsafe fn fork_sibling() -> Result<Side> {
    let mask = signal::block_all();
    // SAFETY: the caller's promise; the arguments ask for a plain copy of the process, as fork(2) does.
    let pid = unsafe { clone_parent() };
    match pid {
        Ok(0) => Ok(Side::Child),
        Ok(pid) => {
            signal::restore(&mask);
            Ok(Side::Parent(pid))
        }
        Err(Errno::ENOSYS | Errno::EPERM | Errno::EINVAL) => {
            // SAFETY: the caller's promise.
            let side = unsafe { older_sibling() };
            if !matches!(side, Ok(Side::Child)) {
                signal::restore(&mask);
            }
            side
        }
        Err(errno) => {
            signal::restore(&mask);
            Err(Error::new("clone3", "CLONE_PARENT", errno))
        }
    }
}

/// # Safety
/// As [`fork`].
unsafe fn clone_parent() -> nix::Result<i32> {
    // exit_signal must be 0: the child inherits the caller's own, SIGCHLD.
    let mut arguments: libc::clone_args = libc::clone_args {
        flags: libc::CLONE_PARENT as u64,
        pidfd: 0,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: 0,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: 0,
    };
    // SAFETY: no stack is given, so the child goes on with a copy of this one, as after fork(2).
    let result = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw mut arguments,
            size_of::<libc::clone_args>(),
        )
    };
    Errno::result(result).map(|pid| pid as i32)
}

/// The same by clone(2), which is there where clone3(2) is too new or filtered, else by a double fork.
///
/// # Safety
/// As [`fork`].
unsafe fn older_sibling() -> Result<Side> {
    let flags = libc::c_long::from(libc::CLONE_PARENT | libc::SIGCHLD);
    // SAFETY: without a stack the child goes on with a copy of this one; no other pointer is given.
    match Errno::result(unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) }) {
        Ok(0) => Ok(Side::Child),
        Ok(pid) => Ok(Side::Parent(pid as i32)),
        // SAFETY: the caller's promise.
        Err(_) => unsafe { fork_twice() },
    }
}

/// # Safety
/// As [`fork`].
unsafe fn fork_twice() -> Result<Side> {
    let (reader, writer) = super::fd::pipe(false)?;
    // SAFETY: the caller's promise.
    match unsafe { nix::unistd::fork() }.named("fork", "")? {
        ForkResult::Child => {
            drop(reader);
            // SAFETY: the caller's promise.
            match unsafe { nix::unistd::fork() } {
                Ok(ForkResult::Child) => {
                    drop(writer);
                    Ok(Side::Child)
                }
                outcome => {
                    let pid = match outcome {
                        Ok(ForkResult::Parent { child }) => child.as_raw(),
                        _ => 0,
                    };
                    let _ = nix::unistd::write(&writer, &pid.to_ne_bytes());
                    exit_now(0)
                }
            }
        }
        ForkResult::Parent { child } => {
            drop(writer);
            let mut bytes = [0; 4];
            let count = nix::unistd::read(&reader, &mut bytes);
            // Waited for before the answer, so that the grandchild has its new parent by then.
            let _ = waitpid(child, None);
            match (count, i32::from_ne_bytes(bytes)) {
                (Ok(4), pid) if pid > 0 => Ok(Side::Parent(pid)),
                _ => Err(Error::new("fork", "second of a double fork", Errno::EAGAIN)),
            }
        }
    }
}

/// Leaves the process at once: no destructors, no buffers flushed, no exit handlers.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

/// Makes this process inherit orphaned descendants (prctl(2), PR_SET_CHILD_SUBREAPER).
pub fn become_subreaper() -> Result<()> {
    nix::sys::prctl::set_child_subreaper(true).named("prctl", "PR_SET_CHILD_SUBREAPER")
}

/// Lets this process be killed when its parent ends (prctl(2), PR_SET_PDEATHSIG).
pub fn kill_if_orphaned() {
    // Fails only for a signal that does not exist.
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
}

/// Reaps a child that is about to end. One that does not end within `limit` is left as it is.
pub fn reap_soon(pid: i32, limit: std::time::Duration) {
    let end = super::clock::now() + limit;
    while let Ok(WaitStatus::StillAlive) = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG)) {
        if super::clock::now() >= end {
            return;
        }
        let _ = nix::poll::poll(&mut [], 1_u8);
    }
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With an exit code.
    Code(i32),
    /// By a signal; `true`: with a core dump.
    Signal(i32, bool),
}

/// Reaps one child that has ended, if there is one.
pub fn reap() -> Option<(i32, Ended)> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => return Some((pid.as_raw(), Ended::Code(code))),
            Ok(WaitStatus::Signaled(pid, signal, core)) => {
                return Some((pid.as_raw(), Ended::Signal(signal as i32, core)));
            }
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return None,
            // Stops and continues are not asked for; real-time signals have no name in nix.
            Ok(_) | Err(_) => {}
        }
    }
}

/// Sends a signal to a process; one that is gone already is no error.
pub fn send_signal(pid: i32, signal: Signal) -> Result<()> {
    match kill(Pid::from_raw(pid), signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(Error::new("kill", pid.to_string(), errno)),
    }
}

/// The most memory that this process has had, in bytes (getrusage(2)).
pub fn peak_memory_bytes() -> u64 {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF);
    // The kernel counts in units of 1024 bytes.
    usage.map_or(0, |usage| u64::try_from(usage.max_rss()).unwrap_or(0) * 1024)
}

/// Memory that this process uses now, what it shares divided by those who share it (PSS); bytes. `None` where the kernel does
/// not tell.
pub fn proportional_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Whether a process with this pid exists (kill(2) with signal 0).
pub fn exists(pid: i32) -> bool {
    !matches!(kill(Pid::from_raw(pid), None), Err(Errno::ESRCH))
}

/// A program to be started: everything is made ready before the fork.
#[derive(Debug)]
pub struct Program {
    /// Absolute path of the executable.
    pub path: CString,
    /// Its arguments, name first.
    pub arguments: Vec<CString>,
    /// Its environment, `NAME=value`.
    pub environment: Vec<CString>,
    /// What it gets as which descriptor: (ours, its number). Standard streams not named are /dev/null.
    pub descriptors: Vec<(OwnedFd, RawFd)>,
    /// Soft and hard limit on descriptors to go back to.
    pub descriptor_limit: Option<(u64, u64)>,
}

/// Starts a program and says its pid. Returns once exec(2) has succeeded or failed.
///
/// # Errors
/// The step that failed in the child: `dup2`, `execve`.
pub fn start(program: &Program) -> Result<i32> {
    let name = program.path.to_string_lossy().into_owned();
    let (reader, pipe_end) = super::fd::pipe(false)?;
    let null = super::fd::null()?;
    // Ours must lie above every target number, or one dup2 would close another's source.
    let lowest = program
        .descriptors
        .iter()
        .map(|(_, to)| *to)
        .max()
        .unwrap_or(2)
        .max(2)
        + 1;
    let high = |fd: &OwnedFd| -> Result<OwnedFd> {
        let fd = nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(lowest)).named("dup", &name)?;
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(unsafe { super::fd::adopt(fd) })
    };
    let (writer, null) = (high(&pipe_end)?, high(&null)?);
    // No end of file is read while we hold a copy ourselves.
    drop(pipe_end);
    let mut plan: Vec<(OwnedFd, RawFd)> = Vec::new();
    for (fd, to) in &program.descriptors {
        plan.push((high(fd)?, *to));
    }
    let argv = pointers(&program.arguments);
    let envp = pointers(&program.environment);
    // SAFETY: the caller's process has one thread; the child only makes system calls until exec or _exit.
    match unsafe { fork() }? {
        Side::Child => {
            signal::reset_in_child();
            let failed = run_child(program, &plan, &null, &argv, &envp);
            let _ = nix::unistd::write(&writer, &failed);
            exit_now(127)
        }
        Side::Parent(pid) => {
            drop(writer);
            let mut report = [0; 8];
            match nix::unistd::read(&reader, &mut report) {
                Ok(8) => {
                    let _ = waitpid(Pid::from_raw(pid), None);
                    let number = i32::from_ne_bytes([report[4], report[5], report[6], report[7]]);
                    let call = if report[0] == 0 { "dup2" } else { "execve" };
                    Err(Error::new(call, name, Errno::from_raw(number)))
                }
                _ => Ok(pid),
            }
        }
    }
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings
        .iter()
        .map(|s| s.as_ptr())
        .chain(std::iter::once(std::ptr::null()))
        .collect()
}

/// In the child: places descriptors and execs; only returns what failed: step (dup2 or execve) and error number.
fn run_child(
    program: &Program,
    plan: &[(OwnedFd, RawFd)],
    null: &OwnedFd,
    argv: &[*const libc::c_char],
    envp: &[*const libc::c_char],
) -> [u8; 8] {
    let report = |step: u8| {
        let number = (Errno::last_raw()).to_ne_bytes();
        [step, 0, 0, 0, number[0], number[1], number[2], number[3]]
    };
    // SAFETY: system calls on descriptors that were prepared before the fork, and pointers into strings that live in
    // the parent's copied memory; nothing allocates.
    unsafe {
        // What the master was started with is nobody else's. What is placed below survives.
        super::fd::close_all_on_exec();
        for target in 0..3 {
            if libc::dup2(null.as_raw_fd(), target) < 0 {
                return report(0);
            }
        }
        for (fd, target) in plan {
            if libc::dup2(fd.as_raw_fd(), *target) < 0 {
                return report(0);
            }
        }
        if let Some((soft, hard)) = program.descriptor_limit {
            let limit = libc::rlimit {
                rlim_cur: soft,
                rlim_max: hard,
            };
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
        libc::execve(program.path.as_ptr(), argv.as_ptr(), envp.as_ptr());
    }
    report(1)
}

/// Waits for one child to end.
pub fn reap_pid(pid: i32) -> Result<Ended> {
    loop {
        match waitpid(Pid::from_raw(pid), None) {
            Ok(WaitStatus::Exited(_, code)) => return Ok(Ended::Code(code)),
            Ok(WaitStatus::Signaled(_, signal, core)) => return Ok(Ended::Signal(signal as i32, core)),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::new("waitpid", pid.to_string(), errno)),
        }
    }
}

/// What a process has used, with those of its children that it has waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Processor time of program and kernel.
    pub cpu_micros: u64,
    /// The most memory that it has had.
    pub peak_memory_bytes: u64,
}

/// As [`reap_pid`], with what the child has used (wait4(2)).
pub fn reap_used(pid: i32) -> Result<(Ended, Usage)> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: the kernel writes to two values that live for the call.
        let result = unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) };
        match Errno::result(result) {
            Ok(_) if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) => break,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::new("wait4", pid.to_string(), errno)),
        }
    }
    // SAFETY: all zeros was a valid value already.
    let usage = unsafe { usage.assume_init() };
    let number = |number: libc::c_long| u64::try_from(number).unwrap_or(0);
    let micros = |time: libc::timeval| number(time.tv_sec) * 1_000_000 + number(time.tv_usec);
    let ended = if libc::WIFEXITED(status) {
        Ended::Code(libc::WEXITSTATUS(status))
    } else {
        Ended::Signal(libc::WTERMSIG(status), libc::WCOREDUMP(status))
    };
    let used = Usage {
        cpu_micros: micros(usage.ru_utime) + micros(usage.ru_stime),
        // The kernel counts in units of 1024 bytes.
        peak_memory_bytes: number(usage.ru_maxrss) * 1024,
    };
    Ok((ended, used))
}

/// As [`reap_used`] if the child ends within `limit`.
pub fn reap_within(pid: i32, limit: std::time::Duration) -> Option<(Ended, Usage)> {
    let process = super::pidfd::open(pid).ok()?;
    let readable = super::socket::Readiness::Readable;
    let has_ended = super::socket::wait(std::os::fd::AsFd::as_fd(&process), readable, limit).ok()?;
    has_ended.then(|| reap_used(pid).ok()).flatten()
}

/// Replaces the environment of this process. For a child with one thread, before anything keeps pointers into the old
/// one.
pub fn replace_environment(environment: Vec<(std::ffi::OsString, std::ffi::OsString)>) {
    for (name, _) in std::env::vars_os().collect::<Vec<_>>() {
        // SAFETY: the process has one thread.
        unsafe { std::env::remove_var(name) };
    }
    for (name, value) in environment {
        // SAFETY: the process has one thread.
        unsafe { std::env::set_var(name, value) };
    }
}

/// Takes variables out of the environment that were meant for this process and not for what it starts.
///
/// The process has one thread.
pub fn forget_variables(names: &[&str]) {
    for name in names {
        // SAFETY: the process has one thread.
        unsafe { std::env::remove_var(name) };
    }
}

/// Takes variables out of the environment and sets others.
///
/// The process has one thread.
pub fn change_environment(unset: &[String], set: &[(std::ffi::OsString, std::ffi::OsString)]) {
    for name in unset {
        // SAFETY: the process has one thread.
        unsafe { std::env::remove_var(name) };
    }
    for (name, value) in set {
        // SAFETY: the process has one thread.
        unsafe { std::env::set_var(name, value) };
    }
}

/// Whether `pid` is a child of this process that has not been reaped (waitid(2) without reaping).
pub fn is_child(pid: i32) -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    pid > 0 && nix::sys::wait::waitid(nix::sys::wait::Id::Pid(Pid::from_raw(pid)), flags).is_ok()
}

/// When a process started, in clock ticks since boot; `None`: there is no such process. With its number it names a process
/// for as long as the machine runs.
pub fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // proc(5): field 22; the part after the command, which is in parentheses, begins with field 3.
    stat.rsplit(')').next()?.split_whitespace().nth(19)?.parse().ok()
}

/// The parent of a process; `None`: there is no such process.
pub fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // proc(5): field 4.
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

/// Replaces the program of this process (execve(2)). Every signal is blocked from here on, and stays so in the new
/// program until it unblocks them: none gets lost, or meets a program without handlers. Returns only on failure, with
/// signals as they were.
pub fn replace(path: &std::path::Path, arguments: &[CString], environment: &[CString]) -> Error {
    let subject = path.display().to_string();
    let Ok(path) = CString::new(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())) else {
        return Error::new("execve", subject, Errno::EINVAL);
    };
    let mask = signal::block_all();
    let Err(errno) = nix::unistd::execve(&path, arguments, environment);
    signal::restore(&mask);
    Error::new("execve", subject, errno)
}

/// What [`daemonize`] returns in the process that goes on.
#[derive(Debug)]
pub struct Launcher {
    pipe: OwnedFd,
}

/// The real user of a process (proc(5), `status`); `None`: it is gone.
pub fn real_user(pid: i32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Goes to the background: the caller goes on in a child with a session of its own; the process that was started waits
/// until [`Launcher::report`] and exits with the code given there, or with `otherwise` after ten seconds or if the
/// child ends without a word.
pub fn daemonize(otherwise: i32) -> Result<Launcher> {
    let (reader, writer) = super::fd::pipe(false)?;
    // SAFETY: called at start, with one thread.
    match unsafe { fork() }? {
        Side::Child => {
            signal::restore(&nix::sys::signal::SigSet::empty());
            drop(reader);
            nix::unistd::setsid().named("setsid", "")?;
            Ok(Launcher { pipe: writer })
        }
        Side::Parent(_) => {
            drop(writer);
            let mut code = [0; 1];
            let limit = std::time::Duration::from_secs(10);
            let told = super::socket::wait(
                std::os::fd::AsFd::as_fd(&reader),
                super::socket::Readiness::Readable,
                limit,
            );
            match (told, nix::unistd::read(&reader, &mut code)) {
                (Ok(true), Ok(1)) => exit_now(i32::from(code[0])),
                _ => exit_now(otherwise),
            }
        }
    }
}

impl Launcher {
    /// Lets the process that was started exit with this code.
    pub fn report(self, code: u8) {
        let _ = nix::unistd::write(&self.pipe, &[code]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a forked child does before it exits with a code. It makes system calls and nothing else: the harness has
    /// threads, whose locks may be held in the copy.
    fn in_child(act: impl FnOnce() -> i32) -> Ended {
        // SAFETY: as the comment above says; the child leaves by _exit.
        match unsafe { fork() }.unwrap() {
            Side::Child => {
                signal::reset_in_child();
                exit_now(act())
            }
            Side::Parent(pid) => reap_pid(pid).unwrap(),
        }
    }

    /// Makes a sibling of a child by `fork`, and says with which code it ended, to whom it was due.
    fn sibling_ends_at(fork: unsafe fn() -> Result<Side>) -> Ended {
        in_child(|| {
            if become_subreaper().is_err() {
                return 1;
            }
            // SAFETY: the middle process has one thread.
            match unsafe { super::fork() } {
                // The preloader's part: makes a sibling and leaves.
                // SAFETY: a copy of the middle process has one thread, too.
                Ok(Side::Child) => match unsafe { fork() } {
                    Ok(Side::Child) => exit_now(7),
                    Ok(Side::Parent(_)) => exit_now(0),
                    Err(_) => exit_now(2),
                },
                Ok(Side::Parent(preloader)) => {
                    let mut codes = 0;
                    for _ in 0..2 {
                        match waitpid(None, None) {
                            Ok(WaitStatus::Exited(pid, 0)) if pid.as_raw() == preloader => codes += 1,
                            Ok(WaitStatus::Exited(pid, 7)) if pid.as_raw() != preloader => codes += 10,
                            _ => return 3,
                        }
                    }
                    codes
                }
                Err(_) => 4,
            }
        })
    }

    #[test]
    fn a_sibling_is_its_grandparents_to_reap() {
        assert_eq!(sibling_ends_at(fork_sibling), Ended::Code(11));
    }

    #[test]
    fn so_is_one_by_clone() {
        assert_eq!(sibling_ends_at(older_sibling), Ended::Code(11));
    }

    #[test]
    fn so_is_one_by_double_fork() {
        assert_eq!(sibling_ends_at(fork_twice), Ended::Code(11));
    }

    #[test]
    fn what_a_child_has_used_is_told() {
        // SAFETY: the child makes no system call but the last.
        let busy = || match unsafe { fork() }.unwrap() {
            Side::Child => {
                let mut sum = 0_u64;
                for number in 0..20_000_000_u64 {
                    sum = std::hint::black_box(sum ^ number);
                }
                exit_now(if sum == 1 { 1 } else { 9 })
            }
            Side::Parent(pid) => pid,
        };
        let (ended, usage) = reap_used(busy()).unwrap();
        assert_eq!(ended, Ended::Code(9));
        assert!(
            usage.cpu_micros > 1_000 && usage.peak_memory_bytes > 100_000,
            "{usage:?}"
        );
        let pid = busy();
        assert_eq!(reap_within(pid, std::time::Duration::ZERO), None);
        let late = reap_within(pid, std::time::Duration::from_secs(60));
        assert_eq!(late.map(|(ended, _)| ended), Some(Ended::Code(9)));
        assert!(reap_used(pid).is_err());
    }

    #[test]
    fn an_error_of_exec_is_told() {
        let program = Program {
            path: c"/nonexistent/program".into(),
            arguments: vec![c"program".into()],
            environment: Vec::new(),
            descriptors: Vec::new(),
            descriptor_limit: None,
        };
        let error = start(&program).unwrap_err();
        assert_eq!((error.call, error.errno), ("execve", Errno::ENOENT));
    }
}
