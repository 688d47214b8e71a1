//! System calls of helpers: router, inspector of directories and reporter may make these and no others. They read what
//! strangers send; an attacker who takes one over can't start programs, make files or reach what the process was not given.
//!
//! Others fail with ENOSYS: a C library that is newer than this list tries a new call first and then takes the older
//! one, as on an older kernel. If the kernel ended a router, the requests of all applications would be lost with it.

use super::ConfineError;
use super::calls;
use nix::libc;
use seccompiler::{SeccompAction, SeccompFilter, TargetArch};

/// The helper that is kept to its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Helper {
    /// Passes on connections that it is given or accepts.
    Router,
    /// Reads directories and the database of users, in processes that it forks.
    Inspector,
    /// Answers from memory that it was given, and writes its access log.
    Reporter,
}

/// What every helper needs: memory, time, its descriptors, the sockets that it has, and an end.
#[rustfmt::skip]
const ALL: &[i64] = &[
    // Memory.
    libc::SYS_brk, libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_mprotect, libc::SYS_madvise,
    libc::SYS_futex, libc::SYS_set_robust_list, libc::SYS_rseq, libc::SYS_membarrier, libc::SYS_getrandom,
    // Time; vDSO calls come here where the clock source has none.
    libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_clock_nanosleep, libc::SYS_nanosleep,
    libc::SYS_gettimeofday, libc::SYS_times, libc::SYS_sched_yield, libc::SYS_restart_syscall,
    // Descriptors.
    libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev, libc::SYS_pread64, libc::SYS_close,
    libc::SYS_close_range, libc::SYS_fcntl, libc::SYS_dup, libc::SYS_dup3, libc::SYS_fstat, libc::SYS_newfstatat,
    libc::SYS_statx, libc::SYS_lseek, libc::SYS_ioctl, libc::SYS_pipe2,
    // Waiting.
    libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2, libc::SYS_ppoll,
    libc::SYS_pselect6, libc::SYS_eventfd2,
    // Sockets that are there.
    libc::SYS_accept4, libc::SYS_recvmsg, libc::SYS_recvfrom, libc::SYS_sendmsg, libc::SYS_sendto, libc::SYS_shutdown,
    libc::SYS_getsockopt, libc::SYS_setsockopt, libc::SYS_getsockname, libc::SYS_getpeername, libc::SYS_socketpair,
    // Itself: who it is, its limits, its signals (tgkill: abort(3)), its name, its end.
    libc::SYS_getpid, libc::SYS_gettid, libc::SYS_getppid, libc::SYS_getuid, libc::SYS_geteuid, libc::SYS_getgid,
    libc::SYS_getegid, libc::SYS_prlimit64, libc::SYS_getrusage, libc::SYS_uname, libc::SYS_prctl, libc::SYS_tgkill,
    libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_sigaltstack,
    libc::SYS_sched_getaffinity, libc::SYS_exit, libc::SYS_exit_group,
];
#[cfg(target_arch = "x86_64")]
const ALL_HERE: &[i64] = &[
    libc::SYS_epoll_wait,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_dup2,
    libc::SYS_time,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const ALL_HERE: &[i64] = &[];

/// Files that are there, for reading, as far as its user may.
const READS: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fstatfs,
    libc::SYS_statfs,
    libc::SYS_getcwd,
    libc::SYS_fadvise64,
];
#[cfg(target_arch = "x86_64")]
const READS_HERE: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
];
#[cfg(not(target_arch = "x86_64"))]
const READS_HERE: &[i64] = &[];

/// Processes of its own, which it ends and waits for.
const FORKS: &[i64] = &[
    libc::SYS_clone,
    libc::SYS_set_tid_address,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
];

/// Connections: to a server of the database of users (nss(5)), or to the kernel for the length of a queue (sock_diag(7)).
const CONNECTS: &[i64] = &[
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_sendmmsg,
];

impl Helper {
    fn calls(self) -> impl Iterator<Item = i64> {
        let more: [&[i64]; 4] = match self {
            Helper::Router => [&[], &[], &[], &[]],
            Helper::Inspector => [READS, READS_HERE, FORKS, CONNECTS],
            Helper::Reporter => [READS, READS_HERE, &[], CONNECTS],
        };
        let all = ALL.iter().chain(ALL_HERE);
        all.chain(more.into_iter().flatten()).copied()
    }
}

/// Keeps this process, and what it forks, to the calls of a helper. It gains no privileges any more.
///
/// # Errors
/// The kernel has no filters of system calls.
pub fn keep_to(helper: Helper) -> Result<(), ConfineError> {
    calls::check()?;
    let failed = |error: seccompiler::BackendError| ConfineError::new("system calls", error.to_string());
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(failed)?;
    let rules = helper.calls().map(|call| (call, Vec::new())).collect();
    let refused = SeccompAction::Errno(libc::ENOSYS as u32);
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, arch).map_err(failed)?;
    let program: seccompiler::BpfProgram = filter.try_into().map_err(failed)?;
    seccompiler::apply_filter(&program).map_err(|error| ConfineError::new("system calls", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries what each helper must not do, one call of each kind. Returns the first that is not refused as a call that
    /// is not there.
    fn possible(helper: Helper) -> Option<usize> {
        use nix::sys::signal::{Signal, kill};
        use nix::unistd::{Uid, execv, getpid, setuid};
        use std::fs;
        keep_to(helper).ok()?;
        let errno = |error: std::io::Error| nix::Error::from_raw(error.raw_os_error().unwrap_or(0));
        let mut tried = vec![
            execv(c"/no/such", &[c"such"]).err(),
            nix::sys::uio::process_vm_readv(getpid(), &mut [], &[]).err(),
            setuid(Uid::from_raw(0)).err(),
            kill(getpid(), None::<Signal>).err(),
            fs::rename("/no/such", "/no/such").err().map(errno),
            fs::remove_file("/no/such").err().map(errno),
            nix::mount::umount("/no/such").err(),
        ];
        if helper == Helper::Router {
            tried.push(fs::File::open("/dev/null").err().map(errno));
            tried.push(std::net::UdpSocket::bind("127.0.0.1:0").err().map(errno));
        }
        tried.iter().position(|error| *error != Some(nix::Error::ENOSYS))
    }

    #[test]
    fn other_calls_of_a_helper_fail() {
        use crate::sys::process::{Ended, fork_child, reap_pid};
        if crate::skip::skip_unless(calls::check().is_ok(), "this kernel has no system call filters") {
            return;
        }
        for helper in [Helper::Router, Helper::Inspector, Helper::Reporter] {
            let child = fork_child(&[], || possible(helper).map_or(0, |at| at as i32 + 1));
            assert_eq!(reap_pid(child.unwrap()).unwrap(), Ended::Code(0), "{helper:?}");
        }
    }

    #[test]
    fn no_helper_may_start_programs_or_look_into_processes() {
        for helper in [Helper::Router, Helper::Inspector, Helper::Reporter] {
            for call in [
                libc::SYS_execve,
                libc::SYS_execveat,
                libc::SYS_ptrace,
                libc::SYS_process_vm_readv,
                libc::SYS_mount,
                libc::SYS_setuid,
                libc::SYS_unlinkat,
                libc::SYS_renameat2,
                libc::SYS_kill,
                libc::SYS_bpf,
                libc::SYS_io_uring_setup,
            ] {
                assert!(helper.calls().all(|allowed| allowed != call), "{helper:?} {call}");
            }
        }
        assert!(
            Helper::Router
                .calls()
                .all(|call| call != libc::SYS_openat && call != libc::SYS_socket)
        );
    }
}
