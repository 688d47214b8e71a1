//! C ABI: turns a copy of a worker into a preloader.

use super::preloader::CPreloader;
use super::worker::{CWorker, several};
use crate::php::protocol::Answer;
use crate::preloader::{Preloader, Socket, failure, left_open};
use forkyard_sys::process::{Side, fork_sibling_with_handlers};
use forkyard_sys::{Error, fd, sender, session, signal};
use forkyard_worker::Promotion;
use std::ffi::{c_char, c_int};
use std::os::fd::AsFd;

/// Returns 1 if [`super::worker::forkyard_worker_next`] returned null because the worker should create a preloader.
///
/// # Safety
/// See `forkyard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_worker_promotes(worker: *mut CWorker) -> c_int {
    // SAFETY: the header's contract.
    c_int::from(match unsafe { several(worker) } {
        Some(several) => several.must_promote(),
        // SAFETY: the header's contract: C calls from one thread, one call at a time.
        None => unsafe { (*worker).worker() }.is_some_and(|worker| worker.must_promote()),
    })
}

/// Forks the preloader. Returns 0 in it and its pid in the worker; -1: failed and reported.
///
/// # Safety
/// See `forkyard.h`: the process has one thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_worker_fork(worker: *mut CWorker) -> c_int {
    // SAFETY: the header's contract: there is one thread, and the child continues with forkyard_worker_promoted.
    match unsafe { fork_sibling_with_handlers() } {
        Ok(Side::Child) => {
            signal::reset_in_child();
            sender::give_all_back();
            0
        }
        Ok(Side::Parent(pid)) => {
            // SAFETY: the header's contract.
            unsafe { tell(worker, &Answer::Promoted { pid }) };
            pid
        }
        Err(error) => {
            // SAFETY: the header's contract.
            unsafe { tell(worker, &failure(None, error.to_string())) };
            -1
        }
    }
}

/// For a runtime that forks itself: reports the preloader's pid, or a failure if it is below 1.
///
/// # Safety
/// See `forkyard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_worker_forked(worker: *mut CWorker, pid: c_int) {
    let answer = if pid > 0 {
        Answer::Promoted { pid }
    } else {
        failure(None, "fork failed")
    };
    // SAFETY: the header's contract.
    unsafe { tell(worker, &answer) };
}

/// Rejects the promotion; the master logs the reason.
///
/// # Safety
/// See `forkyard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_worker_refuse(worker: *mut CWorker, message: *const c_char, length: usize) {
    // SAFETY: the header's contract.
    let message = unsafe { super::bytes(message.cast(), length) };
    // SAFETY: the header's contract.
    unsafe { tell(worker, &failure(None, String::from_utf8_lossy(message))) };
}

/// Returns 1, and rejects the promotion, if the worker has open connections, which the new workers would share.
///
/// # Safety
/// See `forkyard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_worker_shares(worker: *mut CWorker) -> c_int {
    let servers: Vec<String> = left_open().into_iter().collect();
    if servers.is_empty() {
        return 0;
    }
    let message = format!(
        "it has connections open: {}. Close them in a function for before_fork, or write preload = true",
        servers.join(", ")
    );
    // SAFETY: the header's contract.
    unsafe { tell(worker, &failure(None, message)) };
    1
}

/// In the new process: turns the worker into a preloader. Null: the process must exit.
///
/// # Safety
/// See `forkyard.h`: once, in the new process. Frees `worker`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_worker_promoted(worker: *mut CWorker) -> *mut CPreloader {
    // SAFETY: the header's contract.
    let promotion = unsafe { take_promotion(worker) };
    // SAFETY: the header's contract: it came from a function that begins a worker and is not used again here.
    let worker = unsafe { Box::from_raw(worker) };
    let Some(promotion) = promotion else {
        return std::ptr::null_mut();
    };
    // Otherwise it would be killed with the worker's process group.
    if let Err(error) = session::begin_group() {
        log::error!("{error}");
        return std::ptr::null_mut();
    }
    drop(worker);
    match begin(promotion) {
        Ok(Some(preloader)) => Box::into_raw(Box::new(CPreloader::new(preloader))),
        Ok(None) => std::ptr::null_mut(),
        Err(error) => {
            log::error!("{error}");
            std::ptr::null_mut()
        }
    }
}

fn begin(promotion: Promotion) -> Result<Option<Preloader>, crate::preloader::Error> {
    let Promotion {
        channel,
        output,
        null,
    } = promotion;
    let streams: Result<(), Error> =
        fd::replace_standard_streams(null.as_fd(), Some((output.as_fd(), output.as_fd())));
    streams?;
    drop(output);
    Preloader::begin_promoted(Socket::new(channel)?, null)
}

/// Answers the master and drops the promotion.
///
/// # Safety
/// As for all functions of a worker.
unsafe fn tell(worker: *mut CWorker, answer: &Answer) {
    // SAFETY: the caller's promise.
    let promotion = unsafe { take_promotion(worker) };
    if let Some(Ok(socket)) = promotion.map(|promotion| Socket::new(promotion.channel)) {
        socket.answer(answer);
    }
}

/// # Safety
/// As for all functions of a worker.
unsafe fn take_promotion(worker: *mut CWorker) -> Option<Promotion> {
    // SAFETY: the caller's promise.
    match unsafe { several(worker) } {
        Some(several) => several.take_promotion(),
        // SAFETY: the caller's promise; such a worker has one thread.
        None => unsafe { (*worker).worker() }?.take_promotion(),
    }
}
