//! Records who sent a worker its fatal signal.
//!
//! The kernel reports the sender only to a handler. The handler stores it in two words of the worker's page and kills
//! the process by the same signal, so that the parent sees the usual exit status. Handled and ignored signals stay as
//! they are.

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicPtr, AtomicU64, Ordering};

/// Words per note.
pub const WORDS: usize = 2;
const SIGNALS: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Its children record nothing.
static OWNER: AtomicI32 = AtomicI32::new(0);
static PLACE: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
/// Negative if there is no file.
static FILE: AtomicI32 = AtomicI32::new(-1);
static OFFSET: AtomicI64 = AtomicI64::new(0);

/// Sender of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A process, through kill(2) or similar.
    Process { pid: i32, uid: u32 },
    /// The kernel.
    Kernel,
}

/// A signal and its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    pub signal: i32,
    pub origin: Origin,
}

impl Sent {
    /// Decodes a note, `None` if it is empty or invalid.
    pub fn from_words([who, what]: [u64; WORDS]) -> Option<Sent> {
        let (pid, uid) = (who as u32 as i32, (who >> 32) as u32);
        let (signal, code) = (what as u32 as i32, (what >> 32) as u32 as i32);
        let origin = match code {
            libc::SI_USER | libc::SI_TKILL | libc::SI_QUEUE if pid > 0 => Origin::Process { pid, uid },
            libc::SI_KERNEL => Origin::Kernel,
            _ => return None,
        };
        (signal > 0).then_some(Sent { signal, origin })
    }
}

