//! The turn queues of a pool whose requests two generations may share: a socket pair for each, over which workers of the
//! other generation wake its workers and pass requests.

use crate::context::Context;
use crate::context::generation::Generation;
use forkyard_core::master::event::{GenerationId, PoolId};
use forkyard_protocol::handover::names::QueueKind;
use forkyard_scoreboard::turns::{Turn, set_turn};
use forkyard_sys::fd::{receive_with, send_with, unread};
use forkyard_sys::process;
use forkyard_sys::socket::{Readiness, wait};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

/// More messages are never in a queue.
const MOST_MESSAGES: usize = 4 * 1_024;
/// A message of the hand-off queue is shorter.
const NOTE_BYTES: usize = 4 * 1_024;
/// How long a request waits for room in the hand-off queue.
const ROOM_PATIENCE: Duration = Duration::from_secs(20);

impl Generation {
    /// Publishes its part of the pool's requests.
    pub(crate) fn set_turn(&self, turn: Option<Turn>) {
        if let Some(resources) = &self.resources {
            set_turn(resources.board.header(), turn);
        }
    }
}

impl Context {
    /// Publishes the parts of two generations. `None`: the requests are no longer shared.
    pub(crate) fn set_shares(&mut self, old: GenerationId, new: GenerationId, percent: Option<u8>) {
        let mut pool = None;
        for (id, is_new) in [(old, false), (new, true)] {
            if let Some(generation) = self.pools.generations.get_mut(&id) {
                generation.turn = percent.map(|percent| Turn { is_new, percent });
                generation.set_turn(generation.turn);
                pool = Some(generation.pool);
            }
        }
        if let Some(pool) = pool.filter(|_| percent.is_none()) {
            for turn in [0, 1] {
                self.empty_turns(pool, Some(turn));
            }
        }
    }

    /// Publishes a percentage while requests are shared.
    pub(crate) fn correct_shares(&mut self, old: GenerationId, new: GenerationId, percent: u8) {
        let shared = self.pools.generations.get(&new).and_then(|it| it.turn);
        if shared.is_some_and(|turn| turn.percent != percent) {
            self.set_shares(old, new, Some(percent));
        }
    }

    /// Moves the requests in a generation's turn queue to the hand-off queue. A child does that: the close of a client's
    /// connection can block.
    pub(crate) fn empty_turns(&mut self, id: PoolId, turn: Option<u8>) {
        let Some(pool) = self.pools.by_id.get(&id) else {
            return;
        };
        let ends = pool.queues.get(QueueKind::Turns).zip(turn);
        let out = ends.and_then(|(ends, turn)| ends.get(usize::from(turn % 2) * 2));
        let (Some(out), Some((_, queue_in))) = (out, pool.queues.hand_off()) else {
            return;
        };
        if unread(out.as_fd()) == 0 {
            return;
        }
        let kept = [out.as_fd(), queue_in.as_fd()];
        if let Err(error) = process::leave_apart(&kept, || move_requests(kept[0], kept[1])) {
            log::error!(
                "[pool {}] requests that waited for a generation are lost: {error}",
                pool.name
            );
        }
    }
}

/// Moves the requests of one queue to another, and waits for room there. Wake-ups have no request.
fn move_requests(out: BorrowedFd<'_>, queue_in: BorrowedFd<'_>) {
    for _ in 0..MOST_MESSAGES {
        // A request that was taken out and finds no room would be lost.
        if !wait(queue_in, Readiness::Writable, ROOM_PATIENCE).unwrap_or(false) {
            return;
        }
        let mut note = [0; NOTE_BYTES];
        let Ok(received) = receive_with(out, &mut note, false) else {
            return;
        };
        let sockets: Vec<RawFd> = received.descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        if !sockets.is_empty() && send_with(queue_in, &note[..received.bytes], &sockets).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_sys::fd::socket_pair;
    use nix::sys::socket::SockType;
    use std::io::{Read, Write};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::thread;

    fn queue() -> (OwnedFd, OwnedFd) {
        socket_pair(SockType::SeqPacket).unwrap()
    }

    #[test]
    fn requests_are_moved_in_order_and_wake_ups_are_not() {
        let (turn_out, turn_in) = queue();
        let (hand_out, hand_in) = queue();
        let clients: Vec<UnixStream> = (0..3_u8)
            .map(|number| {
                let (client, server) = UnixStream::pair().unwrap();
                send_with(turn_in.as_fd(), &[0], &[]).unwrap();
                send_with(turn_in.as_fd(), &[number; 8], &[server.as_raw_fd()]).unwrap();
                client
            })
            .collect();
        move_requests(turn_out.as_fd(), hand_in.as_fd());
        assert_eq!(unread(turn_out.as_fd()), 0);
        for (number, mut client) in clients.into_iter().enumerate() {
            let mut note = [0; NOTE_BYTES];
            let received = receive_with(hand_out.as_fd(), &mut note, false).unwrap();
            assert_eq!(&note[..received.bytes], [number as u8; 8]);
            let [server] = <[OwnedFd; 1]>::try_from(received.descriptors).unwrap();
            UnixStream::from(server).write_all(b"answer").unwrap();
            let mut text = String::new();
            client.read_to_string(&mut text).unwrap();
            assert_eq!(text, "answer");
        }
        assert_eq!(unread(hand_out.as_fd()), 0);
    }

    #[test]
    fn a_full_hand_off_queue_loses_no_request() {
        let (turn_out, turn_in) = queue();
        let (hand_out, hand_in) = queue();
        let mut full = 0;
        while send_with(hand_in.as_fd(), &[1; 1024], &[]).is_ok() {
            full += 1;
        }
        let (client, server) = UnixStream::pair().unwrap();
        for _ in 0..20 {
            send_with(turn_in.as_fd(), &[2; 8], &[server.as_raw_fd()]).unwrap();
        }
        let taken = thread::scope(|scope| {
            let moved = scope.spawn(|| move_requests(turn_out.as_fd(), hand_in.as_fd()));
            let mut taken = Vec::new();
            while taken.len() < full + 20 {
                assert!(wait(hand_out.as_fd(), Readiness::Readable, ROOM_PATIENCE).unwrap());
                let mut note = [0; NOTE_BYTES];
                let received = receive_with(hand_out.as_fd(), &mut note, false).unwrap();
                taken.push((note[0], received.descriptors.len()));
            }
            moved.join().unwrap();
            taken
        });
        assert!(
            taken[full..].iter().all(|message| *message == (2, 1)),
            "{taken:?}"
        );
        drop(client);
    }
}
