//! An application that boots once: its worker script runs in the preloader up to its first request. There the preloader
//! forks workers, and each returns from the same call as [`Serving`].
//!
//! The script contains the loop and asks [`Boot::next`] for each request. The first are the pool's warm-up requests,
//! which have no client.

mod connections;
mod requests;
mod snapshot;

use crate::ffi::{
    BootRequest, Description, Php, Resume, ScriptEnd, TAKE_SNAPSHOT, WorkerFacts, WorkerScript,
};
use crate::preloader::{Error, failed, fork_until_worker, lost, ready};
use crate::serving::Serving;
use crate::warm;
use connections::Connections;
use forkyard_config as config;
use forkyard_runtimes::php::protocol::{BootTimes, EXIT_START_FAILED};
use forkyard_runtimes::preloader::{CodeCache, Parcel, Preloader};
use forkyard_spawn::setupper::Notes;
use forkyard_spawn::step::Step;
use forkyard_sys::memfile::Placed;
use forkyard_sys::process::{self, exit_now};
use forkyard_sys::{clock, fd};
use forkyard_worker::RestartReason;
use requests::WarmUp;
use snapshot::Booted;
pub(crate) use snapshot::Survivors;
pub(crate) use snapshot::{After, after_requests, not_tested};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::Write;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

const KEPT_BYTES: usize = 16 << 10;
/// Response codes from here on are failures of a warm-up request.
const FIRST_FAILURE: c_int = 500;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BootFailure {
    pub(crate) summary: String,
    pub(crate) solution: &'static str,
    pub(crate) details: Option<String>,
}

enum Role<'p> {
    Preloader(Box<Preloader>, Option<Notes>),
    Worker(Placed<Serving<'p>>),
    /// During a fork, or after a failed start.
    Neither,
}

struct Boot<'p> {
    php: &'p Php,
    script: CString,
    connections: Connections,
    open_before: Vec<(RawFd, String)>,
    warm_up: WarmUp,
    request: BootRequest,
    /// The answer to the current warm-up request.
    answer: Vec<u8>,
    role: Role<'p>,
    failure: Option<BootFailure>,
    booted: Booted,
    begun: u64,
    times: BootTimes,
}

enum Next {
    Request(*mut c_void, Description),
    Snapshot,
    End,
}

pub(crate) fn run(
    mut preloader: Preloader,
    php: &Php,
    application: &config::WorkerScript,
    after: After,
    notes: Option<Notes>,
) -> ExitCode {
    let pool = &preloader.settings.pool;
    let retirement = &pool.retirement;
    let most = (retirement.max_requests).map(|most| most + retirement.max_requests_jitter);
    let warm_up = match WarmUp::new(application, most) {
        Ok(warm_up) => warm_up,
        Err(error) => return failed(&preloader, notes.as_ref(), &error),
    };
    let Ok(script) = CString::new(application.path.as_os_str().as_bytes()) else {
        return ExitCode::from(EXIT_START_FAILED as u8);
    };
    let (mode, max_requests) = (warm_up.mode.clone(), warm_up.max_requests.clone());
    // Before the boot, because it reads the files.
    preloader.watch(&application.watch);
    let connections = Connections::before_boot(application.boot_connections);
    let boot = Box::into_raw(Box::new(Boot {
        php,
        script,
        connections,
        open_before: fd::open_ones().unwrap_or_default(),
        request: BootRequest {
            params: warm_up.boot.pairs.as_ptr(),
            count: warm_up.boot.pairs.len(),
            write,
            context: std::ptr::null_mut(),
            is_finished: 0,
        },
        warm_up,
        answer: Vec::new(),
        role: Role::Preloader(Box::new(preloader), notes),
        failure: None,
        booted: Booted::new(after),
        begun: clock::now().as_nanos(),
        times: BootTimes {
            isolation: after.isolation(),
            ..BootTimes::default()
        },
    }));
    // SAFETY: `boot` lives until it is taken back below. Only the functions use it, one at a time: PHP calls them from
    // inside this call, and they return before it continues.
    let has_begun = unsafe {
        (*boot).request.context = boot.cast();
        php.run_script(&WorkerScript {
            path: (*boot).script.as_ptr(),
            mode: mode.as_ptr(),
            max_requests: max_requests.as_ptr(),
            boot: &raw mut (*boot).request,
            next,
            take,
            rewind,
            facts,
            ended,
            code_reset,
            context: boot.cast(),
        })
    };
    // SAFETY: made above; PHP no longer uses it.
    let boot = unsafe { Box::from_raw(boot) };
    match boot.role {
        Role::Worker(mut serving) => {
            let code = serving.end();
            php.end_worker();
            exit_now(code)
        }
        Role::Preloader(preloader, notes) => {
            let failure = boot.failure.unwrap_or_else(|| BootFailure {
                summary: match has_begun {
                    true => "the worker script ended".to_owned(),
                    false => "PHP could not begin the worker script".to_owned(),
                },
                solution: SEE_OUTPUT,
                details: None,
            });
            failed(&preloader, notes.as_ref(), &Error::Boot(Box::new(failure)))
        }
        Role::Neither => ExitCode::from(EXIT_START_FAILED as u8),
    }
}

