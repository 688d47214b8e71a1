//! A request on its way from its client to a process.

use super::super::head::Framing;
use super::request::{Body, Head, read};
use crate::queue::Queue;

const MOST_HELD: usize = 64 * 1024;
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

#[derive(Debug, Default)]
pub(super) struct Upload {
    phase: UploadPhase,
    /// The client's bytes that are not in `out` yet.
    held: Vec<u8>,
    pub(super) out: Queue,
}

/// ```text
/// FastCGI: Pieces ──► Ended ──► Deaf
/// HTTP:    Head ──► Body ──► Tunnel ──► Ended
///           └────────┴──► Broken
/// ```
#[derive(Debug, PartialEq, Eq, Default)]
enum UploadPhase {
    #[default]
    Head,
    Pieces {
        /// The missing bytes by its Content-Length; `None`: it has chunks, or ends with the connection.
        left: Option<u64>,
        is_chunked: bool,
    },
    /// Still after the body's end, because its client may close the connection.
    Body(Body),
    /// After a protocol switch.
    Tunnel,
    Ended,
    /// The process does not read a FastCGI request any more; the worker keeps the rest of its body.
    Deaf,
    /// The process does not read an HTTP request any more, or the client's bytes are invalid.
    Broken,
}

/// A FastCGI body that is shorter than its Content-Length, by this many bytes.
#[derive(Debug, thiserror::Error)]
#[error("its body is {0} bytes shorter than its Content-Length")]
pub(super) struct TooShort(u64);

/// A body that is not in chunks although it should be.
#[derive(Debug)]
pub(super) struct NoChunk;

impl Upload {
    pub(super) fn fastcgi(head: Vec<u8>, framing: Framing) -> Upload {
        Upload {
            phase: match framing {
                Framing::Nothing => UploadPhase::Ended,
                Framing::Chunked => UploadPhase::Pieces {
                    left: None,
                    is_chunked: true,
                },
                Framing::Length(length) => UploadPhase::Pieces {
                    left: Some(length),
                    is_chunked: false,
                },
                Framing::Upgrade => UploadPhase::Pieces {
                    left: None,
                    is_chunked: false,
                },
            },
            out: Queue::from(head),
            ..Upload::default()
        }
    }

    /// Reads more of an HTTP head. After it, `out` has the head for the process and the body so far.
    pub(super) fn head(&mut self, bytes: &[u8]) -> Result<Option<Head>, &'static str> {
        self.held.extend_from_slice(bytes);
        let head = read(&self.held).inspect_err(|_| self.phase = UploadPhase::Broken)?;
        Ok(head.map(|mut head| {
            self.held.drain(..head.used);
            self.out = Queue::from(std::mem::take(&mut head.bytes));
            self.phase = UploadPhase::Body(head.body.clone());
            head
        }))
    }

    /// Takes a piece of a FastCGI body. Drops bytes beyond its Content-Length: the process would take them for another
    /// request.
    pub(super) fn piece(&mut self, piece: &[u8], is_last: bool) -> Result<(), TooShort> {
        let UploadPhase::Pieces { left, is_chunked } = &mut self.phase else {
            return Ok(());
        };
        let is_chunked = *is_chunked;
        let most = left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
        let piece = &piece[..piece.len().min(most)];
        if let Some(left) = left {
            *left -= piece.len() as u64;
            if is_last && *left > 0 {
                return Err(TooShort(*left));
            }
        }
        let out = self.out.room();
        if !piece.is_empty() {
            if is_chunked {
                out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            }
            out.extend_from_slice(piece);
            if is_chunked {
                out.extend_from_slice(b"\r\n");
            }
        }
        if is_last {
            self.phase = UploadPhase::Ended;
            if is_chunked {
                out.extend_from_slice(LAST_CHUNK);
            }
        }
        Ok(())
    }

    /// Takes bytes of an HTTP client.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<(), NoChunk> {
        self.held.extend_from_slice(bytes);
        match &mut self.phase {
            UploadPhase::Tunnel => self.out.room().append(&mut self.held),
            UploadPhase::Body(body) if !self.held.is_empty() && !body.has_ended() => {
                let Some(used) = body.take(&self.held, self.out.room()) else {
                    self.phase = UploadPhase::Broken;
                    return Err(NoChunk);
                };
                self.held.drain(..used);
            }
            _ => {}
        }
        Ok(())
    }

    /// The process has switched to another protocol.
    pub(super) fn switch(&mut self) {
        if let UploadPhase::Body(_) = self.phase {
            self.phase = UploadPhase::Tunnel;
            self.out.room().append(&mut self.held);
        }
    }

    /// The client sends nothing more. Returns whether the process can still answer.
    pub(super) fn end(&mut self) -> bool {
        let is_tunnel = self.phase == UploadPhase::Tunnel;
        if is_tunnel {
            self.phase = UploadPhase::Ended;
        }
        is_tunnel
    }

    /// The process does not read any more.
    pub(super) fn break_off(&mut self) {
        match self.phase {
            UploadPhase::Tunnel => self.out = Queue::default(),
            UploadPhase::Head | UploadPhase::Body(_) => self.phase = UploadPhase::Broken,
            _ => self.phase = UploadPhase::Deaf,
        }
    }

    /// Restarts a request without a body for another process.
    pub(super) fn rewind(&mut self) {
        self.phase = UploadPhase::Ended;
        self.out.rewind();
    }

    pub(super) fn has_more(&self) -> bool {
        !self.out.is_empty() && !matches!(self.phase, UploadPhase::Deaf | UploadPhase::Broken)
    }

    /// Whether the client's next bytes are wanted.
    pub(super) fn wants_more(&self) -> bool {
        let is_held = self.held.len() >= MOST_HELD;
        match &self.phase {
            UploadPhase::Head | UploadPhase::Pieces { .. } | UploadPhase::Tunnel => !self.has_more(),
            UploadPhase::Body(body) => !(self.has_more() || body.has_ended() && is_held),
            UploadPhase::Broken => !is_held,
            UploadPhase::Ended | UploadPhase::Deaf => false,
        }
    }

    /// Whether the process has got the whole request.
    pub(super) fn is_sent(&self) -> bool {
        self.phase == UploadPhase::Ended && self.out.is_empty()
    }

    /// Whether nothing that the client may have sent is unread.
    pub(super) fn is_read(&self) -> bool {
        match &self.phase {
            UploadPhase::Body(body) => body.has_ended() && self.held.is_empty(),
            UploadPhase::Ended => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fastcgi_body_ends_at_its_length() {
        let begin = || Upload::fastcgi(b"head ".to_vec(), Framing::Length(5));
        let mut upload = begin();
        upload.piece(b"123", false).unwrap();
        upload.piece(b"45GET /", false).unwrap();
        upload.piece(b"more", true).unwrap();
        assert_eq!(upload.out.rest(), b"head 12345");
        assert!(!upload.wants_more());
        let mut short = begin();
        short.piece(b"123", false).unwrap();
        assert_eq!(short.piece(b"", true).unwrap_err().0, 2);
    }
}
