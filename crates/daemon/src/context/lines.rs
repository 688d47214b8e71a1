//! Output of workers, preloaders and their children: read in pieces, logged in lines. All of it is untrusted.

use super::entries::UnfinishedEntry;
use super::sources::Sources;
use forkyard_base::tick::Tick;
use forkyard_sys::clock;
use forkyard_sys::guarded::Guarded;
use forkyard_sys::socket::Progress;
use std::os::fd::OwnedFd;

/// The longest line before it is wrapped, in bytes; more than a worker's message.
pub(crate) const LINE_BYTES: usize = 4096;
/// Bytes per read, so that one worker's flood does not block the others.
const LOOK_BYTES: usize = 16 * 1024;
/// Reads of a dead process's pipes: 1 MiB of output is logged.
const LAST_LOOKS: usize = 64;

#[derive(Debug)]
pub(crate) struct Lines {
    pipe: Guarded,
    splitter: Splitter,
}

#[derive(Debug, Default)]
pub(crate) struct Splitter {
    partial: Vec<u8>,
    /// The longest line before it is wrapped, in bytes; 0: no byte yet.
    most: usize,
    /// php-fpm's mark also ends a line.
    knows_mark: bool,
    keeps_empty: bool,
    /// Groups the lines.
    entry: Option<UnfinishedEntry>,
}

/// php-fpm's workers end a request's output with it. Scripts can also write it; it only ends a line.
const MARK: &[u8] = b"\0fscf\0";

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PipeRead {
    Drained,
    More,
    Ended,
}

/// Reads on while `read` says that there may be more. A leftover process may write faster than the master reads.
pub(crate) fn read_rest(mut read: impl FnMut() -> bool) {
    let _ = (0..LAST_LOOKS).all(|_| read());
}

impl Lines {
    /// Reads from a non-blocking pipe or socket.
    pub(crate) fn new(pipe: Guarded) -> Lines {
        Lines::resume(pipe, Splitter::default())
    }

    pub(crate) fn resume(pipe: Guarded, splitter: Splitter) -> Lines {
        Lines { pipe, splitter }
    }

    pub(crate) fn in_entries(mut self, is_so: bool) -> Lines {
        self.splitter.keeps_empty = is_so;
        self.splitter.entry = is_so.then(UnfinishedEntry::default);
        self
    }

    pub(crate) fn due(&self) -> Option<Tick> {
        self.splitter.due()
    }

    /// Passes on the lines that waited for more.
    pub(crate) fn end_entry(&mut self, mut line: impl FnMut(&[u8])) {
        self.splitter.end_entry(&mut line);
    }

    /// In php-fpm's place, where a mark ends a line.
    pub(crate) fn knowing_mark(mut self, knows_mark: bool) -> Lines {
        self.splitter.knows_mark = knows_mark;
        self
    }

    pub(crate) fn pipe(&self) -> &OwnedFd {
        &self.pipe
    }

    pub(crate) fn read(&mut self, line: impl FnMut(&[u8])) -> PipeRead {
        self.read_within(LINE_BYTES, line)
    }

    /// Reads a process's output unless it has ended. Returns `true` if there may be more.
    pub(crate) fn read_open(
        output: &mut Option<Lines>,
        sources: &mut Sources,
        most: usize,
        line: impl FnMut(&[u8]),
    ) -> bool {
        let Some(lines) = output else { return false };
        let look = lines.read_within(most, line);
        sources.hold_entry(lines.due());
        if look == PipeRead::Ended {
            sources.forget(lines.pipe());
            *output = None;
        }
        look == PipeRead::More
    }

    pub(crate) fn is_unfinished(&self) -> bool {
        !self.splitter.partial.is_empty()
    }

    pub(crate) fn end_line(&mut self, mut line: impl FnMut(&[u8])) {
        self.splitter.end_line(&mut line);
    }

    /// Like [`Lines::read`], but wraps lines after so many bytes, a little earlier if a UTF-8 character would be cut.
    pub(crate) fn read_within(&mut self, most: usize, mut line: impl FnMut(&[u8])) -> PipeRead {
        let mut buffer = [0; 4096];
        for _ in 0..LOOK_BYTES / buffer.len() {
            match self.pipe.receive(&mut buffer) {
                Ok(Progress::Done(0)) | Err(_) => {
                    self.end_line(line);
                    return PipeRead::Ended;
                }
                Ok(Progress::Done(count)) => self.splitter.push(&buffer[..count], most, &mut line),
                Ok(Progress::WouldBlock) => return PipeRead::Drained,
            }
        }
        PipeRead::More
    }
}