const SEE_OUTPUT: &str = "Correct PHP's error: read the application's output.";

/// The caches of an application that boots once: PHP serves the request that boots it.
struct BootedCaches<'p>(&'p Php);

impl CodeCache for BootedCaches<'_> {
    fn write_state(&mut self, to: OwnedFd, _parcel: Option<Parcel>) {
        warm::have_state_written(self.0, &to, true);
    }
}

impl<'p> Boot<'p> {
    fn next(&mut self, status: c_int) -> Next {
        if matches!(self.role, Role::Preloader(..)) {
            if !self.is_well_so_far(status) {
                return Next::End;
            }
            self.take_time();
            if let Some(request) = self.warm_up.next() {
                self.answer.clear();
                self.request.params = request.pairs.as_ptr();
                self.request.count = request.pairs.len();
                self.request.is_finished = 0;
                let description = request.description();
                return Next::Request((&raw mut self.request).cast(), description);
            }
            self.become_worker();
            if matches!(self.role, Role::Worker(_)) && self.prepare_snapshot() {
                return Next::Snapshot;
            }
        }
        match &mut self.role {
            Role::Worker(serving) => {
                match self.booted.resumed() {
                    Ok(Some((survivors, rewound))) => {
                        serving.take_over(survivors, self.booted.take_kept(), rewound);
                    }
                    Ok(None) => {}
                    Err(why) => serving.give_up(Some(why)),
                }
                match serving.next() {
                    Some((request, description)) => Next::Request(request, description),
                    None if self.booted.after == After::GoesOn => Next::End,
                    None => self.leave(),
                }
            }
            Role::Preloader(..) | Role::Neither => Next::End,
        }
    }

    fn prepare_snapshot(&mut self) -> bool {
        if let (Role::Worker(serving), true) = (&mut self.role, self.booted.after == After::IsPutBack) {
            serving.lets_go_of_connections();
        }
        self.booted.prepare().unwrap_or_else(|error| {
            log::error!("worker failed to initialize: {error}");
            exit_now(EXIT_START_FAILED)
        })
    }

    fn leave(&mut self) -> ! {
        let code = match std::mem::replace(&mut self.role, Role::Neither) {
            Role::Worker(mut serving) => serving.end(),
            Role::Preloader(..) | Role::Neither => EXIT_START_FAILED,
        };
        self.php.end_worker();
        exit_now(code)
    }

    /// Rewinds the process after a request, once its end is complete for all observers. Returns if the process must exit
    /// instead.
    fn rewind(&mut self) {
        let Role::Worker(serving) = &mut self.role else {
            return;
        };
        if !serving.settle() {
            return;
        }
        match self.booted.survivors() {
            Ok(Some(survivors)) => self.booted.keep_open(&serving.carry(survivors)),
            Ok(None) => return serving.give_up(None),
            Err(why) => return serving.give_up(Some(why)),
        }
        // SAFETY: `survivors` found one thread, and the script's frames belong to its first call for a request.
        unsafe { self.booted.rewind() }
    }

    fn take_time(&mut self) {
        let now = clock::now().as_nanos();
        let took_ms = now.saturating_sub(self.begun) / 1_000_000;
        self.begun = now;
        match self.warm_up.under_way() {
            Some(_) => self.times.warm_up_ms.push(took_ms),
            None => self.times.boot_ms = took_ms,
        }
    }

