//! Fuzz targets for the input of a worker, from clients and other workers.

pub(crate) use super::access::fuzz::{format, head, lines};

use super::hand_off::Note;
use forkyard_fuzz::{Target, target};

/// All fuzz targets of this crate.
pub const TARGETS: &[Target] = &[
    target("access_lines", 800, lines),
    target("access_head", 600, head),
    target("worker_note", 40, note),
    target("access_format", 200, format),
];

fn note(input: &[u8]) {
    let note = Note::decode(input);
    assert_eq!(Note::decode(&note.encode()), note);
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_parser_keeps_its_promises_whatever_it_is_given() {
        forkyard_fuzz::check(super::TARGETS);
    }
}
