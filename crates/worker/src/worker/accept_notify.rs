//! What a worker tells the master by the accept-notify pipe: that it has taken up work, or that its pool needs new processes.

use super::context::{GenerationContext, Settings};
use super::pool_view::count;
use super::restart_file::RestartFile;
use crate::master::pool_restart::{RestartReason, TIMESTAMP_BITS, timestamp};
use crate::scoreboard::slot_writer::SlotWriter;
use crate::scoreboard::{Reader, header};
use crate::tick::Tick;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A bit of a word in the accept-notify pipe, beside the slot: the worker has called accept for the first time.
pub const IS_UP: u32 = 1 << 31;
/// A bit of such a word: the worker has served enough requests for a preloader to be made from it. The word has no other
/// meaning then.
pub const IS_CANDIDATE: u32 = 1 << 30;
/// Three bits of such a word: why the pool needs new processes ([`restart_reason`]). In place of the slot the word has a time then.
const RESTART: u32 = 0b111 << RESTART_SHIFT;
const RESTART_SHIFT: u32 = TIMESTAMP_BITS;
/// How often a worker says that at most. The master may wait for good reasons.
const RESTART_INTERVAL: Duration = Duration::from_secs(1);

/// How often a worker counts the busy ones for the status page alone, in a pool of more workers than this. A count looks
/// at a page of every worker.
const COUNT_INTERVAL: Duration = Duration::from_millis(10);
const COUNT_ALWAYS: usize = 16;

/// The slot that a word of the pipe is about.
pub fn slot(word: u32) -> u32 {
    word & !(IS_UP | IS_CANDIDATE | RESTART)
}

/// Why the worker's pool needs new processes, and since when; `None`: the word says something else.
pub fn restart_reason(word: u32) -> Option<(RestartReason, u32)> {
    let why = RestartReason::from_bits((word & RESTART) >> RESTART_SHIFT)?;
    Some((why, slot(word)))
}

/// For a preloader: the pool needs new processes, for code that is as old as this moment. A full pipe is no loss:
/// it says so again.
pub fn tell_restart(context: &GenerationContext, why: RestartReason, since: Tick) {
    let word = restart_word(why, since);
    let _ = nix::unistd::write(&context.accept_notify, &word.to_ne_bytes());
}

fn restart_word(why: RestartReason, since: Tick) -> u32 {
    timestamp(since) | why.bits() << RESTART_SHIFT
}

/// The worker's end of the pipe.
#[derive(Debug)]
pub(super) struct AcceptNotifier {
    slot: usize,
    accept_notify: OwnedFd,
    told_first: bool,
    max_active: u64,
    /// When the busy workers were last counted.
    counted: Tick,
    restart_file: Option<RestartFile>,
    /// When the worker last said that its pool needs new processes.
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

    /// What a process that is put back has to carry over: whether it has told of its first accept, the most busy workers, when it
    /// counted them, and when it asked for new processes.
    pub(super) fn state(&mut self) -> (&mut bool, &mut u64, &mut Tick, &mut Option<Tick>) {
        (
            &mut self.told_first,
            &mut self.max_active,
            &mut self.counted,
            &mut self.asked_renewal,
        )
    }

    /// The worker's slot.
    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    /// The worker has work from now on. Its slot shows that already, before the pipe is written to and before the
    /// master's wish is read. So if the master's wish comes too late to be seen here, its snapshot sees this worker
    /// busy.
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

    /// The worker's pool needs new processes. The worker repeats this as long as it is true: the master may have had no
    /// time for it. `since`: the moment that it is about.
    pub(super) fn ask_restart(&mut self, why: RestartReason, now: Tick, since: Tick) {
        let is_due = |asked: Tick| now.since(asked) >= RESTART_INTERVAL;
        if self.asked_renewal.is_none_or(is_due) {
            self.asked_renewal = Some(now);
            self.send(restart_word(why, since));
        }
    }

    /// The worker is up.
    pub(super) fn tell_first(&mut self) {
        if !self.told_first {
            // Where there is no room, it says so with the next request.
            self.told_first = self.tell(IS_UP);
        }
    }

    /// The worker has served enough requests for a preloader to be made from it. Where the pipe is full, it says so another
    /// time.
    pub(super) fn tell_mold_candidate(&self) {
        self.tell(IS_CANDIDATE);
    }

    /// A full pipe is no loss: the master has unread words then, and one is as good as many.
    fn tell(&self, flag: u32) -> bool {
        self.send(self.slot as u32 | flag)
    }

    /// Whether there was room.
    fn send(&self, word: u32) -> bool {
        nix::unistd::write(&self.accept_notify, &word.to_ne_bytes()).is_ok()
    }
}
