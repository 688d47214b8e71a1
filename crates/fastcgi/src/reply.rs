//! Replies of the protocol itself.

use super::pairs::PairHead;
use super::record::{HEADER_LENGTH, ProtocolStatus, RecordType, end_request, header, padding_for};
use std::fmt;

/// A whole record to send between other records.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    bytes: [u8; LONGEST],
    length: usize,
}

const LONGEST: usize = 80;

impl Reply {
    /// The record's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    pub(super) fn end(request_id: u16, status: ProtocolStatus) -> Reply {
        Reply::of(&end_request(request_id, 0, status))
    }

    /// Section 4.2.
    pub(super) fn unknown_type(kind: u8) -> Reply {
        let mut reply = Reply::of(&header(RecordType::UnknownType, 0, 8, 0));
        reply.push(&[kind, 0, 0, 0, 0, 0, 0, 0]);
        reply
    }

    fn of(bytes: &[u8]) -> Reply {
        let mut reply = Reply {
            bytes: [0; LONGEST],
            length: 0,
        };
        reply.push(bytes);
        reply
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reply").field(&self.bytes()).finish()
    }
}

/// Answers to GET_VALUES (section 4.1); `None` omits a value. FCGI_MPXS_CONNS is always 0: a connection carries one
/// request at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Values {
    /// FCGI_MAX_CONNS: limit on connections.
    pub max_connections: Option<u32>,
    /// FCGI_MAX_REQS: limit on concurrent requests.
    pub max_requests: Option<u32>,
}

impl Values {
    /// Answers repeated names once and ignores an incomplete last pair.
    pub(super) fn answer(self, mut question: &[u8]) -> Reply {
        let known: [(&[u8], Option<u32>); 3] = [
            (b"FCGI_MAX_CONNS", self.max_connections),
            (b"FCGI_MAX_REQS", self.max_requests),
            (b"FCGI_MPXS_CONNS", Some(0)),
        ];
        let mut asked = [false; 3];
        while let Some(pair) = PairHead::decode(question)
            && let Some((whole, rest)) = question.split_at_checked(pair.total())
        {
            let name = &whole[pair.head..pair.head + pair.name];
            if let Some(index) = known.iter().position(|(known, _)| *known == name) {
                asked[index] = true;
            }
            question = rest;
        }
        let mut reply = Reply::of(&[0; HEADER_LENGTH]);
        for ((name, value), _) in known.iter().zip(asked).filter(|(_, asked)| *asked) {
            let Some(value) = value else { continue };
            let digits = value.to_string();
            reply.push(&[name.len() as u8, digits.len() as u8]);
            reply.push(name);
            reply.push(digits.as_bytes());
        }
        let content_length = reply.length - HEADER_LENGTH;
        let padding = padding_for(content_length);
        let header = header(RecordType::GetValuesResult, 0, content_length as u16, padding);
        reply.bytes[..HEADER_LENGTH].copy_from_slice(&header);
        reply.length += usize::from(padding);
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::super::pairs::append_pair;
    use super::*;

    fn content(reply: &Reply) -> &[u8] {
        let bytes = reply.bytes();
        let length = usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
        assert_eq!(bytes[..4], [1, RecordType::GetValuesResult as u8, 0, 0]);
        assert_eq!(bytes.len() % 8, 0);
        assert_eq!(bytes.len(), 8 + length + usize::from(bytes[6]));
        &bytes[8..8 + length]
    }

    #[test]
    fn all_values_of_greatest_length_fit() {
        let mut question = Vec::new();
        for name in [
            "FCGI_MAX_CONNS",
            "other",
            "FCGI_MAX_REQS",
            "FCGI_MPXS_CONNS",
            "FCGI_MAX_REQS",
        ] {
            append_pair(&mut question, name.as_bytes(), b"");
        }
        let values = Values {
            max_connections: Some(u32::MAX),
            max_requests: Some(u32::MAX),
        };
        let mut expected = Vec::new();
        append_pair(&mut expected, b"FCGI_MAX_CONNS", b"4294967295");
        append_pair(&mut expected, b"FCGI_MAX_REQS", b"4294967295");
        append_pair(&mut expected, b"FCGI_MPXS_CONNS", b"0");
        let reply = values.answer(&question);
        assert_eq!(content(&reply), expected);
        assert_eq!(reply.bytes().len(), LONGEST);
    }

    #[test]
    fn what_is_unknown_or_cut_is_left_out() {
        let mut question = Vec::new();
        append_pair(&mut question, b"FCGI_MAX_CONNS", b"");
        append_pair(&mut question, b"FCGI_MPXS_CONNS", b"");
        question.pop();
        assert_eq!(content(&Values::default().answer(&question)), b"");
        assert_eq!(Values::default().answer(&[]).bytes().len(), 8);
    }
}
