//! C ABI: a worker that serves several requests at a time, for event loops.

use super::preloader::CPreloader;
use super::worker::{self, CWorker, Engine, of_several};
use super::{GONE, LAST, NOT_YET, Text};
use fastcgi::Params;
use forkyard_worker::{Concurrent, Piece, When};
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::IntoRawFd;

/// Flag in the result of [`forkyard_concurrent_send`], next to the number of bytes.
const HAS_MORE: i64 = 1 << 61;

/// Starts serving. Null: failed and logged; the process must exit.
///
/// # Safety
/// See `forkyard.h`: once, in a worker. Frees `preloader`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_concurrent_begin(preloader: *mut CPreloader) -> *mut CWorker {
    // SAFETY: the header's contract.
    unsafe { worker::begin(preloader, Concurrent::begin, Engine::EventLoop) }
}

/// # Safety
/// `worker` came from forkyard_concurrent_begin; C calls from one thread, one call at a time.
unsafe fn event_loop<'a>(worker: *mut CWorker) -> Option<&'a mut Concurrent> {
    // SAFETY: the caller's promise.
    match unsafe { &mut (*worker).engine } {
        Engine::EventLoop(concurrent) => Some(concurrent),
        Engine::One(_) | Engine::Threads(_) => None,
    }
}

/// The descriptor to watch.
///
/// # Safety
/// See `forkyard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_concurrent_descriptor(this: *mut CWorker) -> c_int {
    // SAFETY: the header's contract.
    unsafe { event_loop(this) }.map_or(-1, |worker| worker.descriptor())
}

/// Returns new events. 1: there are more.
///
/// # Safety
/// See `forkyard.h`: `events` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_concurrent_turn(this: *mut CWorker, events: *mut Text) -> c_int {
    // SAFETY: the header's contract.
    let Some(worker) = (unsafe { event_loop(this) }) else {
        return 0;
    };
    super::children::end_child();
    let (bytes, more) = worker.turn();
    // SAFETY: the header's contract.
    unsafe { *events = Text::of(bytes) };
    // Bits: FORKYARD_MORE and FORKYARD_NO_ROOM.
    c_int::from(more) | c_int::from(!worker.has_room()) << 1
}

/// Sends a piece of an answer.
///
/// # Safety
/// See `forkyard.h`: `bytes` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_concurrent_send(
    this: *mut CWorker,
    request: u64,
    data: *const c_void,
    from: usize,
    length: usize,
    flags: u32,
) -> i64 {
    // SAFETY: the header's contract.
    let (worker, data) = unsafe { (event_loop(this), super::bytes(data, length)) };
    let Some(worker) = worker else { return GONE };
    let data = data.get(from..).unwrap_or_default();
    let when = if flags & LAST != 0 { When::Last } else { When::Now };
    match super::sent(worker.send(request, data, when)) {
        GONE => GONE,
        taken => taken | if worker.has_more() { HAS_MORE } else { 0 },
    }
}

/// Reads the next piece of a request's body.
///
/// # Safety
/// See `forkyard.h`: `piece` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_concurrent_read(
    this: *mut CWorker,
    request: u64,
    piece: *mut Text,
) -> c_int {
    // SAFETY: the header's contract.
    let Some(worker) = (unsafe { event_loop(this) }) else {
        return GONE as c_int;
    };
    let (what, bytes) = worker.read(request);
    // SAFETY: the header's contract.
    unsafe { *piece = Text::of(bytes) };
    match what {
        Piece::More => 1,
        Piece::Last => 0,
        Piece::NotYet => NOT_YET as c_int,
        Piece::Gone => GONE as c_int,
    }
}

/// The listening HTTP socket, or -1.
///
/// # Safety
/// See `forkyard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_concurrent_http(this: *mut CWorker) -> c_int {
    // SAFETY: the header's contract.
    let worker = unsafe { event_loop(this) };
    worker.and_then(|worker| worker.http()).unwrap_or(-1)
}

/// Accepts an HTTP connection. -1: there is none; -3: no room.
///
/// # Safety
/// See `forkyard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_concurrent_accept(this: *mut CWorker) -> c_int {
    // SAFETY: the header's contract.
    let Some(worker) = (unsafe { event_loop(this) }) else {
        return -1;
    };
    if !worker.has_room() {
        return -3;
    }
    let client = worker.accept_http();
    client.map_or(-1, IntoRawFd::into_raw_fd)
}

/// Starts a request that the event loop answers itself. `params`: names and values alternately, each ending with NUL.
///
/// # Safety
/// See `forkyard.h`: `params` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_concurrent_visit(
    this: *mut CWorker,
    params: *const c_char,
    length: usize,
) -> u64 {
    // SAFETY: the header's contract.
    let (worker, bytes) = unsafe { (event_loop(this), super::bytes(params.cast(), length)) };
    let mut said = Params::new();
    let mut parts = bytes.split(|byte| *byte == 0);
    while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
        said.set(name, value);
    }
    worker.map_or(0, |worker| worker.begin_visit(said))
}

/// Marks a request as a long-lived connection.
///
/// # Safety
/// See `forkyard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_concurrent_endless(this: *mut CWorker, request: u64) {
    // SAFETY: the header's contract.
    if let Some(worker) = unsafe { event_loop(this) } {
        worker.is_endless(request);
    }
}

/// Reports that the event loop started an answer or sent part of it.
///
/// # Safety
/// See `forkyard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_concurrent_sent(this: *mut CWorker, request: u64) {
    // SAFETY: the header's contract.
    if let Some(worker) = unsafe { event_loop(this) } {
        worker.was_sent(request);
    }
}

of_several!(
    forkyard_concurrent_send_error,
    forkyard_concurrent_abandon,
    forkyard_concurrent_retire,
    forkyard_concurrent_want_work
);
