//! Workers that are rewound after each request (`worker_mode = "snapshot"`).
//!
//! The preloader copies its memory once for all workers ([`Pages`]). A worker takes its snapshot when its script waits
//! for the first request; later changes, in PHP and here, are discarded with each request. Only the worker's counters
//! ([`Worker::carry`](forkyard_worker::Worker::carry)) and the [`Tally`] in shared memory survive, and the
//! scoreboard, which is shared memory anyway.

use super::BootFailure;
use crate::ffi::{Php, REASONS, Resume, WorkerFacts};
use crate::preloader::Error;
use forkyard_config::{self as config, Isolation, WorkerMode};
use forkyard_rewind::{Pages, Rewound, Snapshot, Unrewindable};
use forkyard_sys::{self as sys, clock};
use forkyard_worker::CARRIED;
use std::ffi::{CStr, c_void};
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

const SAY_INTERVAL_SECONDS: u64 = 60;

const _: () = assert!(CARRIED + 5 <= forkyard_rewind::SURVIVORS && Unrewindable::KINDS == REASONS);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    GoesOn,
    /// It is rewound.
    IsPutBack,
    BootsAgain,
}

/// What the pool wants and PHP and the kernel support, or why the pool can't start. For [`After::BootsAgain`], also the
/// reason.
pub(crate) fn after_requests(
    script: &config::WorkerScript,
    php: &Php,
) -> Result<(After, Option<String>), Error> {
    match (script.mode, script.isolation) {
        (WorkerMode::Loop, _) => Ok((After::GoesOn, None)),
        (WorkerMode::Snapshot, Isolation::Rewind) if !php.is_known => {
            Err(Error::Boot(Box::new(BootFailure {
                summary: format!("no worker is put back to its snapshot: {}", not_tested(php)),
                solution: "Leave isolation out: each request then boots the application.",
                details: None,
            })))
        }
        (WorkerMode::Snapshot, Isolation::Auto) if !php.is_known => {
            let why = not_tested(php);
            log::warn!(
                "each request boots the application: {why}. Write worker_mode = \"loop\" if the application is written for it"
            );
            Ok((After::BootsAgain, Some(why)))
        }
        (WorkerMode::Snapshot, Isolation::Rewind) => {
            Ok(forkyard_rewind::is_possible().map(|()| (After::IsPutBack, None))?)
        }
        (WorkerMode::Snapshot, Isolation::Auto) => match forkyard_rewind::is_possible() {
            Ok(()) => Ok((After::IsPutBack, None)),
            Err(error) => {
                log::warn!(
                    "each request boots the application: this kernel can't put a worker back to its snapshot ({error}). That \
                     takes Linux 6.7 and a filter of system calls that allows userfaultfd(2). Write worker_mode = \"loop\" if \
                     the application is written for it"
                );
                let why = format!("this kernel can't put a worker back to its snapshot ({error})");
                Ok((After::BootsAgain, Some(why)))
            }
        },
    }
}

pub(crate) fn not_tested(php: &Php) -> String {
    format!("this version of forkyard is not tested with PHP {}", php.version)
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Tally {
    words: &'static [AtomicU64],
}

const REWOUND: usize = 0;
const PAGES: usize = 1;
const NANOS: usize = 2;
const MAPPINGS_READ: usize = 3;
const GIVEN_UP: usize = 8;
const SAID: usize = GIVEN_UP + Unrewindable::KINDS;

impl Tally {
    fn new() -> Result<Tally, sys::Error> {
        Ok(Tally {
            words: forkyard_rewind::shared_words()?,
        })
    }

    fn add(&self, index: usize, count: u64) {
        self.words[index].fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::Relaxed)
    }

    fn give_up(&self, why: Unrewindable) {
        let kind = why.kind();
        self.add(GIVEN_UP + kind, 1);
        let now = clock::epoch_seconds();
        let said = self.words[SAID + kind].load(Ordering::Relaxed);
        if now.saturating_sub(said) >= SAY_INTERVAL_SECONDS {
            self.words[SAID + kind].store(now, Ordering::Relaxed);
            log::warn!(
                "a worker is replaced: it can't be put back to its snapshot: {why}. {} of {} requests have \
                 ended this way",
                (0..Unrewindable::KINDS)
                    .map(|kind| self.get(GIVEN_UP + kind))
                    .sum::<u64>(),
                self.get(REWOUND) + 1,
            );
        }
    }
}

#[derive(Debug)]
pub(super) struct Booted {
    pub(super) after: After,
    tally: Option<Tally>,
    pages: Option<Pages>,
    snapshot: Option<Snapshot>,
}

impl After {
    pub(crate) fn isolation(self) -> Option<String> {
        match self {
            After::GoesOn | After::BootsAgain => None,
            After::IsPutBack => Some(Isolation::Rewind.as_str().to_owned()),
        }
    }
}

