//! The answer to a request, as records.

use super::record::{
    END_REQUEST_LENGTH, HEADER_LENGTH, ProtocolStatus, RecordType, end_request, header, padding_for,
};
use super::reply::Reply;

/// Encodes STDOUT, STDERR and END_REQUEST records into one buffer, so that an answer that fits leaves in one write.
///
/// What is given is gathered in an open record behind a hole for its header, which is filled in when the record is
/// closed: by the other stream, by the end, or because its bytes are wanted.
#[derive(Debug)]
pub struct Output {
    /// Bytes before `sent` are written, the rest is to be.
    buffer: Vec<u8>,
    sent: usize,
    open: Option<Open>,
    request_id: u16,
    answer: OutputState,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    kind: RecordType,
    /// Where its header goes.
    at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputState {
    Answering,
    Ended,
}

const CAPACITY: usize = 64 * 1024;

/// Kept free for the end: padding of the open record, END_REQUEST.
const RESERVED: usize = 7 + END_REQUEST_LENGTH;

impl Output {
    /// An empty buffer of 64 KiB, before any answer.
    pub fn new() -> Output {
        Output {
            buffer: Vec::with_capacity(CAPACITY),
            sent: 0,
            open: None,
            request_id: 0,
            answer: OutputState::Ended,
        }
    }

    /// Starts the answer to a request. What is pending of an earlier one stays in front of it.
    pub fn begin(&mut self, request_id: u16) {
        self.close();
        self.request_id = request_id;
        self.answer = OutputState::Answering;
    }

    /// Adds to the answer; says how many bytes were taken. Fewer than given means full: write [`Output::pending`] first.
    /// Between [`Output::end`] and [`Output::begin`] there is no answer to add to, and all is taken and dropped.
    pub fn stdout(&mut self, bytes: &[u8]) -> usize {
        self.append(RecordType::Stdout, bytes)
    }

    /// Adds error text, between what was and what will be given to [`Output::stdout`]; in all else alike.
    pub fn stderr(&mut self, bytes: &[u8]) -> usize {
        self.append(RecordType::Stderr, bytes)
    }

    /// Ends the answer with END_REQUEST. There is always room for it. A second end does nothing.
    ///
    /// No empty record closes STDOUT or STDERR before it (section 5.3), as php-fpm sends none either: nginx takes an empty
    /// STDOUT record on a kept connection for the end of a whole answer, even if bytes of its Content-Length are missing.
    pub fn end(&mut self, app_status: u32, status: ProtocolStatus) {
        if self.answer == OutputState::Ended {
            return;
        }
        self.close();
        self.answer = OutputState::Ended;
        self.buffer
            .extend_from_slice(&end_request(self.request_id, app_status, status));
    }

    /// Puts a record of the protocol's own between those of the answer; false, and nothing done, if it is full.
    pub fn reply(&mut self, reply: &Reply) -> bool {
        let record = reply.bytes();
        self.make_room(record.len());
        if self.spare(RESERVED) < record.len() {
            return false;
        }
        self.close();
        self.buffer.extend_from_slice(record);
        true
    }

    /// The bytes that are to be written, whole records from the first that wasn't. Closes the open record.
    pub fn pending(&mut self) -> &[u8] {
        self.close();
        &self.buffer[self.sent..]
    }

    /// The first `count` pending bytes were written.
    pub fn consume(&mut self, count: usize) {
        let complete = self.open.map_or(self.buffer.len(), |open| open.at);
        self.sent = self.sent.saturating_add(count).min(complete);
        if self.sent == self.buffer.len() {
            self.buffer.clear();
            self.sent = 0;
        }
    }

    /// Ends the answer and forgets what is pending: its client is gone, and no other client may get it.
    pub fn abandon(&mut self) {
        self.buffer.clear();
        self.sent = 0;
        self.open = None;
        self.answer = OutputState::Ended;
    }

    /// Nothing is to be written.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// How many bytes [`Output::stdout`] would take at once.
    pub fn room(&self) -> usize {
        self.spare(RESERVED + self.cost_of(RecordType::Stdout))
    }

    fn append(&mut self, kind: RecordType, bytes: &[u8]) -> usize {
        if bytes.is_empty() || self.answer == OutputState::Ended {
            return bytes.len();
        }
        self.make_room(bytes.len() + HEADER_LENGTH);
        let taken = bytes.len().min(self.spare(RESERVED + self.cost_of(kind)));
        if taken == 0 {
            return 0;
        }
        if self.open.is_none_or(|open| open.kind != kind) {
            self.close();
            self.open = Some(Open {
                kind,
                at: self.buffer.len(),
            });
            self.buffer.extend_from_slice(&[0; HEADER_LENGTH]);
        }
        self.buffer.extend_from_slice(&bytes[..taken]);
        taken
    }

    /// What it takes to go on with a record of `kind`: nothing, or a header and the padding of the record before.
    fn cost_of(&self, kind: RecordType) -> usize {
        match self.open {
            Some(open) if open.kind == kind => 0,
            Some(open) => usize::from(padding_for(self.length_of(open))) + HEADER_LENGTH,
            None => HEADER_LENGTH,
        }
    }

    fn length_of(&self, open: Open) -> usize {
        self.buffer.len() - open.at - HEADER_LENGTH
    }

    fn spare(&self, reserved: usize) -> usize {
        CAPACITY.saturating_sub(self.buffer.len() + reserved)
    }

    /// Moves what is pending to the front when that is needed, and cheaper than what it gains.
    fn make_room(&mut self, wanted: usize) {
        let pending = self.buffer.len() - self.sent;
        if self.sent < pending || self.sent == 0 || self.spare(RESERVED) >= wanted {
            return;
        }
        self.buffer.copy_within(self.sent.., 0);
        self.buffer.truncate(pending);
        if let Some(open) = &mut self.open {
            open.at -= self.sent;
        }
        self.sent = 0;
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let length = self.length_of(open);
        let padding = padding_for(length);
        // The buffer is smaller than the longest record, so the length fits.
        let header = header(open.kind, self.request_id, length as u16, padding);
        self.buffer[open.at..open.at + HEADER_LENGTH].copy_from_slice(&header);
        self.buffer.extend_from_slice(&[0; 8][..usize::from(padding)]);
    }
}

impl Default for Output {
    fn default() -> Output {
        Output::new()
    }
}

#[cfg(test)]
mod tests;
