//! FastCGI, both sides.

use ::fastcgi::{
    Answer, Input, Limits, Output, Params, Part, ProtocolStatus, RecordType, Request, Responder, Role,
    Violation, header,
};
use forkyard_fuzz::{in_pieces, numbers_of};

const LIMITS: Limits = Limits {
    params_bytes: 300,
    params_count: 12,
};

const MOST_MEMORY: usize = 4 * 300 + 2 * 65_536 + 64 * 64 + 8192;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Debug, PartialEq)]
enum Said {
    Request(u16, Role, bool, Pairs),
    Body(Vec<u8>),
    BodyEnd,
    Abort,
    Reply(Vec<u8>),
    Broken(Violation),
}

struct Listener {
    responder: Responder,
    said: Vec<Said>,
    /// Answers end once the parameters are complete, so that bodies are skipped.
    answers_early: bool,
}

impl Listener {
    fn new(limits: Limits, answers_early: bool) -> Listener {
        Listener {
            responder: Responder::new(limits),
            said: Vec::new(),
            answers_early,
        }
    }

    fn hear(&mut self, input: &[u8]) {
        let mut at = 0;
        for _ in 0..input.len() + 2 {
            let (consumed, meaning) = self.responder.receive(&input[at..]);
            at += consumed;
            let said = match meaning {
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
                Input::Request => self.request(),
                Input::Body(piece) => {
                    assert!(!piece.is_empty());
                    if let Some(Said::Body(body)) = self.said.last_mut() {
                        body.extend_from_slice(piece);
                        continue;
                    }
                    Said::Body(piece.to_vec())
                }
                Input::BodyEnd => {
                    assert!(self.responder.body_ended());
                    self.responder.finish();
                    Said::BodyEnd
                }
                Input::Abort => {
                    self.responder.finish();
                    Said::Abort
                }
                Input::Reply(reply) => {
                    assert!(reply.bytes().len() % 8 == 0, "{reply:?}");
                    Said::Reply(reply.bytes().to_vec())
                }
            };
            self.said.push(said);
        }
        panic!("no end of meanings");
    }

    fn request(&mut self) -> Said {
        let responder = &mut self.responder;
        let params: Pairs = of(responder.params());
        for (name, value) in &params {
            assert_eq!(responder.params().get(name), Some(&value[..]));
            assert_eq!(
                responder.params().get_with_nul(name).and_then(<[u8]>::last),
                Some(&0)
            );
        }
        let (id, role, keep) = (responder.request_id(), responder.role(), responder.keep());
        if self.answers_early {
            responder.finish();
        }
        Said::Request(id, role, keep, params)
    }
}

fn of(params: &Params) -> Pairs {
    let owned = |(name, value): (&[u8], &[u8])| (name.to_vec(), value.to_vec());
    params.iter().map(owned).collect()
}

/// Parses a connection's input: the result doesn't depend on how it is split, memory is bounded, and each parsed
/// request survives a round trip.
pub(super) fn requests(input: &[u8]) {
    for answers_early in [false, true] {
        let mut whole = Listener::new(LIMITS, answers_early);
        whole.hear(input);
        let mut pieces = Listener::new(LIMITS, answers_early);
        in_pieces(input, |piece| pieces.hear(piece));
        assert_eq!(whole.said, pieces.said);
        for it in [&whole, &pieces] {
            let memory = it.responder.memory();
            assert!(memory <= MOST_MEMORY, "{memory} bytes");
        }
        let between = [&whole, &pieces].map(|it| it.responder.is_between_requests());
        assert_eq!(between[0], between[1]);
        if !matches!(whole.said.last(), Some(Said::Broken(_))) {
            let boundary = [&whole, &pieces].map(|it| it.responder.is_at_boundary());
            assert_eq!(boundary[0], boundary[1]);
        }
        whole.responder.reset();
        assert!(whole.responder.is_between_requests() && whole.responder.params().is_empty());
        if !answers_early {
            whole.said.iter().for_each(sent_anew);
        }
    }
}

fn sent_anew(said: &Said) {
    let Said::Request(id, role, keep, params) = said else {
        return;
    };
    let pairs: Vec<(&[u8], &[u8])> = params
        .iter()
        .map(|(name, value)| (&name[..], &value[..]))
        .collect();
    let mut wire = Vec::new();
    let request = Request {
        id: *id,
        role: *role,
        keep: *keep,
        params: &pairs,
        body: b"body",
        record_content: 1 + params.len() * 7,
        pads: *keep,
    };
    request.encode(&mut wire);
    let mut again = Listener::new(Limits::default(), false);
    again.hear(&wire);
    let request = Said::Request(*id, *role, *keep, params.clone());
    assert_eq!(again.said, [request, Said::Body(b"body".to_vec()), Said::BodyEnd]);
}

/// Compares the pairs of PARAMS records with those of a second, independent reader (section 3.4).
pub(super) fn pairs(input: &[u8]) {
    let mut wire = header(RecordType::BeginRequest, 1, 8, 0).to_vec();
    wire.extend([0, 1, 0, 0, 0, 0, 0, 0]);
    in_pieces(input, |piece| {
        if !piece.is_empty() {
            wire.extend(header(RecordType::Params, 1, piece.len() as u16, 0));
            wire.extend_from_slice(piece);
        }
    });
    wire.extend(header(RecordType::Params, 1, 0, 0));
    let mut listener = Listener::new(LIMITS, false);
    listener.hear(&wire);
    let expected = match expected_pairs(input) {
        Ok(pairs) => Said::Request(1, Role::Responder, false, pairs),
        Err(violation) => Said::Broken(violation),
    };
    assert_eq!(listener.said, [expected]);
}

