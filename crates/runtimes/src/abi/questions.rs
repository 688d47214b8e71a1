//! C ABI: asks a worker for its present calls.

use super::preloader::CPreloader;
use forkyard_sys::question;
use std::ffi::c_int;
use std::os::fd::IntoRawFd;

/// Separates the worker's output from the preloader's. Call it first in a worker.
///
/// # Safety
/// See `forkyard.h`: before the worker serves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_worker_settle_output(preloader: *mut CPreloader) {
    // SAFETY: the header's contract: it came from forkyard_preloader_begin and is not used elsewhere now.
    if let Err(error) = unsafe { &mut *preloader }.settle() {
        log::error!(
            "a worker's output goes to its preloader, or its children count as the preloader's: {error}"
        );
    }
}

/// Returns the socket for questions, which the caller then owns; -1: the worker is never asked. `by_signal`: a signal
/// handler answers; -1 if the application already uses the signal.
///
/// # Safety
/// See `forkyard.h`: before the worker serves.
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

/// Makes the installed signal handler, which writes to this socket, end each answer. Returns -1 if there is no handler.
#[unsafe(no_mangle)]
pub extern "C" fn forkyard_worker_end_answers(socket: c_int) -> c_int {
    question::end_answers(socket).map_or(-1, |()| 0)
}
