//! Simulated workers with several connections. `FORKYARD_SEED` replays one, `FORKYARD_SIM_SEEDS` runs more.
//!
//! A worker serves clients that send in random pieces: kept connections, pipelined requests, protocol questions, aborts,
//! violations, half closes, clients that stop reading or sending. The worker has a limit of requests and leaves at a
//! random moment: it hands idle connections to a successor and closes the others after their request.
//!
//! Each answer repeats its request's body. The rules: a client that follows the protocol gets its answers, complete and in
//! order, and no others. No client gets the end of an incomplete answer. The application is notified once if a client has
//! left, and only then. Input stays bounded. Every connection ends in time.
//!
//! The simulation must fail for each change below: `sent` clears the time for input; `start` drops a pending reply;
//! `start` forgets an abort; `wants_input` ignores the bound; `linger` sets no time; `finish` ends a broken answer;
//! `leave` always returns true; `answered` does not wait for the rest of a body; `blocked` extends the time again;
//! `is_portable` ignores pending output.

#[path = "connections/client.rs"]
mod client;
#[path = "../../../tests/random/mod.rs"]
mod random;

use client::{Client, Habit, client};
use fastcgi::{Connection, Event, Limits, Phase, Piece, Repeated, Timeouts};
use random::{Random, rounds};
use std::collections::VecDeque;
use std::time::Duration;

const ROUNDS: u64 = if cfg!(debug_assertions) { 60 } else { 5_000 };
const TIMEOUTS: Timeouts = Timeouts {
    client: Duration::from_secs(5),
    keepalive: Duration::from_secs(60),
};
const EXECUTION_LIMIT: Duration = Duration::from_secs(20);
const READ_BYTES: usize = 64 * 1024;
/// The most that a connection may hold: it reads ahead, and finishes two reads.
const MOST_BODY: usize = 256 * 1024 + 2 * READ_BYTES;
const SOCKET_ROOM: usize = 16 * 1024;

/// A request of the application.
struct Running {
    body: Vec<u8>,
    answered: usize,
    is_whole: bool,
    waits_for_body: bool,
    was_told: bool,
    expires: Duration,
}

struct Place {
    connection: Box<Connection<Duration>>,
    client: Client,
    running: Option<Running>,
    /// How lazy the application is: 0 breaks answers off, 0 to 2 read bodies late.
    lazy: usize,
    is_handed_over: bool,
    is_closed: bool,
}

struct Worker {
    places: Vec<Place>,
    waiting: VecDeque<usize>,
    limit: usize,
    /// Bytes that the sockets take at once.
    room: usize,
    is_leaving: bool,
    now: Duration,
}

impl Worker {
    fn begin(random: &mut Random) -> Worker {
        let mut worker = Worker {
            places: Vec::new(),
            waiting: VecDeque::new(),
            limit: 1 + random.below(3),
            room: SOCKET_ROOM,
            is_leaving: false,
            now: Duration::from_secs(1),
        };
        for _ in 0..1 + random.below(5) {
            let limits = Limits::default();
            let connection = Connection::new(limits, Repeated::Replace, TIMEOUTS, worker.now);
            worker.places.push(Place {
                connection: Box::new(connection),
                client: client(random),
                running: None,
                lazy: random.below(12),
                is_handed_over: false,
                is_closed: false,
            });
        }
        worker
    }

    fn in_flight(&self) -> usize {
        self.places.iter().filter(|place| place.running.is_some()).count()
    }

    fn step(&mut self, random: &mut Random) {
        if self.places.is_empty() {
            return;
        }
        let index = random.below(self.places.len());
        match random.below(6) {
            0 => self.places[index].client.act(random),
            1 | 2 => self.read(index, random),
            3 | 4 => self.answer(index, random),
            _ => self.send(index, random),
        }
        self.room = random.pick(&[0, 7, SOCKET_ROOM]);
        if random.one_in(5) {
            self.now += Duration::from_millis(random.next() % 20);
        }
        if random.one_in(400) {
            self.is_leaving = true;
        }
        self.keep_time(random);
        self.check();
    }

    fn keep_time(&mut self, random: &mut Random) {
        for index in 0..self.places.len() {
            if self.places[index].is_closed {
                continue;
            }
            let running = self.places[index].running.as_ref();
            if running.is_some_and(|running| running.expires <= self.now) {
                let is_told = running.is_some_and(|running| running.was_told);
                let habit = self.places[index].client.habit;
                assert!(!self.places[index].client.behaves(), "it takes too long");
                assert!(is_told || habit != Habit::Aborts, "the application was not told");
                self.places[index].connection.break_off();
                self.finish(index, random);
            }
            let due = self.places[index].connection.deadline();
            if due.is_some_and(|due| due <= self.now) {
                let event = self.places[index].connection.expire();
                self.follow(index, event);
            }
        }
    }

