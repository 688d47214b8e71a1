//! C ABI: a worker that pulls its requests, for languages that avoid callbacks.

use super::children;
use super::preloader::{AnswerFn, CPreloader, Foreign, Usage};
use super::{Handle, PROMOTES, Text, WORKS};
use fastcgi::Params;
use forkyard_sys::Error;
use forkyard_worker::{
    Concurrent, GenerationContext, Request, Runtime, Several, Threads, Worker, WorkerContext,
};
use std::ffi::{c_int, c_void};

/// `forkyard_worker`.
#[derive(Debug)]
pub struct CWorker {
    /// Borrows from the worker of [`Engine::One`], which nothing else uses while it exists. Boxed: C holds a pointer to
    /// it.
    request: Option<Box<Request<'static>>>,
    usage: Usage,
    pub(super) engine: Engine,
}

/// How a worker serves. Threads access only this, through [`several`].
#[derive(Debug)]
pub(super) enum Engine {
    /// Owned; a raw pointer because a request borrows from it.
    One(*mut Worker),
    EventLoop(Concurrent),
    /// Boxed because it is large.
    Threads(Box<Threads>),
}

impl CWorker {
    pub(super) fn worker(&mut self) -> Option<&mut Worker> {
        self.request = None;
        match self.engine {
            // SAFETY: owned by `self`, and its borrower is gone.
            Engine::One(worker) => unsafe { worker.as_mut() },
            Engine::EventLoop(_) | Engine::Threads(_) => None,
        }
    }
}

/// Begins a worker of a kind. Null: failed and logged.
///
/// # Safety
/// `preloader` came from forkyard_preloader_begin and is not used again.
pub(super) unsafe fn begin<W>(
    preloader: *mut CPreloader,
    begin: fn(GenerationContext, WorkerContext) -> Result<W, Error>,
    engine: fn(W) -> Engine,
) -> *mut CWorker {
    // SAFETY: the caller's promise.
    let preloader = unsafe { Box::from_raw(preloader) };
    let Some((context, own)) = preloader.into_contexts() else {
        return std::ptr::null_mut();
    };
    match begin(context, own) {
        Ok(worker) => Box::into_raw(Box::new(CWorker {
            request: None,
            usage: Usage::default(),
            engine: engine(worker),
        })),
        Err(error) => {
            log::error!("worker failed to initialize: {error}");
            std::ptr::null_mut()
        }
    }
}

/// The shared part of a worker with several requests; `None` for one with one request at a time.
///
/// # Safety
/// `worker` came from a function that creates one, and is not freed while threads use it.
pub(super) unsafe fn several<'a>(worker: *mut CWorker) -> Option<&'a Several> {
    // SAFETY: the caller's promise; the field is not written to once the worker is made.
    match unsafe { &(*worker).engine } {
        Engine::One(_) => None,
        Engine::EventLoop(concurrent) => Some(concurrent),
        Engine::Threads(threads) => Some(threads),
    }
}

/// Functions of a worker with several requests, under the names of its kind.
macro_rules! of_several {
    ($send_error:ident, $abandon:ident, $retire:ident, $want_work:ident) => {
        /// Sends text to the web server's error log; does not block.
        ///
        /// # Safety
        /// See `forkyard.h`: `text` has `length` bytes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $send_error(
            worker: *mut CWorker,
            request: u64,
            text: *const std::ffi::c_char,
            length: usize,
        ) -> i64 {
            // SAFETY: the header's contract.
            let (worker, text) = unsafe { (worker::several(worker), super::bytes(text.cast(), length)) };
            worker.map_or(super::GONE, |worker| {
                super::sent(worker.send_error(request, text))
            })
        }

        /// Gives up a request without a complete answer.
        ///
        /// # Safety
        /// See `forkyard.h`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $abandon(worker: *mut CWorker, request: u64) {
            // SAFETY: the header's contract.
            if let Some(worker) = unsafe { worker::several(worker) } {
                worker.abandon(request);
            }
        }

        /// Makes the worker exit after its current requests.
        ///
        /// # Safety
        /// See `forkyard.h`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $retire(worker: *mut CWorker) {
            // SAFETY: the header's contract.
            if let Some(worker) = unsafe { worker::several(worker) } {
                worker.retire();
            }
        }

        /// Requests out-of-band work.
        ///
        /// # Safety
        /// See `forkyard.h`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $want_work(worker: *mut CWorker) {
            // SAFETY: the header's contract.
            if let Some(worker) = unsafe { worker::several(worker) } {
                worker.want_work();
            }
        }
    };
}
pub(super) use of_several;

impl Drop for CWorker {
    fn drop(&mut self) {
        self.request = None;
        if let Engine::One(worker) = self.engine {
            // SAFETY: made by Box::into_raw, freed only here, and its borrower is gone.
            drop(unsafe { Box::from_raw(worker) });
        }
    }
}

/// Starts serving. Null: failed and logged; the process must exit.
///
/// # Safety
/// See `forkyard.h`: once, in a worker. Frees `preloader`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_worker_begin(preloader: *mut CPreloader) -> *mut CWorker {
    // SAFETY: the header's contract.
    unsafe {
        begin(preloader, Worker::begin, |worker| {
            Engine::One(Box::into_raw(Box::new(worker)))
        })
    }
}

