//! Encodes the answer to a request.

use super::record::{
    END_REQUEST_LENGTH, HEADER_LENGTH, ProtocolStatus, RecordType, end_request, header, padding_for,
};
use super::reply::Reply;

/// Encodes STDOUT, STDERR and END_REQUEST records into one buffer, so that a short answer needs one write.
///
/// Content is collected in an open record. Content of the other stream, the end or a write closes the record, and fills in
/// its header.
#[derive(Debug)]
pub struct Output {
    buffer: Vec<u8>,
    sent: usize,
    open: Option<Open>,
    request_id: u16,
    is_answering: bool,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    kind: RecordType,
    at: usize,
}

const CAPACITY: usize = 64 * 1024;

/// Reserved for padding and END_REQUEST.
const RESERVED: usize = 7 + END_REQUEST_LENGTH;

impl Output {
    /// Creates an empty buffer of 64 KiB.
    pub fn new() -> Output {
        Output {
            buffer: Vec::with_capacity(CAPACITY),
            sent: 0,
            open: None,
            request_id: 0,
            is_answering: false,
        }
    }

    /// Starts an answer behind any pending bytes.
    pub fn begin(&mut self, request_id: u16) {
        self.close();
        self.request_id = request_id;
        self.is_answering = true;
    }

    /// Adds to the answer; returns how many bytes were taken. If fewer than given, write [`Output::pending`] first.
    /// Outside [`Output::begin`] and [`Output::end`] all bytes are taken and discarded.
    pub fn stdout(&mut self, bytes: &[u8]) -> usize {
        self.append(RecordType::Stdout, bytes)
    }

    /// Adds error text, otherwise like [`Output::stdout`].
    pub fn stderr(&mut self, bytes: &[u8]) -> usize {
        self.append(RecordType::Stderr, bytes)
    }

    /// Ends the answer with END_REQUEST, which always has room. Idempotent.
    ///
    /// Sends no empty STDOUT or STDERR record (section 5.3), like php-fpm: on a kept connection nginx takes an empty
    /// STDOUT record for the end of the answer, even if bytes of its Content-Length are missing.
    pub fn end(&mut self, app_status: u32, status: ProtocolStatus) {
        if !self.is_answering {
            return;
        }
        self.close();
        self.is_answering = false;
        self.buffer
            .extend_from_slice(&end_request(self.request_id, app_status, status));
    }

    /// Inserts a protocol record between the answer's records; `false` if the buffer is full.
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

    /// Closes the open record and returns the bytes to write, which start at a record.
    pub fn pending(&mut self) -> &[u8] {
        self.close();
        &self.buffer[self.sent..]
    }

    /// Removes written bytes.
    pub fn consume(&mut self, count: usize) {
        let complete = self.open.map_or(self.buffer.len(), |open| open.at);
        self.sent = self.sent.saturating_add(count).min(complete);
        if self.sent == self.buffer.len() {
            self.buffer.clear();
            self.sent = 0;
        }
    }

    /// Ends the answer and discards pending bytes: the client is gone, and no other client may get them.
    pub fn abandon(&mut self) {
        self.buffer.clear();
        self.sent = 0;
        self.open = None;
        self.is_answering = false;
    }

    /// Whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// How many bytes [`Output::stdout`] would take.
    pub fn room(&self) -> usize {
        self.spare(RESERVED + self.cost_of(RecordType::Stdout))
    }

    fn append(&mut self, kind: RecordType, bytes: &[u8]) -> usize {
        if bytes.is_empty() || !self.is_answering {
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
