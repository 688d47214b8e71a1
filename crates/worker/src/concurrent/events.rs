//! Encodes events for the event loop of another language.
//!
//! A record starts with four 32-bit numbers in native order: kind, length of the rest, and the request's id in two
//! halves. See `forkyard.h`.

use fastcgi::Params;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum EventKind {
    Request = 1,
    Body = 2,
    Gone = 3,
    Writable = 4,
    /// The request timed out and was answered.
    Expired = 5,
    Work = 6,
    End = 7,
}

impl EventKind {
    const ALL: [EventKind; 7] = [
        EventKind::Request,
        EventKind::Body,
        EventKind::Gone,
        EventKind::Writable,
        EventKind::Expired,
        EventKind::Work,
        EventKind::End,
    ];

    pub(super) fn from_number(number: u32) -> Option<EventKind> {
        EventKind::ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

pub(super) const HEAD_BYTES: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Events {
    pub(super) bytes: Vec<u8>,
}

impl Events {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn take(&mut self, memory: &mut Vec<u8>) {
        memory.clear();
        std::mem::swap(memory, &mut self.bytes);
    }

    pub(super) fn put(&mut self, kind: EventKind, token: u64) {
        self.open(kind, token);
    }

    /// Omits parameters that contain a NUL or have no name.
    pub(super) fn request(&mut self, token: u64, params: &Params, body: &[u8], is_whole: bool) {
        let at = self.open(EventKind::Request, token);
        let lengths = self.bytes.len();
        for _ in 0..2 {
            self.number(0);
        }
        self.number(u32::from(is_whole));
        let clean = || {
            let is_clean = |(name, value): &(&[u8], &[u8])| {
                !name.is_empty() && !name.contains(&0) && !value.contains(&0)
            };
            params.iter().filter(is_clean)
        };
        let names = self.bytes.len();
        for (name, _) in clean() {
            self.bytes.extend_from_slice(name);
            self.bytes.push(0);
        }
        let values = self.bytes.len();
        for (_, value) in clean() {
            self.bytes.extend_from_slice(value);
            self.bytes.push(0);
        }
        let end = self.bytes.len();
        self.set(lengths, (values - names) as u32);
        self.set(lengths + 4, (end - values) as u32);
        self.bytes.extend_from_slice(body);
        self.close(at);
    }

    fn open(&mut self, kind: EventKind, token: u64) -> usize {
        let at = self.bytes.len();
        self.number(kind as u32);
        self.number(0);
        self.bytes.extend_from_slice(&token.to_ne_bytes());
        at
    }

    fn close(&mut self, at: usize) {
        let length = self.bytes.len() - at - HEAD_BYTES;
        self.set(at + 4, length as u32);
    }

    fn number(&mut self, number: u32) {
        self.bytes.extend_from_slice(&number.to_ne_bytes());
    }

    fn set(&mut self, at: usize, number: u32) {
        self.bytes[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(bytes: &[u8]) -> Vec<u32> {
        let four = bytes.chunks_exact(4);
        four.map(|four| u32::from_ne_bytes(four.try_into().unwrap()))
            .collect()
    }

    #[test]
    fn records_follow_each_other_and_say_how_long_they_are() {
        let mut events = Events::default();
        let mut params = Params::new();
        params.set(b"A", b"one");
        params.set(b"B\0C", b"two");
        params.set(b"D", b"th\0ree");
        params.set(b"", b"nameless");
        params.set(b"E", b"");
        events.request(7, &params, b"body", true);
        events.put(EventKind::Gone, 7);
        events.put(EventKind::Body, 8);
        let mut bytes = vec![1, 2, 3];
        events.take(&mut bytes);
        assert!(events.is_empty());
        assert_eq!(numbers(&bytes[..8]), [EventKind::Request as u32, 12 + 4 + 5 + 4]);
        assert_eq!(bytes[8..16], 7_u64.to_ne_bytes());
        assert_eq!(numbers(&bytes[16..28]), [4, 5, 1]);
        assert_eq!(&bytes[28..41], b"A\0E\0one\0\0body");
        assert_eq!(numbers(&bytes[41..49]), [EventKind::Gone as u32, 0]);
        assert_eq!(numbers(&bytes[57..65]), [EventKind::Body as u32, 0]);
        assert_eq!(bytes[65..], 8_u64.to_ne_bytes());
    }
}
