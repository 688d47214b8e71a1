//! A worker that is rewound after each request ([`forkyard_rewind`]). It carries over a few numbers and its held
//! connections with their open descriptors.

use super::sequential::{Worker, WorkerPhase};
use forkyard_base::tick::Tick;
use forkyard_rewind::MOST_KEPT;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

const NUMBERS: usize = 27;
/// Words per connection: index, expiry, flags.
const OF_CONNECTION: usize = 3;
/// Words that [`Worker::carry`] writes.
pub const CARRIED: usize = NUMBERS + MOST_KEPT * OF_CONNECTION;
const IS_SPOKEN: u64 = 1;
const IS_ASKED: u64 = 2;

struct Words<'w> {
    words: &'w mut [u64; CARRIED],
    at: usize,
    is_back: bool,
}

impl Words<'_> {
    fn number(&mut self, value: &mut u64) {
        match self.is_back {
            true => *value = self.words[self.at],
            false => self.words[self.at] = *value,
        }
        self.at += 1;
    }

    fn flag(&mut self, value: &mut bool) {
        let mut number = u64::from(*value);
        self.number(&mut number);
        *value = number != 0;
    }

    fn tick(&mut self, value: &mut Tick) {
        let mut number = value.as_nanos();
        self.number(&mut number);
        *value = Tick::from_nanos(number);
    }

    fn tick_if_any(&mut self, value: &mut Option<Tick>) {
        let mut is_there = value.is_some();
        let mut tick = value.unwrap_or(Tick::ZERO);
        self.flag(&mut is_there);
        self.tick(&mut tick);
        *value = is_there.then_some(tick);
    }

    fn duration(&mut self, value: &mut Duration) {
        let mut number = value.as_nanos() as u64;
        self.number(&mut number);
        *value = Duration::from_nanos(number);
    }
}

impl Worker {
    /// Passes connections to siblings before each request, so that no thread is needed.
    pub fn lets_go_of_connections(&mut self) {
        self.releases = true;
        self.service.idle_watch.is_alone = true;
    }

    /// Ends the current request; held connections can then be carried over. Returns false if the process must exit
    /// ([`Worker::exit_code`]).
    pub fn settle(&mut self) -> bool {
        self.phase = match self.phase {
            WorkerPhase::Request => self.end_request(),
            other => other,
        };
        if self.phase == WorkerPhase::Connection {
            self.close();
            self.phase = WorkerPhase::Waiting;
        }
        if self.phase != WorkerPhase::Waiting {
            return false;
        }
        if let Some(lanes) = &mut self.acceptor.lanes {
            // Memory would forget the process's priority.
            lanes.rest();
        }
        if self.acceptor.pause.deadline().is_some() || self.service.router.is_there() {
            // The epoll has changed in a way that memory would forget, or the router owns the connections.
            self.phase = self.end(0);
            return false;
        }
        if self.service.idle_watch.keepalive().idle() > MOST_KEPT {
            self.part_with_held();
        }
        while self.service.idle_watch.keepalive().idle() > MOST_KEPT {
            let mut held = self.service.idle_watch.keepalive();
            let Some(left) = held.take_oldest().or_else(|| held.take_first()) else {
                break;
            };
            drop(held);
            self.service.close(left);
        }
        self.service.publish_kept();
        true
    }

    /// Counts a rewind for the status.
    pub fn count_rewound(&mut self, nanos: u64, pages: u64) {
        self.service.slot_writer().rewound(nanos, pages);
    }

    /// Exits, because the process can't be rewound.
    pub fn give_up(&mut self) {
        self.phase = self.end(0);
    }

    pub(super) fn part_with_held(&mut self) {
        if self.service.idle_watch.keepalive().idle() > 0 && self.service.page.board.slots() > 1 {
            self.acceptor.hand_off_all(&mut self.service);
            self.service.publish_kept();
        }
    }

    /// Writes the state to carry over.
    pub fn carry(&mut self, words: &mut [u64; CARRIED]) {
        self.carry_with(words, false);
        let (count, connections) = connections_of(words);
        *count = 0;
        let held = self.service.idle_watch.keepalive();
        for (place, (index, connection)) in connections.zip(held.idle_connections()) {
            let is_spoken = u64::from(connection.client.spoken) * IS_SPOKEN;
            let is_asked = u64::from(connection.asked) * IS_ASKED;
            place.copy_from_slice(&[index as u64, connection.expires.as_nanos(), is_spoken | is_asked]);
            *count += 1;
        }
    }

