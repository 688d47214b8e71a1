//! A worker with an application that boots once: the script asks for each request.

use crate::boot::Survivors;
use crate::ffi::{self, Description, Php, ScriptEnd};
use crate::sapi::PhpRuntime;
use forkyard_protocol::counters::ExitCause;
use forkyard_rewind::{Rewound, Unrewindable};
use forkyard_runtimes::abi;
use forkyard_runtimes::preloader::{Preloader, WorkerOrder};
use forkyard_sys::memfile::Placed;
use forkyard_sys::{clock, signal};
use forkyard_worker::{Request, RestartReason, Tick, Worker};
use std::ffi::{CString, c_void};
use std::os::fd::{OwnedFd, RawFd};

/// The name of the memory that changes while the worker waits. All other memory stays unchanged then, so leftovers of a
/// request can be detected.
const NAME: &str = "forkyard worker";
const SETTINGS: [&[u8]; 2] = [b"PHP_VALUE", b"PHP_ADMIN_VALUE"];

pub(crate) struct Serving<'p> {
    /// Borrows from `worker`, which nothing else uses while it exists. Boxed: PHP holds a pointer to it.
    request: Option<Box<Request<'static>>>,
    /// Owned; a raw pointer because `request` borrows from it.
    worker: *mut Worker,
    runtime: PhpRuntime<'p>,
    script: CString,
    has_refused: bool,
    /// Requests passed to the script.
    given: u64,
    wants_boot: Option<(RestartReason, Tick)>,
    is_over: bool,
    is_put_back: bool,
    leaves_for: Option<ExitCause>,
    not_put_back: Option<Unrewindable>,
    /// The second of the last check of OPcache.
    looked: u64,
    php: &'p Php,
}

