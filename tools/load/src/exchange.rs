//! One answer, from its first byte to its end.

use fastcgi::{Answer, Part, ProtocolStatus};

/// Assembles an answer from bytes, without I/O.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    answer: Answer,
    /// The answer's header so far, until the status is known.
    head: Vec<u8>,
    head_ended: bool,
    status: u16,
}

/// The progress of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Unfinished,
    /// Complete, with this HTTP status.
    Finished(u16),
    /// Invalid FastCGI, or refused by the protocol.
    Refused,
}

/// A header longer than this is not searched further.
const MOST_HEAD: usize = 16 * 1024;

impl Exchange {
    /// Awaits the next answer on the same connection.
    pub(crate) fn next(&mut self) {
        self.head.clear();
        self.head_ended = false;
        self.status = 200;
    }

    /// Awaits the first answer of a new connection.
    pub(crate) fn restart(&mut self) {
        self.answer = Answer::new();
        self.next();
    }

    pub(crate) fn receive(&mut self, mut input: &[u8]) -> Progress {
        loop {
            let (consumed, part) = self.answer.receive(input);
            input = &input[consumed..];
            match part {
                Part::More => return Progress::Unfinished,
                Part::Stdout(piece) => self.see(piece),
                Part::Stderr(_) | Part::Closed(_) | Part::Other(..) => {}
                Part::End {
                    status: ProtocolStatus::RequestComplete,
                    ..
                } if input.is_empty() => {
                    return Progress::Finished(self.status);
                }
                Part::End { .. } | Part::Broken => return Progress::Refused,
            }
        }
    }

    fn see(&mut self, piece: &[u8]) {
        if self.head_ended {
            return;
        }
        let room = MOST_HEAD - self.head.len();
        self.head.extend_from_slice(&piece[..piece.len().min(room)]);
        if let Some(status) = status(&self.head) {
            (self.status, self.head_ended) = (status, true);
        } else if self.head.len() == MOST_HEAD {
            self.head_ended = true;
        }
    }
}

/// The status of a complete header: its Status line's, or 200. `None` while the header is incomplete.
fn status(head: &[u8]) -> Option<u16> {
    let mut status = 200;
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\n")?.trim_ascii() {
            [] => return Some(status),
            line => {
                if let Some((name, value)) = line.split_first_chunk::<7>()
                    && name.eq_ignore_ascii_case(b"status:")
                {
                    let digits = value
                        .trim_ascii_start()
                        .get(..3)
                        .and_then(|code| std::str::from_utf8(code).ok());
                    status = digits.and_then(|code| code.parse().ok()).unwrap_or(0);
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastcgi::Output;

    fn answered(text: &[u8], status: ProtocolStatus, cut: usize) -> Progress {
        let mut output = Output::new();
        output.begin(1);
        output.stdout(text);
        output.end(0, status);
        let mut exchange = Exchange::default();
        exchange.restart();
        let mut progress = Progress::Unfinished;
        for piece in output.pending().chunks(cut) {
            assert_eq!(progress, Progress::Unfinished);
            progress = exchange.receive(piece);
        }
        progress
    }

    #[test]
    fn the_status_is_found_wherever_the_answer_is_cut() {
        let cases: [(&[u8], u16); 4] = [
            (b"Content-Type: text/html\r\n\r\nStatus: 500\r\n\r\n", 200),
            (b"Status: 404 Not Found\r\nContent-Type: text/html\r\n\r\n", 404),
            (b"X: y\nstatus:503\n\n", 503),
            (b"no header at all", 200),
        ];
        for (text, status) in cases {
            for cut in 1..100 {
                assert_eq!(
                    answered(text, ProtocolStatus::RequestComplete, cut),
                    Progress::Finished(status),
                    "cut {cut}"
                );
            }
        }
    }

    #[test]
    fn refusal_is_no_answer() {
        assert_eq!(answered(b"", ProtocolStatus::Overloaded, 1000), Progress::Refused);
        let mut exchange = Exchange::default();
        exchange.restart();
        assert_eq!(exchange.receive(b"HTTP/1.1 200 OK"), Progress::Refused);
    }
}