fn expected_pairs(mut content: &[u8]) -> Result<Pairs, Violation> {
    let request_id = 1;
    let mut pairs = vec![(b"FCGI_ROLE".to_vec(), b"RESPONDER".to_vec())];
    let (mut bytes, mut count) = (0, 0);
    while !content.is_empty() {
        let cut = Violation::PairCut { request_id };
        let mut length = || {
            let first = *content.first()?;
            let long = first >= 128;
            let (length, rest) = content.split_at_checked(if long { 4 } else { 1 })?;
            content = rest;
            let number = length
                .iter()
                .fold(0, |sum: usize, byte| sum << 8 | usize::from(*byte));
            Some(if long { number - (1 << 31) } else { number })
        };
        let (Some(name), Some(value)) = (length(), length()) else {
            return Err(cut);
        };
        if count >= LIMITS.params_count {
            let limit = LIMITS.params_count;
            return Err(Violation::ParamsTooMany { request_id, limit });
        }
        (bytes, count) = (bytes + name + value, count + 1);
        if bytes > LIMITS.params_bytes {
            let limit = LIMITS.params_bytes;
            return Err(Violation::ParamsTooLong { request_id, limit });
        }
        let (pair, rest) = content.split_at_checked(name + value).ok_or(cut)?;
        content = rest;
        let (name, value) = pair.split_at(name);
        match pairs.iter_mut().find(|(known, _)| known == name) {
            Some(pair) => pair.1 = value.to_vec(),
            None => pairs.push((name.to_vec(), value.to_vec())),
        }
    }
    Ok(pairs)
}

#[derive(Debug, Clone, PartialEq)]
enum Heard {
    Piece(u16, RecordType, Vec<u8>),
    Closed(u16, RecordType),
    End(u16, u32, ProtocolStatus),
    Broken,
}

#[derive(Default)]
struct Reader {
    answer: Answer,
    heard: Vec<Heard>,
}

impl Reader {
    fn hear(&mut self, input: &[u8]) {
        let mut at = 0;
        for _ in 0..input.len() + 2 {
            let (used, part) = self.answer.receive(&input[at..]);
            at += used;
            let id = self.answer.request_id();
            let (kind, piece) = match part {
                Part::More => {
                    assert_eq!(at, input.len(), "input is left");
                    return;
                }
                Part::Broken => {
                    if self.heard.last() != Some(&Heard::Broken) {
                        self.heard.push(Heard::Broken);
                    }
                    return;
                }
                Part::Stdout(piece) => (RecordType::Stdout, piece),
                Part::Stderr(piece) => (RecordType::Stderr, piece),
                Part::Other(kind, []) | Part::Closed(kind) => {
                    self.heard.push(Heard::Closed(id, kind));
                    continue;
                }
                Part::Other(kind, piece) => (kind, piece),
                Part::End { app_status, status } => {
                    self.heard.push(Heard::End(id, app_status, status));
                    continue;
                }
            };
            assert!(!piece.is_empty());
            match self.heard.last_mut() {
                Some(Heard::Piece(last, same, bytes)) if (*last, *same) == (id, kind) => {
                    bytes.extend_from_slice(piece)
                }
                _ => self.heard.push(Heard::Piece(id, kind, piece.to_vec())),
            }
        }
        panic!("no end of parts");
    }
}

pub(super) fn answers(input: &[u8]) {
    let (mut whole, mut pieces) = (Reader::default(), Reader::default());
    whole.hear(input);
    in_pieces(input, |piece| pieces.hear(piece));
    assert_eq!(whole.heard, pieces.heard);
}

pub(super) fn output(input: &[u8]) {
    let mut below = numbers_of(input);
    let mut output = Output::new();
    let (mut wire, mut said): (Vec<u8>, Vec<Heard>) = (Vec::new(), Vec::new());
    let (mut id, mut is_open) = (0_u16, false);
    for &byte in input {
        let length = usize::from(byte >> 3) * [1, 30, 3000][below(3)];
        let bytes = vec![byte; length];
        match byte % 8 {
            0 if !is_open => {
                id = id.wrapping_add(1).max(1);
                output.begin(id);
                is_open = true;
            }
            1..=4 => {
                let kind = if byte % 2 == 0 {
                    RecordType::Stdout
                } else {
                    RecordType::Stderr
                };
                let room = output.room();
                let taken = match kind {
                    RecordType::Stdout => output.stdout(&bytes),
                    _ => output.stderr(&bytes),
                };
                assert!(!is_open || kind != RecordType::Stdout || taken >= length.min(room));
                assert!(is_open || taken == length);
                if is_open && taken > 0 {
                    note(&mut said, id, kind, &bytes[..taken]);
                }
            }
            5 if is_open => {
                output.end(u32::from(byte), ProtocolStatus::RequestComplete);
                is_open = false;
                said.push(Heard::End(id, u32::from(byte), ProtocolStatus::RequestComplete));
            }
            _ => {
                let pending = output.pending();
                let some = below(pending.len() + 1);
                wire.extend_from_slice(&pending[..some]);
                output.consume(some);
            }
        }
    }
    wire.extend_from_slice(output.pending());
    let mut reader = Reader::default();
    reader.hear(&wire);
    let mut heard = Vec::new();
    for part in reader.heard {
        match part {
            Heard::Piece(id, kind, bytes) => note(&mut heard, id, kind, &bytes),
            Heard::Closed(..) => {}
            other => heard.push(other),
        }
    }
    assert_eq!(heard, said);
}

fn note(said: &mut Vec<Heard>, id: u16, kind: RecordType, bytes: &[u8]) {
    match said.last_mut() {
        Some(Heard::Piece(last, same, before)) if (*last, *same) == (id, kind) => {
            before.extend_from_slice(bytes)
        }
        _ => said.push(Heard::Piece(id, kind, bytes.to_vec())),
    }
}
