//! The signal that asks a worker for a stack trace.
//!
//! A runtime such as Python's faulthandler first installs its own handler, which writes the trace. Our handler calls it
//! and then writes an end marker. The signal is a real-time signal above the ones that programs usually take.

use super::error::{Error, Result};
use nix::errno::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// SIGRTMIN + 17 on Linux.
pub const SIGNAL: i32 = 51;
const END: &[u8] = b"\0";

/// The descriptor for the answer; negative if there is none.
static SOCKET: AtomicI32 = AtomicI32::new(-1);
static HANDLER: AtomicUsize = AtomicUsize::new(0);

/// Whether the signal has its default action in this process.
pub fn is_free() -> bool {
    current().is_some_and(|action| action.sa_sigaction == libc::SIG_DFL)
}

/// Makes the installed handler, which writes to `socket`, end with a marker. Interrupted system calls restart. `socket`
/// must stay open.
///
/// # Errors
/// EINVAL without a handler, or if it takes more than the signal's number.
pub fn end_answers(socket: RawFd) -> Result<()> {
    let none = || Error::new("sigaction", SIGNAL.to_string(), Errno::EINVAL);
    let action = current().ok_or_else(none)?;
    let is_handler = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
    if !is_handler || action.sa_flags & libc::SA_SIGINFO != 0 {
        return Err(none());
    }
    HANDLER.store(action.sa_sigaction, Ordering::SeqCst);
    SOCKET.store(socket, Ordering::SeqCst);
    let handler: extern "C" fn(libc::c_int) = on_question;
    // SAFETY: all zeros is a valid sigaction; our handler adds one async-signal-safe call.
    let result = unsafe {
        let mut ours = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        ours.sa_sigaction = handler as usize;
        ours.sa_flags = libc::SA_RESTART;
        libc::sigemptyset(&raw mut ours.sa_mask);
        libc::sigaction(SIGNAL, &raw const ours, std::ptr::null_mut())
    };
    Errno::result(result).map_err(|errno| Error::new("sigaction", SIGNAL.to_string(), errno))?;
    Ok(())
}

/// Whether the process with this /proc/PID/status handles the signal.
pub fn is_handled(status: &str) -> bool {
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & (1 << (SIGNAL - 1)) != 0)
}

/// Sends the signal.
///
/// # Errors
/// The process is gone or belongs to another user.
pub fn send(process: BorrowedFd<'_>) -> Result<()> {
    let none: *const libc::siginfo_t = std::ptr::null();
    // SAFETY: a system call with numbers and a null pointer.
    let done = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), SIGNAL, none, 0) };
    Errno::result(done).map_err(|errno| Error::new("pidfd_send_signal", SIGNAL.to_string(), errno))?;
    Ok(())
}

fn current() -> Option<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only reads the action, into a value that outlives the call.
    let result = unsafe { libc::sigaction(SIGNAL, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: all zeros is a valid value.
    (result == 0).then(|| unsafe { action.assume_init() })
}

extern "C" fn on_question(signal: libc::c_int) {
    let errno = Errno::last_raw();
    let handler = HANDLER.load(Ordering::SeqCst);
    if handler != 0 {
        // SAFETY: sigaction(2) returned it as a handler that takes the signal's number.
        let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
        handler(signal);
    }
    let socket = SOCKET.load(Ordering::SeqCst);
    // SAFETY: a pointer to a constant. If the socket is full or closed, the marker is lost.
    unsafe { libc::write(socket, END.as_ptr().cast(), END.len()) };
    Errno::set_raw(errno);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fd::socket_pair;
    use crate::process::{Ended, Side, exit_now, fork, reap_pid};
    use crate::{pidfd, signal};
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    extern "C" fn runtimes(_: libc::c_int) {
        let socket = SOCKET.load(Ordering::SeqCst);
        // SAFETY: a system call with a pointer to a constant.
        unsafe { libc::write(socket, b"calls".as_ptr().cast(), 5) };
    }

    #[test]
    fn the_runtimes_answer_is_ended_and_the_system_call_goes_on() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut wait_for, mut waits) = UnixStream::pair().unwrap();
        // SAFETY: the child makes only system calls.
        let pid = match unsafe { fork() }.unwrap() {
            Side::Child => {
                signal::reset_in_child();
                let was_free = is_free();
                let handler: extern "C" fn(libc::c_int) = runtimes;
                // SAFETY: the handler makes only system calls.
                unsafe { libc::signal(SIGNAL, handler as usize) };
                let has_begun = end_answers(theirs.as_raw_fd()).is_ok() && !is_free();
                let _ = waits.write_all(b"!");
                let mut byte = [0];
                // `Read` would retry an interrupted read itself and hide a missing SA_RESTART.
                let count = nix::unistd::read(&waits, &mut byte);
                exit_now(if was_free && has_begun && count == Ok(1) {
                    7
                } else {
                    1
                })
            }
            Side::Parent(pid) => pid,
        };
        drop(theirs);
        wait_for.read_exact(&mut [0]).unwrap();
        let process = pidfd::open(pid).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(is_handled(&status), "{status}");
        let mut ours = ours;
        for _ in 0..2 {
            send(process.as_fd()).unwrap();
            let mut answer = [0; 6];
            ours.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"calls\0");
        }
        wait_for.write_all(b"!").unwrap();
        assert_eq!(reap_pid(pid), Ok(Ended::Code(7)));
    }

    #[test]
    fn without_a_handler_there_is_nothing_to_end() {
        let (_ours, theirs) = socket_pair(nix::sys::socket::SockType::Stream).unwrap();
        assert!(is_free());
        assert!(end_answers(theirs.as_raw_fd()).is_err());
        assert!(!is_handled(
            &std::fs::read_to_string("/proc/self/status").unwrap()
        ));
        assert!(!is_handled("SigCgt:\tnonsense\n"));
        assert!(is_handled("Name:\tx\nSigCgt:\t0004000000000000\n"));
    }
}