/// Installs the handlers, after signals are reset. `early`: file and offset of the words until
/// [`Words::note_senders_at`](super::shm::Words::note_senders_at); stays open.
pub fn install(early: Option<(BorrowedFd<'_>, u64)>) {
    let own = std::process::id() as i32;
    if OWNER.load(Ordering::Relaxed) == own {
        return;
    }
    PLACE.store(std::ptr::null_mut(), Ordering::Relaxed);
    FILE.store(-1, Ordering::Relaxed);
    if let Some((file, offset)) = early {
        OFFSET.store(offset as i64, Ordering::Relaxed);
        FILE.store(file.as_raw_fd(), Ordering::Release);
    }
    OWNER.store(own, Ordering::Release);
    let action = SigAction::new(
        SigHandler::SigAction(on_signal),
        SaFlags::SA_RESTART,
        SigSet::all(),
    );
    for signal in SIGNALS {
        // SAFETY: the handler makes only async-signal-safe calls and uses only atomics.
        let before = unsafe { sigaction(signal, &action) };
        if let Ok(before) = before
            && before.handler() != SigHandler::SigDfl
        {
            // SAFETY: restores the old action.
            let _ = unsafe { sigaction(signal, &before) };
        }
    }
}

pub(crate) fn tell_in(place: &[AtomicU64; WORDS]) {
    PLACE.store(place.as_ptr().cast_mut(), Ordering::Release);
    FILE.store(-1, Ordering::Release);
}

pub(crate) fn forget(words: &[AtomicU64]) {
    if words
        .as_ptr_range()
        .contains(&PLACE.load(Ordering::Relaxed).cast_const())
    {
        PLACE.store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// # Safety
/// `info` is null or the kernel's argument to the handler.
pub(crate) unsafe fn note(signal: libc::c_int, info: *const libc::siginfo_t) {
    // SAFETY: a system call without arguments.
    if info.is_null() || OWNER.load(Ordering::Acquire) != unsafe { libc::getpid() } {
        return;
    }
    // SAFETY: the caller's promise; all fields are plain numbers.
    let (code, pid, uid) = unsafe { ((*info).si_code, (*info).si_pid(), (*info).si_uid()) };
    let words = [
        u64::from(pid as u32) | u64::from(uid) << 32,
        u64::from(signal as u32) | u64::from(code as u32) << 32,
    ];
    let place = PLACE.load(Ordering::Acquire);
    let file = FILE.load(Ordering::Acquire);
    if !place.is_null() {
        for (index, word) in words.into_iter().enumerate() {
            // SAFETY: `tell_in` guarantees that the words are mapped.
            unsafe { (*place.add(index)).store(word, Ordering::Release) };
        }
    } else if file >= 0 {
        let bytes = words.as_ptr().cast();
        // SAFETY: the buffer is the two words on the stack.
        unsafe { libc::pwrite(file, bytes, size_of_val(&words), OFFSET.load(Ordering::Relaxed)) };
    }
}

extern "C" fn on_signal(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid pointer, or PHP one to its copy.
    unsafe { note(signal, info) };
    die_of(signal)
}

pub(crate) fn die_of(signal: libc::c_int) -> ! {
    // SAFETY: async-signal-safe system calls with numbers and sets on the stack.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::kill(libc::getpid(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
        libc::_exit(128 + signal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Ended, Side, exit_now, fork, reap_pid, send_signal};
    use crate::shm::{Memory, PAGE_BYTES, Words};
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    fn sent(signal: Signal, prepare: impl FnOnce(&Memory)) -> (Option<Sent>, Ended) {
        let memory = Memory::create("test", 2).unwrap();
        let (mut told, mut tell) = UnixStream::pair().unwrap();
        // SAFETY: the child only makes system calls and stores to memory.
        let pid = match unsafe { fork() }.unwrap() {
            Side::Child => {
                crate::signal::reset_in_child();
                prepare(&memory);
                let _ = tell.write_all(b"!");
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
                exit_now(1)
            }
            Side::Parent(pid) => pid,
        };
        drop(tell);
        told.read_exact(&mut [0]).unwrap();
        send_signal(pid, signal).unwrap();
        let ended = reap_pid(pid).unwrap();
        let page = Words::map_writable(memory.writable.as_fd(), 1, 1).unwrap();
        let words = [0, 1].map(|index| page.words()[index].load(Ordering::Relaxed));
        (Sent::from_words(words), ended)
    }

    fn by_this(signal: Signal) -> Option<Sent> {
        let origin = Origin::Process {
            pid: std::process::id() as i32,
            uid: nix::unistd::getuid().as_raw(),
        };
        Some(Sent {
            signal: signal as i32,
            origin,
        })
    }

    fn early(memory: &Memory) {
        install(Some((memory.writable.as_fd(), PAGE_BYTES as u64)));
    }

    #[test]
    fn the_sender_is_noted_and_the_end_is_that_of_the_signal() {
        for signal in SIGNALS.into_iter().filter(|signal| *signal != Signal::SIGQUIT) {
            let ended = Ended::killed(signal as i32);
            assert_eq!(sent(signal, early), (by_this(signal), ended));
            let mapped = |memory: &Memory| {
                early(memory);
                let page = Words::map_writable(memory.writable.as_fd(), 1, 1).unwrap();
                page.note_senders_at(0);
                std::mem::forget(page);
            };
            assert_eq!(sent(signal, mapped), (by_this(signal), ended));
        }
    }

    #[test]
    fn words_that_are_unmapped_are_not_written_to() {
        let unmapped = |memory: &Memory| {
            early(memory);
            let page = Words::map_writable(memory.writable.as_fd(), 1, 1).unwrap();
            page.note_senders_at(0);
        };
        let ended = Ended::killed(libc::SIGTERM);
        assert_eq!(sent(Signal::SIGTERM, unmapped), (None, ended));
    }

    #[test]
    fn what_is_ignored_or_handled_stays_so() {
        let ignored = |memory: &Memory| {
            // SAFETY: ignoring runs no code.
            unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
            early(memory);
            // SAFETY: system calls.
            let _ = unsafe { libc::kill(libc::getpid(), libc::SIGHUP) };
        };
        assert_eq!(
            sent(Signal::SIGTERM, ignored),
            (by_this(Signal::SIGTERM), Ended::killed(libc::SIGTERM))
        );
    }

    #[test]
    fn what_ends_a_process_without_a_handler_says_nothing() {
        assert_eq!(sent(Signal::SIGKILL, early), (None, Ended::killed(libc::SIGKILL)));
    }

    #[test]
    fn any_words_are_a_note_or_none() {
        assert_eq!(Sent::from_words([0, 0]), None);
        assert_eq!(Sent::from_words([u64::MAX, u64::MAX]), None);
        let kernel = Sent {
            signal: 15,
            origin: Origin::Kernel,
        };
        assert_eq!(Sent::from_words([7, 15 | 0x80 << 32]), Some(kernel));
    }
}
