//! Random input. `FORKYARD_SEED` replays a failed round.

#[path = "../../../../tests/random/mod.rs"]
mod random;

use super::super::client::{Answer, Part, Request};
use super::super::pairs::append_pair;
use super::super::record::{HEADER_LENGTH, header};
use super::*;
use random::{Random, rounds};

/// A few seconds in debug builds; millions of inputs in release builds.
const ROUNDS: u64 = if cfg!(debug_assertions) { 1_500 } else { 300_000 };

fn length(random: &mut Random) -> usize {
    match random.below(20) {
        0 => random.below(2000),
        1 => 120 + random.below(16),
        _ => random.below(20),
    }
}

#[derive(Debug, PartialEq)]
enum Said {
    Request {
        id: u16,
        role: Role,
        keep: bool,
        params: Vec<(Vec<u8>, Vec<u8>)>,
    },
    Body(Vec<u8>),
    BodyEnd,
    Abort,
    Reply(Vec<u8>),
    Broken(Violation),
}

const LIMITS: Limits = Limits {
    params_bytes: 4000,
    params_count: 40,
};

/// Twice the limits because buffers double, a GET_VALUES record, and minimal buffers.
const MOST_MEMORY: usize = 2 * (4000 + 2 * 40) + 2 * 4000 + 2 * 65_536 + 64 * 64 + 8192;

struct Listener {
    responder: Responder,
    said: Vec<Said>,
    /// Skips bodies.
    answers_early: bool,
}

impl Listener {
    fn new(answers_early: bool) -> Listener {
        Listener {
            responder: Responder::new(LIMITS),
            said: Vec::new(),
            answers_early,
        }
    }

    fn hear(&mut self, input: &[u8]) {
        let mut at = 0;
        for _ in 0..input.len() + 2 {
            let (consumed, meaning) = self.responder.receive(&input[at..]);
            at += consumed;
            match meaning {
                Input::More => {
                    assert_eq!(at, input.len(), "input is left");
                    return;
                }
                Input::Broken(violation) => {
                    assert_eq!(at, input.len(), "input is left");
                    if self.said.last() != Some(&Said::Broken(violation)) {
                        self.said.push(Said::Broken(violation));
                    }
                    return;
                }
                meaning => self.note(meaning),
            }
        }
        panic!("no end of meanings");
    }

    fn note(&mut self, meaning: Input<'_>) {
        let responder = &mut self.responder;
        let said = match meaning {
            Input::Request => {
                let params = responder.params().iter();
                let said = Said::Request {
                    id: responder.request_id(),
                    role: responder.role(),
                    keep: responder.keep(),
                    params: params
                        .map(|(name, value)| (name.to_vec(), value.to_vec()))
                        .collect(),
                };
                if self.answers_early {
                    responder.finish();
                }
                said
            }
            Input::Body(piece) => {
                assert!(!piece.is_empty());
                if let Some(Said::Body(body)) = self.said.last_mut() {
                    body.extend_from_slice(piece);
                    return;
                }
                Said::Body(piece.to_vec())
            }
            Input::BodyEnd => {
                assert!(responder.body_ended());
                responder.finish();
                Said::BodyEnd
            }
            Input::Abort => {
                responder.finish();
                Said::Abort
            }
            Input::Reply(reply) => Said::Reply(reply.bytes().to_vec()),
            Input::More | Input::Broken(_) => unreachable!("told by hear"),
        };
        self.said.push(said);
    }

    fn memory(&self) -> usize {
        let responder = &self.responder;
        responder.params.memory() + responder.question.capacity()
    }
}

fn heard(input: &[u8], answers_early: bool) -> Listener {
    let mut listener = Listener::new(answers_early);
    listener.hear(input);
    listener
}

