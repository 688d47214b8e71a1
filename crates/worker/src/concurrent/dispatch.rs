//! Requests for the runtime's threads, and what the threads wait for ([`super::threads`]).

use super::events::{EventKind, Events};
use fastcgi::Params;
use std::collections::VecDeque;

const SPARES: usize = 32;
const SPARE_BYTES: usize = 16 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Request,
    Client,
}

#[derive(Debug, Default)]
pub(super) struct Dispatch {
    requests: VecDeque<(u64, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    given: usize,
    /// Timed-out requests among them; their threads may never return.
    expired: Vec<u64>,
    pub is_watched: bool,
    idle: usize,
    held: usize,
    pub main_thread_sleeps: bool,
    works: bool,
    end: Option<bool>,
}

impl Dispatch {
    pub(super) fn give(&mut self, token: u64, params: &Params, body: &[u8], is_whole: bool) {
        self.given += 1;
        let bytes = self.spare.pop().unwrap_or_default();
        let mut record = Events { bytes };
        record.request(token, params, body, is_whole);
        self.requests.push_back((token, record.bytes));
    }

    pub(super) fn take(&mut self, memory: &mut Vec<u8>) -> Option<u64> {
        let (token, record) = self.requests.pop_front()?;
        let mut used = std::mem::replace(memory, record);
        if self.spare.len() < SPARES && used.capacity() <= SPARE_BYTES {
            used.clear();
            self.spare.push(used);
        }
        Some(token)
    }

    pub(super) fn untaken(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn come_back(&mut self, token: u64) {
        self.given = self.given.saturating_sub(1);
        self.expired.retain(|expired| *expired != token);
    }

    pub(super) fn given(&self) -> usize {
        self.given
    }

    pub(super) fn is_waited_for(&self) -> bool {
        self.given > self.expired.len()
    }

    pub(super) fn has_expired(&self) -> bool {
        !self.expired.is_empty()
    }

    /// Threads that wait for a client check again after any event.
    pub(super) fn hear(&mut self, kind: EventKind, token: u64) {
        match kind {
            EventKind::Expired => self.expired.push(token),
            EventKind::Work => self.works = true,
            EventKind::End => self.end = Some(token == 1),
            EventKind::Request | EventKind::Body | EventKind::Gone | EventKind::Writable => {}
        }
    }

    pub(super) fn take_work(&mut self) -> bool {
        std::mem::take(&mut self.works)
    }

    pub(super) fn end(&self) -> Option<bool> {
        self.end
    }

    pub(super) fn has_news(&self) -> bool {
        self.works || self.end.is_some()
    }

    pub(super) fn waiting(&mut self, wait: Wait) -> &mut usize {
        match wait {
            Wait::Request => &mut self.idle,
            Wait::Client => &mut self.held,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_taken_in_order_and_their_memory_is_used_again() {
        let mut dispatch = Dispatch::default();
        let mut params = Params::new();
        params.set(b"A", b"one");
        dispatch.give(7, &params, b"", true);
        dispatch.give(8, &params, b"body", false);
        assert_eq!((dispatch.untaken(), dispatch.given()), (2, 2));
        let mut memory = Vec::new();
        assert_eq!(dispatch.take(&mut memory), Some(7));
        assert!(memory.ends_with(b"A\0one\0"));
        assert_eq!(dispatch.take(&mut memory), Some(8));
        assert!(memory.ends_with(b"A\0one\0body"));
        assert_eq!((dispatch.spare.len(), dispatch.take(&mut memory)), (2, None));
        dispatch.come_back(7);
        assert_eq!(dispatch.given(), 1);
        assert!(memory.ends_with(b"body"), "nothing has taken its place");
    }

    #[test]
    fn a_thread_whose_time_was_up_is_not_waited_for() {
        let mut dispatch = Dispatch::default();
        for token in [7, 8] {
            dispatch.give(token, &Params::new(), b"", true);
        }
        dispatch.hear(EventKind::Expired, 7);
        assert!(dispatch.is_waited_for() && dispatch.has_expired());
        dispatch.come_back(8);
        assert!(!dispatch.is_waited_for());
        assert_eq!(dispatch.given(), 1, "it takes up nothing new");
        dispatch.come_back(7);
        assert!(!dispatch.is_waited_for() && !dispatch.has_expired());
    }

    #[test]
    fn work_is_said_once_and_the_end_for_good() {
        let mut dispatch = Dispatch::default();
        assert!(!dispatch.has_news());
        dispatch.hear(EventKind::Work, 0);
        assert!(dispatch.has_news() && dispatch.take_work() && !dispatch.take_work());
        dispatch.hear(EventKind::End, 1);
        assert!(dispatch.has_news());
        assert_eq!((dispatch.end(), dispatch.end()), (Some(true), Some(true)));
    }
}
