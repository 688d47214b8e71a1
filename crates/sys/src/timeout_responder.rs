//! Sends a last answer when a worker is terminated because its request timed out.
//!
//! The SIGTERM handler runs on the serving thread, so it sees exactly how far the answer has come: it answers only if
//! no byte has been sent. It uses only system calls and atomics, and then kills the process by the same signal.
//!
//! A SIGTERM without the timeout value kills the process at once. If the process has started a program
//! ([`start_and_pass_on`]), the signal goes to the program, and the process exits after it.

use super::error::{Error, Result};
use super::{sender, signal};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering, compiler_fence,
};

/// Limit on an answer.
pub const MAX_BYTES: usize = 512;
/// Marks a timeout.
const TIMED_OUT: libc::c_int = 504;
/// Closing a connection with unread bytes makes the kernel reset it and drop the answer. Shorter than the master's
/// delay before SIGKILL.
const DRAIN_MILLIS: i64 = 500;

/// A child forked by a script must not answer.
static OWNER: AtomicI32 = AtomicI32::new(0);
static SOCKET: AtomicI32 = AtomicI32::new(-1);
static BEGUN: AtomicBool = AtomicBool::new(false);
static PROGRAM: AtomicI32 = AtomicI32::new(0);
static PASSED_ON: AtomicBool = AtomicBool::new(false);
/// A word of shared memory for the number of sent bytes.
static SENT: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
static LENGTH: AtomicUsize = AtomicUsize::new(0);
static BYTES: [AtomicU8; MAX_BYTES] = [const { AtomicU8::new(0) }; MAX_BYTES];

/// Installs the handler, before the application runs.
pub fn install() {
    OWNER.store(std::process::id() as i32, Ordering::Relaxed);
    let action = SigAction::new(
        SigHandler::SigAction(on_terminate),
        SaFlags::SA_RESTART,
        SigSet::all(),
    );
    // SAFETY: the handler makes only async-signal-safe calls and uses only atomics.
    let _ = unsafe { sigaction(Signal::SIGTERM, &action) };
}

/// Keeps the number of sent bytes in this word of shared memory, which must stay mapped until [`forget`].
pub(crate) fn count_in(word: &AtomicU64) {
    SENT.store(ptr::from_ref(word).cast_mut(), Ordering::Release);
}

/// Call before these words are unmapped.
pub(crate) fn forget(words: &[AtomicU64]) {
    sender::forget_in(&SENT, words);
}

/// Sets the answer (empty if too long) while no request is armed.
pub fn set_answer(bytes: &[u8]) {
    let length = if bytes.len() <= MAX_BYTES { bytes.len() } else { 0 };
    for (place, byte) in BYTES.iter().zip(&bytes[..length]) {
        place.store(*byte, Ordering::Relaxed);
    }
    LENGTH.store(length, Ordering::Relaxed);
}