    fn read(&mut self, index: usize, random: &mut Random) {
        let is_full = self.in_flight() >= self.limit;
        let now = self.now;
        let place = &mut self.places[index];
        if place.is_closed || !place.connection.wants_input() {
            return;
        }
        let is_kept = !self.is_leaving || place.is_handed_over;
        if place.connection.phase() == Phase::Idle && (is_full || !is_kept) {
            place.is_handed_over = self.is_leaving;
            return self.hand_over(index);
        }
        let count = match random.below(3) {
            0 => random.below(20) + 1,
            1 => random.below(2_000) + 1,
            _ => READ_BYTES,
        };
        let count = count.min(place.client.before_pause());
        let event = if count > 0 {
            let bytes: Vec<u8> = place.client.to_send.drain(..count).collect();
            place.connection.receive(&bytes, now)
        } else if place.client.has_closed {
            place.connection.end_of_input()
        } else {
            None
        };
        self.follow(index, event);
    }

    /// Gives an idle connection to a sibling, which starts with a new state.
    fn hand_over(&mut self, index: usize) {
        let place = &mut self.places[index];
        if place.connection.is_portable() {
            let spare = Connection::new(Limits::default(), Repeated::Replace, TIMEOUTS, self.now);
            let used = std::mem::replace(&mut place.connection, Box::new(spare));
            place.connection = used.reuse(self.now);
        }
    }

    fn follow(&mut self, index: usize, event: Option<Event>) {
        let is_full = self.in_flight() >= self.limit;
        let place = &mut self.places[index];
        if let Some(Event::Fault(fault)) = event {
            assert!(
                !place.client.behaves() || place.client.has_closed,
                "a client that behaves is blamed: {fault}"
            );
            if place.running.is_some() {
                return self.lose(index);
            }
        }
        if place.connection.has_reply() {
            self.flush(index, self.room);
        }
        let place = &mut self.places[index];
        match (place.connection.phase(), event) {
            (Phase::Closed, _) => self.close(index),
            (Phase::Waiting, Some(Event::Request)) if is_full => self.waiting.push_back(index),
            (Phase::Waiting, Some(Event::Request)) => self.start(index),
            (Phase::Serving, Some(Event::Gone)) => self.tell_gone(index),
            (Phase::Serving, Some(Event::Body)) => {
                let running = place.running.as_mut().expect("a request that is served");
                assert!(std::mem::take(&mut running.waits_for_body), "nobody waits for it");
            }
            _ => {}
        }
    }

    fn start(&mut self, index: usize) {
        let place = &mut self.places[index];
        place.connection.start(None);
        place.running = Some(Running {
            body: place.connection.first_body().to_vec(),
            answered: 0,
            is_whole: place.connection.body_ended(),
            waits_for_body: false,
            was_told: false,
            expires: self.now + EXECUTION_LIMIT,
        });
        place.connection.first_body_taken();
        if place.connection.has_left() {
            self.tell_gone(index);
        }
    }

    fn tell_gone(&mut self, index: usize) {
        let place = &mut self.places[index];
        let running = place.running.as_mut().expect("a request that is served");
        assert!(!running.was_told, "told once");
        (running.was_told, running.waits_for_body) = (true, false);
        let client = &place.client;
        let has_left = client.has_closed || client.habit == Habit::Aborts || client.sees_end;
        assert!(has_left || !client.behaves(), "it is there");
    }

    fn answer(&mut self, index: usize, random: &mut Random) {
        let place = &mut self.places[index];
        let Some(running) = &mut place.running else {
            return;
        };
        let reads = place.lazy > 2 || random.one_in(30);
        if reads && !running.is_whole && !running.waits_for_body {
            let mut piece = Vec::new();
            let found = place.connection.next_piece(&mut piece);
            running.body.extend_from_slice(&piece);
            match found {
                Piece::More => {}
                Piece::Last => running.is_whole = true,
                Piece::NotYet => running.waits_for_body = true,
                Piece::Gone => assert!(running.was_told, "the application was not told"),
            }
            if found == Piece::NotYet && random.one_in(3) {
                place.connection.expect_body(self.now);
                running.waits_for_body = false;
            } else {
                place.connection.expect_nothing();
            }
        }
        let rest = &running.body[running.answered..];
        if !place.connection.is_gone() {
            let wanted = rest.len().min(1 + random.below(60_000));
            running.answered += place.connection.stdout(&rest[..wanted]);
        }
        let is_done = running.is_whole && running.answered == running.body.len();
        let gives_up = running.was_told && !place.client.behaves() && random.one_in(20);
        if is_done || gives_up {
            if !is_done && place.client.habit != Habit::Aborts {
                place.connection.break_off();
            }
            self.finish(index, random);
        } else if place.lazy == 0 && random.one_in(50) && !place.client.behaves() {
            place.connection.break_off();
            self.finish(index, random);
        }
    }

