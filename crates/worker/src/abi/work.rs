//! Out-of-band work, by the C ABI.

use super::worker::CWorker;
use std::ffi::{c_char, c_int};

/// 1: [`super::worker::forkyard_worker_next`] said that there is no request because the worker is to do out-of-band work.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_worker_works(worker: *mut CWorker) -> c_int {
    // SAFETY: the header's contract: it came from forkyard_worker_begin; C calls from one thread, one call at a time.
    c_int::from(unsafe { (*worker).has_out_of_band_work() })
}

/// The work is done, well if the message is empty; what it says else is logged.
///
/// # Safety
/// As the header says: the message has this many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_worker_worked(worker: *mut CWorker, message: *const c_char, length: usize) {
    // SAFETY: the header's contract.
    let message = unsafe { super::bytes(message.cast(), length) };
    let outcome = match message {
        [] => Ok(()),
        message => Err(String::from_utf8_lossy(message).into_owned()),
    };
    // SAFETY: the header's contract.
    if let Some(threads) = unsafe { super::threads::shared(worker) } {
        return threads.out_of_band_done(outcome);
    }
    // SAFETY: the header's contract: it came from forkyard_worker_begin; C calls from one thread, one call at a time.
    unsafe { (*worker).out_of_band_done(outcome) };
}
