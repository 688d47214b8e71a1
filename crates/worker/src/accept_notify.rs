//! The worker's messages on the accept-notify pipe: it has accepted work, or its pool needs new processes.

use super::context::{GenerationContext, Settings};
use super::page::Page;
use super::pool_view::count;
use super::release::ReleaseDirectory;
use super::restart_file::RestartFile;
use forkyard_base::tick::Tick;
use forkyard_protocol::accept_notify::{AcceptNotice, RestartReason, timestamp};
use forkyard_scoreboard::header;
use std::os::fd::OwnedFd;
use std::time::Duration;

const RESTART_INTERVAL: Duration = Duration::from_secs(1);

/// In a pool with more than `COUNT_ALWAYS` workers, a worker counts the busy ones for the status page once in this time per
/// worker of the pool, because each count reads a page per worker.
const COUNT_INTERVAL: Duration = Duration::from_micros(500);
const COUNT_ALWAYS: usize = 16;
/// The least time between two counts of a worker for the autopilot.
const COUNT_FOR_AUTOPILOT: Duration = Duration::from_millis(10);

/// Preloader: requests new processes, because the code dates from `since`. If the pipe is full, the next request has to
/// do.
pub fn tell_restart(context: &GenerationContext, why: RestartReason, since: Tick) {
    send(&context.accept_notify, restart(why, since));
}

fn restart(reason: RestartReason, since: Tick) -> AcceptNotice {
    let since = timestamp(since);
    AcceptNotice::Restart { reason, since }
}

fn send(accept_notify: &OwnedFd, notice: AcceptNotice) -> bool {
    nix::unistd::write(accept_notify, &notice.encode()).is_ok()
}

#[derive(Debug)]
pub(super) struct AcceptNotifier {
    slot: usize,
    accept_notify: OwnedFd,
    pub(super) told_first: bool,
    pub(super) max_active: u64,
    pub(super) counted: Tick,
    restart_file: Option<RestartFile>,
    release: Option<ReleaseDirectory>,
    pub(super) asked_renewal: Option<Tick>,
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
            release: ReleaseDirectory::of(settings),
            asked_renewal: None,
        }
    }

    /// Marks the worker as busy. The order (slot, pipe, then the master's request for notices) matters: if the request
    /// comes too late to be seen here, the master's snapshot sees this worker busy.
    pub(super) fn take_up(&mut self, page: &Page, now: Tick) {
        let board = &page.board;
        let notify = header::notify(board.header());
        let mut tell = notify.always;
        let slots = board.slots();
        let may_be_more = self.max_active < slots as u64
            && (slots <= COUNT_ALWAYS || now.since(self.counted) >= COUNT_INTERVAL * slots as u32);
        let wish = header::wish(board.header());
        // No more workers than slots are ever busy.
        let above = wish.busy_above.filter(|above| (*above as usize) < slots);
        let pace = || COUNT_FOR_AUTOPILOT.max(COUNT_INTERVAL * slots as u32);
        let is_wanted = above.is_some() && now.since(self.counted) >= pace();
        if notify.idle_below > 0 || may_be_more || is_wanted {
            self.counted = now;
            let (idle, busy) = count(board);
            tell |= idle < u64::from(notify.idle_below);
            if busy > self.max_active {
                self.max_active = busy;
                page.writer().max_active(busy);
            }
            if above.is_some_and(|above| busy > u64::from(above)) {
                self.send(AcceptNotice::Busy);
            }
        }
        if !self.told_first {
            self.tell_first();
        } else if tell {
            self.send(AcceptNotice::Accepted);
        }
        let is_touched = self.restart_file.as_mut().is_some_and(|it| it.has_changed(now));
        if is_touched {
            self.ask_restart(RestartReason::RestartFile, now, now);
        }
        if self.release.as_mut().is_some_and(|it| it.is_gone(now)) {
            self.ask_restart(RestartReason::ReleaseGone, now, now);
        }
    }

    /// Requests new processes. The worker repeats this while it holds, because the master may be busy. `since`: the
    /// time of the cause.
    pub(super) fn ask_restart(&mut self, why: RestartReason, now: Tick, since: Tick) {
        let is_due = |asked: Tick| now.since(asked) >= RESTART_INTERVAL;
        if self.asked_renewal.is_none_or(is_due) {
            self.asked_renewal = Some(now);
            send(&self.accept_notify, restart(why, since));
        }
    }

    pub(super) fn tell_first(&mut self) {
        if !self.told_first {
            self.told_first = self.send(AcceptNotice::Up);
        }
    }

    /// Reports to the master, if it wants to know, that all workers are busy and connections wait.
    pub(super) fn tell_crowded(&self, page: &Page) {
        if header::wish(page.board.header()).busy_above.is_some() {
            self.send(AcceptNotice::Busy);
        }
        if header::tell_crowded(page.board.header()) {
            self.send(AcceptNotice::Crowded);
        }
    }

    pub(super) fn tell_mold_candidate(&self) {
        self.send(AcceptNotice::Candidate);
    }

    fn send(&self, notice: fn(u32) -> AcceptNotice) -> bool {
        send(&self.accept_notify, notice(self.slot as u32))
    }
}