fn heard_in_pieces(input: &[u8], answers_early: bool, random: &mut Random) -> Listener {
    let mut listener = Listener::new(answers_early);
    let scale = [2, 10, 100, 3000][random.below(4)];
    let most = 1 + random.below(scale);
    let mut rest = input;
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(rest.len().min(random.below(most + 1)));
        let alone = Vec::from(piece);
        listener.hear(&alone);
        rest = later;
    }
    listener
}

fn append_record(wire: &mut Vec<u8>, kind: RecordType, id: u16, content: &[u8], random: &mut Random) {
    let padding = if random.one_in(3) { random.next() as u8 } else { 0 };
    wire.extend_from_slice(&header(kind, id, content.len() as u16, padding));
    wire.extend_from_slice(content);
    wire.resize(wire.len() + usize::from(padding), 0xa5);
}

fn append_stream(wire: &mut Vec<u8>, kind: RecordType, id: u16, content: &[u8], random: &mut Random) {
    let most = 1 + length(random);
    let mut rest = content;
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(rest.len().min(1 + random.below(most)));
        append_record(wire, kind, id, piece, random);
        append_stranger(wire, id, random);
        rest = later;
    }
    append_record(wire, kind, id, b"", random);
}

fn append_stranger(wire: &mut Vec<u8>, id: u16, random: &mut Random) {
    match random.below(40) {
        0 => append_record(wire, RecordType::GetValues, 0, &random.bytes(40), random),
        1 => {
            let mut question = Vec::new();
            append_pair(&mut question, b"FCGI_MPXS_CONNS", b"");
            append_record(wire, RecordType::GetValues, 0, &question, random);
        }
        2 => append_record(wire, RecordType::Data, id, &random.bytes(40), random),
        3 => append_record(wire, RecordType::Stdin, id + 1, &random.bytes(40), random),
        4 => append_record(
            wire,
            RecordType::BeginRequest,
            id + 1,
            &[0, 1, 0, 0, 0, 0, 0, 0],
            random,
        ),
        5 => append_record(wire, RecordType::Stdout, 0, &random.bytes(40), random),
        _ => {}
    }
}

fn append_request(wire: &mut Vec<u8>, expected: &mut Vec<Said>, random: &mut Random) {
    let id = 1 + random.below(3) as u16;
    let role = [Role::Responder, Role::Authorizer, Role::Filter][random.below(3)];
    let keep = random.one_in(2);
    append_record(
        wire,
        RecordType::BeginRequest,
        id,
        &[0, role as u8, u8::from(keep), 0, 0, 0, 0, 0],
        random,
    );
    let mut pairs = Vec::new();
    let mut params = vec![(b"FCGI_ROLE".to_vec(), role.name().as_bytes().to_vec())];
    let mut left = LIMITS.params_bytes;
    for _ in 0..random.below(LIMITS.params_count + 1) {
        let name = if random.one_in(4) {
            params[random.below(params.len())].0.clone()
        } else {
            random.bytes(20)
        };
        let length = length(random);
        let value = random.bytes(length);
        if name.len() + value.len() > left {
            break;
        }
        left -= name.len() + value.len();
        append_pair(&mut pairs, &name, &value);
        match params.iter_mut().find(|(known, _)| *known == name) {
            Some(pair) => pair.1 = value,
            None => params.push((name, value)),
        }
    }
    append_stream(wire, RecordType::Params, id, &pairs, random);
    expected.push(Said::Request {
        id,
        role,
        keep,
        params,
    });
    let length = length(random);
    let body = random.bytes(length);
    append_stream(wire, RecordType::Stdin, id, &body, random);
    if !body.is_empty() {
        expected.push(Said::Body(body));
    }
    expected.push(Said::BodyEnd);
}

fn requests(random: &mut Random) -> (Vec<u8>, Vec<Said>) {
    let (mut wire, mut expected) = (Vec::new(), Vec::new());
    for _ in 0..=random.below(3) {
        append_request(&mut wire, &mut expected, random);
    }
    (wire, expected)
}