impl<'p> Serving<'p> {
    /// In a child of the preloader. `None`: failed and logged.
    pub(crate) fn begin(
        preloader: Preloader,
        wanted: WorkerOrder,
        php: &'p Php,
        script: &CString,
    ) -> Option<Placed<Serving<'p>>> {
        signal::reset_in_child();
        let (context, own) = preloader.into_contexts(wanted)?;
        forkyard_worker::install_handlers(&context, own.slot);
        let runtime = PhpRuntime::begin(php, &context.settings, own.output.is_some());
        let serving = Worker::begin(context, own)
            .and_then(|worker| Placed::new(NAME, worker))
            .and_then(|worker| {
                let serving = Serving {
                    request: None,
                    worker: worker.into_raw(),
                    runtime,
                    script: script.clone(),
                    has_refused: false,
                    given: 0,
                    wants_boot: None,
                    is_over: false,
                    is_put_back: false,
                    leaves_for: None,
                    not_put_back: None,
                    looked: clock::epoch_seconds(),
                    php,
                };
                Placed::new(NAME, serving)
            });
        serving
            .inspect_err(|error| log::error!("worker failed to initialize: {error}"))
            .ok()
    }

    pub(crate) fn lets_go_of_connections(&mut self) {
        self.is_put_back = true;
        ffi::keep_timer(false);
        self.worker().lets_go_of_connections();
    }

    pub(crate) fn settle(&mut self) -> bool {
        // Not while waiting for the next request: the check would change its memory.
        self.look_at_code();
        let worker = self.worker();
        let goes_on = worker.settle();
        self.leaves_for = worker.is_worn_by();
        goes_on
    }

    pub(crate) fn give_up(&mut self, why: Option<Unrewindable>) {
        self.leaves_for = why.map(|_| ExitCause::NotPutBack);
        self.not_put_back = why;
        self.worker().give_up();
    }

    pub(crate) fn carry(&mut self, survivors: Survivors<'_>) -> Vec<RawFd> {
        *survivors.has_refused = u64::from(self.has_refused);
        *survivors.given = self.given;
        let (why, since) = self
            .wants_boot
            .map_or((0, 0), |(why, since)| (why.bits(), since.as_nanos()));
        [*survivors.wants_boot[0], *survivors.wants_boot[1]] = [u64::from(why), since];
        *survivors.looked = self.looked;
        let worker = self.worker();
        worker.carry(survivors.worker);
        worker.held()
    }

    pub(crate) fn take_over(
        &mut self,
        survivors: Survivors<'_>,
        kept: impl Iterator<Item = OwnedFd>,
        rewound: Rewound,
    ) {
        self.has_refused = *survivors.has_refused != 0;
        self.given = *survivors.given;
        let [why, since] = [*survivors.wants_boot[0], *survivors.wants_boot[1]];
        let why = u32::try_from(why).ok().and_then(RestartReason::from_bits);
        self.wants_boot = why.map(|why| (why, Tick::from_nanos(since)));
        self.looked = *survivors.looked;
        let worker = self.worker();
        worker.take_over(survivors.worker, kept);
        worker.count_rewound(rewound.nanos, rewound.pages);
    }

    pub(crate) fn given(&self) -> u64 {
        self.given
    }

    fn worker(&mut self) -> &'static mut Worker {
        if let Some(request) = self.request.take() {
            request.release();
        }
        // SAFETY: owned by `self`, never freed, and its borrower is gone.
        unsafe { &mut *self.worker }
    }

    pub(crate) fn next(&mut self) -> Option<(*mut c_void, Description)> {
        loop {
            if !self.is_put_back {
                self.look_at_code();
            }
            let heap = self.php.heap_bytes();
            let worker = self.worker();
            worker.limit_heap(heap);
            if let Some((why, since)) = self.wants_boot {
                worker.ask_restart(why, since);
            }
            while !worker.advance() {
                // PHP never does out-of-band work or promotion.
                if !worker.has_out_of_band_work() && !worker.must_promote() {
                    self.leaves_for = worker.is_worn_by();
                    self.is_over = true;
                    return None;
                }
            }
            let mut request = Box::new(worker.request());
            ffi::begin_request(&request);
            if self.runtime.answers(&mut request, &self.script) {
                self.request = Some(request);
                continue;
            }
            self.runtime.fix_up_for_script(&mut request);
            self.refuse_settings(&request);
            let description = self.runtime.describe_for_script(request.params(), &self.script);
            self.given += 1;
            let request = self.request.insert(request);
            return Some((abi::handle(request), description));
        }
    }

    pub(crate) fn ask_boot(&mut self, why: RestartReason) {
        self.wants_boot = Some((why, clock::now()));
    }

    fn look_at_code(&mut self) {
        let second = clock::epoch_seconds();
        if self.wants_boot.is_some() || second == self.looked {
            return;
        }
        self.looked = second;
        if self.php.is_code_full() {
            self.ask_boot(RestartReason::CodeFull);
        }
    }

    fn refuse_settings(&mut self, request: &Request<'_>) {
        let is_sent = |name: &&[u8]| !request.param(name).is_empty();
        if self.has_refused || !SETTINGS.iter().any(is_sent) {
            return;
        }
        self.has_refused = true;
        log::warn!(
            "refused the settings that came with a request (PHP_VALUE, PHP_ADMIN_VALUE): the application has \
             booted before it. Set them in the pool (php_value, php_admin_value). This worker logs this once"
        );
    }

    /// Handles the script's end. It is voluntary unless `end` gives another cause.
    pub(crate) fn ended(&mut self, end: &ScriptEnd, problem: Option<&str>) {
        if !self.is_over {
            self.leaves_for = Some(match (end.is_aborted != 0, end.has_failed != 0) {
                (true, _) => ExitCause::ClientLeft,
                (false, true) => ExitCause::ScriptFailed,
                (false, false) => ExitCause::ScriptEnded,
            });
        }
        if end.is_aborted != 0 {
            log::debug!("a worker is replaced: a client has left its request");
        } else if end.has_failed != 0 {
            let problem = problem.and_then(|text| text.lines().next());
            log::warn!(
                "a worker is replaced: its script has failed: {}",
                problem.unwrap_or("PHP gave no reason")
            );
        }
    }

    pub(crate) fn end(&mut self) -> i32 {
        if let Some(request) = &mut self.request {
            request.retire();
        }
        let (leaves_for, reason) = (self.leaves_for, self.not_put_back.map(|why| why.kind() as u8));
        let worker = self.worker();
        if let Some(cause) = leaves_for {
            worker.record_exit_cause(cause, reason);
        }
        while worker.advance() {
            worker.request().retire();
        }
        worker.exit_code()
    }
}
