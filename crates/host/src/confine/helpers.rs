//! Allowed system calls of the helpers, which parse untrusted input. A compromised helper can't start programs, create
//! files or reach more than it already has.
//!
//! Other calls fail with ENOSYS, so that a newer C library falls back to older calls.

use super::ConfineError;
use super::calls;
use nix::libc;
use seccompiler::SeccompAction;

/// The kind of helper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Helper {
    /// Accepts or receives connections and passes them on.
    Router,
    /// Reads directories and the user database in child processes.
    Inspector,
    /// Answers from memory and writes its access log.
    Reporter,
}

/// Calls of every helper.
#[rustfmt::skip]
const ALL: &[i64] = &[
    // Memory.
    libc::SYS_brk, libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_mprotect, libc::SYS_madvise,
    libc::SYS_futex, libc::SYS_set_robust_list, libc::SYS_rseq, libc::SYS_membarrier, libc::SYS_getrandom,
    // Time, for clock sources without vDSO.
    libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_clock_nanosleep, libc::SYS_nanosleep,
    libc::SYS_gettimeofday, libc::SYS_times, libc::SYS_sched_yield, libc::SYS_restart_syscall,
    // Descriptors.
    libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev, libc::SYS_pread64, libc::SYS_close,
    libc::SYS_close_range, libc::SYS_fcntl, libc::SYS_dup, libc::SYS_dup3, libc::SYS_fstat, libc::SYS_newfstatat,
    libc::SYS_statx, libc::SYS_lseek, libc::SYS_ioctl, libc::SYS_pipe2,
    // Waiting.
    libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2, libc::SYS_ppoll,
    libc::SYS_pselect6, libc::SYS_eventfd2,
    // Existing sockets.
    libc::SYS_accept4, libc::SYS_recvmsg, libc::SYS_recvfrom, libc::SYS_sendmsg, libc::SYS_sendto, libc::SYS_shutdown,
    libc::SYS_getsockopt, libc::SYS_setsockopt, libc::SYS_getsockname, libc::SYS_getpeername, libc::SYS_socketpair,
    // Identity, limits, signals (tgkill: abort(3)), name, exit.
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

const FORKS: &[i64] = &[
    libc::SYS_clone,
    libc::SYS_set_tid_address,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
];

/// To the user database (nss(5)) or sock_diag(7).
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

/// Restricts this process and its children to a helper's calls. Sets no_new_privs.
///
/// # Errors
/// The kernel has no system call filters.
pub fn keep_to(helper: Helper) -> Result<(), ConfineError> {
    calls::check()?;
    let failed = |error: seccompiler::BackendError| ConfineError::new("system calls", error.to_string());
    let rules = helper.calls().map(|call| (call, Vec::new())).collect();
    let refused = SeccompAction::Errno(libc::ENOSYS as u32);
    let program = calls::program(rules, refused, SeccompAction::Allow).map_err(failed)?;
    seccompiler::apply_filter(&program).map_err(|error| ConfineError::new("system calls", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        use forkyard_sys::process::{Ended, fork_child, reap_pid};
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
