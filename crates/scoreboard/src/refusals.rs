//! Requests whose script was not run, in a worker's slot.

use super::layout::{header, slot};
use super::text;
use forkyard_protocol::refusals::{CAUSES, RefusalCause, Refusals};
use std::sync::atomic::{AtomicU64, Ordering};

const MARK: &str = "...";
const LENGTH: u64 = 0xfff;

fn load(words: &[AtomicU64], index: usize) -> u64 {
    words[index].load(Ordering::Relaxed)
}

pub(super) fn encode(epoch_seconds: u64, path: &[u8], at: Option<usize>) -> (u64, impl Iterator<Item = u64>) {
    let length = (path.len() as u64).min(LENGTH);
    let at = at.map_or(0, |at| (at as u64).min(LENGTH));
    let meta = epoch_seconds & 0xffff_ffff | length << 32 | at << 44;
    let kept = &path[..path.len().min(slot::REFUSED_ROOM)];
    (meta, kept.chunks(8).map(text::word))
}

pub(super) fn first_of(cause: RefusalCause) -> usize {
    slot::REFUSED_PATHS + cause.index() * slot::REFUSED_ROOM / 8
}

/// Refusals of a worker by cause. Untrusted.
pub fn of_slot(words: &[AtomicU64]) -> Vec<Refusals> {
    let causes = RefusalCause::ALL.into_iter();
    let counted = causes.filter_map(|cause| {
        let count = load(words, slot::REFUSED + cause.index());
        (count > 0).then(|| last(words, cause, count))
    });
    counted.collect()
}

fn last(words: &[AtomicU64], cause: RefusalCause, count: u64) -> Refusals {
    let meta = load(words, slot::REFUSED_LAST + cause.index());
    let (length, at) = (meta >> 32 & LENGTH, meta >> 44 & LENGTH);
    let bytes = text::load(&words[first_of(cause)..][..slot::REFUSED_ROOM / 8], length);
    let text = |length: u64| {
        let length = length as usize;
        let part = &bytes[..length.min(bytes.len())];
        let mark = if part.len() < length { MARK } else { "" };
        String::from_utf8_lossy(part).into_owned() + mark
    };
    Refusals {
        cause,
        count,
        time: meta & 0xffff_ffff,
        path: text(length),
        at: (at > 0).then(|| text(at)),
    }
}

/// Returns a generation's refusals of a cause, how many were logged, and when last (monotonic nanoseconds, 0 for
/// never). `slots`: pages of the workers.
pub fn told<'a>(
    header_words: &[AtomicU64],
    slots: impl Iterator<Item = &'a [AtomicU64]>,
    cause: RefusalCause,
) -> (u64, u64, u64) {
    let index = cause.index();
    let mut count = load(header_words, header::PAST_REFUSED + index);
    let mut told = load(header_words, header::PAST_REFUSED_TOLD + index);
    let mut since = load(header_words, header::PAST_REFUSED_SINCE + index);
    for words in slots {
        count = count.saturating_add(load(words, slot::REFUSED + index));
        told = told.max(load(words, slot::REFUSED_TOLD + index));
        since = since.max(load(words, slot::REFUSED_SINCE + index));
    }
    (count, told, since)
}

/// Adds a former worker's counters to the header.
pub fn keep(header_words: &[AtomicU64], words: &[AtomicU64]) {
    for index in 0..CAUSES {
        super::header::add(
            header_words,
            header::PAST_REFUSED + index,
            load(words, slot::REFUSED + index),
        );
        for (to, from) in [
            (header::PAST_REFUSED_TOLD, slot::REFUSED_TOLD),
            (header::PAST_REFUSED_SINCE, slot::REFUSED_SINCE),
        ] {
            super::header::raise(header_words, to + index, load(words, from + index));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot_writer::SlotWriter;
    use forkyard_base::tick::Tick;
    use forkyard_sys::shm::PAGE_WORDS;

    #[test]
    fn what_a_worker_has_refused_is_read_again() {
        let page = || (0..PAGE_WORDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let (past, one, other) = (page(), page(), page());
        let writer = SlotWriter::new(&one);
        assert_eq!(of_slot(&one), []);
        let long = "/srv/".to_owned() + &"x".repeat(100);
        for (cause, path, at) in [
            (RefusalCause::Missing, "/srv/first.php", None),
            (RefusalCause::Missing, "/srv/a.php", None),
            (RefusalCause::Closed, "/home/b/www/a.php", Some(7)),
            (RefusalCause::NotExecutable, &long, Some(90)),
            (RefusalCause::Unnamed, "", None),
        ] {
            writer.refused(cause, 1_700_000_000, path.as_bytes(), at);
        }
        let read: Vec<_> = of_slot(&one)
            .into_iter()
            .map(|it| (it.cause, it.count, it.time, it.path, it.at))
            .collect();
        let cut = long[..slot::REFUSED_ROOM].to_owned() + MARK;
        let time = 1_700_000_000;
        assert_eq!(
            read,
            [
                (RefusalCause::Missing, 2, time, "/srv/a.php".to_owned(), None),
                (
                    RefusalCause::Closed,
                    1,
                    time,
                    "/home/b/www/a.php".to_owned(),
                    Some("/home/b".to_owned())
                ),
                (RefusalCause::Unnamed, 1, time, String::new(), None),
                (RefusalCause::NotExecutable, 1, time, cut.clone(), Some(cut)),
            ]
        );
        let pages = || [&one[..], &other[..]].into_iter();
        assert_eq!(told(&past, pages(), RefusalCause::Missing), (2, 0, 0));
        SlotWriter::new(&other).told_refused(RefusalCause::Missing, Tick::from_nanos(9), 2);
        writer.refused(RefusalCause::Missing, 1, b"/", None);
        assert_eq!(told(&past, pages(), RefusalCause::Missing), (3, 2, 9));
        keep(&past, &one);
        keep(&past, &other);
        assert_eq!(told(&past, std::iter::empty(), RefusalCause::Missing), (3, 2, 9));
        for word in &one {
            word.store(u64::MAX, Ordering::Relaxed);
        }
        assert_eq!(of_slot(&one).len(), CAUSES);
    }
}
