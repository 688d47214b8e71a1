//! What a runtime keeps beside its worker, and how the worker looks after it between requests.

use super::lobby::Lobby;
use super::service::Service;
use crate::scoreboard::Stage;
use crate::sys::clock;
use crate::tick::Tick;
use std::os::fd::BorrowedFd;

/// Whether requests can be taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// They can.
    Ready,
    /// Not yet: they are better left to a sibling.
    Pending,
    /// Never: the worker has to end.
    Lost,
}

/// A program, or whatever else lives beside a worker.
pub trait Companion {
    /// Readable when it has to be looked after. The same as long as the worker lives.
    fn watch(&self) -> BorrowedFd<'_>;

    /// When it has to be looked after in any case.
    fn deadline(&self) -> Option<Tick>;

    /// Whether requests can be taken up now, as far as was seen.
    fn standing(&self) -> Standing;

    /// Looks after it. Never blocks.
    fn attend(&mut self);

    /// The worker is about to end.
    fn leave(&mut self);
}

/// Waits until requests can be taken up. `false`: the worker was told to finish, or its companion is lost.
pub(super) fn stand_by(
    companion: &mut dyn Companion,
    lobby: &Lobby,
    service: &mut Service,
) -> Result<(), Standing> {
    let mut is_told = false;
    loop {
        match companion.standing() {
            Standing::Ready => return Ok(()),
            Standing::Lost => return Err(Standing::Lost),
            Standing::Pending => {}
        }
        if !is_told {
            is_told = true;
            // It is no idle worker now, and what it holds is better off with one that is.
            service.stage(Stage::Creating);
            lobby.hand_over_all(service);
        }
        let left = companion.deadline().map(|deadline| deadline.since(clock::now()));
        if lobby.is_told_to_finish(companion.watch(), left) {
            return Err(Standing::Pending);
        }
        companion.attend();
    }
}
