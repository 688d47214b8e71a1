//! A FastCGI request on its way through the program.

use super::super::answer::{HttpAnswer, Malformed, Part};
use super::super::head::Framing;
use super::links::Reuse;
use super::upstream::Upstream;

const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) token: u64,
    pub(super) upstream: Upstream,
    framing: Framing,
    pub(super) out: Vec<u8>,
    pub(super) sent: usize,
    pub(super) body_ended: bool,
    pub(super) waits_for_body: bool,
    /// It has no body and its method is idempotent.
    pub(super) may_repeat: bool,
    answer: HttpAnswer,
    is_head: bool,
    /// Incomplete input of the answer.
    torn: Vec<u8>,
    /// Output that the client can't accept yet.
    pub(super) stuck: Vec<u8>,
    pub(super) is_full: bool,
    pub(super) is_done: bool,
}

#[derive(Debug)]
pub(super) enum Fed {
    More,
    /// `keeps`: the connection can carry another request.
    End {
        keeps: bool,
    },
    Malformed(Malformed),
}

impl Exchange {
    pub(super) fn new(
        token: u64,
        head: Vec<u8>,
        framing: Framing,
        is_head: bool,
        may_repeat: bool,
    ) -> Exchange {
        Exchange {
            token,
            upstream: Upstream::new(if may_repeat { Reuse::Any } else { Reuse::Quiet }),
            framing,
            out: head,
            sent: 0,
            body_ended: framing == Framing::Nothing,
            waits_for_body: false,
            may_repeat,
            answer: HttpAnswer::new(is_head, framing == Framing::Upgrade),
            is_head,
            torn: Vec::new(),
            stuck: Vec::new(),
            is_full: false,
            is_done: false,
        }
    }

    pub(super) fn body(&mut self, piece: &[u8], is_last: bool) {
        if self.body_ended {
            return;
        }
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
        let is_chunked = self.framing == Framing::Chunked;
        if !piece.is_empty() {
            if is_chunked {
                self.out
                    .extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            }
            self.out.extend_from_slice(piece);
            if is_chunked {
                self.out.extend_from_slice(b"\r\n");
            }
        }
        if is_last {
            self.body_ended = true;
            if is_chunked {
                self.out.extend_from_slice(LAST_CHUNK);
            }
        }
    }

    pub(super) fn drop_input(&mut self) {
        self.out.clear();
        self.sent = 0;
        self.body_ended = true;
        self.waits_for_body = false;
    }

    pub(super) fn is_sent(&self) -> bool {
        self.body_ended && self.sent == self.out.len()
    }

    /// Restarts it for another process; only without a body.
    pub(super) fn again(&mut self) {
        self.sent = 0;
        self.answer = HttpAnswer::new(self.is_head, self.framing == Framing::Upgrade);
        self.torn.clear();
    }

    pub(super) fn has_begun(&self) -> bool {
        self.answer.has_begun()
    }

    pub(super) fn has_switched(&self) -> bool {
        self.answer.has_switched()
    }

    pub(super) fn may_end(&self) -> bool {
        self.answer.may_end()
    }

    pub(super) fn is_untouched(&self) -> bool {
        !self.answer.has_begun() && self.torn.is_empty()
    }

    pub(super) fn feed(&mut self, bytes: &[u8], piece: &mut Vec<u8>) -> Fed {
        let mut joined = std::mem::take(&mut self.torn);
        let mut rest = if joined.is_empty() {
            bytes
        } else {
            joined.extend_from_slice(bytes);
            &joined[..]
        };
        loop {
            let (used, part) = match self.answer.take(rest) {
                Ok(taken) => taken,
                Err(malformed) => return Fed::Malformed(malformed),
            };
            match &part {
                Part::Head(head) => piece.extend_from_slice(head),
                Part::Body(range) => piece.extend_from_slice(&rest[range.clone()]),
                Part::More | Part::End => {}
            }
            rest = &rest[used..];
            if part == Part::End {
                let keeps = self.answer.keeps() && rest.is_empty();
                return Fed::End { keeps };
            }
            if part == Part::More && used == 0 {
                self.torn = rest.to_vec();
                return Fed::More;
            }
        }
    }
}
