//! Finds the end of an answer's header, its first empty line.

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct HeadEnd {
    is_line_empty: bool,
    found: bool,
}

impl HeadEnd {
    pub(super) fn take(&mut self, bytes: &[u8]) -> bool {
        for byte in bytes {
            if self.found {
                break;
            }
            match byte {
                b'\n' if self.is_line_empty => self.found = true,
                b'\n' => self.is_line_empty = true,
                b'\r' => {}
                _ => self.is_line_empty = false,
            }
        }
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_line_ends_the_header_however_it_is_cut() {
        for text in [&b"Status: 200\r\nA: b\r\n\r\nbody"[..], b"A: b\n\nbody"] {
            let end = text.len() - b"body".len();
            for cut in 0..=end {
                let mut head = HeadEnd::default();
                assert!(!head.take(&text[..cut]) || cut == end, "{cut}");
                assert!(head.take(&text[cut..]));
            }
        }
    }
}
