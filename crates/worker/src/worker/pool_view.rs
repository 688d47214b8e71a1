//! What a worker sees of its pool: its siblings, and what waits in the listening socket.

use super::service_order::ListenQueueState;
use crate::scoreboard::layout::{header as field, slot};
use crate::scoreboard::load::Load;
use crate::scoreboard::{Reader, RequestStage, header, slot_reader};
use crate::sys::{diag, socket};
use crate::tick::Tick;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The pages of the generation's workers, by their slots.
fn up(board: &Reader) -> impl Iterator<Item = (usize, &[AtomicU64])> {
    let used = (0..board.slots()).filter(|index| header::used(board.header(), *index));
    used.filter_map(|index| Some((index, board.slot(index)?)))
}

/// How many workers of the generation can take up work at once, and how many have some, by their stages. One that serves
/// several requests at a time may be both.
pub(super) fn count(board: &Reader) -> (u64, u64) {
    let (mut idle, mut busy) = (0, 0);
    for (_, page) in up(board) {
        match slot_reader::stage(page) {
            RequestStage::Accepting => idle += 1,
            RequestStage::Creating => {}
            _ => {
                busy += 1;
                idle += u64::from(slot_reader::load(page).has_room);
            }
        }
    }
    (idle, busy)
}

/// How many workers of the generation are idle, and how many have begun a request within this time and have not ended it.
pub(super) fn begun_within(board: &Reader, time: Duration, now: Tick) -> (usize, usize) {
    let (mut idle, mut begun) = (0, 0);
    for (_, page) in up(board) {
        match slot_reader::stage(page) {
            RequestStage::Accepting => idle += 1,
            RequestStage::Creating => {}
            _ => {
                // The words of the request before stand until this one's first bytes are there.
                let words = [slot::TAKEN, slot::SINCE].map(|word| slot_reader::word(page, word));
                let since = Tick::from_nanos(words[0].max(words[1]));
                // It may have begun since the clock was read, but a time far in the future is none.
                begun += usize::from(now.since(since).max(since.since(now)) < time);
            }
        }
    }
    (idle, begun)
}

/// What the worker's siblings of the generation have to do, those that are up.
pub(super) fn siblings(board: &Reader, own: usize) -> impl Iterator<Item = Load> {
    let siblings = up(board).filter(move |(index, _)| *index != own);
    siblings.map(|(_, page)| slot_reader::load(page))
}

/// How many siblings have connections, and take more requests.
pub(super) fn connected(board: &Reader, own: usize) -> usize {
    let is_connected = |(index, page): &(usize, &[AtomicU64])| {
        let load = slot_reader::load(page);
        let has_some = load.in_flight > 0 || slot_reader::word(page, slot::KEPT) > 0;
        *index != own && load.has_room && has_some
    };
    up(board).filter(is_connected).count()
}

/// How many connections the pool has accepted, as its workers say.
pub(super) fn accepted(board: &Reader) -> u64 {
    let past = slot_reader::word(board.header(), field::PAST_ACCEPTS);
    up(board).fold(past, |sum, (_, page)| {
        sum.saturating_add(slot_reader::word(page, slot::ACCEPTS))
    })
}

/// The listening socket, in which a connection waits. Where the kernel doesn't say how many, one is assumed, as the master
/// does.
pub(super) fn line(board: &Reader, listener: &OwnedFd) -> ListenQueueState {
    let accepted = accepted(board);
    let waiting = diag::listen_queue(listener.as_fd()).map_or(1, |queue| u64::from(queue.current).max(1));
    ListenQueueState { accepted, waiting }
}

/// The turn of a request that is noticed now; 0: no connection waits.
pub(super) fn turn(board: &Reader, listener: &OwnedFd) -> u64 {
    let waits = socket::wait(listener.as_fd(), socket::Readiness::Readable, Duration::ZERO);
    match waits {
        Ok(true) => line(board, listener).end(),
        Ok(false) | Err(_) => 0,
    }
}
