//! One request that came by FastCGI, on its way through a process of the program.

use super::super::answer::{HttpAnswer, Malformed, Part};
use super::super::head::Framing;
use super::super::table::ProcessEntry;
use crate::tick::Tick;

/// Behind the last chunk: no trailer.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The request.
#[derive(Debug)]
pub(super) struct Exchange {
    /// By what the worker knows it.
    pub(super) token: u64,
    /// Which process it was given to, and counted for.
    pub(super) chosen: Option<Option<ProcessEntry>>,
    /// The connection to it.
    pub(super) link: Option<usize>,
    framing: Framing,
    /// What is to be sent, head first, and how much of it was.
    pub(super) out: Vec<u8>,
    pub(super) sent: usize,
    /// Something of it has gone to a process.
    pub(super) has_gone: bool,
    /// The body is complete in `out`, or not wanted.
    pub(super) body_ended: bool,
    /// The worker will tell of more of the body.
    pub(super) waits_for_body: bool,
    /// It may be asked again: it has no body, and its method is idempotent.
    pub(super) may_repeat: bool,
    answer: HttpAnswer,
    is_head: bool,
    /// What was read of the answer and can't be understood before more comes.
    torn: Vec<u8>,
    /// What the client can't take yet.
    pub(super) stuck: Vec<u8>,
    /// The client takes nothing at present.
    pub(super) is_full: bool,
    /// The answer is complete, but for what is stuck.
    pub(super) is_done: bool,
    pub(super) tried: Vec<ProcessEntry>,
    /// How many processes have taken it and not answered.
    pub(super) asked: u32,
    /// The last of them, which may be about to end.
    pub(super) failed: Option<ProcessEntry>,
    /// Why the last process could not be reached.
    pub(super) why: Option<String>,
    /// How long it waits for a process.
    pub(super) until: Option<Tick>,
    /// When it is looked after in any case.
    pub(super) due: Option<Tick>,
    pub(super) pauses: u32,
}

/// What a piece of an answer came to.
#[derive(Debug)]
pub(super) enum Fed {
    /// More is to come.
    More,
    /// It is complete. Whether the connection can serve another request.
    End { keeps: bool },
    /// It is no answer.
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
            chosen: None,
            link: None,
            framing,
            out: head,
            sent: 0,
            has_gone: false,
            body_ended: framing == Framing::Nothing,
            waits_for_body: false,
            may_repeat,
            answer: HttpAnswer::new(is_head, framing == Framing::Upgrade),
            is_head,
            torn: Vec::new(),
            stuck: Vec::new(),
            is_full: false,
            is_done: false,
            tried: Vec::new(),
            asked: 0,
            failed: None,
            why: None,
            until: None,
            due: None,
            pauses: 0,
        }
    }

    /// A piece of the body.
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

    /// The program does not want the rest of the request.
    pub(super) fn drop_input(&mut self) {
        self.out.clear();
        self.sent = 0;
        self.body_ended = true;
        self.waits_for_body = false;
    }

    /// Whether all of the request has been sent.
    pub(super) fn is_sent(&self) -> bool {
        self.body_ended && self.sent == self.out.len()
    }

    /// Back to the beginning, for another process. Only a request without a body.
    pub(super) fn again(&mut self) {
        self.sent = 0;
        self.has_gone = false;
        self.answer = HttpAnswer::new(self.is_head, self.framing == Framing::Upgrade);
        self.torn.clear();
    }

    /// Whether the client has been told something of the answer.
    pub(super) fn has_begun(&self) -> bool {
        self.answer.has_begun()
    }

    /// Whether it is another protocol's from now on.
    pub(super) fn has_switched(&self) -> bool {
        self.answer.has_switched()
    }

    /// Whether the end of the connection is the end of the answer.
    pub(super) fn may_end(&self) -> bool {
        self.answer.may_end()
    }

    /// Whether nothing of an answer has come.
    pub(super) fn is_untouched(&self) -> bool {
        !self.answer.has_begun() && self.torn.is_empty()
    }

    /// Takes bytes of the answer, and puts into `piece` what the client is to have.
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
