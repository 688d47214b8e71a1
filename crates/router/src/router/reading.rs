//! Reads a connection's input record by record, for requests that can't be read by peeking.

use super::channel::MOST_BYTES;
use super::request::{RequestHead, root_of};
use fastcgi::{Input, Limits, Reply, Request, Responder, Violation};
use std::borrow::Cow;

#[derive(Debug)]
pub(super) enum InputEvent {
    More,
    Reply(Reply),
    Request {
        head: RequestHead<'static>,
        /// The request's records and all later input. Longer than [`MOST_BYTES`] if the request can't be passed on.
        bytes: Vec<u8>,
    },
    Broken(Violation),
}

#[derive(Debug)]
pub(super) struct RequestInput {
    responder: Responder,
    input: Vec<u8>,
    at: usize,
    /// All parameters have arrived; padding may follow.
    is_known: bool,
}

impl RequestInput {
    pub(super) fn new(limits: Limits, input: Vec<u8>) -> RequestInput {
        let limits = Limits {
            params_bytes: limits.params_bytes.min(MOST_BYTES),
            ..limits
        };
        RequestInput {
            responder: Responder::new(limits),
            input,
            at: 0,
            is_known: false,
        }
    }

    pub(super) fn receive(&mut self, bytes: &[u8]) {
        self.input.drain(..self.at);
        self.at = 0;
        self.input.extend_from_slice(bytes);
    }

    pub(super) fn memory(&self) -> usize {
        self.input.capacity() + self.responder.memory()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at == self.input.len() && self.responder.is_between_requests()
    }

    pub(super) fn step(&mut self, root_parameter: &[u8]) -> InputEvent {
        loop {
            if self.is_known {
                self.at += skip_padding(&mut self.responder, &self.input[self.at..]);
                if self.responder.is_at_boundary() {
                    return self.request(root_parameter);
                }
                return InputEvent::More;
            }
            let (used, input) = self.responder.receive(&self.input[self.at..]);
            match input {
                Input::More => {
                    self.at += used;
                    return InputEvent::More;
                }
                Input::Reply(reply) => {
                    self.at += used;
                    return InputEvent::Reply(reply);
                }
                Input::Request => {
                    self.at += used;
                    self.is_known = true;
                }
                Input::Broken(violation) => {
                    self.at = self.input.len();
                    return InputEvent::Broken(violation);
                }
                Input::Body(_) | Input::BodyEnd | Input::Abort => self.at += used,
            }
        }
    }

    fn request(&mut self, root_parameter: &[u8]) -> InputEvent {
        self.is_known = false;
        let params = self.responder.params();
        let root = root_of(|name| params.get(name), root_parameter);
        let head = RequestHead {
            id: self.responder.request_id(),
            keep: self.responder.keep(),
            root: root.map(|root| Cow::Owned(root.into_owned())),
        };
        let bytes = self.encode();
        InputEvent::Request { head, bytes }
    }

    fn encode(&self) -> Vec<u8> {
        // Skip the first parameter (the role), which the worker adds itself.
        let params: Vec<_> = self.responder.params().iter().skip(1).collect();
        let request = Request {
            id: self.responder.request_id(),
            role: self.responder.role(),
            keep: self.responder.keep(),
            params: &params,
            pads: false,
            ..Request::default()
        };
        let mut bytes = Vec::new();
        request.encode_head(&mut bytes);
        bytes.extend_from_slice(&self.input[self.at..]);
        bytes
    }
}

/// Discards the body of a request that the router answers.
#[derive(Debug)]
pub(super) struct Rest {
    responder: Responder,
    after: Vec<u8>,
    phase: RestPhase,
}

/// ```text
///  Body ── end or abort ──▶ Padding ──▶ Ended
///    └───── violation ────────────────▶ Broken
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RestPhase {
    Body,
    Padding,
    Ended,
    /// The client violated the protocol, so the next request's start is unknown.
    Broken,
}

impl Rest {
    pub(super) fn new(limits: Limits, read: &[u8]) -> Rest {
        let mut rest = Rest {
            responder: Responder::new(limits),
            after: Vec::new(),
            phase: RestPhase::Body,
        };
        rest.receive(read);
        rest
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.phase, RestPhase::Ended | RestPhase::Broken)
    }

    pub(super) fn is_broken(&self) -> bool {
        self.phase == RestPhase::Broken
    }

    pub(super) fn into_after(self) -> Vec<u8> {
        self.after
    }

    pub(super) fn receive(&mut self, mut bytes: &[u8]) {
        while self.phase == RestPhase::Body {
            if self.responder.body_ended() {
                self.phase = RestPhase::Padding;
                break;
            }
            let (used, input) = self.responder.receive(bytes);
            bytes = &bytes[used..];
            match input {
                Input::More => return,
                Input::Abort => self.phase = RestPhase::Padding,
                Input::Broken(_) => self.phase = RestPhase::Broken,
                Input::BodyEnd | Input::Request | Input::Body(_) | Input::Reply(_) => {}
            }
        }
        if self.phase == RestPhase::Padding {
            bytes = &bytes[skip_padding(&mut self.responder, bytes)..];
            if self.responder.is_at_boundary() {
                self.phase = RestPhase::Ended;
            }
        }
        if self.phase == RestPhase::Ended {
            self.after.extend_from_slice(bytes);
        }
    }
}

