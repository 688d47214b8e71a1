//! C ABI: a preloader in another language that forks workers from itself.

use super::anew::{self, Inheritance};
use super::{Handle, Text};
use crate::php::protocol::{Answer, EXIT_START_FAILED, SOCKET};
use crate::preloader::{Preloader, Socket, WorkerOrder};
use crate::wrapped::SETTLED;
use forkyard_config::Interface;
use forkyard_spawn::error::Category;
use forkyard_spawn::setupper::{self, Notes, SetupComplaint};
use forkyard_spawn::step::Step;
use forkyard_sys::process::{
    Side, change_environment, forget_variables, fork_sibling_with_handlers, peak_memory_bytes,
};
use forkyard_sys::{Error, fd, image, sender, signal, title};
use forkyard_worker::{GenerationContext, Request, Runtime, WorkerContext};
use std::ffi::{CStr, OsString, c_char, c_int, c_void};
use std::os::fd::OwnedFd;

/// `forkyard_preloader`.
#[derive(Debug)]
pub struct CPreloader {
    pub(super) preloader: Preloader,
    application: Vec<u8>,
    wanted: Option<WorkerOrder>,
    pub(super) is_settled: bool,
    pub(super) environment: Vec<(OsString, OsString)>,
    connected_to: Option<String>,
    notes: Option<Notes>,
    problem: Option<String>,
    solution: Option<String>,
    details: Option<String>,
}

pub(super) type AnswerFn = unsafe extern "C" fn(*mut Handle, *mut c_void);

pub(super) struct Foreign {
    pub(super) answer: AnswerFn,
    pub(super) data: *mut c_void,
    pub(super) usage: Usage,
}

#[derive(Debug, Default)]
pub(super) struct Usage {
    served: u64,
    peak_memory_bytes: u64,
}

const INTERPRETERS: [&CStr; 2] = [c"_PyEval_EvalFrameDefault", c"ruby_init"];
/// The peak memory is read once per so many requests: it only grows, and reading is a system call.
const REQUESTS_A_LOOK: u64 = 16;

impl Usage {
    pub(super) fn tell(&mut self, request: &mut Request<'_>) {
        if self.served % REQUESTS_A_LOOK == 0 {
            self.peak_memory_bytes = peak_memory_bytes();
        }
        self.served += 1;
        request.set_memory(self.peak_memory_bytes);
    }
}

impl Runtime for Foreign {
    fn answer(&mut self, request: &mut Request<'_>) {
        if request.is_for_application() {
            self.usage.tell(request);
            // SAFETY: the caller of forkyard_worker_run promised that the function may be called with its data; the
            // request outlives the call.
            unsafe { (self.answer)(super::handle(request), self.data) };
        }
    }
}

impl CPreloader {
    pub(super) fn new(preloader: Preloader) -> CPreloader {
        let mut application = serde_json::to_vec(&preloader.settings.pool.application).unwrap_or_default();
        application.push(0);
        CPreloader {
            preloader,
            application,
            wanted: None,
            is_settled: true,
            environment: Vec::new(),
            connected_to: None,
            notes: None,
            problem: None,
            solution: None,
            details: None,
        }
    }

    fn tell_failure(&self, step: Step, message: &str) {
        if let Some(notes) = &self.notes {
            let complaint = SetupComplaint {
                summary: message,
                problem: self.problem.as_deref(),
                solution: self.solution.as_deref(),
                details: self.details.as_deref(),
            };
            notes.fail(step, Category::Internal, &complaint);
            if self.is_settled {
                notes.show_source(self.details.as_deref().unwrap_or(message));
            }
        }
        let details = self.details.as_deref().map(|details| format!("\n{details}"));
        self.preloader
            .failed(&format!("{message}{}", details.unwrap_or_default()));
    }

    fn take_huge_pages(&self) {
        let application = &self.preloader.settings.pool.application;
        if !application
            .wrapped()
            .is_some_and(|wrapped| wrapped.huge_code_pages)
        {
            return;
        }
        // SAFETY: the application is not loaded yet, so there is one thread; this code is in another library.
        match unsafe { image::put_program_into_huge_pages(&INTERPRETERS, "forkyard code") } {
            Ok(true) => log::debug!("the interpreter's code is in huge pages"),
            Ok(false) => {
                log::warn!("huge_code_pages: the interpreter's code can't be put into huge pages here")
            }
            Err(error) => log::warn!("huge_code_pages: {error}"),
        }
    }

    pub(super) fn take_questions(&mut self) -> Option<OwnedFd> {
        self.wanted.as_mut()?.own.questions.take()
    }

    /// In a worker: separates its output and process group from the preloader's. Call it before application code runs.
    pub(super) fn settle(&self) -> Result<(), Error> {
        match &self.wanted {
            Some(wanted) => self.preloader.settle(wanted),
            None => Ok(()),
        }
    }

