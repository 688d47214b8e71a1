//! Incremental parser of an HTTP answer: turns its head into a CGI header and removes chunk framing from its body.

use super::chunks::{BrokenChunks, Chunks, Piece};
use std::mem::MaybeUninit;
use std::ops::Range;

const MOST_BYTES: usize = 64 * 1024;
const MOST_FIELDS: usize = 256;
const SWITCHING_PROTOCOLS: u16 = 101;

/// Fields of one connection (RFC 9110 section 7.6.1), and framing that the web server adds itself.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Requests for out-of-band work, which this runtime does not support and clients must not see.
const OURS: &[&str] = &[
    "forkyard-request-oob-work",
    "x-passenger-request-oob-work",
    "!~request-oob-work",
];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("it is not HTTP/1.1: {0}")]
    Syntax(httparse::Error),
    #[error("its head is longer than {MOST_BYTES} bytes")]
    TooLong,
    /// Content-Length is not a number, or is repeated with another value.
    #[error("its Content-Length is not a number")]
    Length,
    #[error("it has a Transfer-Encoding other than \"chunked\"")]
    Coding,
    #[error("a chunk of its body has no size")]
    Chunk,
    #[error("it goes over to another protocol, such as WebSocket; FastCGI can't pass that")]
    Switched,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    More,
    Head(Vec<u8>),
    Body(Range<usize>),
    End,
}

/// ```text
/// Head ──► Length, Chunked ──► End
///   └────► UntilClose, Switched        until the connection ends
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerState {
    Head,
    Length(u64),
    Chunked(Chunks),
    UntilClose,
    /// To another protocol.
    Switched,
    End,
}

#[derive(Debug)]
pub(super) struct HttpAnswer {
    state: AnswerState,
    is_head: bool,
    may_switch: bool,
    keeps: bool,
}

impl HttpAnswer {
    pub(super) fn new(is_head: bool, may_switch: bool) -> HttpAnswer {
        HttpAnswer {
            state: AnswerState::Head,
            is_head,
            may_switch,
            keeps: false,
        }
    }

    pub(super) fn keeps(&self) -> bool {
        self.keeps && self.state == AnswerState::End
    }

    pub(super) fn has_begun(&self) -> bool {
        self.state != AnswerState::Head
    }

    pub(super) fn has_switched(&self) -> bool {
        self.state == AnswerState::Switched
    }

    pub(super) fn may_end(&self) -> bool {
        matches!(
            self.state,
            AnswerState::UntilClose | AnswerState::Switched | AnswerState::End
        )
    }

    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(usize, Part), Malformed> {
        match self.state {
            AnswerState::Head => self.head(bytes),
            AnswerState::Length(0) | AnswerState::End => {
                self.state = AnswerState::End;
                Ok((0, Part::End))
            }
            _ if bytes.is_empty() => Ok((0, Part::More)),
            AnswerState::Length(left) => {
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                self.state = match left - count as u64 {
                    0 => AnswerState::End,
                    left => AnswerState::Length(left),
                };
                Ok((count, Part::Body(0..count)))
            }
            AnswerState::UntilClose | AnswerState::Switched => Ok((bytes.len(), Part::Body(0..bytes.len()))),
            AnswerState::Chunked(chunks) => self.chunked(chunks, bytes),
        }
    }

    fn chunked(&mut self, mut chunks: Chunks, bytes: &[u8]) -> Result<(usize, Part), Malformed> {
        let mut used = 0;
        let part = loop {
            match chunks.next(&bytes[used..])? {
                None => break Part::More,
                Some(Piece::Framing(count) | Piece::Trailer(count)) => used += count,
                Some(Piece::Data(count)) => {
                    used += count;
                    break Part::Body(used - count..used);
                }
                Some(Piece::Last(count)) => {
                    used += count;
                    break Part::End;
                }
            }
        };
        self.state = match part {
            Part::End => AnswerState::End,
            _ => AnswerState::Chunked(chunks),
        };
        Ok((used, part))
    }

