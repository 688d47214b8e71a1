//! Groups lines into entries: a backtrace is one. Pure; the text is untrusted.

use forkyard_base::tick::Tick;
use std::time::Duration;

/// The time that an entry waits for more lines: applications write backtraces line by line.
const HOLD: Duration = Duration::from_millis(50);
const MOST_BYTES: usize = 16 * 1024;

const TRACEBACK: &[u8] = b"Traceback (most recent call last):";
const CONTINUATIONS: [&[u8]; 6] = [
    // Python: an exception during the handling of another.
    b"During handling of the above exception",
    b"The above exception was the direct cause",
    TRACEBACK,
    b"Stack trace:",
    // Java's form, which others use.
    b"Caused by:",
    // The end of an error that Node.js prints with its properties.
    b"}",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Expected {
    #[default]
    Anything,
    /// A Python backtrace: the exception follows the indented lines.
    Exception,
    /// The error follows a line that points at a place in the line before it.
    Error,
}

#[derive(Debug, Default)]
pub(crate) struct UnfinishedEntry {
    text: Vec<u8>,
    expected: Expected,
    last: Option<Tick>,
}

impl UnfinishedEntry {
    pub(crate) fn take(&mut self, line: &[u8], now: Tick, mut complete: impl FnMut(&[u8])) {
        let is_full = self.text.len() + line.len() >= MOST_BYTES;
        if self.last.is_some() && (is_full || !self.goes_on_with(line)) {
            self.end(&mut complete);
        }
        if self.last.is_some() {
            self.text.push(b'\n');
        }
        self.text.extend_from_slice(line);
        self.last = Some(now);
        self.expect_after(line);
    }

    pub(crate) fn end(&mut self, mut complete: impl FnMut(&[u8])) {
        if self.last.take().is_some() {
            complete(&self.text);
        }
        self.text.clear();
        self.expected = Expected::Anything;
    }

    /// When [`UnfinishedEntry::end`] is due, or `None`.
    pub(crate) fn due(&self) -> Option<Tick> {
        self.last.map(|last| last + HOLD)
    }

    fn goes_on_with(&self, line: &[u8]) -> bool {
        let is_indented = |line: &[u8]| line.first().is_none_or(u8::is_ascii_whitespace);
        is_indented(line)
            || self.expected != Expected::Anything
            || CONTINUATIONS.iter().any(|start| line.starts_with(start))
            // PHP's calls: `#0 {main}`.
            || (line.first() == Some(&b'#') && line.get(1).is_some_and(u8::is_ascii_digit))
    }

    fn expect_after(&mut self, line: &[u8]) {
        let is_indented = line.first().is_none_or(u8::is_ascii_whitespace);
        let marks = line.trim_ascii();
        self.expected = if line.ends_with(TRACEBACK) {
            Expected::Exception
        } else if !marks.is_empty() && marks.iter().all(|byte| matches!(byte, b'^' | b'~')) {
            match self.expected {
                Expected::Exception => Expected::Exception,
                Expected::Anything | Expected::Error => Expected::Error,
            }
        } else if is_indented {
            self.expected
        } else {
            Expected::Anything
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Vec<String> {
        let (mut entry, mut all) = (UnfinishedEntry::default(), Vec::new());
        let mut complete = |text: &[u8]| all.push(String::from_utf8(text.to_vec()).unwrap());
        for line in text.lines() {
            entry.take(line.as_bytes(), Tick::ZERO, &mut complete);
        }
        entry.end(&mut complete);
        all
    }

    #[test]
    fn a_backtrace_is_an_entry() {
        let all = [
            "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    g()\n    ~^^\nKeyError: 1\n\n\
             During handling of the above exception, another exception occurred:\n\n\
             Traceback (most recent call last):\n  File \"a.py\", line 3, in f\nValueError: it broke",
            "ERROR:root:it broke\nTraceback (most recent call last):\n  File \"a.py\", line 1, in f\nValueError: it broke",
            "config.ru:1:in `deep': it broke (ArgumentError)\n\tfrom config.ru:2:in `block'\n\tfrom rack.rb:1",
            "/srv/app.js:3\n  throw new Error('it broke')\n  ^\n\nError: it broke\n    at f (/srv/app.js:3:9) {\n  errno: -111\n}",
            "PHP Fatal error:  Uncaught Exception: it broke in a.php:3\nStack trace:\n#0 {main}\n  thrown in a.php on line 3",
        ];
        for text in all {
            assert_eq!(entries(text), [text]);
            let twice = format!("before\n{text}\nafter");
            let found = entries(&twice);
            // A line directly before a backtrace introduces it.
            assert_eq!(found.join("\n"), twice);
            assert_eq!(found.last().map(String::as_str), Some("after"), "{found:?}");
            assert!(found.len() <= 3, "{found:?}");
        }
    }

    #[test]
    fn lines_are_entries_of_their_own() {
        assert_eq!(
            entries("one\ntwo\n  more\nthree"),
            ["one", "two\n  more", "three"]
        );
    }

    #[test]
    fn no_entry_grows_for_ever() {
        let text = vec!["  x".repeat(100); 1000].join("\n");
        let found = entries(&text);
        assert!(found.iter().all(|entry| entry.len() <= MOST_BYTES));
        assert_eq!(found.join("\n"), text);
    }
}