/// Ends the current request and waits for the next. Null: the worker must exit.
///
/// # Safety
/// See `forkyard.h`. Frees the current request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_worker_next(worker: *mut CWorker) -> *mut Handle {
    children::end_child();
    // SAFETY: the header's contract: it came from forkyard_worker_begin; C calls from one thread, one call at a time.
    let this = unsafe { &mut *worker };
    loop {
        if let Some(request) = this.request.take() {
            request.release();
        }
        let Engine::One(worker) = this.engine else {
            return std::ptr::null_mut();
        };
        // SAFETY: owned by `this`, and nothing borrows from it now.
        let worker: &'static mut Worker = unsafe { &mut *worker };
        if !worker.advance() {
            return std::ptr::null_mut();
        }
        let mut request = worker.request();
        if request.is_for_application() {
            this.usage.tell(&mut request);
            return super::handle(this.request.insert(Box::new(request)));
        }
        request.release();
    }
}

/// Calls `answer` for each request. Returns 1 if the worker should create a preloader, 2 if it should do out-of-band
/// work (call again afterwards in both cases), or 0 to exit.
///
/// # Safety
/// See `forkyard.h`; `answer` may be called with `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_worker_serve(
    worker: *mut CWorker,
    answer: AnswerFn,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the header's contract: it came from forkyard_worker_begin; C calls from one thread, one call at a time.
    let this = unsafe { &mut *worker };
    let usage = std::mem::take(&mut this.usage);
    let mut runtime = Foreign { answer, data, usage };
    let Some(worker) = this.worker() else { return 0 };
    while worker.advance() {
        let mut request = worker.request();
        runtime.answer(&mut request);
        children::end_child();
        request.release();
    }
    let next = if worker.must_promote() {
        PROMOTES
    } else if worker.has_out_of_band_work() {
        WORKS
    } else {
        0
    };
    this.usage = runtime.usage;
    next
}

/// Frees the worker and returns the exit code.
///
/// # Safety
/// See `forkyard.h`: once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_worker_end(worker: *mut CWorker) -> c_int {
    // SAFETY: the header's contract.
    if let Engine::Threads(threads) = unsafe { &(*worker).engine } {
        // Not freed: a thread that is stuck in a request may still return to it.
        return threads.exit_code();
    }
    // SAFETY: the header's contract: it came from a function that begins a worker.
    let mut this = unsafe { Box::from_raw(worker) };
    match &this.engine {
        Engine::EventLoop(concurrent) => concurrent.exit_code(),
        Engine::One(_) | Engine::Threads(_) => this.worker().map_or(0, |worker| worker.exit_code()),
    }
}

/// Writes all parameters as one block, as far as they fit, and returns its total length.
///
/// # Safety
/// See `forkyard.h`: `buffer` has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_request_params_packed(
    request: *const Handle,
    buffer: *mut c_void,
    length: usize,
) -> usize {
    // SAFETY: the header's contract.
    let (params, buffer) = unsafe { (super::shared(request).params(), super::room(buffer, length)) };
    pack(params, buffer)
}

/// The pool's application as JSON, for languages that can't receive a struct.
///
/// # Safety
/// See `forkyard.h`: `text` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_preloader_application_text(preloader: *mut CPreloader, text: *mut Text) {
    // SAFETY: the header's contract.
    unsafe { *text = super::preloader::forkyard_preloader_application(preloader) };
}

/// Packs all names, an empty name, and all values in the same order, each followed by NUL. A caller can compare the
/// names with the previous request's, which are mostly equal. Omits pairs with a NUL or an empty name; never writes
/// part of a text.
fn pack(params: &Params, buffer: &mut [u8]) -> usize {
    let pairs = || {
        params
            .iter()
            .filter(|(name, value)| !name.is_empty() && !name.contains(&0) && !value.contains(&0))
    };
    let mut used = 0;
    let mut put = |text: &[u8]| {
        let end = used + text.len();
        if let Some(room) = buffer.get_mut(used..=end) {
            room[..text.len()].copy_from_slice(text);
            room[text.len()] = 0;
        }
        used = end + 1;
    };
    pairs().for_each(|(name, _)| put(name));
    put(b"");
    pairs().for_each(|(_, value)| put(value));
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_packed_in_order_and_those_with_a_nul_left_out() {
        let mut params = Params::new();
        params.set(b"A", b"one");
        params.set(b"B\0C", b"two");
        params.set(b"D", b"th\0ree");
        params.set(b"E", b"");
        let mut buffer = [b'x'; 32];
        params.set(b"", b"nameless");
        assert_eq!(pack(&params, &mut buffer), 10);
        assert_eq!(&buffer[..11], b"A\0E\0\0one\0\0x");
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let mut params = Params::new();
        params.set(b"NAME", b"value");
        let mut buffer = [b'x'; 4];
        assert_eq!(pack(&params, &mut buffer), 12);
        assert_eq!(&buffer, b"xxxx");
        assert_eq!(pack(&params, &mut []), 12);
    }
}
