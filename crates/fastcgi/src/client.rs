//! The client side, for programs behind a worker, tests and benchmarks.

use super::pairs::append_pair;
use super::record::{Cursor, MAX_CONTENT, ProtocolStatus, RecordType, Records, Role, header, padding_for};

/// A request as a web server sends it.
#[derive(Debug, Clone)]
pub struct Request<'r> {
    /// Request id, not 0.
    pub id: u16,
    /// Role of the application.
    pub role: Role,
    /// Keep the connection (FCGI_KEEP_CONN).
    pub keep: bool,
    /// Names and values, in order.
    pub params: &'r [(&'r [u8], &'r [u8])],
    /// The body; the parameters should contain its CONTENT_LENGTH.
    pub body: &'r [u8],
    /// Maximum content of a record, 1 to [`MAX_CONTENT`]; small values split pairs.
    pub record_content: usize,
    /// Pad records to a multiple of eight bytes.
    pub pads: bool,
}

impl Default for Request<'_> {
    fn default() -> Self {
        Request {
            id: 1,
            role: Role::Responder,
            keep: false,
            params: &[],
            body: &[],
            record_content: MAX_CONTENT,
            pads: true,
        }
    }
}

impl Request<'_> {
    /// Appends BEGIN_REQUEST, PARAMS and STDIN.
    pub fn encode(&self, wire: &mut Vec<u8>) {
        self.encode_head(wire);
        self.encode_stream(wire, RecordType::Stdin, self.body);
    }

    /// Appends BEGIN_REQUEST and PARAMS; STDIN records must follow.
    pub fn encode_head(&self, wire: &mut Vec<u8>) {
        let [role_high, role_low] = (self.role as u16).to_be_bytes();
        wire.extend_from_slice(&header(RecordType::BeginRequest, self.id, 8, 0));
        wire.extend_from_slice(&[role_high, role_low, u8::from(self.keep), 0, 0, 0, 0, 0]);
        let mut pairs = Vec::new();
        for (name, value) in self.params {
            append_pair(&mut pairs, name, value);
        }
        self.encode_stream(wire, RecordType::Params, &pairs);
    }

    fn encode_stream(&self, wire: &mut Vec<u8>, kind: RecordType, content: &[u8]) {
        for piece in content.chunks(self.record_content.clamp(1, MAX_CONTENT)) {
            let padding = if self.pads { padding_for(piece.len()) } else { 0 };
            wire.extend_from_slice(&header(kind, self.id, piece.len() as u16, padding));
            wire.extend_from_slice(piece);
            wire.extend_from_slice(&[0; 8][..usize::from(padding)]);
        }
        wire.extend_from_slice(&header(kind, self.id, 0, 0));
    }
}

/// Encodes GET_VALUES (section 4.1), which every application must answer.
pub fn get_values() -> Vec<u8> {
    let mut pairs = Vec::new();
    for name in ["FCGI_MAX_CONNS", "FCGI_MAX_REQS", "FCGI_MPXS_CONNS"] {
        append_pair(&mut pairs, name.as_bytes(), b"");
    }
    let padding = padding_for(pairs.len());
    let mut wire = header(RecordType::GetValues, 0, pairs.len() as u16, padding).to_vec();
    wire.extend_from_slice(&pairs);
    wire.extend_from_slice(&[0; 8][..usize::from(padding)]);
    wire
}

/// A part of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'i> {
    /// All input is consumed.
    More,
    /// A non-empty part of the answer.
    Stdout(&'i [u8]),
    /// A non-empty part of the error text.
    Stderr(&'i [u8]),
    /// An empty record has closed the stream.
    Closed(RecordType),
    /// End of the request.
    End {
        /// Application status.
        app_status: u32,
        /// Protocol status.
        status: ProtocolStatus,
    },
    /// Part of another record's content, or an empty record.
    Other(RecordType, &'i [u8]),
    /// Not FastCGI.
    Broken,
}

/// Decodes the answers on a connection.
#[derive(Debug, Default)]
pub struct Answer {
    records: Records,
    open: Option<RecordType>,
    request_id: u16,
    broken: bool,
    end: [u8; END_LENGTH],
    end_filled: usize,
}

const END_LENGTH: usize = 8;

impl Answer {
    /// Creates a decoder.
    pub fn new() -> Answer {
        Answer::default()
    }

    /// Request id of the last part.
    pub fn request_id(&self) -> u16 {
        self.request_id
    }

    /// Decodes the start of `input`; returns the bytes consumed and the part. Call it with the rest until
    /// [`Part::More`].
    pub fn receive<'i>(&mut self, input: &'i [u8]) -> (usize, Part<'i>) {
        let mut cursor = Cursor::new(input);
        let part = if self.broken { None } else { self.next(&mut cursor) };
        let Some(part) = part else {
            self.broken = true;
            return (input.len(), Part::Broken);
        };
        self.records.skip_padding(&mut cursor);
        (cursor.at, part)
    }

    fn next<'i>(&mut self, cursor: &mut Cursor<'i>) -> Option<Part<'i>> {
        let kind = match self.open {
            Some(kind) => kind,
            None => {
                let Some(header) = self.records.header(cursor) else {
                    return Some(Part::More);
                };
                let kind = RecordType::from_number(header.kind)?;
                let is_end = kind == RecordType::EndRequest;
                if header.version == 0 || (is_end && usize::from(header.content_length) != END_LENGTH) {
                    return None;
                }
                self.request_id = header.request_id;
                self.end_filled = 0;
                if header.content_length == 0 {
                    return Some(match kind {
                        RecordType::Stdout | RecordType::Stderr => Part::Closed(kind),
                        other => Part::Other(other, &[]),
                    });
                }
                kind
            }
        };
        let piece = self.records.content(cursor, usize::MAX);
        self.open = (self.records.content_left() > 0).then_some(kind);
        if piece.is_empty() {
            return Some(Part::More);
        }
        Some(match kind {
            RecordType::Stdout => Part::Stdout(piece),
            RecordType::Stderr => Part::Stderr(piece),
            RecordType::EndRequest => {
                self.end[self.end_filled..self.end_filled + piece.len()].copy_from_slice(piece);
                self.end_filled += piece.len();
                if self.open.is_some() {
                    return Some(Part::More);
                }
                let [a, b, c, d, status, ..] = self.end;
                Part::End {
                    app_status: u32::from_be_bytes([a, b, c, d]),
                    status: ProtocolStatus::from_number(status)?,
                }
            }
            other => Part::Other(other, piece),
        })
    }
}

#[cfg(test)]
mod tests;
