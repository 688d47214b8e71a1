//! Loads libphp and the shim; only this module calls them. Its types mirror shim.h.

mod error;
mod library;

pub(crate) use error::Error;

use crate::shims::{self, Object};
use forkyard_runtimes::php::files;
use forkyard_slowlog::PhpLayout;
use forkyard_worker::Request;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use library::{Library, build_of, memory_file};

const SHIM_VERSION: u32 = 15;

/// Mode of ini values that scripts can change.
pub(crate) const USER: c_int = 1;
pub(crate) const SYSTEM: c_int = 4;

#[repr(C)]
pub(crate) struct StartArguments {
    pub(crate) php_ini: *const c_char,
    pub(crate) ini_entries: *const c_char,
    pub(crate) executable: *const c_char,
    pub(crate) disabled_functions: *const c_char,
    pub(crate) ini_names: *const IniNames,
    pub(crate) no_php_ini: u8,
    pub(crate) extended_info: u8,
    pub(crate) zygote: u8,
    pub(crate) worker_script: u8,
    pub(crate) pushes_jobs: u8,
}

pub(crate) struct StartOptions<'w> {
    /// php.ini or its directory; `None`: libphp's default.
    pub(crate) php_ini: Option<&'w CStr>,
    /// Lines that override every file.
    pub(crate) ini_entries: Option<&'w CStr>,
    pub(crate) executable: Option<&'w CStr>,
    pub(crate) disabled_functions: Option<&'w CStr>,
    /// Names of the settings files that scripts see; `None`: the files that PHP has read.
    pub(crate) ini_names: Option<&'w IniNames>,
    pub(crate) no_php_ini: bool,
    pub(crate) extended_info: bool,
    pub(crate) is_zygote: bool,
    pub(crate) worker_functions: WorkerFunctions,
    pub(crate) pushes_jobs: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerFunctions {
    None = 0,
    There = 1,
    PutBack = 2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartResult {
    Done,
    Failed,
    Preloads,
}

#[repr(C)]
pub(crate) struct IniNames {
    pub(crate) php_ini: *const c_char,
    pub(crate) directories: *const c_char,
    pub(crate) scanned: *const c_char,
}

#[repr(C)]
pub(crate) struct Facts {
    pub(crate) expose_php: u8,
    pub(crate) fix_pathinfo: u8,
    pub(crate) discard_path: u8,
    pub(crate) script_path_encoded: u8,
    pub(crate) doc_root: *const c_char,
}

#[repr(C)]
pub(crate) struct WorkerCalls {
    pub(crate) api: *const c_void,
    pub(crate) status: unsafe extern "C" fn(*const c_void, *mut c_char, usize) -> usize,
    pub(crate) may_set: Option<unsafe extern "C" fn(*const c_char) -> u8>,
    pub(crate) later_status: unsafe extern "C" fn(*mut c_void, u32),
    pub(crate) unopened: unsafe extern "C" fn(*mut c_void, *const c_char, u8),
    pub(crate) included: unsafe extern "C" fn(*mut c_void, *const c_char, usize),
    pub(crate) log: unsafe extern "C" fn(c_int, *const c_char, usize),
    pub(crate) forget_timer: unsafe extern "C" fn(),
    pub(crate) log_limit: u32,
    pub(crate) log_level: u8,
    pub(crate) stderr_caught: u8,
}

unsafe extern "C" {
    pub(crate) fn forkyard_timer_forget();
    fn forkyard_timer_enable(is_to_enable: c_int);
    fn forkyard_timer_begin_request(now: i64, last: i64);
}

/// Skips PHP's system calls for its time limit that change nothing. Not in a process that is rewound: its memory would
/// differ from the kernel's state.
pub(crate) fn keep_timer(is_to_keep: bool) {
    // SAFETY: the process has one thread, and no request.
    unsafe { forkyard_timer_enable(c_int::from(is_to_keep)) }
}

/// Lets the request that begins now use the timer of the one before it.
pub(crate) fn begin_request(request: &Request<'_>) {
    let (began, last) = request.timing();
    let nanos = |nanos: u128| i64::try_from(nanos).unwrap_or(i64::MAX);
    // SAFETY: writes two numbers; the worker serves requests in one thread.
    unsafe { forkyard_timer_begin_request(nanos(began.as_nanos().into()), nanos(last.as_nanos())) }
}

#[repr(C)]
pub(crate) struct Description {
    pub(crate) method: *const c_char,
    pub(crate) query_string: *const c_char,
    pub(crate) request_uri: *const c_char,
    pub(crate) content_type: *const c_char,
    pub(crate) script: *const c_char,
    pub(crate) authorization: *const c_char,
    pub(crate) cookies: *const c_char,
    pub(crate) document_root: *const c_char,
    pub(crate) php_value: *const c_char,
    pub(crate) php_admin_value: *const c_char,
    pub(crate) content_length: i64,
    pub(crate) status: u32,
    pub(crate) denied: u8,
    pub(crate) names_files: u8,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) name: *const c_char,
    pub(crate) value: *const c_char,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct BootRequest {
    pub(crate) params: *const Pair,
    pub(crate) count: usize,
    pub(crate) write: unsafe extern "C" fn(*mut c_void, *const c_char, usize),
    pub(crate) context: *mut c_void,
    pub(crate) is_finished: u8,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct ScriptEnd {
    pub(crate) has_asked: u8,
    pub(crate) has_failed: u8,
    pub(crate) is_aborted: u8,
    pub(crate) message: *const c_char,
    pub(crate) file: *const c_char,
    pub(crate) line: u32,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct WorkerScript {
    pub(crate) path: *const c_char,
    pub(crate) mode: *const c_char,
    pub(crate) max_requests: *const c_char,
    pub(crate) boot: *mut BootRequest,
    pub(crate) next: unsafe extern "C" fn(*mut c_void, c_int, *mut *mut c_void, *mut Description) -> c_int,
    pub(crate) take: unsafe extern "C" fn(*mut c_void, Resume),
    pub(crate) rewind: unsafe extern "C" fn(*mut c_void),
    pub(crate) facts: unsafe extern "C" fn(*mut c_void, *mut WorkerFacts),
    pub(crate) ended: unsafe extern "C" fn(*mut c_void, *const ScriptEnd),
    pub(crate) code_reset: unsafe extern "C" fn(*mut c_void),
    pub(crate) context: *mut c_void,
}

pub(crate) type Resume = unsafe extern "C" fn(*mut c_void) -> !;
/// A result of a worker script's `next` (FORKYARD_SHIM_SNAPSHOT).
pub(crate) const TAKE_SNAPSHOT: c_int = 2;
pub(crate) const REASONS: usize = 8;

#[repr(C)]
#[derive(Debug)]
pub(crate) struct WorkerFacts {
    pub(crate) is_rewinding: u8,
    pub(crate) requests: u64,
    pub(crate) rewound: u64,
    pub(crate) pages: u64,
    pub(crate) nanos: u64,
    pub(crate) mappings_read: u64,
    pub(crate) given_up: [u64; REASONS],
    pub(crate) reasons: [*const c_char; REASONS],
}

type EachFile = unsafe extern "C" fn(*mut c_void, *const c_char, usize);
type WriteState = unsafe extern "C" fn(*mut c_void, *const c_char, usize);
type EachScript = unsafe extern "C" fn(*mut c_void, *const c_char, usize, i64);

/// libphp with its shim. Never unloaded, because PHP leaves handlers and thread data behind.
#[derive(Debug)]
pub(crate) struct Php {
    pub(crate) version: String,
    pub(crate) is_known: bool,
    start: unsafe extern "C" fn(*const StartArguments) -> c_int,
    set_ini: unsafe extern "C" fn(*const c_char, *const c_char, c_int) -> c_int,
    begin_worker: unsafe extern "C" fn(*const WorkerCalls, *mut Facts),
    resolves: unsafe extern "C" fn(*const c_char) -> c_int,
    serve: unsafe extern "C" fn(*mut c_void, *const Description) -> c_int,
    report: unsafe extern "C" fn(c_int) -> c_int,
    ini: unsafe extern "C" fn(*const c_char) -> *const c_char,
    loaded: unsafe extern "C" fn(EachFile, *mut c_void),
    begin_quiet: unsafe extern "C" fn() -> c_int,
    scripts: unsafe extern "C" fn(EachScript, *mut c_void),
    compile: unsafe extern "C" fn(*const c_char) -> c_int,
    cache_state: unsafe extern "C" fn(c_int, WriteState, *mut c_void) -> c_int,
    end_worker: unsafe extern "C" fn(),
    stack: unsafe extern "C" fn(*mut PhpLayout),
    run_script: unsafe extern "C" fn(*const WorkerScript) -> c_int,
    before_snapshot: unsafe extern "C" fn(c_int) -> c_int,
    is_code_full: unsafe extern "C" fn() -> c_int,
    heap_bytes: unsafe extern "C" fn() -> u64,
    boots_again: unsafe extern "C" fn(*const c_char, usize),
    leaver: unsafe extern "C" fn() -> *const c_char,
}

impl Php {
    pub(crate) fn open(version: &str, library: Option<&Path>) -> Result<Php, Error> {
        let shim = shims::all().into_iter().find(|shim| shim.version == version);
        let shim = shim.ok_or_else(|| Error::NotBuilt(version.to_owned()))?;
        let path = match library {
            Some(path) => path.to_owned(),
            None => files::library(version).ok_or_else(|| Error::NoLibrary(version.to_owned()))?,
        };

        let build = build_of(&path)?;
        let is_wanted = build
            .version
            .strip_prefix(version)
            .is_some_and(|rest| rest.starts_with('.'));
        let id = format!("API{},NTS", shim.api);
        if !is_wanted || build.id != id {
            let found = format!("{} ({})", build.version, build.id);
            return Err(Error::Version(path, found, format!("{version} ({id})")));
        }
        // By absolute path, because all libphp have the same SONAME; global, because extensions and the shim link
        // against it.
        Library::open(&path, libc::RTLD_NOW | libc::RTLD_GLOBAL)?;
        let api = shim.api;
        let shim_path;
        let shim = match &shim.object {
            Object::File(path) => {
                shim_path = path.clone();
                Library::open(path, libc::RTLD_NOW | libc::RTLD_LOCAL)?
            }
            Object::BuiltIn(bytes) => {
                let file = memory_file(bytes).map_err(Error::MemoryFile)?;
                shim_path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
                Library::open(&shim_path, libc::RTLD_NOW | libc::RTLD_LOCAL)?
            }
        };
        // SAFETY: each symbol has the type in shim.h; the version is checked before any other use. The library stays
        // loaded.
        unsafe {
            let shim_version: unsafe extern "C" fn() -> u32 = shim.function(c"forkyard_shim_version")?;
            if shim_version() != SHIM_VERSION {
                return Err(Error::Shim(shim_path, version.to_owned()));
            }
            Ok(Php {
                version: build.version,
                is_known: forkyard_php_shim::is_known(api),
                start: shim.function(c"forkyard_shim_start")?,
                set_ini: shim.function(c"forkyard_shim_set_ini")?,
                begin_worker: shim.function(c"forkyard_shim_begin_worker")?,
                resolves: shim.function(c"forkyard_shim_resolves")?,
                serve: shim.function(c"forkyard_shim_serve")?,
                report: shim.function(c"forkyard_shim_report")?,
                ini: shim.function(c"forkyard_shim_ini")?,
                loaded: shim.function(c"forkyard_shim_loaded")?,
                begin_quiet: shim.function(c"forkyard_shim_begin_quiet")?,
                scripts: shim.function(c"forkyard_shim_scripts")?,
                compile: shim.function(c"forkyard_shim_compile")?,
                cache_state: shim.function(c"forkyard_shim_cache_state")?,
                end_worker: shim.function(c"forkyard_shim_end_worker")?,
                stack: shim.function(c"forkyard_shim_stack")?,
                run_script: shim.function(c"forkyard_shim_run_script")?,
                before_snapshot: shim.function(c"forkyard_shim_before_snapshot")?,
                leaver: shim.function(c"forkyard_shim_leaver")?,
                boots_again: shim.function(c"forkyard_shim_boots_again")?,
                heap_bytes: shim.function(c"forkyard_shim_heap_bytes")?,
                is_code_full: shim.function(c"forkyard_shim_is_code_full")?,
            })
        }
    }

    /// Module start-up. PHP may exit instead of returning.
    pub(crate) fn start(&self, wanted: &StartOptions<'_>) -> StartResult {
        let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
        let start = StartArguments {
            php_ini: pointer(wanted.php_ini),
            ini_entries: pointer(wanted.ini_entries),
            executable: pointer(wanted.executable),
            disabled_functions: pointer(wanted.disabled_functions),
            ini_names: wanted.ini_names.map_or(std::ptr::null(), ptr::from_ref),
            no_php_ini: u8::from(wanted.no_php_ini),
            extended_info: u8::from(wanted.extended_info),
            zygote: u8::from(wanted.is_zygote),
            worker_script: wanted.worker_functions as u8,
            pushes_jobs: u8::from(wanted.pushes_jobs),
        };
        // SAFETY: the strings live longer than the call, which copies them.
        match unsafe { (self.start)(&raw const start) } {
            0 => StartResult::Done,
            1 => StartResult::Preloads,
            _ => StartResult::Failed,
        }
    }

    /// Sets an ini value for all requests. Returns false if there is no such entry.
    pub(crate) fn set_ini(&self, name: &CStr, value: &CStr, mode: c_int) -> bool {
        // SAFETY: the strings live longer than the call, which copies them; no request is being served.
        unsafe { (self.set_ini)(name.as_ptr(), value.as_ptr(), mode) == 0 }
    }

    pub(crate) fn hold_ini(&self, name: &CStr) -> bool {
        // SAFETY: the string lives longer than the call; no request is being served.
        unsafe { (self.set_ini)(name.as_ptr(), std::ptr::null(), SYSTEM) == 0 }
    }

    pub(crate) fn begin_worker(&self, worker: &WorkerCalls) -> Facts {
        let mut facts = Facts {
            expose_php: 0,
            fix_pathinfo: 1,
            discard_path: 0,
            script_path_encoded: 0,
            doc_root: std::ptr::null(),
        };
        // SAFETY: `worker` is copied; its table of functions lives as long as the process.
        unsafe { (self.begin_worker)(worker, &raw mut facts) };
        facts
    }

    pub(crate) fn resolves(&self, path: &CStr) -> bool {
        // SAFETY: a C string that lives longer than the call; the worker has begun.
        unsafe { (self.resolves)(path.as_ptr()) != 0 }
    }

    /// Serves one request. Returns false if PHP can't serve another.
    ///
    /// # Safety
    /// `request` is a handle for the worker's table of functions; nothing else uses it until this returns.
    pub(crate) unsafe fn serve(&self, request: *mut c_void, description: &Description) -> bool {
        // SAFETY: the caller's promise; the description's strings live longer than the call.
        unsafe { (self.serve)(request, description) == 0 }
    }

    pub(crate) fn report(&self, what: c_int) -> bool {
        // SAFETY: PHP has started and serves no request.
        unsafe { (self.report)(what) == 0 }
    }

    pub(crate) fn ini(&self, name: &CStr) -> Option<String> {
        // SAFETY: PHP has started; the name is a C string.
        let value = unsafe { (self.ini)(name.as_ptr()) };
        // SAFETY: not NULL, a C string of PHP's own, copied before anything can change it.
        (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned())
    }

    pub(crate) fn loaded(&self) -> Vec<PathBuf> {
        unsafe extern "C" fn each(context: *mut c_void, path: *const c_char, length: usize) {
            // SAFETY: the context is the vector below, and the path has this length.
            unsafe {
                let found = &mut *context.cast::<Vec<PathBuf>>();
                let path = std::slice::from_raw_parts(path.cast(), length);
                found.push(PathBuf::from(OsStr::from_bytes(path)));
            }
        }
        let mut found: Vec<PathBuf> = Vec::new();
        // SAFETY: PHP has started; `found` outlives the call and has no other user; `each` returns.
        unsafe { (self.loaded)(each, (&raw mut found).cast()) };
        found
    }

    pub(crate) fn begin_quiet(&self) -> bool {
        // SAFETY: PHP has started and serves no request.
        unsafe { (self.begin_quiet)() == 0 }
    }

    /// OPcache's scripts with their hit counts. Call it after [`Php::begin_quiet`].
    pub(crate) fn scripts(&self) -> Vec<(Vec<u8>, i64)> {
        unsafe extern "C" fn each(context: *mut c_void, path: *const c_char, length: usize, hits: i64) {
            // SAFETY: the context is the vector below, and the path has this length.
            unsafe {
                let found = &mut *context.cast::<Vec<(Vec<u8>, i64)>>();
                found.push((std::slice::from_raw_parts(path.cast(), length).to_vec(), hits));
            }
        }
        let mut found: Vec<(Vec<u8>, i64)> = Vec::new();
        // SAFETY: `found` outlives the call and has no other user; `each` returns.
        unsafe { (self.scripts)(each, (&raw mut found).cast()) };
        found
    }

    /// The state of OPcache and APCu as JSON. `is_in_request`: PHP already serves a request, which must not go on.
    pub(crate) fn cache_state(&self, is_in_request: bool) -> Vec<u8> {
        unsafe extern "C" fn write(context: *mut c_void, text: *const c_char, length: usize) {
            // SAFETY: the context is the vector below, and the text has this length.
            unsafe {
                let state = &mut *context.cast::<Vec<u8>>();
                state.extend_from_slice(std::slice::from_raw_parts(text.cast(), length));
            }
        }
        let mut state: Vec<u8> = Vec::new();
        // SAFETY: PHP has started; `state` outlives the call and has no other user; `write` returns.
        unsafe { (self.cache_state)(c_int::from(is_in_request), write, (&raw mut state).cast()) };
        state
    }

    /// Compiles a script without running it. Returns false on failure. Call it after [`Php::begin_quiet`].
    pub(crate) fn compile(&self, path: &CStr) -> bool {
        // SAFETY: a C string that lives longer than the call.
        unsafe { (self.compile)(path.as_ptr()) == 0 }
    }

    pub(crate) fn stack(&self) -> PhpLayout {
        let mut layout = PhpLayout::default();
        // SAFETY: struct forkyard_shim_stack is the same in C; PHP has started.
        unsafe { (self.stack)(&raw mut layout) };
        layout
    }

    /// Runs a worker script to its end. Returns false if PHP could not begin.
    ///
    /// # Safety
    /// The data of `script` lives until this returns, and its functions accept their arguments. Nothing else uses its
    /// context.
    pub(crate) unsafe fn run_script(&self, script: &WorkerScript) -> bool {
        // SAFETY: the caller's promise; PHP has started and serves no request.
        unsafe { (self.run_script)(script) == 0 }
    }

    /// At the script's first call for a request: runs the callbacks registered for this point. Returns false on
    /// failure.
    pub(crate) fn before_snapshot(&self, is_to_rewind: bool) -> bool {
        // SAFETY: the script is inside the function that called this.
        unsafe { (self.before_snapshot)(c_int::from(is_to_rewind)) == 0 }
    }

    /// In a zygote: the first extension that started a thread or left a descriptor open.
    pub(crate) fn leaver(&self) -> Option<String> {
        // SAFETY: NULL or a C string that lives as long as the extension.
        unsafe {
            let name = (self.leaver)();
            (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
        }
    }

    pub(crate) fn boots_again(&self, why: &str) {
        // SAFETY: `why` has this length and is copied.
        unsafe { (self.boots_again)(why.as_ptr().cast(), why.len()) }
    }

    pub(crate) fn heap_bytes(&self) -> u64 {
        // SAFETY: as below.
        unsafe { (self.heap_bytes)() }
    }

    pub(crate) fn is_code_full(&self) -> bool {
        // SAFETY: PHP is inside the worker script, which called this.
        unsafe { (self.is_code_full)() != 0 }
    }

    pub(crate) fn end_worker(&self) {
        // SAFETY: no request is being served, and none will be.
        unsafe { (self.end_worker)() }
    }
}
