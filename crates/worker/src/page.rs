//! The scoreboard of a worker's pool, and the worker's own slot in it.

use super::access::Recorder;
use super::context::{GenerationContext, Settings};
use super::pool_view;
use forkyard_scoreboard::load::Load;
use forkyard_scoreboard::slot_writer::SlotWriter;
use forkyard_scoreboard::{Reader, Slot, header};
use forkyard_sys::{Error, clock};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Page {
    pub(super) board: Arc<Reader>,
    slot: Slot,
    /// The number of its slot.
    pub(super) own: usize,
}

impl Page {
    /// Maps both. The process notes the senders of its signals from now on.
    pub(super) fn open(context: &GenerationContext, own: u32) -> Result<Page, Error> {
        let slots = context.settings.slots as usize;
        let board = Arc::new(Reader::map(context.board_readable.as_fd(), slots)?);
        let slot = Slot::map(context.board_writable.as_fd(), own as usize)?;
        slot.note_senders();
        let own = own as usize;
        Ok(Page { board, slot, own })
    }

    pub(super) fn writer(&self) -> SlotWriter<'_> {
        SlotWriter::new(self.slot.words())
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
