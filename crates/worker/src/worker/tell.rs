//! What a worker tells the master by the child_accept pipe: that it has taken up work.

use super::outlook::count;
use crate::scoreboard::stamp::Stamp;
use crate::scoreboard::{Reader, header};
use crate::tick::Tick;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A bit of a word in the child_accept pipe, beside the slot: the worker has called accept for the first time.
pub const IS_UP: u32 = 1 << 31;
/// A bit of such a word: the worker has served enough requests for a preloader to be made from it. The word has no other
/// meaning then.
pub const IS_SEASONED: u32 = 1 << 30;

/// How often a worker counts the busy ones for the status page alone, in a pool of more workers than this. A count looks
/// at a page of every worker.
const COUNT_INTERVAL: Duration = Duration::from_millis(10);
const COUNT_ALWAYS: usize = 16;

/// The worker's end of the pipe.
#[derive(Debug)]
pub(super) struct Teller {
    slot: usize,
    child_accept: OwnedFd,
    told_first: bool,
    max_active: u64,
    /// When the busy workers were last counted.
    counted: Tick,
}

impl Teller {
    pub(super) fn new(slot: usize, child_accept: OwnedFd) -> Teller {
        Teller {
            slot,
            child_accept,
            told_first: false,
            max_active: 0,
            counted: Tick::ZERO,
        }
    }

    /// The worker's slot.
    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    /// The worker has work from now on, which its slot shows already: that is there to be seen before the pipe is written to,
    /// and before the master's wish is read. If the master's wish comes too late to be seen here, its census sees this
    /// worker busy.
    pub(super) fn take_up(&mut self, board: &Reader, stamp: &Stamp<'_>, now: Tick) {
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
                stamp.max_active(busy);
            }
        }
        if !self.told_first {
            self.tell_first();
        } else if tell {
            self.tell(0);
        }
    }

    /// The worker is up.
    pub(super) fn tell_first(&mut self) {
        if !self.told_first {
            self.told_first = true;
            self.tell(IS_UP);
        }
    }

    /// The worker has served enough requests for a preloader to be made from it. Where the pipe is full, it says so another
    /// time.
    pub(super) fn tell_seasoned(&self) {
        self.tell(IS_SEASONED);
    }

    /// A full pipe is no loss: the master has unread words then, and one is as good as many.
    fn tell(&self, flag: u32) {
        let word = self.slot as u32 | flag;
        let _ = nix::unistd::write(&self.child_accept, &word.to_ne_bytes());
    }
}
