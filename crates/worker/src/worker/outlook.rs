//! What a worker sees of its pool: its siblings, and what waits in the listening socket.

use super::service_order::ListenQueueState;
use crate::scoreboard::layout::{header as field, slot};
use crate::scoreboard::load::Load;
use crate::scoreboard::{Reader, Stage, header, slot_reader};
use crate::sys::{diag, socket};
use crate::tick::Tick;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// How many workers of the generation can take up work at once, and how many have some, by their stages. One that serves
/// several requests at a time may be both.
pub(super) fn count(board: &Reader) -> (u64, u64) {
    let words = board.header();
    let (mut idle, mut busy) = (0, 0);
    for index in 0..board.slots() {
        if !header::used(words, index) {
            continue;
        }
        let Some(page) = board.slot(index) else { continue };
        match slot_reader::stage(page) {
            Stage::Accepting => idle += 1,
            Stage::Creating => {}
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
    let words = board.header();
    let (mut idle, mut begun) = (0, 0);
    for page in (0..board.slots())
        .filter(|index| header::used(words, *index))
        .filter_map(|index| board.slot(index))
    {
        match slot_reader::stage(page) {
            Stage::Accepting => idle += 1,
            Stage::Creating => {}
            _ => {
                // The words of the request before stand until this one's first bytes are there.
                let words = [slot::TAKEN, slot::SINCE].map(|word| slot_reader::word(page, word));
                let since = Tick::from_nanos(words[0].max(words[1]));
                begun += usize::from(now.since(since) < time);
            }
        }
    }
    (idle, begun)
}

/// What the worker's siblings of the generation have to do, those that are up.
pub(super) fn siblings(board: &Reader, own: usize) -> impl Iterator<Item = Load> {
    let used = (0..board.slots()).filter(move |index| *index != own && header::used(board.header(), *index));
    used.filter_map(|index| board.slot(index).map(slot_reader::load))
}

/// How many connections the pool has accepted, as its workers say.
pub(super) fn accepted(board: &Reader) -> u64 {
    let words = board.header();
    let mut accepted = slot_reader::word(words, field::PAST_ACCEPTS);
    for index in (0..board.slots()).filter(|index| header::used(words, *index)) {
        let page = board.slot(index);
        accepted = accepted.saturating_add(page.map_or(0, |page| slot_reader::word(page, slot::ACCEPTS)));
    }
    accepted
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
