//! Messages that are JSON: what is understood means the same when it is passed on.

use forkyard_fuzz::survives;
use forkyard_protocol::channel::{self, HEAD_BYTES, MOST_BYTES, ToRouter as Said, ToWorker, Word};
use forkyard_protocol::control::{Answer as ControlAnswer, Request};
use forkyard_protocol::look::{self, Look, Seen};
use forkyard_protocol::preloader::Answer;
use forkyard_router::router::orders::{ToMaster, ToRouter};

/// From a preloader.
pub(super) fn preloader_answer(input: &[u8]) {
    survives::<Answer>(input);
}

/// From a router, and to one.
pub(super) fn router_orders(input: &[u8]) {
    if has_no_fraction(input) {
        survives::<ToMaster>(input);
        survives::<ToRouter>(input);
    } else {
        let _ = serde_json::from_slice::<ToMaster>(input);
    }
}

/// From a router to the inspector, and from the inspector.
pub(super) fn inspector_messages(input: &[u8]) {
    survives::<Look>(input);
    if let Some(seen) = survives::<Seen>(input)
        && let Some(message) = look::encode(&seen)
    {
        assert!(message.len() <= look::MOST_BYTES);
        assert_eq!(look::decode::<Seen>(&message), Some(seen));
    }
}

/// From an operator, or any local user.
pub(super) fn control_request(input: &[u8]) {
    survives::<Request>(input);
}

/// From what holds the control socket.
pub(super) fn control_answer(input: &[u8]) {
    if has_no_fraction(input) {
        survives::<ControlAnswer>(input);
    } else {
        let _ = serde_json::from_slice::<ControlAnswer>(input);
    }
}

/// serde_json reads a number with a fraction to the nearest but one.
fn has_no_fraction(input: &[u8]) -> bool {
    let is_sign = |pair: &[u8]| pair[0].is_ascii_digit() && matches!(pair[1], b'.' | b'e' | b'E');
    !input.windows(2).any(is_sign)
}

fn word<W: Word>(input: &[u8]) {
    if let Some((word, ticket, rest)) = channel::parse::<W>(input) {
        assert!(rest.len() <= MOST_BYTES);
        let mut again = channel::head(word, ticket).to_vec();
        assert_eq!(again.len(), HEAD_BYTES);
        again.extend_from_slice(rest);
        assert_eq!(again, input);
    }
}

/// What is a message is the message that is written again.
pub(super) fn router_channel(input: &[u8]) {
    word::<Said>(input);
    word::<ToWorker>(input);
}
