//! The worker as a C ABI; `forkyard.h` is its contract.
//!
//! It has a table of functions over [`Request`], and functions that make a process in another language a preloader. All
//! functions trust the pointers from C.

pub mod anew;
pub mod children;
pub mod concurrent;
pub mod preloader;
pub mod promotion;
pub mod questions;
pub mod threads;
pub mod work;
pub mod worker;

use forkyard_scoreboard::RequestStage;
use forkyard_scoreboard::slot_writer::Description;
use forkyard_worker::{Request, Sent};
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;

const API_VERSION: u32 = 4;

const GONE: i64 = -1;
const NOT_YET: isize = -2;
const IS_FULL: i64 = 1 << 62;
const LAST: u32 = 1;
const PROMOTES: c_int = 1;
const WORKS: c_int = 2;

/// `struct forkyard_text`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Text {
    data: *const c_char,
    length: usize,
}

/// `struct forkyard_description`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CDescription {
    method: Text,
    uri: Text,
    query: Text,
    script: Text,
    user: Text,
    content_length: u64,
}

/// The result of a function that sends.
fn sent(sent: Sent) -> i64 {
    match sent {
        Sent::Gone => GONE,
        Sent::Taken { count, is_full } => count as i64 | if is_full { IS_FULL } else { 0 },
    }
}

impl Text {
    fn of(bytes: &[u8]) -> Text {
        Text {
            data: bytes.as_ptr().cast(),
            length: bytes.len(),
        }
    }
}

type Handle = c_void;

/// `struct forkyard_api`.
#[repr(C)]
#[derive(Debug)]
pub struct Api {
    version: u32,
    size: u32,
    param_count: unsafe extern "C" fn(*const Handle) -> usize,
    param_at: unsafe extern "C" fn(*const Handle, usize, *mut Text, *mut Text) -> c_int,
    param: unsafe extern "C" fn(*const Handle, *const c_char, usize, *mut Text) -> c_int,
    read_body: unsafe extern "C" fn(*mut Handle, *mut c_void, usize) -> isize,
    write: unsafe extern "C" fn(*mut Handle, *const c_void, usize) -> isize,
    write_error: unsafe extern "C" fn(*mut Handle, *const c_void, usize) -> isize,
    flush: unsafe extern "C" fn(*mut Handle) -> c_int,
    finish: unsafe extern "C" fn(*mut Handle) -> c_int,
    is_finished: unsafe extern "C" fn(*const Handle) -> c_int,
    set_stage: unsafe extern "C" fn(*mut Handle, u32),
    describe: unsafe extern "C" fn(*mut Handle, *const CDescription),
    set_memory: unsafe extern "C" fn(*mut Handle, u64),
    end: unsafe extern "C" fn(*mut Handle) -> c_int,
    params_packed: unsafe extern "C" fn(*const Handle, *mut c_void, usize) -> usize,
    read_body_now: unsafe extern "C" fn(*mut Handle, *mut c_void, usize) -> isize,
    connection: unsafe extern "C" fn(*const Handle) -> c_int,
    retire: unsafe extern "C" fn(*mut Handle),
    break_off: unsafe extern "C" fn(*mut Handle),
    want_work: unsafe extern "C" fn(*mut Handle),
}

static API: Api = Api {
    version: API_VERSION,
    size: size_of::<Api>() as u32,
    param_count,
    param_at,
    param,
    read_body,
    write,
    write_error,
    flush,
    finish,
    is_finished,
    set_stage,
    describe,
    set_memory,
    end,
    params_packed,
    read_body_now,
    connection,
    retire,
    break_off,
    want_work,
};

/// The table. Never null; static.
#[unsafe(no_mangle)]
pub extern "C" fn forkyard_api_v1() -> *const Api {
    &API
}

/// A request's pointer for C, valid until the request is moved or dropped.
pub fn handle(request: &mut Request<'_>) -> *mut c_void {
    std::ptr::from_mut(request).cast()
}

/// # Safety
/// `handle` came from [`handle()`], and its request is alive and has not moved.
unsafe fn shared<'a>(handle: *const Handle) -> &'a Request<'a> {
    // SAFETY: the caller's promise.
    unsafe { &*handle.cast::<Request<'a>>() }
}

/// # Safety
/// As [`shared`], with no other reference in use: C calls from one thread, one call at a time.
unsafe fn exclusive<'a>(handle: *mut Handle) -> &'a mut Request<'a> {
    // SAFETY: the caller's promise.
    unsafe { &mut *handle.cast::<Request<'a>>() }
}

/// # Safety
/// `data` has `length` readable bytes, unless `length` is 0.
unsafe fn bytes<'a>(data: *const c_void, length: usize) -> &'a [u8] {
    if length == 0 || data.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(data.cast(), length) }
}

/// # Safety
/// `buffer` has room for `length` bytes, which are only written to, unless `length` is 0.
unsafe fn room<'a>(buffer: *mut c_void, length: usize) -> &'a mut [u8] {
    if length == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(buffer.cast(), length) }
}

fn text(with_nul: &[u8]) -> Text {
    // For every parameter of a request: a pattern is never a call.
    match with_nul {
        [text @ .., 0] => Text::of(text),
        text => Text::of(text),
    }
}

unsafe extern "C" fn param_count(request: *const Handle) -> usize {
    // SAFETY: the header's contract.
    unsafe { shared(request) }.params().len()
}

