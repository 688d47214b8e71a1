//! Finds the data of a body in chunks (RFC 9112 section 7.1).

use httparse::Status;

const MOST_BYTES: usize = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunks {
    Size,
    Data(u64),
    End,
    Trailer,
    Over,
}

/// What the next bytes are, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece {
    Framing(usize),
    Data(usize),
    /// A line behind the last chunk, with its end.
    Trailer(usize),
    /// The empty line that ends the body.
    Last(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BrokenChunks {
    Size,
    TrailerTooLong,
}

impl Chunks {
    /// `None`: needs more input, or is over.
    pub(super) fn next(&mut self, bytes: &[u8]) -> Result<Option<Piece>, BrokenChunks> {
        let (next, piece) = match self {
            Chunks::Size => match chunk_size(bytes).ok_or(BrokenChunks::Size)? {
                Status::Partial if bytes.len() > MOST_BYTES => return Err(BrokenChunks::Size),
                Status::Partial => return Ok(None),
                Status::Complete((used, 0)) => (Chunks::Trailer, Piece::Framing(used)),
                Status::Complete((used, size)) => (Chunks::Data(size), Piece::Framing(used)),
            },
            Chunks::Data(_) if bytes.is_empty() => return Ok(None),
            Chunks::Data(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                match *left - count as u64 {
                    0 => (Chunks::End, Piece::Data(count)),
                    left => (Chunks::Data(left), Piece::Data(count)),
                }
            }
            Chunks::End => match bytes {
                [b'\r', b'\n', ..] => (Chunks::Size, Piece::Framing(2)),
                [] | [b'\r'] => return Ok(None),
                _ => return Err(BrokenChunks::Size),
            },
            Chunks::Trailer => match bytes.windows(2).position(|pair| pair == b"\r\n") {
                Some(0) => (Chunks::Over, Piece::Last(2)),
                Some(end) => (Chunks::Trailer, Piece::Trailer(end + 2)),
                None if bytes.len() > MOST_BYTES => return Err(BrokenChunks::TrailerTooLong),
                None => return Ok(None),
            },
            Chunks::Over => return Ok(None),
        };
        *self = next;
        Ok(Some(piece))
    }
}

/// Parses a chunk size with its extensions. Returns the bytes used and the size. `None`: no digit, or the line ends
/// with a bare LF, which other parsers may read differently.
fn chunk_size(bytes: &[u8]) -> Option<Status<(usize, u64)>> {
    if bytes.first().is_some_and(|byte| !byte.is_ascii_hexdigit()) {
        return None;
    }
    let read = httparse::parse_chunk_size(bytes).ok()?;
    let line = match read {
        Status::Complete((used, _)) => &bytes[..used.saturating_sub(1)],
        Status::Partial => bytes,
    };
    (!line.contains(&b'\n')).then_some(read)
}
