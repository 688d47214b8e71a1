//! Records who sent a worker its fatal signal.
//!
//! The kernel reports the sender only to a handler. The handler stores it in two words of the worker's page and kills
//! the process by the same signal, so that the parent sees the usual exit status. After a fault it lets the process fault
//! again without a handler, so that a core dump has the place. Handled and ignored signals stay as they are, except that
//! [`run_first`] has the runtime's handler of a fault run after this one.

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU64, Ordering};

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
pub(crate) const FAULTS: [Signal; 5] = [
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGABRT,
];
/// The bits of the signal; the bits above have the number of kept bytes.
const SIGNAL_BITS: u32 = 8;
/// In place of the kernel's code.
const STACK_OVERFLOW: i32 = 0x5354;
/// The most bytes between the stack pointer and a fault of a full stack.
const STACK_REACH: usize = 64 * 1024;

/// The stack for the handler of a fault: a full stack has no room.
const HANDLER_STACK: usize = 64 * 1024;
static STACK: [AtomicU64; HANDLER_STACK / 8] = [const { AtomicU64::new(0) }; HANDLER_STACK / 8];

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Its children record nothing.
static OWNER: AtomicI32 = AtomicI32::new(0);
static PLACE: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
/// Negative if there is no file.
static FILE: AtomicI32 = AtomicI32::new(-1);
static OFFSET: AtomicI64 = AtomicI64::new(0);
static RUNS_FIRST: AtomicBool = AtomicBool::new(false);
/// The runtime's actions for the [`FAULTS`], which run after the handler here. Null: none.
static NEXT: [AtomicPtr<libc::sigaction>; FAULTS.len()] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; FAULTS.len()];

/// Sender of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A process, through kill(2) or similar.
    Process { pid: i32, uid: u32 },
    /// The kernel.
    Kernel,
    /// The process itself, by an instruction.
    Fault,
    /// The same, because its stack is full.
    StackOverflow,
}

/// A signal and its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    pub signal: i32,
    pub origin: Origin,
    /// How many bytes of the request are kept ([`super::received`]).
    pub received: u32,
}

impl Sent {
    /// Decodes a note, `None` if it is empty or invalid.
    pub fn from_words([who, what]: [u64; WORDS]) -> Option<Sent> {
        let (pid, uid) = (who as u32 as i32, (who >> 32) as u32);
        let (low, code) = (what as u32, (what >> 32) as u32 as i32);
        let (signal, received) = ((low & 0xff) as i32, low >> SIGNAL_BITS);
        let origin = match code {
            libc::SI_USER | libc::SI_TKILL | libc::SI_QUEUE if pid > 0 => Origin::Process { pid, uid },
            STACK_OVERFLOW => Origin::StackOverflow,
            1.. if FAULTS.iter().any(|fault| *fault as i32 == signal) => Origin::Fault,
            libc::SI_KERNEL => Origin::Kernel,
            _ => return None,
        };
        (signal > 0).then_some(Sent {
            signal,
            origin,
            received,
        })
    }
}

