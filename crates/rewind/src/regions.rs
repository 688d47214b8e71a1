//! Parses /proc/self/maps without allocating, so that the rewind can use it.

pub(super) const PAGE: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Mapping {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) protection: u8,
    pub(super) is_shared: bool,
    pub(super) file: u64,
    pub(super) is_stack: bool,
    /// Such as `[vvar]`; must stay.
    pub(super) is_kernels: bool,
    /// The kernel may drop its pages; not reported in maps.
    pub(super) is_droppable: bool,
}

impl Mapping {
    pub(super) fn is_own(&self) -> bool {
        !self.is_shared && self.protection & PROT_WRITE != 0 && !self.is_kernels && !self.is_droppable
    }

    pub(super) fn is_reserve(&self) -> bool {
        !self.is_shared && self.protection == 0 && self.file == 0 && !self.is_kernels
    }

    /// Shared memory may change its protection, as OPcache's does.
    pub(super) fn is_like(&self, other: &Mapping) -> bool {
        self.is_shared == other.is_shared
            && self.file == other.file
            && (self.is_shared || self.protection == other.protection)
    }
}

const PROT_READ: u8 = libc::PROT_READ as u8;
const PROT_WRITE: u8 = libc::PROT_WRITE as u8;
const PROT_EXEC: u8 = libc::PROT_EXEC as u8;

#[derive(Debug)]
pub(super) struct Mappings<'t> {
    rest: &'t [u8],
}

impl<'t> Mappings<'t> {
    pub(super) fn of(text: &'t [u8]) -> Mappings<'t> {
        Mappings { rest: text }
    }
}

impl Iterator for Mappings<'_> {
    type Item = Mapping;

    fn next(&mut self) -> Option<Mapping> {
        while !self.rest.is_empty() {
            let mut end = 0;
            while end < self.rest.len() && self.rest[end] != b'\n' {
                end += 1;
            }
            let line = &self.rest[..end];
            self.rest = &self.rest[(end + 1).min(self.rest.len())..];
            if let Some(mapping) = mapping(line) {
                return Some(mapping);
            }
        }
        None
    }
}

fn mapping(line: &[u8]) -> Option<Mapping> {
    let (start, rest) = number(line, 16)?;
    let (end, rest) = number(rest.strip_prefix(b"-")?, 16)?;
    let rest = rest.strip_prefix(b" ")?;
    let letters = rest.get(..4)?;
    let bit = |place: usize, letter: u8, bit: u8| if letters[place] == letter { bit } else { 0 };
    let is_stack = line.ends_with(b"[stack]");
    let is_heap = line.ends_with(b"[heap]");
    let is_named = contains(line, b" [anon");
    Some(Mapping {
        start,
        end,
        protection: bit(0, b'r', PROT_READ) | bit(1, b'w', PROT_WRITE) | bit(2, b'x', PROT_EXEC),
        is_shared: letters[3] == b's',
        file: inode(rest)?,
        is_stack,
        is_kernels: line.ends_with(b"]") && !is_stack && !is_heap && !is_named,
        is_droppable: false,
    })
}

fn inode(rest: &[u8]) -> Option<u64> {
    let mut words = rest.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    number(words.nth(3)?, 10).map(|(value, _)| value as u64)
}

fn contains(line: &[u8], part: &[u8]) -> bool {
    line.windows(part.len()).any(|window| window == part)
}

/// Parses a number at the start of a text, and returns it with the rest of the text.
pub(super) fn number(text: &[u8], base: u32) -> Option<(usize, &[u8])> {
    let mut value: usize = 0;
    let mut at = 0;
    while let Some(digit) = text.get(at).and_then(|byte| (*byte as char).to_digit(base)) {
        value = value.checked_mul(base as usize)?.checked_add(digit as usize)?;
        at += 1;
    }
    (at > 0).then_some((value, &text[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_told_from_shared_and_the_kernels() {
        let text = b"\
5592d3a00000-5592d3a21000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000002000 r-xp 00000000 fe:00 77                         /usr/lib/libc.so.6
7f0000002000-7f0000003000 rw-p 00002000 fe:00 77                         /usr/lib/libc.so.6
7f0000004000-7f0000005000 rw-s 00000000 00:01 9                          /dev/zero (deleted)
7f0000006000-7f0000008000 rw-p 00000000 00:00 0 
7f0000009000-7f000000a000 rw-p 00000000 00:00 0                          [anon:chunk]
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
7ffc00100000-7ffc00104000 r--p 00000000 00:00 0                          [vvar]
";
        let all: Vec<Mapping> = Mappings::of(text).collect();
        assert_eq!(all.len(), 8);
        let files: Vec<u64> = all.iter().map(|mapping| mapping.file).collect();
        assert_eq!(files, [0, 77, 77, 9, 0, 0, 0, 0]);
        let own: Vec<(usize, bool)> = all
            .iter()
            .filter(|mapping| mapping.is_own())
            .map(|mapping| (mapping.start, mapping.is_stack))
            .collect();
        assert_eq!(
            own,
            [
                (0x5592_d3a0_0000, false),
                (0x7f00_0000_2000, false),
                (0x7f00_0000_6000, false),
                (0x7f00_0000_9000, false),
                (0x7ffc_0000_0000, true),
            ]
        );
        assert!(!all[1].is_like(&all[2]) && all[4].is_like(&all[5]));
        assert!(all[7].is_kernels && !all[0].is_kernels);
        assert_eq!(Mappings::of(b"nonsense\n\n12-\n1-2 rw\n").count(), 0);
    }
}