fn skip_padding(responder: &mut Responder, bytes: &[u8]) -> usize {
    let mut used = 0;
    while used < bytes.len() && !responder.is_at_boundary() {
        responder.receive(&bytes[used..=used]);
        used += 1;
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastcgi::{RecordType, append_pair, header};

    const LIMITS: Limits = Limits {
        params_bytes: 1 << 20,
        params_count: 1_000,
    };

    fn request(id: u16) -> Vec<u8> {
        let mut wire = Vec::new();
        let request = Request {
            id,
            keep: true,
            params: &[(b"ROOT", b"/srv/a"), (b"OTHER", b"value")],
            body: b"the body",
            ..Request::default()
        };
        request.encode(&mut wire);
        for kind in [RecordType::Params, RecordType::Stdin] {
            let end = header(kind, id, 0, 0);
            let at = wire
                .windows(8)
                .position(|window| window == end)
                .expect("the stream's end");
            wire[at + 6] = 5;
            wire.splice(at + 8..at + 8, [0; 5]);
        }
        wire
    }

    fn question() -> Vec<u8> {
        let mut pairs = Vec::new();
        append_pair(&mut pairs, b"FCGI_MPXS_CONNS", b"");
        let mut wire = header(RecordType::GetValues, 0, pairs.len() as u16, 0).to_vec();
        wire.extend(pairs);
        wire
    }

    #[test]
    fn a_management_record_is_answered_and_left_out_at_every_split() {
        let plain = request(9);
        for (before, at) in [(true, 0), (false, 16)] {
            let mut wire = plain.clone();
            wire.splice(at..at, question());
            for split in 0..=wire.len() {
                let mut reading = RequestInput::new(LIMITS, Vec::new());
                let (mut replies, mut found, mut taken) = (0, None, 0);
                for piece in [&wire[..split], &wire[split..]] {
                    reading.receive(piece);
                    taken += 1;
                    while found.is_none() {
                        match reading.step(b"ROOT") {
                            InputEvent::More => break,
                            InputEvent::Reply(_) => replies += 1,
                            InputEvent::Request { head, bytes } => found = Some((head, bytes)),
                            InputEvent::Broken(violation) => panic!("{violation}"),
                        }
                    }
                    if found.is_some() {
                        break;
                    }
                }
                let (head, bytes) = found.expect("a request");
                assert_eq!((replies, head.id, head.keep), (1, 9, true), "{before}");
                assert_eq!(head.root.as_deref(), Some(&b"/srv/a"[..]));
                let mut worker = Responder::new(LIMITS);
                let (used, input) = worker.receive(&bytes);
                assert!(matches!(input, Input::Request), "{input:?}");
                assert_eq!(worker.params().get(b"OTHER"), Some(&b"value"[..]));
                let mut behind = bytes[used..].to_vec();
                behind.extend_from_slice(if taken > 1 { &[] } else { &wire[split..] });
                let mut body = Vec::new();
                let mut at = 0;
                while at < behind.len() {
                    let (used, input) = worker.receive(&behind[at..]);
                    at += used;
                    if let Input::Body(piece) = input {
                        body.extend_from_slice(piece);
                    }
                }
                assert_eq!(
                    (&body[..], worker.body_ended()),
                    (&b"the body"[..], true),
                    "{split}"
                );
            }
        }
    }

    #[test]
    fn hostile_input_is_refused() {
        for wire in [
            &b"GET / HTTP/1.0\r\n\r\n"[..],
            &[0; 64],
            &[0xff, 0xff, 0, 1, 0, 0, 0, 0],
        ] {
            let mut reading = RequestInput::new(LIMITS, wire.to_vec());
            assert!(matches!(reading.step(b"ROOT"), InputEvent::Broken(_)), "{wire:?}");
        }
        let mut reading = RequestInput::new(LIMITS, request(1)[..16].to_vec());
        assert!(matches!(reading.step(b"ROOT"), InputEvent::More));
        let mut huge = Vec::new();
        for _ in 0..3 {
            let value = vec![b'x'; 60_000];
            let mut pair = Vec::new();
            append_pair(&mut pair, b"NAME", &value);
            huge.extend(header(RecordType::Params, 1, pair.len() as u16, 0));
            huge.extend(pair);
        }
        reading.receive(&huge);
        let step = reading.step(b"ROOT");
        assert!(
            matches!(step, InputEvent::Broken(Violation::ParamsTooLong { .. })),
            "{step:?}"
        );
    }

    #[test]
    fn what_follows_a_request_that_was_given_up_is_kept() {
        let abort = [&header(RecordType::AbortRequest, 1, 3, 4)[..], &[0; 7]].concat();
        let (first, second) = (request(1), request(2));
        let first = [&first[..first.len() - 16 - 8 - 5], &abort].concat();
        let both = [&first[..], &second[..]].concat();
        for split in 0..=both.len() {
            let mut rest = Rest::new(LIMITS, &both[..split]);
            assert_eq!(rest.has_ended(), split >= first.len(), "{split}");
            rest.receive(&both[split..]);
            assert_eq!(rest.into_after(), second, "{split}");
        }
    }

    #[test]
    fn what_follows_a_request_is_kept() {
        let (first, second) = (request(1), request(2));
        let both = [&first[..], &second[..]].concat();
        for split in 0..=both.len() {
            let mut rest = Rest::new(LIMITS, &both[..split]);
            assert_eq!(rest.has_ended(), split >= first.len(), "{split}");
            rest.receive(&both[split..]);
            assert!(rest.has_ended());
            assert_eq!(rest.into_after(), second);
        }
    }
}
