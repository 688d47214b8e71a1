//! /proc/self/status: one read instead of a system call per signal, id and mask.

use super::book::Size;
use super::regions::number;
use std::hash::{DefaultHasher, Hasher};

const PAGE_KB: usize = 4;
/// An unprivileged process can't restore them.
const IDENTITY: [&[u8]; 13] = [
    b"Uid",
    b"Gid",
    b"Groups",
    b"NSpgid",
    b"NSsid",
    b"CapInh",
    b"CapPrm",
    b"CapEff",
    b"CapBnd",
    b"CapAmb",
    b"NoNewPrivs",
    b"Seccomp",
    b"Seccomp_filters",
];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PageCounts {
    /// Anonymous pages in memory, including written pages of private file mappings.
    pub(super) anonymous: usize,
    /// Of mappings that grow downwards, also without a page.
    stack: usize,
}

/// All zeroes is valid.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) threads: usize,
    pub(super) umask: usize,
    /// Hash of [`IDENTITY`].
    pub(super) identity: u64,
    pub(super) processors: u64,
    /// Signals pending for the process or the thread.
    pub(super) pending: u64,
    pub(super) ignored: u64,
    pub(super) caught: u64,
    pub(super) size: Size,
    pages: PageCounts,
    swapped: usize,
    /// `PR_SET_THP_DISABLE`, without its flag for exceptions.
    pub(super) has_no_huge_pages: bool,
}

/// Bits of the signals of faults.
const FAULTS: u64 =
    bit(libc::SIGSEGV) | bit(libc::SIGBUS) | bit(libc::SIGFPE) | bit(libc::SIGILL) | bit(libc::SIGABRT);

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

impl Status {
    pub(super) fn of(text: &[u8]) -> Status {
        let mut status = Status::default();
        let mut identity = DefaultHasher::new();
        let mut processors = DefaultHasher::new();
        for line in text.split(|byte| *byte == b'\n') {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else {
                continue;
            };
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii_start());
            let in_base = |base| number(value, base).map_or(0, |(value, _)| value);
            match name {
                b"Threads" => status.threads = in_base(10),
                b"Cpus_allowed" => processors.write(value),
                b"Umask" => status.umask = in_base(8),
                b"SigPnd" | b"ShdPnd" => status.pending |= in_base(16) as u64,
                b"SigIgn" => status.ignored = in_base(16) as u64,
                b"SigCgt" => status.caught = in_base(16) as u64,
                b"VmSize" => status.size.whole = in_base(10) / PAGE_KB,
                b"VmData" => status.size.data += in_base(10) / PAGE_KB,
                b"VmStk" => {
                    status.pages.stack = in_base(10) / PAGE_KB;
                    status.size.data += status.pages.stack;
                }
                b"RssAnon" => status.pages.anonymous = in_base(10) / PAGE_KB,
                b"VmSwap" => status.swapped = in_base(10) / PAGE_KB,
                b"THP_enabled" => status.has_no_huge_pages = value == b"0",
                _ if IDENTITY.contains(&name) => identity.write(line),
                _ => {}
            }
        }
        status.identity = identity.finish();
        status.processors = processors.finish();
        status
    }

    /// `None`: some pages may be swapped.
    pub(super) fn page_counts(&self) -> Option<PageCounts> {
        (self.swapped == 0).then_some(self.pages)
    }

    /// Flags matter only for caught signals and SIGCHLD. A fault's handler matters only to a process that dies.
    pub(super) fn may_differ(&self, now: &Status, signal: usize) -> bool {
        let bit = 1 << (signal - 1);
        let differs = (self.ignored ^ now.ignored) | (self.caught ^ now.caught);
        (differs | self.caught & !FAULTS) & bit != 0 || signal == libc::SIGCHLD as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"\
Name:\tforkyard
Umask:\t0027
Uid:\t33\t33\t33\t33
Gid:\t33\t33\t33\t33
Groups:\t33 44 
VmSize:\t  428940 kB
VmData:\t   15244 kB
VmStk:\t     132 kB
RssAnon:\t   12288 kB
VmSwap:\t       8 kB
THP_enabled:\t0
Threads:\t2
SigPnd:\t0000000000000001
ShdPnd:\t0000000000010000
SigIgn:\t0000000000001000
SigCgt:\t0000000104004a07
NoNewPrivs:\t0
Cpus_allowed:\t3
Cpus_allowed_list:\t0-1
voluntary_ctxt_switches:\t38863
";

    #[test]
    fn the_lines_that_matter_are_read() {
        let status = Status::of(TEXT);
        let expected = Status {
            threads: 2,
            umask: 0o27,
            identity: status.identity,
            processors: status.processors,
            pending: 0x10001,
            ignored: 0x1000,
            caught: 0x1_0400_4a07,
            size: Size {
                whole: 107_235,
                data: 3_844,
            },
            pages: PageCounts {
                anonymous: 3_072,
                stack: 33,
            },
            swapped: 2,
            has_no_huge_pages: true,
        };
        assert_eq!(status, expected);
        assert_eq!(
            Status::of(b"nonsense\nThreads\n:\n"),
            Status {
                identity: Status::of(b"").identity,
                processors: Status::of(b"").processors,
                ..Status::default()
            }
        );
    }

    #[test]
    fn only_lines_of_the_identity_change_it() {
        let identity = |from: &str, to: &str| {
            let text = std::str::from_utf8(TEXT).unwrap().replace(from, to);
            Status::of(text.as_bytes()).identity
        };
        let same = Status::of(TEXT).identity;
        let other = std::str::from_utf8(TEXT)
            .unwrap()
            .replace("allowed:\t3", "allowed:\t1");
        assert_ne!(
            Status::of(other.as_bytes()).processors,
            Status::of(TEXT).processors
        );
        assert_eq!(Status::of(other.as_bytes()).identity, same);
        assert_eq!(identity("38863", "38864"), same);
        for (from, to) in [
            ("44", "45"),
            ("NoNewPrivs:\t0", "NoNewPrivs:\t1"),
            ("Gid:\t33", "Gid:\t34"),
        ] {
            assert_ne!(identity(from, to), same, "{from}");
        }
    }

    #[test]
    fn a_signal_is_asked_for_if_its_handler_can_have_changed() {
        let before = Status::of(TEXT);
        let asked = |now: &Status| -> Vec<usize> {
            (1..=64)
                .filter(|signal| before.may_differ(now, *signal))
                .collect()
        };
        assert_eq!(asked(&before), [1, 2, 3, 10, 12, 15, 17, 27, 33]);
        let ignores_none = Status {
            ignored: 0,
            caught: before.caught | 1 << 63,
            ..before
        };
        assert_eq!(asked(&ignores_none), [1, 2, 3, 10, 12, 13, 15, 17, 27, 33, 64]);
    }
}
