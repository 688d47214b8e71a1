//! Passes a program's standard error to the web server, and line by line to the daemon's log.

use forkyard_worker::Request;

const LOGGED_BYTES: usize = 1024;
const MOST_HELD_BYTES: usize = 1024 * 1024;

#[derive(Debug, Default)]
pub(super) struct Complaints {
    line: Vec<u8>,
    /// Held until after the header: before it, nginx has little room and would answer 502.
    held: Vec<u8>,
}

impl Complaints {
    /// Takes more of it. `has_head`: the answer's header has been sent.
    pub(super) fn take(&mut self, bytes: &[u8], request: &mut Request<'_>, has_head: bool, program: &str) {
        let room = MOST_HELD_BYTES.saturating_sub(self.held.len());
        self.held.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if has_head {
            self.let_go(request);
        }
        if request.catches_output() {
            self.log(bytes, program);
        }
    }

    pub(super) fn let_go(&mut self, request: &mut Request<'_>) {
        if !self.held.is_empty() {
            let _ = request.write_error(&self.held);
            self.held.clear();
        }
    }

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
