//! Captures the beginning and the end of a process's output.

use std::collections::VecDeque;

const HEAD: usize = 16 * 1024;
const TAIL: usize = 48 * 1024;

#[derive(Debug, Clone, Default)]
pub struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    skipped: u64,
}

impl Capture {
    pub fn push(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(HEAD - self.head.len()));
        self.head.extend_from_slice(first);
        self.tail.extend(rest);
        let surplus = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..surplus);
        self.skipped += surplus as u64;
    }

    /// Returns the captured text, with a note where text is omitted.
    pub fn text(&self) -> String {
        let mut bytes = self.head.clone();
        if self.skipped > 0 {
            bytes.extend_from_slice(format!("\n[… {} bytes left out …]\n", self.skipped).as_bytes());
        }
        bytes.extend(&self.tail);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_and_the_end_are_kept() {
        let mut capture = Capture::default();
        capture.push(b"first");
        assert_eq!(capture.text(), "first");
        for _ in 0..100 {
            capture.push(&[b'x'; 8192]);
        }
        capture.push(b"last");
        let text = capture.text();
        assert!(text.starts_with("first") && text.ends_with("last"));
        assert!(text.len() < HEAD + TAIL + 100);
        let left_out = 5 + 100 * 8192 + 4 - HEAD - TAIL;
        assert!(text.contains(&format!("[… {left_out} bytes left out …]")));
    }
}
