//! Signals around fork.

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction, sigprocmask};

/// Blocks every signal and says what was blocked before.
pub fn block_all() -> SigSet {
    let mut before = SigSet::empty();
    // Only fails for a wrong `how`.
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before));
    before
}

/// Sets the mask of blocked signals.
pub fn restore(mask: &SigSet) {
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(mask), None);
}

/// Blocks no signal.
pub fn unblock() {
    restore(&SigSet::empty());
}

/// For a child after fork, before it unblocks: every handler back to its default, SIGPIPE ignored, Rust's own
/// stack-overflow handlers and alternate stack gone, nothing blocked. Async-signal-safe.
pub fn reset_in_child() {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for signal in Signal::iterator() {
        if signal == Signal::SIGKILL || signal == Signal::SIGSTOP {
            continue;
        }
        // SAFETY: the default action runs no code of ours.
        let _ = unsafe { sigaction(signal, &default) };
    }
    ignore_pipe();
    let none = libc::stack_t {
        ss_sp: std::ptr::null_mut(),
        ss_flags: libc::SS_DISABLE,
        ss_size: 0,
    };
    // SAFETY: takes the alternate stack away; no handler that needs it is installed any more.
    unsafe { libc::sigaltstack(&none, std::ptr::null_mut()) };
    restore(&SigSet::empty());
}

/// Ends this process as a program that writes to a closed pipe, and does not ignore SIGPIPE.
pub fn end_by_pipe() -> ! {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action runs no code of ours.
    let _ = unsafe { sigaction(Signal::SIGPIPE, &default) };
    let mut pipe = SigSet::empty();
    pipe.add(Signal::SIGPIPE);
    let _ = pipe.thread_unblock();
    let _ = nix::sys::signal::raise(Signal::SIGPIPE);
    // What a shell says of such an end.
    std::process::exit(128 + Signal::SIGPIPE as i32)
}

/// Children that end can be waited for, whatever this process did with SIGCHLD before.
pub fn notice_children() {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action runs no code of ours.
    let _ = unsafe { sigaction(Signal::SIGCHLD, &default) };
}

/// Writing to a closed pipe or socket is an error, not a signal.
pub fn ignore_pipe() {
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: ignoring runs no code of ours.
    let _ = unsafe { sigaction(Signal::SIGPIPE, &ignore) };
}
