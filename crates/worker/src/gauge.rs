//! Counts accepted connections, and measures the longest listen queue for the status page.
//!
//! The queue is longest when a worker is about to accept and no other is idle, so workers measure it then. php-fpm's
//! master measures it once a second.

use super::page::Page;
use super::service::Service;
use forkyard_base::tick::Tick;
use forkyard_config::Listen;
use forkyard_host::listen::disallowed;
use forkyard_sys::diag;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// How often a worker measures; a unix socket's queue costs four system calls.
const INTERVAL: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Gauge {
    pub(super) accepted: u64,
    pub(super) longest: u32,
    pub(super) last: Option<Tick>,
    /// The begin of a second, and the worker's busy time then.
    second: Option<(Tick, Duration)>,
    /// The worker was full or blocked and has not checked the listening socket since.
    pub(super) was_strained: bool,
}

impl Gauge {
    /// Counts an accepted connection. Returns why its client is refused.
    pub(super) fn admit(&mut self, page: &Page, listen: &Listen, socket: BorrowedFd<'_>) -> Option<String> {
        self.accepted += 1;
        page.writer().accepts(self.accepted);
        disallowed(&listen.allowed_clients, socket)
    }

    /// Called before accept, while still marked idle. In a pool of one worker the signs of load are `is_eager`, work that
    /// was already waiting, and a second of mostly busy time. Returns whether connections wait in addition to the
    /// one that the worker may accept.
    pub(super) fn sample(&mut self, service: &Service, is_eager: bool, now: Tick) -> bool {
        let last = *self.last.get_or_insert(now);
        let is_due = now.since(last) >= INTERVAL
            && (is_eager || service.page.board.slots() > 1 || self.was_busy(&service.page, now));
        let is_full = || (service.page.gate()).is_some_and(|gate| gate.is_full(Some(service.page.own)));
        if !is_due || !is_full() {
            return false;
        }
        self.measure(service.listener.as_fd(), &service.page, now) > 1
    }

    /// Whether the worker was busy for most of the last second. Begins another second if this one is over.
    fn was_busy(&mut self, page: &Page, now: Tick) -> bool {
        let busy = page
            .counters()
            .map_or(Duration::ZERO, |counters| counters.busy_time(now));
        let (begun, before) = *self.second.get_or_insert((now, busy));
        let passed = now.since(begun);
        if passed < SECOND {
            return false;
        }
        self.second = Some((now, busy));
        passed < SECOND * 2 && busy.saturating_sub(before) * 2 >= passed
    }

    /// Like [`Gauge::sample`], for a worker with several requests.
    pub(super) fn sample_beside_many(&mut self, listener: BorrowedFd<'_>, page: &Page, now: Tick) -> bool {
        let was_strained = std::mem::take(&mut self.was_strained);
        let is_due = was_strained && self.last.is_none_or(|last| now.since(last) >= INTERVAL);
        is_due && !page.siblings().any(|sibling| sibling.has_room) && self.measure(listener, page, now) > 1
    }

    /// Returns the number of waiting connections; 0 if unknown.
    fn measure(&mut self, listener: BorrowedFd<'_>, page: &Page, now: Tick) -> u32 {
        self.last = Some(now);
        let accepted = page.gate().map(|gate| gate.count_accepted());
        let Some(queue) = diag::listen_queue(listener) else {
            return 0;
        };
        if let Some((gate, accepted)) = page.gate().zip(accepted) {
            gate.measured(accepted, u64::from(queue.current), now);
        }
        if queue.current > self.longest {
            self.longest = queue.current;
            page.writer().max_queue(u64::from(queue.current));
        }
        queue.current
    }
}