    fn finish(&mut self, index: usize, random: &mut Random) {
        let place = &mut self.places[index];
        place.running = None;
        if self.is_leaving && !place.client.behaves() {
            place.connection.set_last(true);
        }
        place.connection.finish();
        if self.places[index].client.is_gone && random.one_in(2) {
            self.lose(index);
        } else {
            self.send(index, random);
        }
        while self.in_flight() < self.limit
            && let Some(index) = self.waiting.pop_front()
        {
            if self.places[index].connection.phase() == Phase::Waiting {
                self.start(index);
            }
        }
    }

    fn send(&mut self, index: usize, random: &mut Random) {
        if self.places[index].is_closed {
            return;
        }
        let room = SOCKET_ROOM - self.places[index].client.from_worker.len().min(SOCKET_ROOM);
        let room = if random.one_in(2) {
            room
        } else {
            random.below(room + 1)
        };
        if self.flush(index, room) && self.places[index].connection.phase() == Phase::Ending {
            let now = self.now;
            let connection = &mut self.places[index].connection;
            connection.answered(now);
            let event = match connection.phase() {
                Phase::Reading => connection.resume(now),
                _ => None,
            };
            self.follow(index, event);
        }
    }

    fn flush(&mut self, index: usize, mut room: usize) -> bool {
        let now = self.now;
        let place = &mut self.places[index];
        loop {
            let pending = place.connection.pending();
            if pending.is_empty() {
                return true;
            }
            if place.client.is_gone {
                self.lose(index);
                return false;
            }
            if room == 0 {
                place.connection.blocked(now);
                return false;
            }
            let count = pending.len().min(room);
            place.client.from_worker.extend(&pending[..count]);
            place.connection.sent(count);
            room -= count;
        }
    }

    fn lose(&mut self, index: usize) {
        let event = self.places[index].connection.lose();
        if self.places[index].running.is_none() {
            return self.close(index);
        }
        self.places[index].client.sees_end = true;
        if event.is_some() {
            self.tell_gone(index);
        }
    }

    fn close(&mut self, index: usize) {
        let place = &mut self.places[index];
        assert!(place.running.is_none(), "closed in the middle of a request");
        place.is_closed = true;
        place.client.sees_end = true;
        self.waiting.retain(|other| *other != index);
    }

    fn check(&self) {
        assert!(self.in_flight() <= self.limit);
        for place in self.places.iter().filter(|place| !place.is_closed) {
            let connection = &place.connection;
            assert!(
                connection.first_body().len() <= MOST_BODY,
                "it reads too far ahead"
            );
            assert_eq!(connection.phase() == Phase::Serving, place.running.is_some());
            let is_limited = connection.deadline().is_some();
            match connection.phase() {
                Phase::Idle | Phase::Reading | Phase::Lingering => {
                    assert!(is_limited, "it may last for ever")
                }
                Phase::Closed => panic!("it was not closed"),
                Phase::Waiting | Phase::Serving | Phase::Ending => {}
            }
        }
    }

    /// Whether all clients are done.
    fn is_over(&self) -> bool {
        let is_done = |place: &Place| {
            place.is_closed
                || (place.client.to_send.is_empty()
                    && place.client.from_worker.is_empty()
                    && place.client.habit != Habit::HalfCloses
                    && place.connection.phase() == Phase::Idle)
        };
        self.places.iter().all(is_done)
    }

    fn end(&mut self, random: &mut Random) {
        for place in &mut self.places {
            place.client.check_end(place.is_closed);
        }
        for _ in 0..4 {
            self.now += TIMEOUTS.keepalive;
            self.keep_time(random);
        }
        assert!(
            self.places.iter().all(|place| place.is_closed),
            "a connection stays"
        );
    }
}

#[test]
fn clients_that_behave_get_their_answers_and_every_connection_ends() {
    rounds(ROUNDS, |random| {
        let mut worker = Worker::begin(random);
        let mut steps = 0;
        while !worker.is_over() {
            worker.step(random);
            steps += 1;
            assert!(steps < 300_000, "it goes on for ever");
        }
        worker.end(random);
    });
}