/// Installs the handlers, after signals are reset. `early`: file and offset of the words until
/// [`Words::note_senders_at`](super::shm::Words::note_senders_at); stays open. `records_faults`: also for faults.
pub fn install(early: Option<(BorrowedFd<'_>, u64)>, records_faults: bool) {
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
    for signal in SIGNALS {
        handle(signal, on_signal, SaFlags::SA_RESTART);
    }
    if records_faults {
        if RUNS_FIRST.load(Ordering::Relaxed) {
            take_next();
        }
        let stack = libc::stack_t {
            ss_sp: STACK.as_ptr().cast_mut().cast(),
            ss_flags: 0,
            ss_size: HANDLER_STACK,
        };
        // SAFETY: the stack is static, nothing else uses it, and its atomics may be written through a shared pointer.
        unsafe { libc::sigaltstack(&stack, std::ptr::null_mut()) };
        for signal in FAULTS {
            handle(signal, on_fault, SaFlags::SA_ONSTACK);
        }
    }
}

/// Has [`install`] put the handlers of faults before those of the runtime, which write down where it happened and end
/// the process.
pub fn run_first() {
    RUNS_FIRST.store(true, Ordering::Relaxed);
}

/// Takes the runtime's handlers of faults for later.
fn take_next() {
    for (signal, next) in FAULTS.into_iter().zip(&NEXT) {
        next.store(std::ptr::null_mut(), Ordering::Release);
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: reads the present action into memory of the right size.
        let result = unsafe { libc::sigaction(signal as i32, std::ptr::null(), action.as_mut_ptr()) };
        // SAFETY: all bits are a valid action, and the call above has filled it.
        let mut action = unsafe { action.assume_init() };
        if result != 0 || action.sa_sigaction == libc::SIG_DFL || action.sa_sigaction == libc::SIG_IGN {
            continue;
        }
        // A handler that returns would have the instruction fault forever.
        action.sa_flags |= libc::SA_RESETHAND;
        // Never freed: a handler may use it at any time.
        next.store(Box::into_raw(Box::new(action)), Ordering::Release);
        // SAFETY: the default action runs no code.
        unsafe { libc::signal(signal as i32, libc::SIG_DFL) };
    }
}

/// Gives all faults back to the runtime's handlers, in a copy that is no worker any more.
pub fn give_all_back() {
    for signal in FAULTS {
        give_back(signal as i32);
    }
}

/// Gives a signal back to the runtime's handler. Returns `false` if there is none.
fn give_back(signal: libc::c_int) -> bool {
    let index = FAULTS.iter().position(|fault| *fault as i32 == signal);
    let next = index.map_or(std::ptr::null_mut(), |index| NEXT[index].load(Ordering::Acquire));
    // SAFETY: an async-signal-safe system call; `take_next` has stored a valid action.
    !next.is_null() && unsafe { libc::sigaction(signal, next, std::ptr::null_mut()) } == 0
}

/// Handles a signal that is at its default; the handlers of a runtime stay.
fn handle(signal: Signal, handler: Handler, flags: SaFlags) {
    let action = SigAction::new(SigHandler::SigAction(handler), flags, SigSet::all());
    // SAFETY: the handlers make only async-signal-safe calls and use only atomics.
    let before = unsafe { sigaction(signal, &action) };
    if let Ok(before) = before
        && before.handler() != SigHandler::SigDfl
    {
        // SAFETY: restores the old action.
        let _ = unsafe { sigaction(signal, &before) };
    }
}

pub(crate) fn tell_in(place: &[AtomicU64; WORDS]) {
    PLACE.store(place.as_ptr().cast_mut(), Ordering::Release);
    FILE.store(-1, Ordering::Release);
}

pub(crate) fn forget(words: &[AtomicU64]) {
    forget_in(&PLACE, words);
}

/// Lets a handler forget a place that is among these words, before they are unmapped.
pub(crate) fn forget_in(place: &AtomicPtr<AtomicU64>, words: &[AtomicU64]) {
    if words
        .as_ptr_range()
        .contains(&place.load(Ordering::Relaxed).cast_const())
    {
        place.store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// # Safety
/// `info` is null or the kernel's argument to the handler.
pub(crate) unsafe fn note(signal: libc::c_int, info: *const libc::siginfo_t) {
    if info.is_null() {
        return;
    }
    // SAFETY: the caller's promise; all fields are plain numbers.
    let (code, pid, uid) = unsafe { ((*info).si_code, (*info).si_pid(), (*info).si_uid()) };
    store(signal, code, pid, uid);
}

fn store(signal: libc::c_int, code: i32, pid: i32, uid: u32) {
    // SAFETY: a system call without arguments.
    if OWNER.load(Ordering::Acquire) != unsafe { libc::getpid() } {
        return;
    }
    let received = (super::received::keep() as u32) << SIGNAL_BITS;
    let words = [
        u64::from(pid as u32) | u64::from(uid) << 32,
        u64::from(signal as u32 | received) | u64::from(code as u32) << 32,
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

extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let (code, address) = match info.is_null() {
        true => (libc::SI_USER, 0),
        // SAFETY: the kernel passes valid pointers, and a handler that calls this one passes its pointers on.
        false => unsafe { ((*info).si_code, (*info).si_addr().addr()) },
    };
    if code <= 0 {
        // SAFETY: as above.
        unsafe { note(signal, info) };
        if !give_back(signal) {
            die_of(signal)
        }
        // SAFETY: an async-signal-safe system call. The signal comes when this handler returns.
        unsafe { libc::raise(signal) };
        return;
    }
    // SAFETY: as above.
    let stack = unsafe { stack_pointer(context.cast()) };
    let is_overflow =
        signal == libc::SIGSEGV && stack.is_some_and(|stack| stack.abs_diff(address) < STACK_REACH);
    store(signal, if is_overflow { STACK_OVERFLOW } else { code }, 0, 0);
    // The instruction is executed again, and faults.
    if !give_back(signal) {
        // SAFETY: an async-signal-safe system call.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// # Safety
/// `context` is null or the kernel's argument to a handler.
unsafe fn stack_pointer(context: *const libc::ucontext_t) -> Option<usize> {
    if context.is_null() {
        return None;
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise.
    let pointer = unsafe { (*context).uc_mcontext.gregs[libc::REG_RSP as usize] as usize };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the caller's promise.
    let pointer = unsafe { (*context).uc_mcontext.sp as usize };
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let pointer = return None;
    Some(pointer)
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
    use crate::received;
    use crate::shm::{Memory, PAGE_BYTES, PAGE_WORDS, Words};
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    const MOST_REQUEST: usize = received::MOST_BYTES + 100;

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
            received: 0,
        })
    }

    fn early(memory: &Memory) {
        install(Some((memory.writable.as_fd(), PAGE_BYTES as u64)), true);
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

    /// The runtime's handler runs second, and ends the process as the one of Python does.
    #[test]
    fn a_runtime_s_handler_of_a_fault_runs_after_the_note() {
        extern "C" fn of_runtime(signal: libc::c_int) {
            // SAFETY: async-signal-safe system calls.
            unsafe {
                libc::write(RUNTIME_OUTPUT.load(Ordering::Relaxed), c"!".as_ptr().cast(), 1);
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
        }
        static RUNTIME_OUTPUT: AtomicI32 = AtomicI32::new(-1);
        // SAFETY: ends the process.
        let abort = || unsafe { libc::abort() };
        let ends: [(&dyn Fn(), Signal, bool); 2] =
            [(&fault, Signal::SIGSEGV, true), (&abort, Signal::SIGABRT, false)];
        for (end, signal, is_fault) in ends {
            let (mut output, theirs) = UnixStream::pair().unwrap();
            RUNTIME_OUTPUT.store(theirs.as_raw_fd(), Ordering::Relaxed);
            let before = || {
                // SAFETY: the handler makes only async-signal-safe calls.
                unsafe { libc::signal(signal as i32, of_runtime as *const () as libc::sighandler_t) };
                crate::signal::reset_in_child_but_faults();
                run_first();
            };
            let (sent, ended) = died_after(before, end);
            drop(theirs);
            let mut said = Vec::new();
            output.read_to_end(&mut said).unwrap();
            assert_eq!(
                (said.as_slice(), ended),
                (&b"!"[..], Ended::killed(signal as i32))
            );
            let sent = sent.unwrap();
            assert_eq!(
                (sent.signal, sent.origin == Origin::Fault),
                (signal as i32, is_fault)
            );
        }
    }

    #[test]
    fn a_runtime_s_handler_that_returns_does_not_fault_forever() {
        extern "C" fn returns(_: libc::c_int) {}
        let before = || {
            // SAFETY: the handler does nothing.
            unsafe { libc::signal(libc::SIGSEGV, returns as *const () as libc::sighandler_t) };
            run_first();
        };
        let (sent, ended) = died_after(before, fault);
        assert_eq!(ended, Ended::killed(libc::SIGSEGV));
        assert_eq!(sent.map(|sent| sent.origin), Some(Origin::Fault));
    }

    fn fault() {
        let nowhere = std::ptr::without_provenance::<u8>(8);
        // SAFETY: it is unmapped, and the process ends there.
        std::hint::black_box(unsafe { nowhere.read_volatile() });
    }

    fn died(end: impl FnOnce()) -> (Option<Sent>, Ended) {
        died_after(|| (), end)
    }

    fn died_after(before: impl FnOnce(), end: impl FnOnce()) -> (Option<Sent>, Ended) {
        let memory = Memory::create("test", 2).unwrap();
        // SAFETY: the child only makes system calls, stores to memory and faults.
        let pid = match unsafe { fork() }.unwrap() {
            Side::Child => {
                crate::signal::reset_in_child();
                before();
                early(&memory);
                end();
                exit_now(1)
            }
            Side::Parent(pid) => pid,
        };
        let ended = match reap_pid(pid).unwrap() {
            Ended::Signal { number, .. } => Ended::killed(number),
            other => other,
        };
        let page = Words::map_writable(memory.writable.as_fd(), 1, 1).unwrap();
        let words = [0, 1].map(|index| page.words()[index].load(Ordering::Relaxed));
        (Sent::from_words(words), ended)
    }

    #[test]
    fn a_fault_and_a_full_stack_and_a_sent_signal_differ() {
        fn deep(depth: u64) -> u64 {
            let room = std::hint::black_box([depth; 64]);
            match room[0] {
                u64::MAX => 0,
                before => deep(before + 1) + room[63],
            }
        }
        let of = |signal: Signal, origin| {
            let sent = Sent {
                signal: signal as i32,
                origin,
                received: 0,
            };
            (Some(sent), Ended::killed(signal as i32))
        };
        assert_eq!(died(fault), of(Signal::SIGSEGV, Origin::Fault));
        let overflow = died(|| {
            std::hint::black_box(deep(std::hint::black_box(0)));
        });
        assert_eq!(overflow, of(Signal::SIGSEGV, Origin::StackOverflow));
        let (sent, ended) = died(|| {
            // SAFETY: system calls.
            unsafe { libc::kill(libc::getpid(), libc::SIGSEGV) };
        });
        assert_eq!(ended, Ended::killed(libc::SIGSEGV));
        assert!(
            matches!(
                sent,
                Some(Sent {
                    origin: Origin::Process { .. },
                    ..
                })
            ),
            "{sent:?}"
        );
    }

    #[test]
    fn the_request_is_kept_with_the_note() {
        let memory = Memory::create("test", 2 + received::PAGES).unwrap();
        let request: Vec<u8> = (0..MOST_REQUEST as u32).map(|number| number as u8).collect();
        for (length, kept) in [
            (0, 0),
            (13, 13),
            (received::MOST_BYTES, received::MOST_BYTES),
            (MOST_REQUEST, received::MOST_BYTES),
        ] {
            // SAFETY: the child only makes system calls, and stores to memory.
            let pid = match unsafe { fork() }.unwrap() {
                Side::Child => {
                    crate::signal::reset_in_child();
                    early(&memory);
                    let note = Words::map_writable(memory.writable.as_fd(), 1, 1).unwrap();
                    let place = Words::map_writable(memory.writable.as_fd(), 2, received::PAGES).unwrap();
                    note.note_senders_at(0);
                    place.keep_received();
                    received::begin(&request[..length]);
                    let _ = nix::sys::signal::raise(Signal::SIGSEGV);
                    exit_now(1)
                }
                Side::Parent(pid) => pid,
            };
            let ended = reap_pid(pid).unwrap();
            assert!(matches!(ended, Ended::Signal { number: 11, .. }), "{ended:?}");
            let all = Words::map_readable(memory.writable.as_fd(), 2 + received::PAGES).unwrap();
            let words = |first: usize| all.words()[first].load(Ordering::Relaxed);
            let sent = Sent::from_words([0, 1].map(|index| words(PAGE_WORDS + index))).unwrap();
            assert_eq!(sent.received as usize, kept);
            let bytes = (0..kept).map(|at| words(2 * PAGE_WORDS + at / 8).to_ne_bytes()[at % 8]);
            assert!(bytes.eq(request[..kept].iter().copied()), "{length}");
        }
    }

    #[test]
    fn a_runtime_s_handler_of_faults_stays() {
        extern "C" fn of_the_runtime(_: libc::c_int) {
            exit_now(7)
        }
        let (sent, ended) = died_after(
            || {
                let handler = SigHandler::Handler(of_the_runtime);
                let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
                // SAFETY: the handler only exits.
                let _ = unsafe { sigaction(Signal::SIGSEGV, &action) };
            },
            || {
                let _ = nix::sys::signal::raise(Signal::SIGSEGV);
            },
        );
        assert_eq!((sent, ended), (None, Ended::Code(7)));
    }

    #[test]
    fn any_words_are_a_note_or_none() {
        assert_eq!(Sent::from_words([0, 0]), None);
        assert_eq!(Sent::from_words([u64::MAX, u64::MAX]), None);
        let faulted = Sent::from_words([7, 11 | 300 << 8 | 1 << 32]);
        assert_eq!(
            faulted.map(|sent| (sent.signal, sent.origin, sent.received)),
            Some((11, Origin::Fault, 300))
        );
        let kernel = Sent {
            signal: 15,
            origin: Origin::Kernel,
            received: 0,
        };
        assert_eq!(Sent::from_words([7, 15 | 0x80 << 32]), Some(kernel));
    }
}