impl Splitter {
    /// For the output of a process that starts.
    pub(crate) fn of_entries() -> Splitter {
        Splitter {
            entry: Some(UnfinishedEntry::default()),
            ..Splitter::default()
        }
    }

    /// Adds bytes and passes on each complete line or entry. A line is wrapped after `most` bytes.
    pub(crate) fn push(&mut self, bytes: &[u8], most: usize, line: &mut dyn FnMut(&[u8])) {
        self.grouped(line, |splitter, line| splitter.take(bytes, most, line));
    }

    pub(crate) fn end_line(&mut self, line: &mut dyn FnMut(&[u8])) {
        self.grouped(line, Splitter::split);
        self.end_entry(line);
    }

    /// Groups the lines that `step` passes on, if they are grouped.
    fn grouped(
        &mut self,
        line: &mut dyn FnMut(&[u8]),
        step: impl FnOnce(&mut Splitter, &mut dyn FnMut(&[u8])),
    ) {
        let Some(mut entry) = self.entry.take() else {
            return step(self, line);
        };
        let now = clock::now();
        step(self, &mut |text| entry.take(text, now, &mut *line));
        self.entry = Some(entry);
    }

    pub(crate) fn due(&self) -> Option<Tick> {
        self.entry.as_ref().and_then(UnfinishedEntry::due)
    }

    pub(crate) fn end_entry(&mut self, line: &mut dyn FnMut(&[u8])) {
        if let Some(entry) = &mut self.entry {
            entry.end(line);
        }
    }

    fn split(&mut self, line: &mut dyn FnMut(&[u8])) {
        self.wrap(self.most, line);
        if !self.partial.is_empty() {
            line(&self.partial);
            self.partial.clear();
        }
    }

    fn take(&mut self, bytes: &[u8], most: usize, line: &mut dyn FnMut(&[u8])) {
        self.most = most.max(CHARACTER_BYTES);
        for &byte in bytes {
            if byte == b'\n' {
                if self.keeps_empty && self.partial.is_empty() {
                    line(b"");
                }
                self.split(line);
                continue;
            }
            self.partial.push(byte);
            if byte == 0 && self.knows_mark && self.partial.ends_with(MARK) {
                self.partial.truncate(self.partial.len() - MARK.len());
                self.split(line);
            } else if self.partial.len() > self.most {
                // A possible mark may end the line before it must be wrapped.
                let begun = self.partial.len() - self.begun_mark();
                if begun > self.most || begun == self.partial.len() {
                    self.wrap(self.most, line);
                }
            }
        }
    }

    fn wrap(&mut self, most: usize, line: &mut dyn FnMut(&[u8])) {
        while most > 0 && self.partial.len() > most {
            let end = whole_characters(&self.partial[..most]);
            line(&self.partial[..end]);
            self.partial.drain(..end);
        }
    }

    /// The number of bytes at the end that may become a mark.
    fn begun_mark(&self) -> usize {
        let is_begun = |length: &usize| self.partial.ends_with(&MARK[..*length]);
        let longest = if self.knows_mark { MARK.len() - 1 } else { 0 };
        (1..=longest).rev().find(is_begun).unwrap_or(0)
    }
}

const CHARACTER_BYTES: usize = 4;

