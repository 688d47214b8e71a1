//! The scoreboard of a worker's pool, and the worker's own slot and numbers in it.

use super::access::Recorder;
use super::context::{GenerationContext, Settings};
use super::pool_view;
use forkyard_base::tick::Tick;
use forkyard_scoreboard::load::Load;
use forkyard_scoreboard::slot_writer::SlotWriter;
use forkyard_scoreboard::{Counters, Counting, Gate, Reader, Slot, header, turns};
use forkyard_sys::{Error, clock, socket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Page {
    pub(super) board: Arc<Reader>,
    slot: Slot,
    /// `None` on an older program's scoreboard.
    counting: Option<Counting>,
    /// The number of its slot.
    pub(super) own: usize,
}

impl Page {
    /// Maps both. The process notes the senders of its signals from now on.
    pub(super) fn open(context: &GenerationContext, own: u32) -> Result<Page, Error> {
        let slots = context.settings.slots as usize;
        let board = Arc::new(Reader::map(context.board_readable.as_fd(), slots)?);
        let slot = Slot::map(context.board_writable.as_fd(), slots, own as usize)?;
        slot.note_senders();
        let own = own as usize;
        let memory = context.board_writable.as_fd();
        let counting = board.has_numbers().then(|| Counting::map(memory, slots, own));
        let counting = counting.transpose()?;
        Ok(Page {
            board,
            slot,
            counting,
            own,
        })
    }

    pub(super) fn writer(&self) -> SlotWriter<'_> {
        SlotWriter::new(self.slot.words())
    }

    pub(super) fn gate(&self) -> Option<Gate<'_>> {
        self.counting.as_ref().map(Counting::gate)
    }

    /// The worker's numbers, while it has work.
    pub(super) fn counters(&self) -> Option<Counters<'_>> {
        self.counting.as_ref().map(Counting::counters)
    }

    /// Shows a worker with one request at a time as busy.
    /// Whether it is the turn of the worker's generation.
    pub(super) fn has_turn(&self, now: Tick) -> bool {
        turns::turn(self.board.header()).is_none_or(|turn| turn.is_now(now))
    }

    /// Accepts a connection through the gate; `None`: there is none.
    #[inline]
    pub(super) fn accept(&self, listener: &OwnedFd) -> Result<Option<OwnedFd>, Error> {
        if let Some(gate) = self.gate() {
            gate.begin_accept();
        }
        let accepted = socket::accept(listener.as_fd());
        if let Some(gate) = self.gate().filter(|_| !matches!(accepted, Ok(Some(_)))) {
            gate.accept_failed(accepted.is_ok(), clock::now());
        }
        accepted
    }

    pub(super) fn accepted(&self, now: Tick) {
        self.writer().accepted(now);
        self.begin_busy(now);
        if let Some(gate) = self.gate().filter(|_| !self.must_retire()) {
            gate.enter(self.own, now);
        }
    }

    /// Shows the worker as idle.
    pub(super) fn idle(&self, now: Tick) {
        self.writer().idle(now);
        self.rest(now);
    }

    /// Ends the busy time: the worker waits.
    pub(super) fn rest(&self, now: Tick) {
        self.end_busy(now);
        if let Some(gate) = self.gate() {
            gate.leave(self.own, now);
        }
    }

    pub(super) fn begin_busy(&self, now: Tick) {
        if let Some(counting) = &self.counting {
            let gate = counting.gate();
            if !gate.is_touched(self.own) {
                gate.touch(self.own);
            }
            counting.counters().begin_busy(now);
        }
    }

    pub(super) fn end_busy(&self, now: Tick) {
        // A worker that never worked has no memory for numbers.
        if let Some(counting) = self.counting.as_ref().filter(|it| it.gate().is_touched(self.own)) {
            counting.counters().end_busy(now);
        }
    }

    /// Shows whether a worker with several requests can take no other.
    pub(super) fn show_full(&self, is_full: bool) {
        if let Some(gate) = self.gate().filter(|gate| gate.has_entered(self.own) != is_full) {
            match is_full {
                true => gate.enter(self.own, clock::now()),
                false => gate.leave(self.own, clock::now()),
            }
        }
    }

    pub(super) fn begin(&self) {
        let pid = std::process::id() as i32;
        self.writer().begin(pid, clock::epoch_seconds(), clock::now());
    }

    /// A recorder for the access log, if the pool has one.
    pub(super) fn recorder(&self, settings: &Settings, shelf: Option<OwnedFd>) -> Option<Box<Recorder>> {
        let (access, shelf) = settings.pool.logs.access.clone().zip(shelf)?;
        let name = settings.pool.name.clone();
        let recorder = Recorder::new(access, name, settings.log_limit, shelf, self.board.header());
        Some(Box::new(recorder))
    }

    pub(super) fn siblings(&self) -> impl Iterator<Item = Load> {
        pool_view::siblings(&self.board, self.own)
    }

    /// Whether the master wants this worker to exit.
    pub(super) fn must_retire(&self) -> bool {
        header::retire(self.board.header(), self.own)
    }
}