    fn head(&mut self, bytes: &[u8]) -> Result<(usize, Part), Malformed> {
        let mut start = 0;
        loop {
            // Uninitialised, because most answers use few of these fields.
            let mut fields = [const { MaybeUninit::uninit() }; MOST_FIELDS];
            let mut response = httparse::Response::new(&mut []);
            let bytes = &bytes[start..];
            let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
                &mut response,
                bytes,
                &mut fields,
            );
            let used = match parsed.map_err(Malformed::Syntax)? {
                httparse::Status::Complete(used) => used,
                httparse::Status::Partial if bytes.len() > MOST_BYTES => return Err(Malformed::TooLong),
                httparse::Status::Partial => return Ok((start, Part::More)),
            };
            start += used;
            let code = response.code.unwrap_or(0);
            // A code has three digits and the first is not 0 (RFC 9112 section 4). A web server would read it
            // differently.
            if code < 100 {
                return Err(Malformed::Syntax(httparse::Error::Status));
            }
            if code == SWITCHING_PROTOCOLS {
                if !self.may_switch {
                    return Err(Malformed::Switched);
                }
                let head = self.begin(code, &response)?;
                (self.state, self.keeps) = (AnswerState::Switched, false);
                return Ok((start, Part::Head(head)));
            }
            if !(100..200).contains(&code) {
                return Ok((start, Part::Head(self.begin(code, &response)?)));
            }
        }
    }

    fn begin(&mut self, code: u16, response: &httparse::Response<'_, '_>) -> Result<Vec<u8>, Malformed> {
        let (mut length, mut chunked, mut close) = (None, false, response.version == Some(0));
        for field in response.headers.iter() {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            if is("content-length") {
                let number = number(field.value).ok_or(Malformed::Length)?;
                if length.replace(number).is_some_and(|other| other != number) {
                    return Err(Malformed::Length);
                }
            } else if is("transfer-encoding") {
                // `chunked` must occur once (RFC 9112 section 6.1); other codings can't be passed on.
                if chunked || !field.value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                    return Err(Malformed::Coding);
                }
                chunked = true;
            } else if is("connection") {
                close = (close && !names(field.value, "keep-alive")) || names(field.value, "close");
            }
        }
        let mut head = format!("Status: {code} {}\r\n", response.reason.unwrap_or_default()).into_bytes();
        // `chunked` overrides Content-Length (RFC 9112 section 6.3); a repeated length is dropped.
        let mut has_length = chunked;
        for field in response.headers.iter() {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            let is_said = is("content-length") && std::mem::replace(&mut has_length, true);
            if !is_said && !HOP_BY_HOP.iter().chain(OURS).any(|name| is(name)) {
                head.extend_from_slice(field.name.as_bytes());
                head.extend_from_slice(b": ");
                head.extend_from_slice(field.value);
                head.extend_from_slice(b"\r\n");
            }
        }
        head.extend_from_slice(b"\r\n");
        let has_no_body = self.is_head || matches!(code, 204 | 304);
        // In the order of RFC 9112 section 6.3.
        self.state = match length {
            _ if has_no_body => AnswerState::End,
            _ if chunked => AnswerState::Chunked(Chunks::Size),
            Some(length) => AnswerState::Length(length),
            None => AnswerState::UntilClose,
        };
        self.keeps = !close && self.state != AnswerState::UntilClose;
        Ok(head)
    }
}

/// Whether a list names a word (RFC 9110 section 5.6.1).
pub(super) fn names(list: &[u8], word: &str) -> bool {
    let mut words = list.split(|byte| *byte == b',');
    words.any(|one| one.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
}

/// Reads a number of digits alone.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    let digits = std::str::from_utf8(text)
        .ok()
        .filter(|_| text.iter().all(u8::is_ascii_digit));
    digits?.parse().ok()
}

