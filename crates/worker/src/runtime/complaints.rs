//! What a program says to its standard error: for the web server's log, and line by line for the daemon's.

use crate::worker::Request;

/// Bytes of a line that are logged.
const LOGGED_BYTES: usize = 1024;
/// Bytes that are kept until the answer's header has been written.
const MOST_HELD_BYTES: usize = 64 * 1024;

/// Complaints on their way.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    /// A line whose end has not come yet.
    line: Vec<u8>,
    /// What waits for the header: nginx has little room for it before, and would answer 502.
    held: Vec<u8>,
}

impl Complaints {
    /// Keeps bytes for the web server.
    pub(super) fn hold(&mut self, bytes: &[u8]) {
        let room = MOST_HELD_BYTES.saturating_sub(self.held.len());
        self.held.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Gives the web server what is kept for it.
    pub(super) fn let_go(&mut self, request: &mut Request<'_>) {
        if !self.held.is_empty() {
            // A client that is gone is noticed when output is written.
            let _ = request.write_error(&self.held);
            self.held.clear();
        }
    }

    /// Logs the lines that are whole now.
    pub(super) fn log(&mut self, bytes: &[u8], program: &str) {
        self.line.extend_from_slice(bytes);
        while let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
            self.say(end, program);
            self.line.drain(..=end);
        }
        if self.line.len() > LOGGED_BYTES {
            self.log_rest(program);
        }
    }

    /// Logs what is left of a line.
    pub(super) fn log_rest(&mut self, program: &str) {
        if !self.line.is_empty() {
            self.say(self.line.len(), program);
            self.line.clear();
        }
    }

    fn say(&self, end: usize, program: &str) {
        let line = String::from_utf8_lossy(&self.line[..end.min(LOGGED_BYTES)]);
        log::warn!("{program} said into stderr: \"{}\"", line.escape_debug());
    }
}
