//! Encodes a request as FastCGI records.

use crate::cgi_variables::is_passed;
use crate::queue::Queue;
use fastcgi::{HEADER_LENGTH, MAX_CONTENT, RecordType, Request as Wire, header};
use forkyard_sys::socket::{Progress, send};
use forkyard_worker::{ClientGone, Request};
use std::os::fd::BorrowedFd;

pub(super) const REQUEST_ID: u16 = 1;
const MOST_GATHERED: usize = MAX_CONTENT;

#[derive(Debug)]
pub(super) struct Recorded {
    wire: Queue,
    has_ended: bool,
    /// `wire` still contains the request from its beginning.
    is_whole: bool,
    is_closed: bool,
}

impl Recorded {
    pub(super) fn new(request: &Request<'_>, more: &[String]) -> Recorded {
        let params = request.params().iter();
        // Most programs would truncate a value at a zero byte.
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
            wire: Queue::from(wire),
            has_ended: false,
            is_whole: true,
            is_closed: false,
        }
    }

    pub(super) fn has_more(&self) -> bool {
        !self.is_closed && !self.wire.is_empty()
    }

    pub(super) fn wants_body(&self) -> bool {
        !self.is_closed && !self.has_ended && self.wire.is_empty()
    }

    pub(super) fn is_done(&self) -> bool {
        self.has_ended && self.wire.is_empty()
    }

    pub(super) fn is_between_records(&self) -> bool {
        self.wire.is_empty()
    }

    pub(super) fn is_untouched(&self) -> bool {
        self.is_whole && self.wire.is_untouched()
    }

    pub(super) fn rewind(&mut self) -> bool {
        self.wire.rewind();
        self.is_closed = false;
        self.is_whole
    }

    /// Reads available body data if everything before it has been sent, or nothing has. Returns whether there was any.
    /// `buffer` is scratch space.
    pub(super) fn fill(&mut self, request: &mut Request<'_>, buffer: &mut [u8]) -> Result<bool, ClientGone> {
        let is_fresh = self.is_untouched();
        if self.has_ended || self.is_closed || (!self.wire.is_empty() && !is_fresh) {
            return Ok(false);
        }
        self.is_whole &= !self.wire.is_empty();
        let wire = self.wire.room();
        let before = wire.len();
        while wire.len() < MOST_GATHERED {
            let room = buffer.len().min(MAX_CONTENT);
            let Some(count) = request.body_now(&mut buffer[..room])? else {
                break;
            };
            wire.extend_from_slice(&header(RecordType::Stdin, REQUEST_ID, count as u16, 0));
            wire.extend_from_slice(&buffer[..count]);
            if count == 0 {
                self.has_ended = true;
                break;
            }
        }
        Ok(wire.len() > before)
    }

    pub(super) fn send(&mut self, connection: BorrowedFd<'_>) {
        if !self.has_more() {
            return;
        }
        match send(connection, self.wire.rest()) {
            Ok(Progress::Done(count)) => self.wire.advance(count),
            Ok(Progress::WouldBlock) => {}
            Err(_) => self.is_closed = true,
        }
    }
}

pub(super) fn abort() -> [u8; HEADER_LENGTH] {
    header(RecordType::AbortRequest, REQUEST_ID, 0, 0)
}