    pub(super) fn into_contexts(self) -> Option<(GenerationContext, WorkerContext)> {
        let (context, own) = self.preloader.into_contexts(self.wanted?)?;
        super::children::set_descriptors(&context, &own);
        Some((context, own))
    }
}

/// Reads the master's first line. Null: the master is gone or the line is invalid; the process must exit.
#[unsafe(no_mangle)]
pub extern "C" fn forkyard_preloader_begin() -> *mut CPreloader {
    let environment: Vec<_> = std::env::vars_os().collect();
    let is_settled = std::env::var_os(SETTLED).is_some();
    let left = is_settled.then(Inheritance::take).flatten();
    forget_variables(&[SETTLED, anew::VARIABLE]);
    let notes = Notes::inherited();
    if let (Some(notes), true) = (&notes, is_settled) {
        notes.advance(Step::SubprocessExecWrapper, Step::SubprocessWrapperPreparation);
    }
    title::prepare();
    signal::ignore_pipe();
    // SAFETY: the header's contract: called once, in a process that a master started with this descriptor.
    let socket = Socket::new(unsafe { fd::adopt(SOCKET) });
    let connected_to = left.as_ref().map(|left| left.connected_to.clone());
    let begin = |socket| match left {
        Some(left) => left.begin(socket).map(Some),
        None => Preloader::begin(socket, notes.as_ref()),
    };
    let begun = match socket.map(begin) {
        Ok(Ok(Some(preloader))) => preloader,
        Ok(Ok(None)) => return std::ptr::null_mut(),
        Ok(Err(error)) => {
            eprintln!("forkyard: {error}");
            return std::ptr::null_mut();
        }
        Err(error) => {
            eprintln!(
                "forkyard: a preloader is started by forkyard, with a socket as descriptor {SOCKET}: {error}"
            );
            return std::ptr::null_mut();
        }
    };
    Box::into_raw(Box::new(CPreloader {
        is_settled,
        environment,
        connected_to,
        notes,
        ..CPreloader::new(begun)
    }))
}

/// # Safety
/// `preloader` came from [`forkyard_preloader_begin`] and was not passed to [`forkyard_worker_run`].
unsafe fn exclusive<'a>(preloader: *mut CPreloader) -> &'a mut CPreloader {
    // SAFETY: the caller's promise; C calls from one thread, one call at a time.
    unsafe { &mut *preloader }
}

/// The pool's application as JSON.
///
/// # Safety
/// See `forkyard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_preloader_application(preloader: *mut CPreloader) -> Text {
    // SAFETY: the header's contract.
    super::text(unsafe { &exclusive(preloader).application })
}

/// Applies the process settings. -1: failed and reported; the process must exit.
///
/// # Safety
/// See `forkyard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_preloader_settle(preloader: *mut CPreloader) -> c_int {
    // SAFETY: the header's contract.
    let preloader = unsafe { exclusive(preloader) };
    let mark = setupper::mark();
    let result = if preloader.is_settled {
        preloader.preloader.apply_process_settings_again()
    } else {
        preloader.preloader.apply_process_settings()
    };
    // Marks processes that the application starts while loading, so that they can be killed if it fails.
    change_environment(&[], &mark.into_iter().collect::<Vec<_>>());
    match result {
        Ok(()) => {
            preloader.take_huge_pages();
            if let Some(notes) = &preloader.notes {
                let next = Step::SubprocessAppLoadOrExec;
                if !preloader.is_settled {
                    notes.settled(next);
                }
                notes.advance(Step::SubprocessWrapperPreparation, next);
            }
            if preloader.preloader.settings.pool.setup.chroot.is_some() {
                // A descriptor from outside would lead out of the chroot.
                preloader.notes = None;
            }
            0
        }
        Err(error) => {
            preloader.tell_failure(Step::SubprocessSetupperBeforeShell, &error.to_string());
            -1
        }
    }
}

/// Reports that the application is loaded.
///
/// # Safety
/// See `forkyard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_preloader_ready(
    preloader: *mut CPreloader,
    version: *const c_char,
    length: usize,
) {
    // SAFETY: the header's contract.
    let (preloader, version) = unsafe { (exclusive(preloader), super::bytes(version.cast(), length)) };
    setupper::forget_mark();
    if let Some(notes) = preloader.notes.take() {
        notes.finish(Step::SubprocessAppLoadOrExec);
    }
    preloader.preloader.ready(&Answer::Ready {
        version: String::from_utf8_lossy(version).into_owned(),
        extensions: None,
        loaded: Vec::new(),
        powered_by: None,
        // Loaded code is never checked for changes.
        is_code_cached: true,
        stack: None,
        has_memory: false,
        boot: None,
        connected_to: preloader.connected_to.clone(),
    });
}

