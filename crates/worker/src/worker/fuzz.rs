//! What applications and other workers of the pool say.

pub(crate) use super::access::fuzz::{format, head, lines};

use super::keepalive::Note;

/// A note in the hand-off queue means the same when it is written again.
pub(crate) fn note(input: &[u8]) {
    let note = Note::decode(input);
    assert_eq!(Note::decode(&note.encode()), note);
}
