//! A request as the records that are sent to the program.

use crate::runtime::cgi_variables::is_passed;
use crate::sys::socket::{Progress, send};
use crate::worker::{ClientGone, Request};
use fastcgi::{HEADER_LENGTH, MAX_CONTENT, RecordType, Request as Wire, header};
use std::os::fd::BorrowedFd;

/// The number of every request: a connection has one at a time.
pub(super) const REQUEST_ID: u16 = 1;
/// Bytes that are gathered before they are sent.
const MOST_GATHERED: usize = MAX_CONTENT;

/// The request on its way: whole records that were not sent yet, and the body that is still to come.
#[derive(Debug)]
pub(super) struct Recorded {
    wire: Vec<u8>,
    sent: usize,
    /// All of the body was taken from the client.
    has_ended: bool,
    /// The wire still has the request from its beginning.
    is_whole: bool,
    /// The program has stopped reading.
    is_closed: bool,
}

impl Recorded {
    /// A request that is not sent yet. It asks to keep the connection.
    pub(super) fn new(request: &Request<'_>, more: &[String]) -> Recorded {
        let params = request.params().iter();
        // A program would take what is before a zero byte for all of a value.
        let params: Vec<(&[u8], &[u8])> = params
            .filter(|(name, value)| is_passed(name, more) && !value.contains(&0))
            .collect();
        let mut wire = Vec::new();
        Wire {
            id: REQUEST_ID,
            role: request.role(),
            keep: true,
            params: &params,
            ..Wire::default()
        }
        .encode_head(&mut wire);
        Recorded {
            wire,
            sent: 0,
            has_ended: false,
            is_whole: true,
            is_closed: false,
        }
    }

    /// There is something to be sent.
    pub(super) fn has_more(&self) -> bool {
        !self.is_closed && self.sent < self.wire.len()
    }

    /// The client is to send more of the body.
    pub(super) fn wants_body(&self) -> bool {
        !self.is_closed && !self.has_ended && self.sent == self.wire.len()
    }

    /// The program has been sent everything.
    pub(super) fn is_done(&self) -> bool {
        self.has_ended && self.sent == self.wire.len()
    }

    /// A record can be put in now.
    pub(super) fn is_between_records(&self) -> bool {
        self.sent == self.wire.len()
    }

    /// Nothing was sent.
    pub(super) fn is_untouched(&self) -> bool {
        self.is_whole && self.sent == 0
    }

    /// Begins again, for another connection; `false`: a part of the body is gone.
    pub(super) fn rewind(&mut self) -> bool {
        (self.sent, self.is_closed) = (0, false);
        self.is_whole
    }

    /// Takes what is there of the body, if all before it is sent or nothing is; whether there was anything. `buffer` is room
    /// for it.
    pub(super) fn fill(&mut self, request: &mut Request<'_>, buffer: &mut [u8]) -> Result<bool, ClientGone> {
        let is_fresh = self.is_untouched();
        if self.has_ended || self.is_closed || (self.sent < self.wire.len() && !is_fresh) {
            return Ok(false);
        }
        if self.sent == self.wire.len() {
            self.wire.clear();
            self.sent = 0;
            self.is_whole = false;
        }
        let before = self.wire.len();
        while self.wire.len() < MOST_GATHERED {
            let room = buffer.len().min(MAX_CONTENT);
            let Some(count) = request.body_now(&mut buffer[..room])? else {
                break;
            };
            // An empty record ends the stream (section 3.3).
            self.wire
                .extend_from_slice(&header(RecordType::Stdin, REQUEST_ID, count as u16, 0));
            self.wire.extend_from_slice(&buffer[..count]);
            if count == 0 {
                self.has_ended = true;
                break;
            }
        }
        Ok(self.wire.len() > before)
    }

    /// Sends what fits. A program that has stopped reading is sent nothing more.
    pub(super) fn send(&mut self, connection: BorrowedFd<'_>) {
        if !self.has_more() {
            return;
        }
        match send(connection, &self.wire[self.sent..]) {
            Ok(Progress::Done(count)) => self.sent += count,
            Ok(Progress::WouldBlock) => {}
            Err(_) => self.is_closed = true,
        }
    }
}

/// The record that calls the request off (section 5.4).
pub(super) fn abort() -> [u8; HEADER_LENGTH] {
    header(RecordType::AbortRequest, REQUEST_ID, 0, 0)
}