/// The length of the text without a cut character at its end; all of it if it is not UTF-8.
fn whole_characters(text: &[u8]) -> usize {
    let tail = text.len().saturating_sub(CHARACTER_BYTES);
    let start = (tail.max(1)..text.len())
        .rev()
        .find(|at| text[*at] & 0xC0 != 0x80);
    match start.map(|start| (start, text[start])) {
        Some((start, lead)) if lead >= 0xC0 => {
            let length = match lead {
                0xF0.. => 4,
                0xE0.. => 3,
                _ => 2,
            };
            if start + length > text.len() {
                start
            } else {
                text.len()
            }
        }
        _ => text.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together_and_wrapped() {
        let (reader, writer) = forkyard_sys::fd::pipe(true).unwrap();
        let mut lines = Lines::new(Guarded::new(reader));
        let mut seen: Vec<Vec<u8>> = Vec::new();
        nix::unistd::write(&writer, b"one\n\ntw").unwrap();
        assert_eq!(lines.read(|l| seen.push(l.to_vec())), PipeRead::Drained);
        assert_eq!(seen, [b"one".to_vec()]);
        nix::unistd::write(&writer, b"o\n").unwrap();
        nix::unistd::write(&writer, &[b'x'; 1500]).unwrap();
        drop(writer);
        let look = lines.read_within(1024, |l| seen.push(l.to_vec()));
        assert_eq!(look, PipeRead::Ended);
        let lengths: Vec<usize> = seen.iter().map(Vec::len).collect();
        assert_eq!(lengths, [3, 3, 1024, 476]);
    }

    #[test]
    fn lines_that_belong_together_are_given_as_one() {
        let (reader, writer) = forkyard_sys::fd::pipe(true).unwrap();
        let mut lines = Lines::new(Guarded::new(reader)).in_entries(true);
        let mut seen: Vec<String> = Vec::new();
        let mut see = |text: &[u8]| seen.push(String::from_utf8(text.to_vec()).unwrap());
        for text in ["one\ntwo\n  thr", "ee\n\n  four\nfi"] {
            nix::unistd::write(&writer, text.as_bytes()).unwrap();
            assert_eq!(lines.read(&mut see), PipeRead::Drained);
        }
        assert!(lines.due().is_some() && lines.is_unfinished());
        lines.end_entry(&mut see);
        assert!(lines.due().is_none());
        drop(writer);
        assert_eq!(lines.read(&mut see), PipeRead::Ended);
        assert_eq!(seen, ["one", "two\n  three\n\n  four", "fi"]);
    }

    #[test]
    fn a_line_of_just_the_length_is_not_wrapped() {
        let (reader, writer) = forkyard_sys::fd::pipe(true).unwrap();
        let mut lines = Lines::new(Guarded::new(reader));
        let mut seen: Vec<Vec<u8>> = Vec::new();
        nix::unistd::write(&writer, b"12345678\n123456789\n").unwrap();
        lines.read_within(8, |l| seen.push(l.to_vec()));
        assert_eq!(seen, [&b"12345678"[..], b"12345678", b"9"]);
        assert!(!lines.is_unfinished());
    }

    #[test]
    fn a_mark_ends_a_line_wherever_it_is_cut() {
        for before in 0..40 {
            for pieces in [1, 2, 3, 50] {
                let mut splitter = Splitter {
                    knows_mark: true,
                    ..Splitter::default()
                };
                let text = [&vec![b'a'; before], MARK, b"b", &MARK[..3], b"c\n"].concat();
                let mut seen: Vec<Vec<u8>> = Vec::new();
                for piece in text.chunks(pieces) {
                    splitter.take(piece, 20, &mut |l: &[u8]| seen.push(l.to_vec()));
                }
                assert_eq!(seen.pop().as_deref(), Some(&b"b\0fsc"[..]));
                assert_eq!(seen.concat(), vec![b'a'; before]);
                let full = seen.iter().filter(|line| line.len() == 20).count();
                assert_eq!((full, seen.len()), (before / 20, before.div_ceil(20)));
                // An incomplete mark is wrapped like any text.
                let text = [&vec![b'a'; before], &MARK[..2], b"abc\n"].concat();
                let mut lines: Vec<Vec<u8>> = Vec::new();
                for piece in text.chunks(pieces) {
                    splitter.take(piece, 20, &mut |l: &[u8]| lines.push(l.to_vec()));
                }
                let expected: Vec<&[u8]> = text[..text.len() - 1].chunks(20).collect();
                assert_eq!(lines, expected);
            }
        }
    }

    #[test]
    fn no_character_is_cut() {
        let (reader, writer) = forkyard_sys::fd::pipe(true).unwrap();
        let mut lines = Lines::new(Guarded::new(reader));
        let mut seen: Vec<String> = Vec::new();
        nix::unistd::write(&writer, "1234567é89\n".as_bytes()).unwrap();
        lines.read_within(8, |l| seen.push(String::from_utf8(l.to_vec()).unwrap()));
        assert_eq!(seen, ["1234567", "é89"]);
        let not_utf8 = [0x80; 20];
        nix::unistd::write(&writer, &not_utf8).unwrap();
        let mut count = 0;
        lines.read_within(8, |_| count += 1);
        assert_eq!(count, 2);
    }
}