unsafe extern "C" fn param_at(
    request: *const Handle,
    index: usize,
    name: *mut Text,
    value: *mut Text,
) -> c_int {
    // SAFETY: the header's contract; both out-pointers are valid for writing.
    unsafe {
        let params = exclusive(request.cast_mut()).params_mut();
        let Some((a, b)) = params.at_with_nul(index) else {
            return 0;
        };
        *name = text(a);
        *value = text(b);
    }
    1
}

unsafe extern "C" fn param(
    request: *const Handle,
    name: *const c_char,
    length: usize,
    value: *mut Text,
) -> c_int {
    // SAFETY: the header's contract; the out-pointer is valid for writing.
    unsafe {
        let name = bytes(name.cast(), length);
        let Some(found) = shared(request).params().get_with_nul(name) else {
            return 0;
        };
        *value = text(found);
    }
    1
}

unsafe extern "C" fn read_body(request: *mut Handle, buffer: *mut c_void, length: usize) -> isize {
    if length == 0 {
        return 0;
    }
    // SAFETY: the header's contract.
    let (request, buffer) = unsafe { (exclusive(request), room(buffer, length)) };
    request.read_body(buffer).map_or(-1, |count| count as isize)
}

unsafe extern "C" fn write(request: *mut Handle, data: *const c_void, length: usize) -> isize {
    // SAFETY: the header's contract.
    let (request, data) = unsafe { (exclusive(request), bytes(data, length)) };
    request.write(data).map_or(-1, |()| length as isize)
}

unsafe extern "C" fn write_error(request: *mut Handle, data: *const c_void, length: usize) -> isize {
    // SAFETY: the header's contract.
    let (request, data) = unsafe { (exclusive(request), bytes(data, length)) };
    request.write_error(data).map_or(-1, |()| length as isize)
}

unsafe extern "C" fn flush(request: *mut Handle) -> c_int {
    // SAFETY: the header's contract.
    unsafe { exclusive(request) }.flush().map_or(-1, |()| 0)
}

unsafe extern "C" fn finish(request: *mut Handle) -> c_int {
    // SAFETY: the header's contract.
    unsafe { exclusive(request) }.finish().map_or(-1, |()| 0)
}

unsafe extern "C" fn end(request: *mut Handle) -> c_int {
    // SAFETY: the header's contract.
    unsafe { exclusive(request) }.end().map_or(-1, |()| 0)
}

unsafe extern "C" fn is_finished(request: *const Handle) -> c_int {
    // SAFETY: the header's contract.
    c_int::from(unsafe { shared(request) }.is_finished())
}

unsafe extern "C" fn set_stage(request: *mut Handle, stage: u32) {
    if let Some(stage) = RequestStage::from_number(stage) {
        // SAFETY: the header's contract.
        unsafe { exclusive(request) }.set_stage(stage);
    }
}

unsafe extern "C" fn describe(request: *mut Handle, description: *const CDescription) {
    // SAFETY: the header's contract: the description and its texts are readable during the call.
    unsafe {
        let d = &*description;
        let part = |text: Text| bytes(text.data.cast(), text.length);
        let about = Description {
            method: part(d.method),
            uri: part(d.uri),
            query: part(d.query),
            script: part(d.script),
            user: part(d.user),
            content_length: d.content_length,
        };
        exclusive(request).describe(&about);
    }
}

unsafe extern "C" fn set_memory(request: *mut Handle, memory_bytes: u64) {
    // SAFETY: the header's contract.
    unsafe { exclusive(request) }.set_memory(memory_bytes);
}

unsafe extern "C" fn params_packed(request: *const Handle, buffer: *mut c_void, room: usize) -> usize {
    // SAFETY: the header's contract.
    let params = unsafe { shared(request) }.params();
    let clean = || {
        params
            .iter()
            .filter(|(name, value)| !name.contains(&0) && !value.contains(&0))
    };
    let length = clean().map(|(name, value)| name.len() + value.len() + 2).sum();
    if length > room {
        return length;
    }
    let mut at = buffer.cast::<u8>();
    for text in clean().flat_map(|(name, value)| [name, value]) {
        // SAFETY: the header's contract: there is room for `length` bytes, which is what all of this is.
        unsafe {
            at.copy_from_nonoverlapping(text.as_ptr(), text.len());
            at.add(text.len()).write(0);
            at = at.add(text.len() + 1);
        }
    }
    length
}

unsafe extern "C" fn read_body_now(request: *mut Handle, buffer: *mut c_void, length: usize) -> isize {
    if length == 0 {
        return 0;
    }
    // SAFETY: the header's contract.
    let (request, buffer) = unsafe { (exclusive(request), room(buffer, length)) };
    match request.body_now(buffer) {
        Ok(Some(count)) => count as isize,
        Ok(None) => NOT_YET,
        Err(_) => -1,
    }
}

unsafe extern "C" fn connection(request: *const Handle) -> c_int {
    // SAFETY: the header's contract.
    let request = unsafe { shared(request) };
    request.connection().map_or(-1, |socket| socket.as_raw_fd())
}

unsafe extern "C" fn retire(request: *mut Handle) {
    // SAFETY: the header's contract.
    unsafe { exclusive(request) }.retire();
}

unsafe extern "C" fn break_off(request: *mut Handle) {
    // SAFETY: the header's contract.
    unsafe { exclusive(request) }.break_off();
}

unsafe extern "C" fn want_work(request: *mut Handle) {
    // SAFETY: the header's contract.
    unsafe { exclusive(request) }.want_work();
}
