//! By the C ABI: a worker is asked what it is busy with.

use super::preloader::CPreloader;
use crate::sys::question;
use std::ffi::c_int;
use std::os::fd::IntoRawFd;

/// What the worker writes from here on is its own, and no longer its preloader's: the first that it calls.
///
/// # Safety
/// As the header says: in a worker, before it begins to serve.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_worker_settle_output(preloader: *mut CPreloader) {
    // SAFETY: the header's contract: it came from forkyard_preloader_begin and is not used elsewhere now.
    if let Err(error) = unsafe { &mut *preloader }.settle() {
        log::error!(
            "a worker's output goes to its preloader, or its children count as the preloader's: {error}"
        );
    }
}

/// The socket over which the worker is asked; it is the caller's from then on. -1: the worker is never asked.
/// `by_signal`: the worker answers by a handler for the signal; if the application has taken the signal, the worker
/// can't be asked.
///
/// # Safety
/// As the header says: in a worker, before it begins to serve.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_worker_questions(preloader: *mut CPreloader, by_signal: c_int) -> c_int {
    // SAFETY: the header's contract: it came from forkyard_preloader_begin and is not used elsewhere now.
    let questions = unsafe { &mut *preloader }.take_questions();
    match questions {
        Some(_) if by_signal != 0 && !question::is_free() => -1,
        Some(socket) => socket.into_raw_fd(),
        None => -1,
    }
}

/// The handler of the signal that is installed now writes to this socket: each of its answers is ended. 0, or -1: there is
/// none.
#[unsafe(no_mangle)]
pub extern "C" fn forkyard_worker_end_answers(socket: c_int) -> c_int {
    question::end_answers(socket).map_or(-1, |()| 0)
}
