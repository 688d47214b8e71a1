//! By the C ABI: a worker that serves several requests at a time, for languages with an event loop.

use super::Text;
use super::preloader::CPreloader;
use super::worker::CWorker;
use crate::worker::{Concurrent, Piece, Sent, When};
use fastcgi::Params;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::IntoRawFd;

/// `FORKYARD_LAST`.
const LAST: u32 = 1;

/// `FORKYARD_GONE`.
const GONE: i64 = -1;
/// What the result of [`forkyard_concurrent_send`] says beside how many bytes were taken.
const IS_FULL: i64 = 1 << 62;
const HAS_MORE: i64 = 1 << 61;

/// Begins to serve several requests at a time. Null: it could not; the log says why, and the process has to end.
///
/// # Safety
/// As the header says: in a worker, once. `preloader` is gone afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_concurrent_begin(preloader: *mut CPreloader) -> *mut CWorker {
    // SAFETY: the header's contract: it came from forkyard_preloader_begin and is not used again.
    let preloader = unsafe { Box::from_raw(preloader) };
    let Some((context, own)) = preloader.into_contexts() else {
        return std::ptr::null_mut();
    };
    match Concurrent::begin(context, own) {
        Ok(concurrent) => Box::into_raw(Box::new(CWorker::of_concurrent(concurrent))),
        Err(error) => {
            log::error!("worker failed to initialize: {error}");
            std::ptr::null_mut()
        }
    }
}

/// # Safety
/// As the header says: it came from forkyard_concurrent_begin; C calls from one thread, one call at a time.
unsafe fn worker<'a>(worker: *mut CWorker) -> Option<&'a mut Concurrent> {
    // SAFETY: the caller's promise.
    unsafe { (*worker).concurrent.as_mut() }
}

/// The descriptor to watch.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_concurrent_descriptor(this: *mut CWorker) -> c_int {
    // SAFETY: the header's contract.
    unsafe { worker(this) }.map_or(-1, |worker| worker.descriptor())
}

/// What has come up. 1: there is more, to be asked for soon.
///
/// # Safety
/// As the header says: `events` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_concurrent_turn(this: *mut CWorker, events: *mut Text) -> c_int {
    // SAFETY: the header's contract.
    let Some(worker) = (unsafe { worker(this) }) else {
        return 0;
    };
    super::children::end_child();
    let (bytes, more) = worker.turn();
    // SAFETY: the header's contract.
    unsafe { *events = text(bytes) };
    // Bits: FORKYARD_MORE and FORKYARD_NO_ROOM.
    c_int::from(more) | c_int::from(!worker.has_room()) << 1
}

/// A piece of an answer.
///
/// # Safety
/// As the header says: `bytes` has `length` bytes.
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
    let (worker, data) = unsafe { (worker(this), super::bytes(data, length)) };
    let Some(worker) = worker else { return GONE };
    let data = data.get(from..).unwrap_or_default();
    let when = if flags & LAST != 0 { When::Last } else { When::Now };
    match worker.send(request, data, when) {
        Sent::Gone => GONE,
        Sent::Taken { count, is_full } => {
            let full = if is_full { IS_FULL } else { 0 };
            let more = if worker.has_more() { HAS_MORE } else { 0 };
            count as i64 | full | more
        }
    }
}

/// Text for the web server's error log.
///
/// # Safety
/// As the header says: `text` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_concurrent_send_error(
    this: *mut CWorker,
    request: u64,
    text: *const c_char,
    length: usize,
) {
    // SAFETY: the header's contract.
    let (worker, text) = unsafe { (worker(this), super::bytes(text.cast(), length)) };
    if let Some(worker) = worker {
        worker.send_error(request, text);
    }
}

/// The next piece of a request's body.
///
/// # Safety
/// As the header says: `piece` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_concurrent_read(
    this: *mut CWorker,
    request: u64,
    piece: *mut Text,
) -> c_int {
    // SAFETY: the header's contract.
    let Some(worker) = (unsafe { worker(this) }) else {
        return GONE as c_int;
    };
    let (what, bytes) = worker.read(request);
    // SAFETY: the header's contract.
    unsafe { *piece = text(bytes) };
    match what {
        Piece::More => 1,
        Piece::Last => 0,
        Piece::NotYet => super::NOT_YET as c_int,
        Piece::Gone => GONE as c_int,
    }
}

/// The application is done with a request whose answer is not complete.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_concurrent_abandon(this: *mut CWorker, request: u64) {
    // SAFETY: the header's contract.
    if let Some(worker) = unsafe { worker(this) } {
        worker.abandon(request);
    }
}

/// The listening socket at which HTTP is spoken; -1: there is none.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_concurrent_http(this: *mut CWorker) -> c_int {
    // SAFETY: the header's contract.
    let worker = unsafe { worker(this) };
    worker.and_then(|worker| worker.http()).unwrap_or(-1)
}

/// Accepts a connection there: its descriptor, or -1: there is none, or -3: there is no room for it.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_concurrent_accept(this: *mut CWorker) -> c_int {
    // SAFETY: the header's contract.
    let Some(worker) = (unsafe { worker(this) }) else {
        return -1;
    };
    if !worker.has_room() {
        return -3;
    }
    let client = worker.accept_http();
    client.map_or(-1, IntoRawFd::into_raw_fd)
}

/// A request begins that the event loop serves itself. `params`: names and values in turn, each with a NUL behind it.
///
/// # Safety
/// As the header says: `params` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_concurrent_visit(
    this: *mut CWorker,
    params: *const c_char,
    length: usize,
) -> u64 {
    // SAFETY: the header's contract.
    let (worker, bytes) = unsafe { (worker(this), super::bytes(params.cast(), length)) };
    let mut said = Params::new();
    let mut parts = bytes.split(|byte| *byte == 0);
    while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
        said.set(name, value);
    }
    worker.map_or(0, |worker| worker.begin_visit(said))
}

/// A request has become a connection that lasts for as long as both ends want.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_concurrent_endless(this: *mut CWorker, request: u64) {
    // SAFETY: the header's contract.
    if let Some(worker) = unsafe { worker(this) } {
        worker.is_endless(request);
    }
}

/// A part of an answer was sent that the event loop sends itself, or the answer has begun.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_concurrent_sent(this: *mut CWorker, request: u64) {
    // SAFETY: the header's contract.
    if let Some(worker) = unsafe { worker(this) } {
        worker.was_sent(request);
    }
}

/// The worker ends once its requests are answered.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_concurrent_retire(this: *mut CWorker) {
    // SAFETY: the header's contract.
    if let Some(worker) = unsafe { worker(this) } {
        worker.retire();
    }
}

/// The application asks for out-of-band work.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_concurrent_want_work(this: *mut CWorker) {
    // SAFETY: the header's contract.
    if let Some(worker) = unsafe { worker(this) } {
        worker.want_work();
    }
}

/// Bytes for C, without a NUL behind them.
fn text(bytes: &[u8]) -> Text {
    Text {
        data: bytes.as_ptr().cast(),
        length: bytes.len(),
    }
}