impl Booted {
    pub(super) fn new(after: After) -> Booted {
        Booted {
            after,
            tally: None,
            pages: None,
            snapshot: None,
        }
    }

    pub(super) fn keep(&mut self, closable: Option<Vec<RawFd>>) -> Result<(), sys::Error> {
        self.tally = Some(Tally::new()?);
        if self.after == After::IsPutBack {
            self.pages = Some(Pages::take(closable)?);
        }
        Ok(())
    }

    pub(super) fn prepare(&mut self) -> Result<bool, sys::Error> {
        if let Some(pages) = &self.pages {
            self.snapshot = Some(Snapshot::prepare(pages)?);
        }
        Ok(self.after == After::IsPutBack)
    }

    /// Takes the snapshot.
    ///
    /// # Safety
    /// See [`Snapshot::take`].
    pub(super) unsafe fn take(&self, resume: Resume, context: *mut c_void) -> Result<(), sys::Error> {
        match (&self.snapshot, &self.pages) {
            // SAFETY: the caller's promise, and `prepare` was given these pages.
            (Some(snapshot), Some(pages)) => unsafe { snapshot.take(pages, resume, context) },
            _ => Ok(()),
        }
    }

    /// After the snapshot and each rewind: the surviving words, if any, and the cost.
    pub(super) fn resumed(&self) -> Result<Option<(Survivors<'_>, Rewound)>, Unrewindable> {
        let Some(snapshot) = &self.snapshot else {
            return Ok(None);
        };
        let outcome = snapshot.outcome();
        let Some(tally) = &self.tally else { return Ok(None) };
        let rewound = outcome.inspect_err(|why| tally.give_up(*why))?;
        if rewound.number == 0 {
            return Ok(None);
        }
        tally.add(REWOUND, 1);
        tally.add(PAGES, rewound.pages);
        tally.add(NANOS, rewound.nanos);
        tally.add(MAPPINGS_READ, u64::from(rewound.has_read_mappings));
        Ok(Survivors::of(snapshot).map(|survivors| (survivors, rewound)))
    }

    /// After a request: the words that survive. `None`: no snapshot.
    ///
    /// # Errors
    /// The process can't be rewound and must exit.
    pub(super) fn survivors(&self) -> Result<Option<Survivors<'_>>, Unrewindable> {
        let Some(snapshot) = &self.snapshot else {
            return Ok(None);
        };
        snapshot.check().inspect_err(|why| {
            if let Some(tally) = &self.tally {
                tally.give_up(*why);
            }
        })?;
        Ok(Survivors::of(snapshot))
    }

    pub(super) fn keep_open(&self, numbers: &[RawFd]) {
        if let Some(snapshot) = &self.snapshot {
            snapshot.keep_open(numbers.iter().copied());
        }
    }

    pub(super) fn take_kept(&self) -> impl Iterator<Item = OwnedFd> {
        self.snapshot.iter().flat_map(Snapshot::take_kept)
    }

    /// Rewinds the process.
    ///
    /// # Safety
    /// See [`Snapshot::rewind`].
    pub(super) unsafe fn rewind(&self) {
        if let Some(snapshot) = &self.snapshot {
            // SAFETY: the caller's promise; survivors exist only after a snapshot.
            unsafe { snapshot.rewind() }
        }
    }

    pub(super) fn facts(&self, requests: u64) -> WorkerFacts {
        const NAMES: [&CStr; REASONS] = [
            c"thread",
            c"child",
            c"identity",
            c"priority",
            c"limit",
            c"memory",
            c"descriptor",
            c"call",
        ];
        let get = |index| self.tally.as_ref().map_or(0, |tally| tally.get(index));
        WorkerFacts {
            is_rewinding: u8::from(self.after == After::IsPutBack),
            requests,
            rewound: get(REWOUND),
            pages: get(PAGES),
            nanos: get(NANOS),
            mappings_read: get(MAPPINGS_READ),
            given_up: std::array::from_fn(|kind| get(GIVEN_UP + kind)),
            reasons: NAMES.map(CStr::as_ptr),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Survivors<'s> {
    pub(crate) worker: &'s mut [u64; CARRIED],
    pub(crate) has_refused: &'s mut u64,
    pub(crate) given: &'s mut u64,
    /// Why and since when the application should boot again; 0: it should not.
    pub(crate) wants_boot: [&'s mut u64; 2],
    pub(crate) looked: &'s mut u64,
}

impl<'s> Survivors<'s> {
    fn of(snapshot: &'s Snapshot) -> Option<Survivors<'s>> {
        // SAFETY: the only use of the words, which borrows the snapshot.
        let words = unsafe { snapshot.survivors() };
        let (worker, rest) = words.split_first_chunk_mut::<CARRIED>()?;
        let [has_refused, given, why, since, looked, ..] = rest else {
            return None;
        };
        Some(Survivors {
            worker,
            has_refused,
            given,
            wants_boot: [why, since],
            looked,
        })
    }
}