fn without_replies(said: Vec<Said>) -> Vec<Said> {
    let mut rest: Vec<Said> = Vec::new();
    for said in said {
        match (rest.last_mut(), said) {
            (_, Said::Reply(_)) => {}
            (Some(Said::Body(body)), Said::Body(more)) => body.extend(more),
            (_, said) => rest.push(said),
        }
    }
    rest
}

#[test]
fn valid_requests_are_heard_however_they_are_cut() {
    rounds(ROUNDS, |random| {
        let (wire, expected) = requests(random);
        let whole = heard(&wire, false);
        let pieces = heard_in_pieces(&wire, false, random);
        assert_eq!(whole.said, pieces.said);
        assert!(whole.responder.is_between_requests() && pieces.responder.is_between_requests());
        assert!(whole.memory() <= MOST_MEMORY && pieces.memory() <= MOST_MEMORY);
        assert_eq!(without_replies(whole.said), expected);
    });
}

#[test]
fn early_answers_lose_no_later_request() {
    rounds(ROUNDS, |random| {
        let (mut wire, count) = (Vec::new(), 1 + random.below(4));
        for number in 0..count {
            let body = random.bytes(100);
            let request = Request {
                id: 1 + random.below(2) as u16,
                params: &[(b"NUMBER", &[number as u8])],
                body: &body,
                record_content: 1 + length(random),
                pads: random.one_in(2),
                ..Request::default()
            };
            request.encode(&mut wire);
            if random.one_in(4) {
                wire.truncate(wire.len() - HEADER_LENGTH);
            }
        }
        let pieces = heard_in_pieces(&wire, true, random);
        for (number, said) in pieces.said.iter().enumerate() {
            let Said::Request { params, .. } = said else {
                panic!("heard {said:?}")
            };
            assert_eq!(params[1].1, [number as u8]);
        }
        assert_eq!(pieces.said.len(), count);
    });
}

#[test]
fn damaged_requests_mean_the_same_however_they_are_cut() {
    rounds(ROUNDS, |random| {
        let (mut wire, _) = requests(random);
        for _ in 0..=random.below(4) {
            let at = random.below(wire.len());
            match random.below(4) {
                0 => wire[at] = random.next() as u8,
                1 => wire[at] ^= 1 << random.below(8),
                2 => drop(wire.drain(at..at + random.below(1 + 20.min(wire.len() - at)))),
                _ => drop(wire.splice(at..at, random.bytes(20))),
            }
            if wire.is_empty() {
                return;
            }
        }
        let answers_early = random.one_in(2);
        let whole = heard(&wire, answers_early);
        let pieces = heard_in_pieces(&wire, answers_early, random);
        assert_eq!(whole.said, pieces.said);
        assert_eq!(
            whole.responder.is_between_requests(),
            pieces.responder.is_between_requests()
        );
        assert!(whole.memory() <= MOST_MEMORY && pieces.memory() <= MOST_MEMORY);
    });
}

#[test]
fn noise_does_no_harm() {
    rounds(ROUNDS, |random| {
        let mut wire = random.bytes(300);
        while random.below(8) > 0 {
            let kind = RecordType::from_number(1 + random.below(11) as u8).unwrap();
            let id = random.below(3) as u16;
            let content = random.bytes(30);
            append_record(&mut wire, kind, id, &content, random);
        }
        let start = if random.one_in(2) {
            random.below(wire.len() + 1)
        } else {
            0
        };
        let wire = &wire[start..];
        let whole = heard(wire, false);
        let pieces = heard_in_pieces(wire, false, random);
        assert_eq!(whole.said, pieces.said);
        assert!(whole.memory() <= MOST_MEMORY && pieces.memory() <= MOST_MEMORY);
        let mut answer = Answer::new();
        let (mut at, mut calls) = (0, 0);
        while !matches!(
            answer.receive(&wire[at..]),
            (consumed, part) if { at += consumed; matches!(part, Part::More | Part::Broken) }
        ) {
            calls += 1;
            assert!(calls <= wire.len());
        }
        assert_eq!(at, wire.len());
    });
}
