//! How long the listen queue becomes while every worker of the pool is busy: for the status page.
//!
//! The queue is at its longest when a worker is about to take from it and no other waits; so that is when it is measured, and
//! not in a pool that has an idle worker. php-fpm's master measures it once a second.

use super::service::Service;
use crate::scoreboard::{Stage, census, header};
use crate::sys::diag;
use crate::tick::Tick;
use std::os::fd::AsFd;
use std::time::Duration;

/// How often a worker measures at most: a unix socket's queue costs four system calls.
const INTERVAL: Duration = Duration::from_millis(100);

/// What a worker has measured.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    longest: u32,
    last: Option<Tick>,
}

impl Gauge {
    /// The worker is about to accept, and still marked as idle. `is_eager`: it was not idle before, because work had been
    /// waiting. In a pool of one worker only that tells a load.
    pub(super) fn look(&mut self, service: &Service, own: usize, is_eager: bool, now: Tick) {
        let last = *self.last.get_or_insert(now);
        let is_due = now.since(last) >= INTERVAL && (is_eager || service.board.slots() > 1);
        if !is_due || !is_full(service, own) {
            return;
        }
        self.last = Some(now);
        let Some(queue) = diag::listen_queue(service.listener.as_fd()) else {
            return;
        };
        if queue.current > self.longest {
            self.longest = queue.current;
            service.stamp().max_queue(u64::from(queue.current));
        }
    }
}

/// Whether every slot has a worker, and all of them but this one are busy.
fn is_full(service: &Service, own: usize) -> bool {
    let words = service.board.header();
    (0..service.board.slots()).all(|index| {
        let stage = || service.board.slot(index).map(census::stage);
        header::used(words, index)
            && (index == own || !matches!(stage(), Some(Stage::Accepting | Stage::Creating) | None))
    })
}
