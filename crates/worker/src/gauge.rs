//! Measures the longest listen queue for the status page.
//!
//! The queue is longest when a worker is about to accept and no other is idle, so workers measure it then. php-fpm's
//! master measures it once a second.

use super::service::Service;
use forkyard_base::tick::Tick;
use forkyard_scoreboard::load::Load;
use forkyard_scoreboard::slot_writer::SlotWriter;
use forkyard_scoreboard::{RequestStage, header, slot_reader};
use forkyard_sys::diag;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// How often a worker measures; a unix socket's queue costs four system calls.
const INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct Gauge {
    longest: u32,
    last: Option<Tick>,
}

impl Gauge {
    pub(super) fn state(&mut self) -> (&mut u32, &mut Option<Tick>) {
        (&mut self.longest, &mut self.last)
    }

    /// Called before accept, while still marked idle. `is_eager`: work was already waiting, which is the only sign of
    /// load in a pool of one worker.
    pub(super) fn sample(&mut self, service: &Service, own: usize, is_eager: bool, now: Tick) {
        let last = *self.last.get_or_insert(now);
        let is_due = now.since(last) >= INTERVAL && (is_eager || service.board.slots() > 1);
        if !is_due || !is_full(service, own) {
            return;
        }
        self.measure(service.listener.as_fd(), &service.slot_writer(), now);
    }

    pub(super) fn sample_beside_many(
        &mut self,
        listener: BorrowedFd<'_>,
        slot_writer: &SlotWriter<'_>,
        siblings: impl IntoIterator<Item = Load>,
        now: Tick,
    ) {
        let is_due = self.last.is_none_or(|last| now.since(last) >= INTERVAL);
        if is_due && !siblings.into_iter().any(|sibling| sibling.has_room) {
            self.measure(listener, slot_writer, now);
        }
    }

    fn measure(&mut self, listener: BorrowedFd<'_>, slot_writer: &SlotWriter<'_>, now: Tick) {
        self.last = Some(now);
        let Some(queue) = diag::listen_queue(listener) else {
            return;
        };
        if queue.current > self.longest {
            self.longest = queue.current;
            slot_writer.max_queue(u64::from(queue.current));
        }
    }
}

fn is_full(service: &Service, own: usize) -> bool {
    let words = service.board.header();
    (0..service.board.slots()).all(|index| {
        let stage = || service.board.slot(index).map(slot_reader::stage);
        header::used(words, index)
            && (index == own
                || !matches!(
                    stage(),
                    Some(RequestStage::Accepting | RequestStage::Creating) | None
                ))
    })
}
