//! C ABI: a worker that serves requests on several threads.

use super::preloader::CPreloader;
use super::worker::{self, CWorker, Engine, of_several};
use super::{GONE, LAST, PROMOTES, Text, WORKS};
use forkyard_worker::{Piece, Threads, When, Wish};
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};

const LATER: u32 = 2;

thread_local! {
    static HANDED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static REQUEST: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Starts serving. Null: failed and logged; the process must exit.
///
/// # Safety
/// See `forkyard.h`: once, in a worker. Frees `preloader`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_threads_begin(preloader: *mut CPreloader) -> *mut CWorker {
    // SAFETY: the header's contract.
    unsafe {
        worker::begin(preloader, Threads::begin, |threads| {
            Engine::Threads(Box::new(threads))
        })
    }
}

/// # Safety
/// As [`worker::several`].
unsafe fn threads<'a>(worker: *mut CWorker) -> Option<&'a Threads> {
    // SAFETY: the caller's promise; the field is not written to once the worker is made.
    match unsafe { &(*worker).engine } {
        Engine::Threads(threads) => Some(threads),
        Engine::One(_) | Engine::EventLoop(_) => None,
    }
}

/// Manages the worker until it should create a preloader (1), do out-of-band work (2) or exit (0).
///
/// # Safety
/// See `forkyard.h`: from one thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_threads_mind(worker: *mut CWorker) -> c_int {
    // SAFETY: the header's contract.
    match unsafe { threads(worker) }.map_or(Wish::End, Threads::mind) {
        Wish::Promote => PROMOTES,
        Wish::Work => WORKS,
        Wish::End => 0,
    }
}

/// Returns 1 and the thread's next request as a record, or 0 if the thread must exit.
///
/// # Safety
/// See `forkyard.h`: `record` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_threads_next(worker: *mut CWorker, record: *mut Text) -> c_int {
    // SAFETY: the header's contract.
    let Some(threads) = (unsafe { threads(worker) }) else {
        return 0;
    };
    super::children::end_child();
    HANDED.with_borrow_mut(|handed| {
        let request = threads.next(REQUEST.get(), handed);
        REQUEST.set(request);
        // SAFETY: the header's contract.
        unsafe { *record = Text::of(handed) };
        c_int::from(request.is_some())
    })
}

/// Waits for the next piece of a request's body.
///
/// # Safety
/// See `forkyard.h`: `piece` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_threads_read(
    worker: *mut CWorker,
    request: u64,
    piece: *mut Text,
) -> c_int {
    // SAFETY: the header's contract.
    let Some(threads) = (unsafe { threads(worker) }) else {
        return GONE as c_int;
    };
    HANDED.with_borrow_mut(|handed| {
        let found = threads.read(request, handed);
        // SAFETY: the header's contract.
        unsafe { *piece = Text::of(handed) };
        match found {
            Piece::More => 1,
            Piece::Last => 0,
            Piece::NotYet | Piece::Gone => GONE as c_int,
        }
    })
}

/// Queues a piece of an answer; does not block.
///
/// # Safety
/// See `forkyard.h`: `data` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_threads_send(
    worker: *mut CWorker,
    request: u64,
    data: *const c_void,
    from: usize,
    length: usize,
    flags: u32,
) -> i64 {
    // SAFETY: the header's contract.
    let (threads, data) = unsafe { (threads(worker), super::bytes(data, length)) };
    let Some(threads) = threads else { return GONE };
    let when = match flags {
        LAST => When::Last,
        LATER => When::Later,
        _ => When::Now,
    };
    super::sent(threads.send(request, data.get(from..).unwrap_or_default(), when))
}

/// Waits for room in the answer's buffer. Returns 1, or -1 (`FORKYARD_GONE`) if the client is gone.
///
/// # Safety
/// See `forkyard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_threads_wait(worker: *mut CWorker, request: u64) -> c_int {
    // SAFETY: the header's contract.
    match unsafe { threads(worker) } {
        Some(threads) if threads.wait_for_room(request) => 1,
        _ => GONE as c_int,
    }
}

of_several!(
    forkyard_threads_send_error,
    forkyard_threads_abandon,
    forkyard_threads_retire,
    forkyard_threads_want_work
);
