//! Bytes that wait for room in a connection.

#[derive(Debug, Default)]
pub(super) struct Queue {
    bytes: Vec<u8>,
    sent: usize,
}

impl Queue {
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub(super) fn is_untouched(&self) -> bool {
        self.sent == 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    pub(super) fn advance(&mut self, count: usize) {
        self.sent = (self.sent + count).min(self.bytes.len());
    }

    /// Where to append bytes. Drops the old ones if all were sent.
    pub(super) fn room(&mut self) -> &mut Vec<u8> {
        if self.is_empty() {
            self.bytes.clear();
            self.sent = 0;
        }
        &mut self.bytes
    }

    /// Sends everything again.
    pub(super) fn rewind(&mut self) {
        self.sent = 0;
    }
}

impl From<Vec<u8>> for Queue {
    fn from(bytes: Vec<u8>) -> Queue {
        Queue { bytes, sent: 0 }
    }
}