/// Reports that the application can't be loaded.
///
/// # Safety
/// See `forkyard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_preloader_failed(
    preloader: *mut CPreloader,
    message: *const c_char,
    length: usize,
) {
    // SAFETY: the header's contract.
    let (preloader, message) = unsafe { (exclusive(preloader), super::bytes(message.cast(), length)) };
    preloader.tell_failure(Step::SubprocessAppLoadOrExec, &String::from_utf8_lossy(message));
}

/// Adds text to a failure, before [`forkyard_preloader_failed`]: 1, what happened; 2, what to do; 3, details for
/// developers.
///
/// # Safety
/// See `forkyard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_preloader_explain(
    preloader: *mut CPreloader,
    what: c_int,
    text: *const c_char,
    length: usize,
) {
    // SAFETY: the header's contract.
    let (preloader, text) = unsafe { (exclusive(preloader), super::bytes(text.cast(), length)) };
    let text = Some(String::from_utf8_lossy(text).into_owned());
    match what {
        1 => preloader.problem = text,
        2 => preloader.solution = text,
        3 => preloader.details = text,
        _ => {}
    }
}

/// Waits for a command without reading it. Returns 1, or 0 if the preloader must exit.
///
/// # Safety
/// See `forkyard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_preloader_expect(preloader: *mut CPreloader) -> c_int {
    // SAFETY: the header's contract.
    let preloader = unsafe { exclusive(preloader) };
    match preloader.preloader.expect() {
        Ok(is_there) => c_int::from(is_there),
        Err(error) => {
            log::error!("{error}");
            0
        }
    }
}

/// Logs a warning.
///
/// # Safety
/// See `forkyard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_preloader_warn(
    _preloader: *mut CPreloader,
    message: *const c_char,
    length: usize,
) {
    // SAFETY: the header's contract.
    let message = unsafe { super::bytes(message.cast(), length) };
    let message = String::from_utf8_lossy(message);
    log::warn!("{}", message.replace(char::is_control, " "));
}

/// Waits until a worker is wanted. Returns 1, or 0 if the preloader must exit.
///
/// # Safety
/// See `forkyard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_preloader_wait(preloader: *mut CPreloader) -> c_int {
    // SAFETY: the header's contract.
    let preloader = unsafe { exclusive(preloader) };
    match preloader.preloader.wait(&mut ()) {
        Ok(Some(wanted)) => {
            preloader.wanted = Some(wanted);
            1
        }
        Ok(None) => 0,
        Err(error) => {
            log::error!("{error}");
            0
        }
    }
}

/// Forks the worker. Returns 0 in it and its pid in the preloader; -1: failed and reported.
///
/// # Safety
/// See `forkyard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_preloader_fork(preloader: *mut CPreloader) -> c_int {
    // SAFETY: the header's contract.
    let preloader = unsafe { exclusive(preloader) };
    let Some(wanted) = preloader.wanted.take() else {
        return -1;
    };
    // SAFETY: the header's contract: the child continues with forkyard_worker_run.
    match unsafe { fork_sibling_with_handlers() } {
        Ok(Side::Parent(pid)) => {
            preloader.preloader.made(&wanted, pid);
            pid
        }
        Ok(Side::Child) => {
            let application = &preloader.preloader.settings.pool.application;
            match application.wrapped().map(|wrapped| wrapped.interface) {
                // Its faulthandler writes the calls of a fault.
                Some(Interface::Wsgi | Interface::Asgi) => {
                    signal::reset_in_child_but_faults();
                    sender::run_first();
                }
                Some(Interface::Rack) | None => signal::reset_in_child(),
            }
            preloader.wanted = Some(wanted);
            0
        }
        Err(error) => {
            preloader.preloader.not_made(&wanted, &error.to_string());
            -1
        }
    }
}

/// For a runtime that forks itself: reports the worker's pid, or a failure if it is below 1.
///
/// # Safety
/// See `forkyard.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_preloader_forked(preloader: *mut CPreloader, pid: c_int) {
    // SAFETY: the header's contract.
    let preloader = unsafe { exclusive(preloader) };
    let Some(wanted) = preloader.wanted.take() else {
        return;
    };
    if pid > 0 {
        preloader.preloader.made(&wanted, pid);
    } else {
        preloader.preloader.not_made(&wanted, "fork failed");
    }
}

/// In a worker: serves requests and returns the exit code.
///
/// # Safety
/// See `forkyard.h`: once, in the process that forkyard_preloader_fork created. Frees `preloader`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkyard_worker_run(
    preloader: *mut CPreloader,
    answer: AnswerFn,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the header's contract: it came from forkyard_preloader_begin and is not used again.
    let preloader = unsafe { Box::from_raw(preloader) };
    match preloader.into_contexts() {
        Some((context, own)) => {
            let mut runtime = Foreign {
                answer,
                data,
                usage: Usage::default(),
            };
            forkyard_worker::run(context, own, &mut runtime)
        }
        None => EXIT_START_FAILED,
    }
}
