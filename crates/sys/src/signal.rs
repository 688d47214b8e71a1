//! Signal masks and actions around fork.

use super::sender::FAULTS;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction, sigprocmask};
use std::sync::atomic::{AtomicBool, Ordering};

/// Signals that end a command: Ctrl-C, the order to end, and the loss of the terminal.
const INTERRUPTS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// While this value lives, the first signal to end a command is only noted. The second one ends the process.
#[derive(Debug)]
pub struct Interrupts(());

impl Interrupts {
    /// Begins. A signal that the process ignores stays ignored.
    pub fn note() -> Interrupts {
        let noted = SigAction::new(
            SigHandler::Handler(note_interrupt),
            SaFlags::SA_RESETHAND | SaFlags::SA_RESTART,
            SigSet::empty(),
        );
        act_at_interrupts(&noted);
        Interrupts(())
    }

    /// Whether a signal has come.
    pub fn has_come(&self) -> bool {
        IS_INTERRUPTED.load(Ordering::SeqCst)
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        act_at_interrupts(&default);
    }
}

/// Sets the action of the signals that the process does not ignore.
fn act_at_interrupts(action: &SigAction) {
    for signal in INTERRUPTS {
        // SAFETY: the default action runs no code, and the handler only writes an atomic.
        let before = unsafe { sigaction(signal, action) };
        if let Ok(before) = before
            && before.handler() == SigHandler::SigIgn
        {
            // SAFETY: ignoring runs no code of ours.
            let _ = unsafe { sigaction(signal, &before) };
        }
    }
}

extern "C" fn note_interrupt(_: libc::c_int) {
    IS_INTERRUPTED.store(true, Ordering::SeqCst);
}

/// Returns a signal's name, or the number of an unknown signal.
pub fn name(signal: i32) -> String {
    let known = Signal::try_from(signal);
    known.map_or_else(|_| signal.to_string(), |signal| signal.as_str().to_owned())
}

/// Blocks every signal and returns the old mask.
pub fn block_all() -> SigSet {
    let mut before = SigSet::empty();
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before));
    before
}

/// Sets the signal mask.
pub fn restore(mask: &SigSet) {
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(mask), None);
}

/// Unblocks all signals.
pub fn unblock() {
    restore(&SigSet::empty());
}

/// As [`reset_in_child`], but the handlers of faults stay, and record nothing until
/// [`sender::install`](super::sender::install).
pub fn reset_in_child_but_faults() {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    let kept = FAULTS.map(|signal| {
        // SAFETY: the default action runs no code.
        (signal, unsafe { sigaction(signal, &default) })
    });
    reset_in_child();
    for (signal, action) in kept {
        if let Ok(action) = action {
            // SAFETY: restores the action of the same program.
            let _ = unsafe { sigaction(signal, &action) };
        }
    }
}

/// Resets a forked child: default actions, SIGPIPE ignored, no alternate stack, nothing blocked. Async-signal-safe.
pub fn reset_in_child() {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for signal in Signal::iterator() {
        if signal == Signal::SIGKILL || signal == Signal::SIGSTOP {
            continue;
        }
        // SAFETY: the default action runs no code.
        let _ = unsafe { sigaction(signal, &default) };
    }
    ignore_pipe();
    let none = libc::stack_t {
        ss_sp: std::ptr::null_mut(),
        ss_flags: libc::SS_DISABLE,
        ss_size: 0,
    };
    // SAFETY: removes the alternate stack; no installed handler needs it.
    unsafe { libc::sigaltstack(&none, std::ptr::null_mut()) };
    restore(&SigSet::empty());
}

/// Exits as by SIGPIPE.
pub fn end_by_pipe() -> ! {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action runs no code.
    let _ = unsafe { sigaction(Signal::SIGPIPE, &default) };
    let mut pipe = SigSet::empty();
    pipe.add(Signal::SIGPIPE);
    let _ = pipe.thread_unblock();
    let _ = nix::sys::signal::raise(Signal::SIGPIPE);
    std::process::exit(128 + Signal::SIGPIPE as i32)
}

/// Resets SIGCHLD so that children can be waited for.
pub fn notice_children() {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action runs no code.
    let _ = unsafe { sigaction(Signal::SIGCHLD, &default) };
}

/// Makes writes to a closed pipe fail with EPIPE.
pub fn ignore_pipe() {
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: ignoring runs no code of ours.
    let _ = unsafe { sigaction(Signal::SIGPIPE, &ignore) };
}