impl From<BrokenChunks> for Malformed {
    fn from(broken: BrokenChunks) -> Malformed {
        match broken {
            BrokenChunks::Size => Malformed::Chunk,
            BrokenChunks::TrailerTooLong => Malformed::TooLong,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, is_head: bool, step: usize) -> Result<(String, String, bool), Malformed> {
        let mut answer = HttpAnswer::new(is_head, false);
        let (mut head, mut body, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        let mut ended = false;
        for piece in text.as_bytes().chunks(step) {
            kept.extend_from_slice(piece);
            loop {
                let (used, part) = answer.take(&kept)?;
                match &part {
                    Part::Head(bytes) => head.extend_from_slice(bytes),
                    Part::Body(range) => body.extend_from_slice(&kept[range.clone()]),
                    Part::More | Part::End => {}
                }
                kept.drain(..used);
                ended |= part == Part::End;
                if used == 0 || part == Part::End {
                    break;
                }
            }
        }
        assert!(ended || answer.may_end(), "unfinished: {answer:?}");
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ok((text(head), text(body), answer.keeps()))
    }

    #[test]
    fn every_framing_is_read_from_any_pieces() {
        let plain = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello";
        let chunked = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n\
            3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: x\r\n\r\n";
        let open = "HTTP/1.0 200 OK\r\nX-A: b\r\n\r\nhello";
        for step in [1, 2, 3, 7, 1000] {
            let length = "Status: 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\n";
            let none = "Status: 200 OK\r\nX-A: b\r\n\r\n";
            assert_eq!(
                read(plain, false, step),
                Ok((length.into(), "hello".into(), true)),
                "{step}"
            );
            assert_eq!(
                read(chunked, false, step),
                Ok((none.into(), "hello".into(), true)),
                "{step}"
            );
            assert_eq!(
                read(open, false, step),
                Ok((none.into(), "hello".into(), false)),
                "{step}"
            );
        }
    }

    #[test]
    fn what_is_meant_for_forkyard_is_not_passed_on() {
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Passenger-Request-OOB-Work: true\r\nX-A: b\r\n\
                      forkyard-request-oob-work: 1\r\n!~Request-OOB-Work: 1\r\n\r\n";
        let head = "Status: 200 OK\r\nContent-Length: 0\r\nX-A: b\r\n\r\n";
        assert_eq!(read(answer, false, 1000), Ok((head.into(), String::new(), true)));
    }

    #[test]
    fn another_protocol_is_what_was_asked_for_or_a_mistake() {
        let text = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n\x81\x01a";
        assert_eq!(HttpAnswer::new(false, false).take(text), Err(Malformed::Switched));
        let mut answer = HttpAnswer::new(false, true);
        let (used, part) = answer.take(text).unwrap();
        let head = b"Status: 101 Switching Protocols\r\nSec-WebSocket-Accept: x\r\n\r\n";
        assert_eq!(part, Part::Head(head.to_vec()));
        assert_eq!(answer.take(&text[used..]), Ok((3, Part::Body(0..3))));
        assert!(answer.has_switched() && answer.may_end() && !answer.keeps());
        let mut answer = HttpAnswer::new(false, true);
        let (_, part) = answer
            .take(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            .unwrap();
        assert!(matches!(part, Part::Head(_)) && !answer.has_switched());
    }

    #[test]
    fn some_answers_have_no_body() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(
            read(head, true, 9).map(|(_, body, keeps)| (body, keeps)),
            Ok((String::new(), true))
        );
        let none = "HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n";
        assert_eq!(
            read(none, false, 9).map(|(_, body, keeps)| (body, keeps)),
            Ok((String::new(), false))
        );
        let empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(
            read(empty, false, 9).map(|(_, body, keeps)| (body, keeps)),
            Ok((String::new(), true))
        );
    }

    #[test]
    fn a_length_beside_chunks_is_not_passed_on_nor_one_twice() {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nContent-Length: 9\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        let none = "Status: 200 OK\r\n\r\n";
        assert_eq!(read(chunked, false, 9), Ok((none.into(), "hello".into(), true)));
        let twice = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello";
        let once = "Status: 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(read(twice, false, 9), Ok((once.into(), "hello".into(), true)));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "SSH-2.0-OpenSSH\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
        ] {
            assert!(read(text, false, 1000).is_err(), "{text:?}");
        }
    }
}
