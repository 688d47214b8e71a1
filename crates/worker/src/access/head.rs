//! Reads the headers of an application's answer.

const HEAD_BYTES: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(crate) struct AnswerHead {
    bytes: Vec<u8>,
    pub(crate) is_over: bool,
}

impl AnswerHead {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.is_over = false;
    }

    pub(crate) fn take(&mut self, bytes: &[u8]) {
        if self.is_over {
            return;
        }
        let before = self.bytes.len();
        let room = HEAD_BYTES - before;
        let from = before.saturating_sub(3);
        let mut at = 0;
        while at < bytes.len().min(room) {
            let line = bytes[at..].iter().position(|byte| *byte == b'\n');
            let end = line.map_or(bytes.len(), |length| at + length + 1);
            self.bytes.extend_from_slice(&bytes[at..end]);
            at = end;
            let tail = &self.bytes[from.min(self.bytes.len())..];
            if tail.ends_with(b"\n\r\n") || tail.ends_with(b"\n\n") || matches!(&*self.bytes, b"\r\n" | b"\n")
            {
                self.is_over = true;
                return;
            }
        }
        self.is_over = self.bytes.len() >= HEAD_BYTES;
    }

    fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes
            .split(|byte| *byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
    }

    pub(crate) fn status(&self) -> u16 {
        let said = self.lines().enumerate().find_map(|(index, line)| {
            let rest = match line.get(..7) {
                Some(name) if name.eq_ignore_ascii_case(b"status:") => &line[7..],
                Some(name) if index == 0 && name.starts_with(b"HTTP/") => {
                    &line[line.iter().position(|byte| *byte == b' ')?..]
                }
                _ => return None,
            };
            let digits = rest.trim_ascii_start().get(..3)?;
            std::str::from_utf8(digits).ok()?.parse().ok()
        });
        said.unwrap_or(200)
    }

    pub(super) fn value(&self, name: &str) -> Option<&[u8]> {
        self.lines().find_map(|line| {
            let value = line.strip_prefix(name.as_bytes())?.strip_prefix(b": ")?;
            (!value.is_empty()).then_some(value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::AnswerHead;

    #[test]
    fn headers_are_read_however_they_come() {
        let answer = b"Status: 404 Not Found\r\nX-A: one\r\nX-A: two\r\n\r\nX-B: body\r\nStatus: 200\r\n";
        for size in 1..answer.len() {
            let mut head = AnswerHead::default();
            answer.chunks(size).for_each(|chunk| head.take(chunk));
            assert_eq!(head.status(), 404);
            assert_eq!(head.value("X-A"), Some(b"one".as_slice()));
            assert_eq!(head.value("x-a"), None);
            assert_eq!(head.value("X-B"), None, "{size}");
        }
    }

    #[test]
    fn other_beginnings() {
        for (answer, status) in [
            (&b"HTTP/1.1 301 Moved\r\n\r\n"[..], 301),
            (b"Content-Type: x\n\nStatus: 500\n", 200),
            (b"\r\nStatus: 500\r\n", 200),
            (b"Status: x\r\n\r\n", 200),
            (b"status:503\r\n\r\n", 503),
            (b"", 200),
        ] {
            let mut head = AnswerHead::default();
            head.take(answer);
            assert_eq!(head.status(), status, "{answer:?}");
        }
    }

    #[test]
    fn endless_headers_are_not_kept() {
        let mut head = AnswerHead::default();
        for _ in 0..100 {
            head.take(&[b'x'; 4096]);
        }
        assert!(head.bytes.len() <= super::HEAD_BYTES + 4096);
    }
}
