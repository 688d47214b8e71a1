//! A simulated client.

use crate::random::Random;
use fastcgi::{Answer, Part, RecordType, Request, get_values, header};
use std::collections::VecDeque;

/// FCGI_MPXS_CONNS is 0.
const REPLY_BYTES: usize = 2 + 15 + 1;
/// The client's behaviour, mostly in its last request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Habit {
    Good,
    /// Sends everything, then closes its side and reads on.
    HalfCloses,
    Aborts,
    /// Sends bytes that aren't FastCGI.
    Babbles,
    /// Is gone in the middle.
    Vanishes,
    StopsReading,
    StopsSending,
}

pub(super) struct Client {
    pub(super) habit: Habit,
    pub(super) to_send: VecDeque<u8>,
    /// The bytes left to send at each pause, the next pause last.
    pub(super) pauses: Vec<usize>,
    pub(super) has_closed: bool,
    pub(super) is_gone: bool,
    pub(super) reads: bool,
    /// The bodies whose repetition it still expects.
    pub(super) expected: VecDeque<Vec<u8>>,
    pub(super) keeps: bool,
    pub(super) answer: Answer,
    pub(super) got: Vec<u8>,
    pub(super) reply_bytes: usize,
    pub(super) questions: usize,
    pub(super) asks_first: usize,
    /// Sent to it, and not read yet.
    pub(super) from_worker: VecDeque<u8>,
    pub(super) sees_end: bool,
}

pub(super) fn client(random: &mut Random) -> Client {
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
    let mut pauses = Vec::new();
    let (mut questions, mut asks_first) = (0, 0);
    for number in 0..count {
        if random.one_in(4) {
            wire.extend_from_slice(&get_values());
            pauses.push(wire.len());
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
        pauses.push(wire.len());
        wire.extend_from_slice(&bytes);
    }
    if habit == Habit::Babbles {
        wire.extend_from_slice(b"GET / HTTP/1.1\r\n\r\n");
    }
    pauses.retain(|_| random.one_in(2));
    Client {
        habit,
        pauses: pauses.iter().rev().map(|at| wire.len() - at).collect(),
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
    pub(super) fn act(&mut self, random: &mut Random) {
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

    pub(super) fn before_pause(&mut self) -> usize {
        let left = self.to_send.len();
        while self.pauses.last().is_some_and(|pause| *pause >= left) {
            self.pauses.pop();
        }
        left - self.pauses.last().unwrap_or(&0)
    }

    pub(super) fn read(&mut self, count: usize) {
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
                Part::Broken => panic!("an answer that isn't FastCGI"),
            }
        }
    }

    /// Whether it follows the protocol and may expect all of its answers.
    pub(super) fn behaves(&self) -> bool {
        matches!(self.habit, Habit::Good | Habit::HalfCloses)
    }

    /// Checks its answers at the end.
    pub(super) fn check_end(&mut self, is_closed: bool) {
        self.read(self.from_worker.len());
        if !self.behaves() {
            return;
        }
        let habit = self.habit;
        assert!(self.expected.is_empty(), "{habit:?}: an answer is missing");
        let replies = self.reply_bytes / REPLY_BYTES;
        // A full buffer takes no reply, but it is empty before the first request.
        let is_right = (self.asks_first..=self.questions).contains(&replies);
        assert!(is_right && self.reply_bytes % REPLY_BYTES == 0, "{habit:?}");
        let may_stay = self.keeps && !self.has_closed;
        assert!(is_closed || may_stay, "{habit:?}: the connection stays");
    }
}