/// Starts a request on this connection, with nothing sent.
pub fn arm(socket: BorrowedFd<'_>) {
    BEGUN.store(false, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    SOCKET.store(socket.as_raw_fd(), Ordering::Relaxed);
}

/// Call before the first byte of the answer is sent.
pub fn begin() {
    BEGUN.store(true, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
}

/// Ends the request, before its connection is closed.
pub fn disarm() {
    SOCKET.store(-1, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
}

/// Starts a program, which leads a process group, and passes SIGTERM to the group. A SIGTERM during the start waits.
///
/// # Errors
/// Those of `start`.
pub fn start_and_pass_on(start: impl FnOnce() -> Result<i32>) -> Result<i32> {
    let mask = signal::block_all();
    let started = start();
    if let Ok(leader) = &started {
        PROGRAM.store(*leader, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }
    signal::restore(&mask);
    started
}

/// Call before the program is reaped.
pub fn pass_on_to_none() {
    PROGRAM.store(0, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
}

/// Exits by SIGTERM if one was passed on.
pub fn end_if_passed_on() {
    if PASSED_ON.load(Ordering::Relaxed) {
        sender::die_of(libc::SIGTERM);
    }
}

/// Signals the timeout after [`install`]; terminates other processes.
///
/// # Errors
/// sigqueue(3).
pub fn send_timeout(pid: i32) -> Result<()> {
    let value = libc::sigval {
        sival_ptr: std::ptr::without_provenance_mut(TIMED_OUT as usize),
    };
    // SAFETY: a system call; the value is a number, never dereferenced.
    if unsafe { libc::sigqueue(pid, libc::SIGTERM, value) } == 0 {
        return Ok(());
    }
    match Error::last("sigqueue", pid.to_string()) {
        error if error.errno == nix::errno::Errno::ESRCH => Ok(()),
        error => Err(error),
    }
}

extern "C" fn on_terminate(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid pointer, or PHP one to its copy.
    let is_timeout = unsafe {
        !info.is_null()
            && (*info).si_code == libc::SI_QUEUE
            && (*info).si_value().sival_ptr.addr() as libc::c_int == TIMED_OUT
    };
    // SAFETY: as above.
    unsafe { sender::note(signal, info) };
    // SAFETY: system calls without arguments.
    let (process, thread) = unsafe { (libc::getpid(), libc::gettid()) };
    let socket = SOCKET.load(Ordering::Relaxed);
    // Only the main thread serves.
    let is_here = process == thread && process == OWNER.load(Ordering::Relaxed);
    if is_timeout && is_here && socket >= 0 {
        if !BEGUN.load(Ordering::Relaxed) {
            send_answer(socket);
        }
        close_gently(socket);
    }
    let program = PROGRAM.load(Ordering::Relaxed);
    let is_owner = process == OWNER.load(Ordering::Relaxed);
    if !is_timeout && is_owner && program > 0 {
        PASSED_ON.store(true, Ordering::Relaxed);
        // SAFETY: a system call with the pid of an unreaped child.
        unsafe { libc::kill(-program, libc::SIGTERM) };
        return;
    }
    sender::die_of(libc::SIGTERM);
}

fn send_answer(socket: libc::c_int) {
    let mut bytes = [0_u8; MAX_BYTES];
    let length = LENGTH.load(Ordering::Relaxed).min(MAX_BYTES);
    for (byte, place) in bytes.iter_mut().zip(&BYTES) {
        *byte = place.load(Ordering::Relaxed);
    }
    let mut sent = 0;
    while sent < length {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the buffer is `length - sent` bytes of the array from `sent` on.
        let count = unsafe { libc::send(socket, bytes.as_ptr().add(sent).cast(), length - sent, flags) };
        match usize::try_from(count) {
            Ok(count) if count > 0 => sent += count,
            _ => break,
        }
    }
    // SAFETY: the word is mapped until `forget`.
    if let Some(word) = unsafe { SENT.load(Ordering::Acquire).as_ref() } {
        word.store(sent as u64, Ordering::Relaxed);
    }
}

fn close_gently(socket: libc::c_int) {
    // SAFETY: a system call on a descriptor.
    unsafe { libc::shutdown(socket, libc::SHUT_WR) };
    let end = now_millis() + DRAIN_MILLIS;
    let mut waste = [MaybeUninit::<u8>::uninit(); 4096];
    loop {
        let left = end - now_millis();
        if left <= 0 {
            return;
        }
        let mut poll = libc::pollfd {
            fd: socket,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor, and a number of milliseconds.
        if unsafe { libc::poll(&raw mut poll, 1, left as libc::c_int) } <= 0 {
            return;
        }
        // SAFETY: the kernel writes at most the length of the buffer.
        let count = unsafe { libc::recv(socket, waste.as_mut_ptr().cast(), waste.len(), libc::MSG_DONTWAIT) };
        if count <= 0 {
            return;
        }
    }
}

fn now_millis() -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the value outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec * 1_000 + time.tv_nsec / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::external;
    use crate::process::{Ended, Program, Side, exit_now, fork, reap_pid, send_signal};
    use nix::sys::signal::raise;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    const ANSWER: &[u8] = b"the time is up";

    fn serve(prepare: impl FnOnce(&mut UnixStream), end: impl FnOnce(i32)) -> (Vec<u8>, Ended) {
        let (mut client, mut server) = UnixStream::pair().unwrap();
        let (mut told, mut tell) = UnixStream::pair().unwrap();
        // Unread bytes turn a careless close into a reset.
        client.write_all(b"more than is read").unwrap();
        // SAFETY: the child only makes system calls and stores to memory.
        let pid = match unsafe { fork() }.unwrap() {
            Side::Child => {
                crate::signal::reset_in_child();
                install();
                set_answer(ANSWER);
                prepare(&mut server);
                let _ = tell.write_all(b"!");
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
                exit_now(1)
            }
            Side::Parent(pid) => pid,
        };
        drop((server, tell));
        told.read_exact(&mut [0]).unwrap();
        end(pid);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        drop(client);
        (answer, reap_pid(pid).unwrap())
    }

    const TERMINATED: Ended = Ended::killed(libc::SIGTERM);

    fn timed_out(pid: i32) {
        send_timeout(pid).unwrap();
    }

    #[test]
    fn a_request_of_which_nothing_was_answered_is_answered() {
        let (answer, ended) = serve(|socket| arm(socket.as_fd()), timed_out);
        assert_eq!((answer.as_slice(), ended), (ANSWER, TERMINATED));
    }

    #[test]
    fn an_answer_that_has_begun_is_left_as_it_is() {
        let begun = |socket: &mut UnixStream| {
            arm(socket.as_fd());
            begin();
            socket.write_all(b"half").unwrap();
        };
        let (answer, ended) = serve(begun, timed_out);
        assert_eq!((answer.as_slice(), ended), (b"half".as_slice(), TERMINATED));
    }

    #[test]
    fn without_a_request_nothing_is_said() {
        let none = |socket: &mut UnixStream| {
            arm(socket.as_fd());
            disarm();
            socket.read_exact(&mut [0; 17]).unwrap();
        };
        let (answer, ended) = serve(none, timed_out);
        assert_eq!((answer.as_slice(), ended), (b"".as_slice(), TERMINATED));
    }

    #[test]
    fn any_other_termination_is_silent() {
        let armed = |socket: &mut UnixStream| {
            arm(socket.as_fd());
            socket.read_exact(&mut [0; 17]).unwrap();
        };
        let terminate = |pid| send_signal(pid, Signal::SIGTERM).unwrap();
        let (answer, ended) = serve(armed, terminate);
        assert_eq!((answer.as_slice(), ended), (b"".as_slice(), TERMINATED));
    }

    #[test]
    fn a_program_that_is_just_starting_gets_the_signal() {
        let sleep = Program {
            path: c"/bin/sleep".to_owned(),
            arguments: vec![c"sleep".to_owned(), c"60".to_owned()],
            environment: Vec::new(),
            descriptors: Vec::new(),
            descriptor_limit: None,
        };
        let begins = |socket: &mut UnixStream| {
            socket.read_exact(&mut [0; 17]).unwrap();
            let started = start_and_pass_on(|| {
                let pid = external::start(&sleep, c"/")?;
                let _ = raise(Signal::SIGTERM);
                Ok(pid)
            });
            if started.and_then(reap_pid) != Ok(TERMINATED) {
                exit_now(2);
            }
        };
        let (_, ended) = serve(begins, |pid| send_signal(pid, Signal::SIGKILL).unwrap());
        assert_eq!(ended, Ended::killed(libc::SIGKILL));
    }
}
