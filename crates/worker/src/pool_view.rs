//! What a worker knows about its siblings and the listening socket.

use super::service_order::ListenQueueState;
use forkyard_base::tick::Tick;
use forkyard_scoreboard::layout::{header as field, slot};
use forkyard_scoreboard::load::Load;
use forkyard_scoreboard::{Reader, RequestStage, header, slot_reader};
use forkyard_sys::{diag, socket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

fn up(board: &Reader) -> impl Iterator<Item = (usize, &[AtomicU64])> {
    let used = (0..board.slots()).filter(|index| header::used(board.header(), *index));
    used.filter_map(|index| Some((index, board.slot(index)?)))
}

/// Counts idle and busy workers by their stages. A worker with several requests may count as both.
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

/// Counts idle workers, and requests begun in this time. Stops when either count is enough.
pub(super) fn begun_within(
    board: &Reader,
    time: Duration,
    now: Tick,
    enough: (usize, usize),
) -> (usize, usize) {
    let (mut idle, mut begun) = (0, 0);
    for (_, page) in up(board) {
        match slot_reader::stage(page) {
            RequestStage::Accepting => idle += 1,
            RequestStage::Creating => {}
            _ => {
                // The previous request's times remain until this request's first bytes.
                let words = [slot::TAKEN, slot::SINCE].map(|word| slot_reader::word(page, word));
                let since = Tick::from_nanos(words[0].max(words[1]));
                // It may have begun after the clock was read; a time far in the future is invalid.
                begun += usize::from(now.since(since).max(since.since(now)) < time);
            }
        }
        if idle >= enough.0 || begun >= enough.1 {
            break;
        }
    }
    (idle, begun)
}

pub(super) fn siblings(board: &Reader, own: usize) -> impl Iterator<Item = Load> {
    let siblings = up(board).filter(move |(index, _)| *index != own);
    siblings.map(|(_, page)| slot_reader::load(page))
}

pub(super) fn connected(board: &Reader, own: usize) -> usize {
    let is_connected = |(index, page): &(usize, &[AtomicU64])| {
        let load = slot_reader::load(page);
        let has_some = load.in_flight > 0 || slot_reader::word(page, slot::KEPT) > 0;
        *index != own && load.has_room && has_some
    };
    up(board).filter(is_connected).count()
}

pub(super) fn accepted(board: &Reader) -> u64 {
    let past = slot_reader::word(board.header(), field::PAST_ACCEPTS);
    up(board).fold(past, |sum, (_, page)| {
        sum.saturating_add(slot_reader::word(page, slot::ACCEPTS))
    })
}

pub(super) fn line(board: &Reader, listener: &OwnedFd) -> ListenQueueState {
    let accepted = accepted(board);
    let waiting = diag::listen_queue(listener.as_fd()).map_or(1, |queue| u64::from(queue.current).max(1));
    ListenQueueState { accepted, waiting }
}

pub(super) fn turn(board: &Reader, listener: &OwnedFd) -> u64 {
    let waits = socket::wait(listener.as_fd(), socket::Readiness::Readable, Duration::ZERO);
    match waits {
        Ok(true) => line(board, listener).end(),
        Ok(false) | Err(_) => 0,
    }
}
