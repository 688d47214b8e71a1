//! C ABI: out-of-band work.

use super::worker::{CWorker, several};
use forkyard_worker::WorkError;
use std::ffi::{c_char, c_int};

/// Returns 1 if [`super::worker::forkyard_worker_next`] returned null because the worker should do out-of-band work.
///
/// # Safety
/// See `forkyard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_worker_works(worker: *mut CWorker) -> c_int {
    // SAFETY: the header's contract: it came from forkyard_worker_begin; C calls from one thread, one call at a time.
    let worker = unsafe { (*worker).worker() };
    c_int::from(worker.is_some_and(|worker| worker.has_out_of_band_work()))
}

/// Reports the work as done. A non-empty message is a failure and is logged.
///
/// # Safety
/// See `forkyard.h`: `message` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_worker_worked(worker: *mut CWorker, message: *const c_char, length: usize) {
    // SAFETY: the header's contract.
    let message = unsafe { super::bytes(message.cast(), length) };
    let outcome = match message {
        [] => Ok(()),
        message => Err(WorkError::Application(
            String::from_utf8_lossy(message).into_owned(),
        )),
    };
    // SAFETY: the header's contract.
    if let Some(several) = unsafe { several(worker) } {
        return several.out_of_band_done(outcome);
    }
    // SAFETY: the header's contract: it came from forkyard_worker_begin; C calls from one thread, one call at a time.
    if let Some(worker) = unsafe { (*worker).worker() } {
        worker.out_of_band_done(outcome);
    }
}