    /// The descriptors of carried connections, which must stay open.
    pub fn held(&self) -> Vec<RawFd> {
        let held = self.service.idle_watch.keepalive();
        let sockets = held.idle_connections();
        sockets
            .map(|(_, connection)| connection.socket().as_raw_fd())
            .take(MOST_KEPT)
            .collect()
    }

    /// Restores the state after a rewind. `sockets`: the result of [`Worker::held`], in order.
    pub fn take_over(&mut self, words: &mut [u64; CARRIED], sockets: impl Iterator<Item = OwnedFd>) {
        self.carry_with(words, true);
        let (count, connections) = connections_of(words);
        let count = *count;
        for (of, socket) in connections.zip(sockets) {
            let &mut [index, expires, bits] = of else { return };
            let mut connection = self.service.connection(socket);
            connection.expires = Tick::from_nanos(expires);
            connection.client.spoken = bits & IS_SPOKEN != 0;
            connection.asked = bits & IS_ASKED != 0;
            let mut held = self.service.idle_watch.keepalive();
            held.hold_again(connection, index as usize);
        }
        if count > 0 {
            self.service.publish_kept();
        }
    }

    fn carry_with(&mut self, words: &mut [u64; CARRIED], is_back: bool) {
        let mut words = Words {
            words,
            at: 0,
            is_back,
        };
        words.number(&mut self.service.wear.served);
        let acceptor = &mut self.acceptor;
        words.number(&mut acceptor.gauge.accepted);
        words.flag(&mut acceptor.eager);
        words.flag(&mut acceptor.alone);
        words.flag(&mut acceptor.contended);
        for tick in [
            &mut acceptor.looked,
            &mut acceptor.busy_since,
            &mut acceptor.runs_since,
            &mut acceptor.shared,
            &mut acceptor.expired,
        ] {
            words.tick(tick);
        }
        let (notifier, gauge) = (&mut acceptor.notifier, &mut acceptor.gauge);
        words.flag(&mut notifier.told_first);
        words.number(&mut notifier.max_active);
        words.tick(&mut notifier.counted);
        words.tick_if_any(&mut notifier.asked_renewal);
        let mut number = u64::from(gauge.longest);
        words.number(&mut number);
        gauge.longest = number as u32;
        words.tick_if_any(&mut gauge.last);
        let service = &mut self.service;
        for duration in &mut service.took {
            words.duration(duration);
        }
        words.number(&mut service.cpu_micros);
        words.duration(&mut service.cost.usual.run);
        words.duration(&mut service.cost.usual.took);
        if let Some(scale) = &mut service.wear.scale {
            words.tick(&mut scale.measured);
        }
    }
}

fn connections_of(words: &mut [u64; CARRIED]) -> (&mut u64, std::slice::ChunksExactMut<'_, u64>) {
    let (numbers, connections) = words.split_at_mut(NUMBERS);
    let count = &mut numbers[NUMBERS - 1];
    (count, connections.chunks_exact_mut(OF_CONNECTION))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_is_read_back() {
        let mut words = [0; CARRIED];
        let mut writer = Words {
            words: &mut words,
            at: 0,
            is_back: false,
        };
        writer.number(&mut 7);
        writer.flag(&mut true);
        writer.tick(&mut Tick::from_nanos(9));
        writer.tick_if_any(&mut None);
        writer.tick_if_any(&mut Some(Tick::from_nanos(11)));
        writer.duration(&mut Duration::from_millis(3));
        let (mut number, mut flag, mut tick) = (0, false, Tick::ZERO);
        let (mut none, mut some) = (Some(Tick::ZERO), None);
        let mut duration = Duration::ZERO;
        let mut reader = Words {
            words: &mut words,
            at: 0,
            is_back: true,
        };
        reader.number(&mut number);
        reader.flag(&mut flag);
        reader.tick(&mut tick);
        reader.tick_if_any(&mut none);
        reader.tick_if_any(&mut some);
        reader.duration(&mut duration);
        assert_eq!((number, flag, tick.as_nanos()), (7, true, 9));
        assert_eq!((none, some.map(Tick::as_nanos)), (None, Some(11)));
        assert_eq!(duration, Duration::from_millis(3));
    }
}
