//! The worker's messages on the accept-notify pipe: it has accepted work, or its pool needs new processes.

use super::context::{GenerationContext, Settings};
use super::pool_view::count;
use super::restart_file::RestartFile;
use crate::master::pool_restart::{RestartReason, TIMESTAMP_BITS, timestamp};
use crate::scoreboard::slot_writer::SlotWriter;
use crate::scoreboard::{Reader, header};
use crate::tick::Tick;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Flag of a word: the worker has called accept for the first time. The rest is the slot.
pub const IS_UP: u32 = 1 << 31;
/// Flag of a word: a preloader may be made from this worker. Excludes the other flags.
pub const IS_CANDIDATE: u32 = 1 << 30;
/// Three bits of a word: why the pool needs new processes ([`restart_reason`]). The rest is a time.
const RESTART: u32 = 0b111 << RESTART_SHIFT;
const RESTART_SHIFT: u32 = TIMESTAMP_BITS;
const RESTART_INTERVAL: Duration = Duration::from_secs(1);

/// How often busy workers are counted for the status page, in a pool with more workers than this. Counting reads a page
/// per worker.
const COUNT_INTERVAL: Duration = Duration::from_millis(10);
const COUNT_ALWAYS: usize = 16;

/// The slot in a word.
pub fn slot(word: u32) -> u32 {
    word & !(IS_UP | IS_CANDIDATE | RESTART)
}

/// Why the pool needs new processes, and since when; `None` for other words.
pub fn restart_reason(word: u32) -> Option<(RestartReason, u32)> {
    let why = RestartReason::from_bits((word & RESTART) >> RESTART_SHIFT)?;
    Some((why, slot(word)))
}

/// Preloader: requests new processes, because the code dates from `since`. If the pipe is full, the next request has to
/// do.
pub fn tell_restart(context: &GenerationContext, why: RestartReason, since: Tick) {
    let word = restart_word(why, since);
    let _ = nix::unistd::write(&context.accept_notify, &word.to_ne_bytes());
}

fn restart_word(why: RestartReason, since: Tick) -> u32 {
    timestamp(since) | why.bits() << RESTART_SHIFT
}

#[derive(Debug)]
pub(super) struct AcceptNotifier {
    slot: usize,
    accept_notify: OwnedFd,
    told_first: bool,
    max_active: u64,
    counted: Tick,
    restart_file: Option<RestartFile>,
    asked_renewal: Option<Tick>,
}

impl AcceptNotifier {
    pub(super) fn new(slot: usize, accept_notify: OwnedFd, settings: &Settings) -> AcceptNotifier {
        AcceptNotifier {
            slot,
            accept_notify,
            told_first: false,
            max_active: 0,
            counted: Tick::ZERO,
            restart_file: RestartFile::of(settings),
            asked_renewal: None,
        }
    }

    pub(super) fn state(&mut self) -> (&mut bool, &mut u64, &mut Tick, &mut Option<Tick>) {
        (
            &mut self.told_first,
            &mut self.max_active,
            &mut self.counted,
            &mut self.asked_renewal,
        )
    }

    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    /// Marks the worker as busy. The order (slot, pipe, then the master's request for notices) matters: if the request
    /// comes too late to be seen here, the master's snapshot sees this worker busy.
    pub(super) fn take_up(&mut self, board: &Reader, slot_writer: &SlotWriter<'_>, now: Tick) {
        let notify = header::notify(board.header());
        let mut tell = notify.always;
        let slots = board.slots();
        let may_be_more = self.max_active < slots as u64
            && (slots <= COUNT_ALWAYS || now.since(self.counted) >= COUNT_INTERVAL);
        if notify.idle_below > 0 || may_be_more {
            self.counted = now;
            let (idle, busy) = count(board);
            tell |= idle < u64::from(notify.idle_below);
            if busy > self.max_active {
                self.max_active = busy;
                slot_writer.max_active(busy);
            }
        }
        if !self.told_first {
            self.tell_first();
        } else if tell {
            self.tell(0);
        }
        let is_touched = self.restart_file.as_mut().is_some_and(|it| it.has_changed(now));
        if is_touched {
            self.ask_restart(RestartReason::RestartFile, now, now);
        }
    }

    /// Requests new processes. The worker repeats this while it holds, because the master may be busy. `since`: the
    /// time of the cause.
    pub(super) fn ask_restart(&mut self, why: RestartReason, now: Tick, since: Tick) {
        let is_due = |asked: Tick| now.since(asked) >= RESTART_INTERVAL;
        if self.asked_renewal.is_none_or(is_due) {
            self.asked_renewal = Some(now);
            self.send(restart_word(why, since));
        }
    }

    pub(super) fn tell_first(&mut self) {
        if !self.told_first {
            self.told_first = self.tell(IS_UP);
        }
    }

    pub(super) fn tell_mold_candidate(&self) {
        self.tell(IS_CANDIDATE);
    }

    fn tell(&self, flag: u32) -> bool {
        self.send(self.slot as u32 | flag)
    }

    fn send(&self, word: u32) -> bool {
        nix::unistd::write(&self.accept_notify, &word.to_ne_bytes()).is_ok()
    }
}