    fn is_well_so_far(&mut self, status: c_int) -> bool {
        let Some(path) = self.warm_up.under_way() else {
            return true;
        };
        if status < FIRST_FAILURE {
            return true;
        }
        let answer = String::from_utf8_lossy(&self.answer);
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        self.failure = Some(BootFailure {
            summary: format!("the warm-up request {path} was answered with {status}"),
            solution: "Correct the application, or leave the path out of warm_up_requests. Set values that it \
                needs in $_SERVER in warm_up_server.",
            details: (!body.trim().is_empty()).then(|| body.to_owned()),
        });
        false
    }

    fn become_worker(&mut self) {
        let left_open = match self.keep() {
            Ok(left_open) => left_open,
            Err(failure) => {
                self.failure = Some(failure);
                return;
            }
        };
        let Role::Preloader(preloader, notes) = std::mem::replace(&mut self.role, Role::Neither) else {
            return;
        };
        if let Some(notes) = notes {
            notes.finish(Step::SubprocessAppLoadOrExec);
        }
        preloader.ready(&ready(self.php, false, Some(self.times.clone())));
        let (preloader, wanted) = match fork_until_worker(*preloader, &mut BootedCaches(self.php), || {}) {
            Ok(worker) => worker,
            Err(error) => {
                lost(&error);
                exit_now(EXIT_START_FAILED)
            }
        };
        left_open.cut();
        match Serving::begin(preloader, wanted, self.php, &self.script) {
            Some(serving) => self.role = Role::Worker(serving),
            None => exit_now(EXIT_START_FAILED),
        }
    }

    fn keep(&mut self) -> Result<connections::LeftOpen, BootFailure> {
        let is_to_rewind = self.booted.after == After::IsPutBack;
        if !self.php.before_snapshot(is_to_rewind) {
            return Err(BootFailure {
                summary: "a function of forkyard_before_snapshot() failed".to_owned(),
                solution: SEE_OUTPUT,
                details: None,
            });
        }
        let left_open = self.check()?;
        self.booted.keep(self.closable()).map_err(|error| BootFailure {
            summary: format!("the snapshot could not be taken: {error}"),
            solution: "Check that the machine has memory to spare, and the service's limits.",
            details: None,
        })?;
        Ok(left_open)
    }

    fn closable(&self) -> Option<Vec<RawFd>> {
        let open = fd::open_ones().ok()?;
        let is_of_boot = |one: &(RawFd, String)| !self.open_before.contains(one);
        let of_boot = open.into_iter().filter(is_of_boot);
        (!has_native_calls(self.php)).then(|| of_boot.map(|(number, _)| number).collect())
    }

    fn check(&self) -> Result<connections::LeftOpen, BootFailure> {
        if !process::has_one_thread() {
            return Err(BootFailure {
                summary: "the boot has left a thread running".to_owned(),
                solution: "Workers are forked of the process that has booted, and threads are not forked with it. Have what \
                           starts them do so in a request.",
                details: None,
            });
        }
        self.connections.after_boot()
    }

