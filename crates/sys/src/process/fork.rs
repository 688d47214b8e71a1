//! Forks children and siblings.

use super::exit_now;
use crate::error::{Error, Named, Result};
use crate::{fd, signal};
use nix::errno::Errno;
use nix::sys::wait::waitpid;
use nix::unistd::ForkResult;
use std::os::fd::RawFd;

/// The side of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The caller, with the child's pid.
    Parent(i32),
    /// The new process: all signals blocked, the parent's handlers installed.
    Child,
}

/// Forks with all signals blocked; restores the parent's mask.
///
/// # Safety
/// The process has one thread. The child must reset its signals. It must not use or drop objects that it shares with the
/// parent (epoll descriptors, signal pipes), nor return into code that uses them.
///
/// # Errors
/// fork(2).
pub unsafe fn fork() -> Result<Side> {
    with_signals_blocked(|| {
        // SAFETY: the caller's promise.
        Ok(match unsafe { nix::unistd::fork() }.named("fork", "")? {
            ForkResult::Child => Side::Child,
            ForkResult::Parent { child } => Side::Parent(child.as_raw()),
        })
    })
}

/// Forks with all signals blocked; restores the mask of all but the new process.
fn with_signals_blocked(fork: impl FnOnce() -> Result<Side>) -> Result<Side> {
    let mask = signal::block_all();
    let side = fork();
    if !matches!(side, Ok(Side::Child)) {
        signal::restore(&mask);
    }
    side
}

/// Forks a child that runs `child` with the descriptors in `keep` and default signal handlers, and exits with its
/// result. Returns the pid.
///
/// The caller must have one thread.
///
/// # Errors
/// fork(2).
pub fn fork_child(keep: &[RawFd], child: impl FnOnce() -> i32) -> Result<i32> {
    let mut keep = keep.to_vec();
    keep.sort_unstable();
    // SAFETY: there is one thread; the child leaves by _exit, so no owner of the descriptors is used.
    match unsafe { fork() }? {
        Side::Parent(pid) => Ok(pid),
        Side::Child => {
            signal::reset_in_child();
            // SAFETY: as above.
            unsafe { fd::close_all_but(&keep) };
            exit_now(child())
        }
    }
}

/// Forks a child of this process's parent (clone(2), CLONE_PARENT), or by a double fork a child of the nearest
/// subreaper.
///
/// # Errors
/// clone3(2), or the calls of the double fork.
///
/// # Safety
/// As [`fork`]. No fork handlers run (pthread_atfork(3)).
pub unsafe fn fork_sibling() -> Result<Side> {
    with_signals_blocked(|| {
        // SAFETY: the caller's promise; the arguments request a plain copy, as fork(2) does.
        match unsafe { clone_parent() } {
            Ok(0) => Ok(Side::Child),
            Ok(pid) => Ok(Side::Parent(pid)),
            // SAFETY: the caller's promise.
            Err(Errno::ENOSYS | Errno::EPERM | Errno::EINVAL) => unsafe { older_sibling() },
            Err(errno) => Err(Error::new("clone3", "CLONE_PARENT", errno)),
        }
    })
}

/// Forks a sibling by a double fork(2), so that the libraries' handlers (pthread_atfork(3)) run, as memory allocators
/// with threads need.
///
/// # Safety
/// Like [`fork`], but other threads may exist; locks without a handler stay locked. A subreaper is an ancestor.
///
/// # Errors
/// fork(2), or the calls for a pipe.
pub unsafe fn fork_sibling_with_handlers() -> Result<Side> {
    // SAFETY: the caller's promise.
    with_signals_blocked(|| unsafe { fork_twice() })
}

unsafe fn clone_parent() -> nix::Result<i32> {
    // SAFETY: integers, for which 0 is valid. The exit signal is 0, or the child would inherit the caller's SIGCHLD.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = libc::CLONE_PARENT as u64;
    // SAFETY: without a stack the child continues on a copy of this one, as after fork(2).
    let result = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw mut arguments,
            size_of::<libc::clone_args>(),
        )
    };
    Errno::result(result).map(|pid| pid as i32)
}

/// For kernels without clone3(2) or filters that reject it.
///
/// # Safety
/// As [`fork`].
unsafe fn older_sibling() -> Result<Side> {
    let flags = libc::c_long::from(libc::CLONE_PARENT | libc::SIGCHLD);
    // SAFETY: without a stack the child continues on a copy of this one; no other pointer is passed.
    match Errno::result(unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) }) {
        Ok(0) => Ok(Side::Child),
        Ok(pid) => Ok(Side::Parent(pid as i32)),
        // SAFETY: the caller's promise.
        Err(_) => unsafe { fork_twice() },
    }
}

unsafe fn fork_twice() -> Result<Side> {
    let (reader, writer) = fd::pipe(false)?;
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
            // First, so that the grandchild has its new parent.
            let _ = waitpid(child, None);
            match (count, i32::from_ne_bytes(bytes)) {
                (Ok(4), pid) if pid > 0 => Ok(Side::Parent(pid)),
                _ => Err(Error::new("fork", "second of a double fork", Errno::EAGAIN)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Ended, become_subreaper, reap_pid};
    use nix::sys::wait::WaitStatus;

    /// `act` makes only system calls: threads of the test harness may hold locks.
    fn in_child(act: impl FnOnce() -> i32) -> Ended {
        // SAFETY: the child makes only system calls and leaves by _exit.
        match unsafe { fork() }.unwrap() {
            Side::Child => {
                signal::reset_in_child();
                exit_now(act())
            }
            Side::Parent(pid) => reap_pid(pid).unwrap(),
        }
    }

    fn sibling_ends_at(fork: unsafe fn() -> Result<Side>) -> Ended {
        in_child(|| {
            if become_subreaper().is_err() {
                return 1;
            }
            // SAFETY: the middle process has one thread.
            match unsafe { super::fork() } {
                // The preloader's part.
                // SAFETY: a copy of the middle process also has one thread.
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
        assert_eq!(sibling_ends_at(fork_sibling_with_handlers), Ended::Code(11));
    }

    #[test]
    fn handlers_run_where_it_says_so() {
        use std::sync::atomic::{AtomicI32, Ordering};
        static RUNS: AtomicI32 = AtomicI32::new(0);
        extern "C" fn count() {
            RUNS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the handler may run in any process.
        assert_eq!(unsafe { libc::pthread_atfork(None, None, Some(count)) }, 0);
        let runs_in_sibling = |fork: unsafe fn() -> Result<Side>| {
            in_child(|| {
                RUNS.store(0, Ordering::Relaxed);
                if become_subreaper().is_err() {
                    return 100;
                }
                // SAFETY: the middle process has one thread.
                match unsafe { super::fork() } {
                    // SAFETY: the copy also has one thread.
                    Ok(Side::Child) => match unsafe { fork() } {
                        Ok(Side::Child) => exit_now(10 + RUNS.load(Ordering::Relaxed)),
                        _ => exit_now(0),
                    },
                    Ok(Side::Parent(_)) => loop {
                        match waitpid(None, None) {
                            Ok(WaitStatus::Exited(_, 0)) => {}
                            Ok(WaitStatus::Exited(_, code)) => return code,
                            _ => return 101,
                        }
                    },
                    Err(_) => 102,
                }
            })
        };
        assert_eq!(runs_in_sibling(fork_sibling), Ended::Code(11));
        assert_eq!(runs_in_sibling(fork_sibling_with_handlers), Ended::Code(13));
    }
}
