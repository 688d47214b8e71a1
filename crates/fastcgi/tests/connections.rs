//! Simulated workers with several connections. `FORKYARD_SEED` replays one, `FORKYARD_SIM_SEEDS` runs more.
//!
//! A worker serves clients that send in random pieces: kept connections, pipelined requests, protocol questions, aborts,
//! violations, half closes, clients that stop reading or sending. The worker has a limit of requests and leaves at a
//! random moment: it hands idle connections to a successor and closes the others after their request.
//!
//! Each answer repeats its request's body. The rules: a client that behaves gets each of its answers, whole and in order,
//! and no answer more; nobody gets another's answer, or an end of an answer that was broken off; the application hears
//! once of a client that has left, and never of one that is there; input stays bounded; every connection ends in time.
//!
//! The simulation must fail for each of these changes: `answered` keeps the connection of a client that has ended;
//! `sent` clears the time for input; `start` drops a pending reply; `start` forgets an abort; `wants_input` ignores the
//! bound; `linger` sets no time; `finish` ends a broken answer; `leave` always returns true; `answered` waits for no
//! rest of a body.

#[path = "../../../tests/random/mod.rs"]
mod random;

use fastcgi::{
    Answer, Connection, Event, Limits, Part, Phase, Piece, RecordType, Repeated, Request, Timeouts,
    get_values, header,
};
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
/// How much a connection may hold: what it reads ahead, and two reads.
const MOST_BODY: usize = 256 * 1024 + 2 * READ_BYTES;
/// FCGI_MPXS_CONNS is 0.
const REPLY_BYTES: usize = 2 + 15 + 1;
const SOCKET_ROOM: usize = 16 * 1024;

/// How a client departs from good behaviour, after a number of whole requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Habit {
    Good,
    /// Sends everything, then closes its side and reads on.
    HalfCloses,
    Aborts,
    /// Sends what is no FastCGI.
    Babbles,
    /// Is gone in the middle.
    Vanishes,
    StopsReading,
    StopsSending,
}

struct Client {
    habit: Habit,
    to_send: VecDeque<u8>,
    has_closed: bool,
    is_gone: bool,
    reads: bool,
    /// The bodies whose repetition it still expects.
    expected: VecDeque<Vec<u8>>,
    keeps: bool,
    answer: Answer,
    got: Vec<u8>,
    reply_bytes: usize,
    questions: usize,
    asks_first: usize,
    /// What it was sent and has not read.
    from_worker: VecDeque<u8>,
    sees_end: bool,
}

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
    /// It ends the answer early, or breaks it off.
    lazy: usize,
    is_handed_over: bool,
    is_closed: bool,
}

struct Worker {
    places: Vec<Place>,
    waiting: VecDeque<usize>,
    limit: usize,
    is_leaving: bool,
    now: Duration,
}

fn client(random: &mut Random) -> Client {
    let habit = random.pick(&[
        Habit::Good,
        Habit::Good,
        Habit::Good,
        Habit::HalfCloses,
        Habit::Aborts,
        Habit::Babbles,
        Habit::Vanishes,
        Habit::StopsReading,
        Habit::StopsSending,
    ]);
    let count = 1 + random.below(4);
    let id = 1 + random.below(3) as u16;
    let keeps = count > 1 || random.one_in(2);
    let (mut wire, mut expected) = (Vec::new(), VecDeque::new());
    let (mut questions, mut asks_first) = (0, 0);
    for number in 0..count {
        if random.one_in(4) {
            wire.extend_from_slice(&get_values());
            questions += 1;
            asks_first |= usize::from(number == 0);
        }
        let most = random.pick(&[0, 10, 3_000, 100_000, 600_000]);
        let body: Vec<u8> = random.bytes(most);
        let name = number.to_string();
        let request = Request {
            id,
            keep: keeps,
            params: &[(b"NUMBER", name.as_bytes())],
            body: &body,
            record_content: 1 + random.pick(&[6, 900, 65_000]),
            ..Request::default()
        };
        let mut bytes = Vec::new();
        let is_last = number + 1 == count;
        if is_last && habit == Habit::Aborts {
            request.encode_head(&mut bytes);
            bytes.extend_from_slice(&header(RecordType::AbortRequest, request.id, 0, 0));
        } else {
            request.encode(&mut bytes);
        }
        if is_last && habit == Habit::StopsSending {
            bytes.truncate(random.below(bytes.len() - 1) + 1);
        } else {
            expected.push_back(if habit == Habit::Aborts && is_last {
                Vec::new()
            } else {
                body
            });
        }
        wire.extend_from_slice(&bytes);
    }
    if habit == Habit::Babbles {
        wire.extend_from_slice(b"GET / HTTP/1.1\r\n\r\n");
    }
    Client {
        habit,
        to_send: wire.into(),
        has_closed: false,
        is_gone: false,
        reads: true,
        expected,
        keeps,
        answer: Answer::new(),
        got: Vec::new(),
        reply_bytes: 0,
        questions,
        asks_first,
        from_worker: VecDeque::new(),
        sees_end: false,
    }
}

