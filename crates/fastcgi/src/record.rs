//! Records (section 3.3) and constants (section 8).

/// Length of a record's header (section 3.3).
pub const HEADER_LENGTH: usize = 8;

/// Maximum content that we put in a record: the largest multiple of 8 in 16 bits, so that full records need no padding.
pub const MAX_CONTENT: usize = 65_528;

/// The only protocol version.
pub const VERSION: u8 = 1;

/// Record type (section 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RecordType {
    /// Starts a request (section 5.1).
    BeginRequest = 1,
    /// Cancels a request (section 5.4).
    AbortRequest = 2,
    /// Ends an answer (section 5.5).
    EndRequest = 3,
    /// Name-value pairs (section 5.2).
    Params = 4,
    /// Request body (section 5.3).
    Stdin = 5,
    /// Answer (section 5.3).
    Stdout = 6,
    /// Error text (section 5.3).
    Stderr = 7,
    /// Input of a filter (section 5.3).
    Data = 8,
    /// Asks for limits (section 4.1).
    GetValues = 9,
    /// Answers GET_VALUES (section 4.1).
    GetValuesResult = 10,
    /// Answers an unknown management record (section 4.2).
    UnknownType = 11,
}

/// Role of the application (section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Role {
    /// Answers HTTP requests (section 6.2).
    Responder = 1,
    /// Authorizes requests (section 6.3).
    Authorizer = 2,
    /// Filters a file (section 6.4).
    Filter = 3,
}

/// Protocol status of an ended request (section 5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ProtocolStatus {
    /// Normal end.
    RequestComplete = 0,
    /// Rejected: a connection carries one request at a time.
    CantMultiplex = 1,
    /// Rejected: out of resources.
    Overloaded = 2,
    /// Rejected: unknown role.
    UnknownRole = 3,
}

impl RecordType {
    /// Returns the value with this number, if the protocol defines it.
    pub fn from_number(number: u8) -> Option<RecordType> {
        Some(match number {
            1 => RecordType::BeginRequest,
            2 => RecordType::AbortRequest,
            3 => RecordType::EndRequest,
            4 => RecordType::Params,
            5 => RecordType::Stdin,
            6 => RecordType::Stdout,
            7 => RecordType::Stderr,
            8 => RecordType::Data,
            9 => RecordType::GetValues,
            10 => RecordType::GetValuesResult,
            11 => RecordType::UnknownType,
            _ => return None,
        })
    }
}

impl Role {
    /// Returns the value with this number, if the protocol defines it.
    pub fn from_number(number: u16) -> Option<Role> {
        Some(match number {
            1 => Role::Responder,
            2 => Role::Authorizer,
            3 => Role::Filter,
            _ => return None,
        })
    }
}

impl ProtocolStatus {
    /// Returns the value with this number, if the protocol defines it.
    pub fn from_number(number: u8) -> Option<ProtocolStatus> {
        Some(match number {
            0 => ProtocolStatus::RequestComplete,
            1 => ProtocolStatus::CantMultiplex,
            2 => ProtocolStatus::Overloaded,
            3 => ProtocolStatus::UnknownRole,
            _ => return None,
        })
    }
}

impl Role {
    /// The role's name.
    pub fn name(self) -> &'static str {
        match self {
            Role::Responder => "RESPONDER",
            Role::Authorizer => "AUTHORIZER",
            Role::Filter => "FILTER",
        }
    }
}

/// A decoded, unchecked record header (section 3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Protocol version; must be 1.
    pub version: u8,
    /// Number of a [`RecordType`], known or not.
    pub kind: u8,
    /// Request id; 0 for management records.
    pub request_id: u16,
    /// Length of the content.
    pub content_length: u16,
    /// Length of the padding.
    pub padding_length: u8,
}

impl Header {
    /// Decodes a header.
    pub fn decode(bytes: [u8; HEADER_LENGTH]) -> Header {
        let [
            version,
            kind,
            id_high,
            id_low,
            length_high,
            length_low,
            padding_length,
            _reserved,
        ] = bytes;
        Header {
            version,
            kind,
            request_id: u16::from_be_bytes([id_high, id_low]),
            content_length: u16::from_be_bytes([length_high, length_low]),
            padding_length,
        }
    }
}

/// Encodes a header whose content is written separately.
pub fn header(kind: RecordType, request_id: u16, content_length: u16, padding: u8) -> [u8; HEADER_LENGTH] {
    let [id_high, id_low] = request_id.to_be_bytes();
    let [length_high, length_low] = content_length.to_be_bytes();
    [
        VERSION,
        kind as u8,
        id_high,
        id_low,
        length_high,
        length_low,
        padding,
        0,
    ]
}

pub(super) const END_REQUEST_LENGTH: usize = HEADER_LENGTH + 8;

/// Encodes an END_REQUEST record (section 5.5).
pub fn end_request(request_id: u16, app_status: u32, status: ProtocolStatus) -> [u8; END_REQUEST_LENGTH] {
    let mut record = [0; END_REQUEST_LENGTH];
    record[..HEADER_LENGTH].copy_from_slice(&header(RecordType::EndRequest, request_id, 8, 0));
    record[8..12].copy_from_slice(&app_status.to_be_bytes());
    record[12] = status as u8;
    record
}

