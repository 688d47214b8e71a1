//! What a worker still says to its client when it is terminated because the time of its request is up.
//!
//! The handler of SIGTERM runs on the thread that serves, wherever that is: in a loop of the application, asleep, or
//! waiting for a database. So it sees exactly how far that thread has come, and there is no race with it: it writes the
//! answer if no byte of one has left, and never into the middle of another. It makes system calls only and ends the
//! process, by the same signal without a handler.
//!
//! What it needs lies in words that are stored before they count: nothing is allocated, locked or dropped. A signal
//! without the word that the time is up ends the process at once, as if there were no handler; while the process has a program
//! ([`pass_on_to`]), it goes to that, and the process ends when the program has.

use super::error::{Error, Result};
use super::sender;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicUsize, Ordering, compiler_fence};

/// The most bytes of an answer.
pub const MAX_BYTES: usize = 512;
/// The value that comes with a SIGTERM which says that the time is up (sigqueue(3)).
const TIMED_OUT: libc::c_int = 504;
/// How long the client may take to see the answer, milliseconds. The kernel resets a connection that is closed while bytes of
/// the client are unread, and drops the answer. Shorter than what the master waits until it kills.
const DRAIN_MILLIS: i64 = 500;

/// The process that the words are of. A child that a script has forked must not answer for its parent.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// The connection whose request is being answered; negative: there is none.
static SOCKET: AtomicI32 = AtomicI32::new(-1);
/// Something of the answer may have left.
static BEGUN: AtomicBool = AtomicBool::new(false);
/// The program whose group a SIGTERM goes to; 0: there is none.
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// One has gone to a program.
static PASSED_ON: AtomicBool = AtomicBool::new(false);
static LENGTH: AtomicUsize = AtomicUsize::new(0);
static BYTES: [AtomicU8; MAX_BYTES] = [const { AtomicU8::new(0) }; MAX_BYTES];

/// Has this process answer, or pass the signal on, before it ends. For a worker, after its signals are at their defaults and before the
/// application's first code.
pub fn install() {
    OWNER.store(std::process::id() as i32, Ordering::Relaxed);
    let action = SigAction::new(
        SigHandler::SigAction(on_terminate),
        SaFlags::SA_RESTART,
        SigSet::all(),
    );
    // SAFETY: the handler makes async-signal-safe calls only, and touches nothing but atomics.
    let _ = unsafe { sigaction(Signal::SIGTERM, &action) };
}

/// Sets the answer. Only while no request is armed; one that is too long is none.
pub fn set_answer(bytes: &[u8]) {
    let length = if bytes.len() <= MAX_BYTES { bytes.len() } else { 0 };
    for (place, byte) in BYTES.iter().zip(&bytes[..length]) {
        place.store(*byte, Ordering::Relaxed);
    }
    LENGTH.store(length, Ordering::Relaxed);
}

/// A request on this connection is to be answered, and nothing of the answer has left.
pub fn arm(socket: BorrowedFd<'_>) {
    BEGUN.store(false, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    SOCKET.store(socket.as_raw_fd(), Ordering::Relaxed);
}

/// Something of the answer is about to leave.
pub fn begin() {
    BEGUN.store(true, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
}

/// There is nothing to be answered any more. Before the connection is closed or given away.
pub fn disarm() {
    SOCKET.store(-1, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
}

/// A SIGTERM goes to the process group of this program, which this process has started and not reaped.
pub fn pass_on_to(leader: i32) {
    PROGRAM.store(leader, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
}

/// The program has ended, and is about to be reaped: its number will mean another process.
pub fn pass_on_to_none() {
    PROGRAM.store(0, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
}

/// Ends this process by SIGTERM if that has gone to its program.
pub fn end_if_passed_on() {
    if PASSED_ON.load(Ordering::Relaxed) {
        sender::die_of(libc::SIGTERM);
    }
}

/// Tells a process that has called [`install`] that the time of its request is up. One that has not is terminated; one
/// that is gone already is no error.
///
/// # Errors
/// sigqueue(3).
pub fn send_timeout(pid: i32) -> Result<()> {
    let value = libc::sigval {
        sival_ptr: std::ptr::without_provenance_mut(TIMED_OUT as usize),
    };
    // SAFETY: a system call; the value is a number that is never followed.
    if unsafe { libc::sigqueue(pid, libc::SIGTERM, value) } == 0 {
        return Ok(());
    }
    match Error::last("sigqueue", pid.to_string()) {
        error if error.errno == nix::errno::Errno::ESRCH => Ok(()),
        error => Err(error),
    }
}

extern "C" fn on_terminate(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid pointer, or PHP that of its copy; the value is set where the code says so.
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
    // The thread that serves is the first; on another one nothing is known about what it is doing.
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
        // SAFETY: a system call; the number is that of a child which is not reaped.
        unsafe { libc::kill(-program, libc::SIGTERM) };
        return;
    }
    sender::die_of(libc::SIGTERM);
}

/// Sends the answer as far as it fits without waiting: into an empty buffer all of it does.
fn send_answer(socket: libc::c_int) {
    let mut bytes = [0_u8; MAX_BYTES];
    let length = LENGTH.load(Ordering::Relaxed).min(MAX_BYTES);
    for (byte, place) in bytes.iter_mut().zip(&BYTES) {
        *byte = place.load(Ordering::Relaxed);
    }
    let mut sent = 0;
    while sent < length {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the area is `length - sent` bytes of the array from `sent` on.
        let count = unsafe { libc::send(socket, bytes.as_ptr().add(sent).cast(), length - sent, flags) };
        match usize::try_from(count) {
            Ok(count) if count > 0 => sent += count,
            _ => return,
        }
    }
}

/// Says that nothing more comes, and reads what the client has sent until it has seen that, for a bounded time.
fn close_gently(socket: libc::c_int) {
    // SAFETY: system calls on a descriptor, with areas on the stack and their lengths.
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
        // SAFETY: the kernel writes at most as many bytes as there is room for.
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
    // SAFETY: the pointer is to a value that lives for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec * 1_000 + time.tv_nsec / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Ended, Side, exit_now, fork, reap_pid, send_signal};
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    const ANSWER: &[u8] = b"the time is up";

    /// A child that serves one connection as far as `prepare` goes, and then waits in a system call. Its end is told by
    /// `end`; what the client reads, and how the child ended, is returned.
    fn serve(prepare: impl FnOnce(&mut UnixStream), end: impl FnOnce(i32)) -> (Vec<u8>, Ended) {
        let (mut client, mut server) = UnixStream::pair().unwrap();
        let (mut told, mut tell) = UnixStream::pair().unwrap();
        // Not read by the server: without care it would turn the close into a reset.
        client.write_all(b"more than is read").unwrap();
        // SAFETY: the child touches what was made before the fork, makes system calls and ends.
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

    const TERMINATED: Ended = Ended::Signal(libc::SIGTERM, false);

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
            // Read, so that the end is no reset.
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
}