impl Client {
    fn act(&mut self, random: &mut Random) {
        if self.is_gone {
            return;
        }
        match self.habit {
            Habit::HalfCloses if self.to_send.is_empty() => self.has_closed = true,
            Habit::Vanishes if random.one_in(40) => {
                (self.is_gone, self.has_closed) = (true, true);
                self.to_send.clear();
            }
            Habit::StopsReading if random.one_in(10) => self.reads = false,
            _ => {}
        }
        if self.reads {
            let count = random.below(self.from_worker.len() + 1);
            self.read(count);
        }
    }

    fn read(&mut self, count: usize) {
        let bytes: Vec<u8> = self.from_worker.drain(..count).collect();
        let mut input = bytes.as_slice();
        loop {
            let (used, part) = self.answer.receive(input);
            input = &input[used..];
            match part {
                Part::More => return,
                Part::Stdout(piece) => self.got.extend_from_slice(piece),
                Part::Stderr(_) | Part::Closed(_) => {}
                Part::End { .. } => {
                    let expected = self.expected.pop_front();
                    assert_eq!(
                        expected.as_ref(),
                        Some(&self.got),
                        "{:?}: the answer to its request",
                        self.habit
                    );
                    self.got.clear();
                }
                Part::Other(RecordType::GetValuesResult, piece) => self.reply_bytes += piece.len(),
                Part::Other(..) => {}
                Part::Broken => panic!("an answer that is no FastCGI"),
            }
        }
    }

    /// Whether it does all that a good client does, so that it may expect all of its answers.
    fn behaves(&self) -> bool {
        matches!(self.habit, Habit::Good | Habit::HalfCloses)
    }
}

impl Worker {
    fn begin(random: &mut Random) -> Worker {
        let mut worker = Worker {
            places: Vec::new(),
            waiting: VecDeque::new(),
            limit: 1 + random.below(3),
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
        if random.one_in(5) {
            self.now += Duration::from_millis(random.next() % 20);
        }
        if random.one_in(400) {
            self.is_leaving = true;
        }
        self.keep_time(random);
        self.check();
    }

    /// Expires what is due.
    fn keep_time(&mut self, random: &mut Random) {
        for index in 0..self.places.len() {
            if self.places[index].is_closed {
                continue;
            }
            let running = self.places[index].running.as_ref();
            if running.is_some_and(|running| running.expires <= self.now) {
                assert!(!self.places[index].client.behaves(), "it takes too long");
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
        let count = count.min(place.client.to_send.len());
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

    /// A sibling takes over what has no request: it gets a connection without anything.
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
            self.flush(index, SOCKET_ROOM);
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
        if !running.is_whole && !running.waits_for_body {
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
        let gives_up = running.was_told && !place.client.behaves() && random.one_in(3);
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

    /// Whether everybody has got what it may expect.
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
            let left = place.client.from_worker.len();
            place.client.read(left);
            let client = &place.client;
            if client.behaves() {
                assert!(
                    client.expected.is_empty(),
                    "{:?}: an answer is missing",
                    client.habit
                );
                let replies = client.reply_bytes / REPLY_BYTES;
                // A full buffer takes no reply, but it is empty before the first request.
                let is_right = (client.asks_first..=client.questions).contains(&replies);
                assert!(
                    is_right && client.reply_bytes % REPLY_BYTES == 0,
                    "{:?}",
                    client.habit
                );
                let may_stay = client.keeps && !client.has_closed;
                assert!(place.is_closed || may_stay, "{:?}", client.habit);
            }
        }
        // Nobody sends anything more.
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