/// Recommended by section 3.3.
pub(super) fn padding_for(content_length: usize) -> u8 {
    (content_length.wrapping_neg() & 7) as u8
}

pub(super) struct Cursor<'i> {
    input: &'i [u8],
    pub(super) at: usize,
}

impl<'i> Cursor<'i> {
    pub(super) fn new(input: &'i [u8]) -> Cursor<'i> {
        Cursor { input, at: 0 }
    }

    pub(super) fn take(&mut self, most: usize) -> &'i [u8] {
        let rest = self.input.get(self.at..).unwrap_or_default();
        let taken = &rest[..most.min(rest.len())];
        self.at += taken.len();
        taken
    }

    fn take_header(&mut self) -> Option<[u8; HEADER_LENGTH]> {
        let header = *self.input.get(self.at..)?.first_chunk()?;
        self.at += HEADER_LENGTH;
        Some(header)
    }
}

#[derive(Debug, Default)]
pub(super) struct Records {
    partial: [u8; HEADER_LENGTH],
    filled: usize,
    content_left: usize,
    padding_left: usize,
}

impl Records {
    /// The previous content must be consumed.
    pub(super) fn header(&mut self, cursor: &mut Cursor<'_>) -> Option<Header> {
        debug_assert_eq!(self.content_left, 0);
        self.skip_padding(cursor);
        if self.padding_left > 0 {
            return None;
        }
        let bytes = if self.filled == 0
            && let Some(whole) = cursor.take_header()
        {
            whole
        } else {
            let more = cursor.take(HEADER_LENGTH - self.filled);
            self.partial[self.filled..self.filled + more.len()].copy_from_slice(more);
            self.filled += more.len();
            if self.filled < HEADER_LENGTH {
                return None;
            }
            self.filled = 0;
            self.partial
        };
        let header = Header::decode(bytes);
        self.content_left = usize::from(header.content_length);
        self.padding_left = usize::from(header.padding_length);
        Some(header)
    }

    pub(super) fn content<'i>(&mut self, cursor: &mut Cursor<'i>, most: usize) -> &'i [u8] {
        let piece = cursor.take(self.content_left.min(most));
        self.content_left -= piece.len();
        piece
    }

    pub(super) fn content_left(&self) -> usize {
        self.content_left
    }

    pub(super) fn skip_padding(&mut self, cursor: &mut Cursor<'_>) {
        if self.content_left == 0 && self.padding_left > 0 {
            self.padding_left -= cursor.take(self.padding_left).len();
        }
    }

    pub(super) fn is_at_boundary(&self) -> bool {
        self.filled == 0 && self.content_left == 0 && self.padding_left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_round_trip() {
        let bytes = header(RecordType::Stdout, 0x1234, 0xfedc, 7);
        assert_eq!(bytes, [1, 6, 0x12, 0x34, 0xfe, 0xdc, 7, 0]);
        let expected = Header {
            version: 1,
            kind: 6,
            request_id: 0x1234,
            content_length: 0xfedc,
            padding_length: 7,
        };
        assert_eq!(Header::decode(bytes), expected);
    }

    #[test]
    fn every_number_maps_to_itself() {
        for number in 0..=255u8 {
            if let Some(kind) = RecordType::from_number(number) {
                assert_eq!(kind as u8, number);
            }
            if let Some(status) = ProtocolStatus::from_number(number) {
                assert_eq!(status as u8, number);
            }
            if let Some(role) = Role::from_number(u16::from(number)) {
                assert_eq!(role as u16, u16::from(number));
            }
        }
        assert_eq!(RecordType::from_number(12), None);
    }

    #[test]
    fn padding_completes_eight_bytes() {
        assert_eq!([0, 1, 7, 8, 9, MAX_CONTENT].map(padding_for), [0, 7, 1, 0, 7, 0]);
    }

    #[test]
    fn end_request_has_no_stray_bytes() {
        let record = end_request(0x0102, 0x0a0b_0c0d, ProtocolStatus::Overloaded);
        assert_eq!(
            record,
            [1, 3, 1, 2, 0, 8, 0, 0, 0x0a, 0x0b, 0x0c, 0x0d, 2, 0, 0, 0]
        );
    }

    #[test]
    fn records_are_found_in_single_bytes() {
        let mut wire = Vec::new();
        wire.extend_from_slice(&header(RecordType::Stdin, 1, 3, 5));
        wire.extend_from_slice(b"abc\0\0\0\0\0");
        wire.extend_from_slice(&header(RecordType::Stdin, 1, 0, 0));
        let mut records = Records::default();
        let (mut headers, mut content) = (0, Vec::new());
        for byte in wire.chunks(1) {
            let mut cursor = Cursor::new(byte);
            if records.content_left() > 0 {
                content.extend_from_slice(records.content(&mut cursor, usize::MAX));
            } else if records.header(&mut cursor).is_some() {
                headers += 1;
            }
            assert_eq!(cursor.at, 1);
        }
        assert_eq!((headers, content.as_slice()), (2, &b"abc"[..]));
        assert!(records.is_at_boundary());
    }
}