    fn ended(&mut self, end: &ScriptEnd) {
        let text = |text: *const c_char| {
            // SAFETY: NULL or a C string that lives until this returns.
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        let problem = text(end.message).map(|message| match text(end.file) {
            Some(file) if !message.contains(&file) => format!("{message} in {file}:{}", end.line),
            _ => message,
        });
        match &mut self.role {
            Role::Worker(serving) if self.booted.after == After::GoesOn => {
                serving.ended(end, problem.as_deref());
            }
            Role::Worker(_) => {}
            Role::Preloader(..) if self.failure.is_none() => {
                self.failure = Some(why_ended(end, problem, self.warm_up.under_way()));
            }
            Role::Preloader(..) | Role::Neither => {}
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.warm_up.under_way().is_none() {
            let _ = std::io::stderr().write_all(bytes);
            return;
        }
        let room = KEPT_BYTES.saturating_sub(self.answer.len());
        self.answer.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

fn has_native_calls(php: &Php) -> bool {
    match php.ini(c"ffi.enable").as_deref() {
        None | Some("" | "0" | "off" | "no" | "false") => false,
        Some("preload") => php
            .ini(c"opcache.preload")
            .is_some_and(|script| !script.is_empty()),
        Some(_) => true,
    }
}

fn why_ended(end: &ScriptEnd, problem: Option<String>, warm_up: Option<&str>) -> BootFailure {
    let stage = match warm_up {
        Some(path) => format!("in the warm-up request {path}"),
        None => "while the application booted".to_owned(),
    };
    if end.has_failed != 0 {
        let problem = problem.unwrap_or_else(|| "PHP gave no reason".to_owned());
        let (first, rest) = problem.split_once('\n').unwrap_or((&problem, ""));
        return BootFailure {
            summary: format!("the worker script failed {stage}: {first}"),
            solution: SEE_OUTPUT,
            details: (!rest.is_empty()).then(|| problem.clone()),
        };
    }
    if end.has_asked != 0 {
        return BootFailure {
            summary: format!("the worker script ended {stage}"),
            solution: "It must call forkyard_handle_request() again while that returns true.",
            details: None,
        };
    }
    BootFailure {
        summary: "the worker script ended without calling forkyard_handle_request()".to_owned(),
        solution: "application.worker is for scripts that boot the application and then call forkyard_handle_request() (or \
                   frankenphp_handle_request()) in a loop. Name such a script, or leave out application.worker: then each \
                   request runs the script that it names.",
        details: None,
    }
}

/// The script's `next`.
///
/// # Safety
/// `context` is the boot's; `request` and `description` are writable.
unsafe extern "C" fn next(
    context: *mut c_void,
    status: c_int,
    request: *mut *mut c_void,
    description: *mut Description,
) -> c_int {
    // SAFETY: see `run`.
    let boot = unsafe { &mut *context.cast::<Boot<'_>>() };
    match boot.next(status) {
        Next::Request(next, described) => {
            // SAFETY: the caller's promise.
            unsafe {
                request.write(next);
                description.write(described);
            }
            1
        }
        Next::Snapshot => TAKE_SNAPSHOT,
        Next::End => 0,
    }
}

/// The script's `take`.
///
/// # Safety
/// `context` is the boot's; `resume` jumps back to the caller.
unsafe extern "C" fn take(context: *mut c_void, resume: Resume) {
    // SAFETY: see `run`.
    let boot = unsafe { &*context.cast::<Boot<'_>>() };
    // SAFETY: the process was forked with one thread, this one; the boot lives until the process exits.
    if let Err(error) = unsafe { boot.booted.take(resume, context) } {
        log::error!("worker failed to initialize: {error}");
        exit_now(EXIT_START_FAILED)
    }
}

/// The script's `rewind`.
///
/// # Safety
/// `context` is the boot's.
unsafe extern "C" fn rewind(context: *mut c_void) {
    // SAFETY: see `run`.
    unsafe { (*context.cast::<Boot<'_>>()).rewind() }
}

/// The script's `facts`.
///
/// # Safety
/// `context` is the boot's; `room` is writable.
unsafe extern "C" fn facts(context: *mut c_void, room: *mut WorkerFacts) {
    // SAFETY: see `run`, and the caller's promise.
    unsafe {
        let boot = &*context.cast::<Boot<'_>>();
        let requests = match &boot.role {
            Role::Worker(serving) => serving.given(),
            Role::Preloader(..) | Role::Neither => 0,
        };
        room.write(boot.booted.facts(requests));
    }
}

/// The script's `ended`.
///
/// # Safety
/// `context` is the boot's; `end` is readable.
unsafe extern "C" fn ended(context: *mut c_void, end: *const ScriptEnd) {
    // SAFETY: see `run`, and the caller's promise.
    let (boot, end) = unsafe { (&mut *context.cast::<Boot<'_>>(), &*end) };
    boot.ended(end);
}

/// The script's `code_reset`. The boot itself has no cached code.
///
/// # Safety
/// `context` is the boot's.
unsafe extern "C" fn code_reset(context: *mut c_void) {
    // SAFETY: see `run`.
    let boot = unsafe { &mut *context.cast::<Boot<'_>>() };
    if let Role::Worker(serving) = &mut boot.role {
        serving.ask_boot(RestartReason::CodeReset);
    }
}

/// A request's `write`.
///
/// # Safety
/// `context` is the boot's; `bytes` has `length` bytes.
unsafe extern "C" fn write(context: *mut c_void, bytes: *const c_char, length: usize) {
    // SAFETY: see `run`, and the caller's promise.
    let (boot, bytes) = unsafe {
        (
            &mut *context.cast::<Boot<'_>>(),
            std::slice::from_raw_parts(bytes.cast(), length),
        )
    };
    boot.write(bytes);
}
