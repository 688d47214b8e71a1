//! Fuzz target for notes in the hand-off queue.

pub(crate) use super::access::fuzz::{format, head, lines};

use super::keepalive::Note;

pub(crate) fn note(input: &[u8]) {
    let note = Note::decode(input);
    assert_eq!(Note::decode(&note.encode()), note);
}
