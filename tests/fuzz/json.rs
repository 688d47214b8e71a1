//! JSON messages survive a round trip.

use forkyard_fuzz::survives;
use forkyard_protocol::channel::{self, FromWorker, HEAD_BYTES, MOST_BYTES, MessageKind, ToWorker};
use forkyard_protocol::control::{Answer as ControlAnswer, Request};
use forkyard_protocol::inspector::{self, InspectReply, InspectRequest};
use forkyard_protocol::preloader::Answer;
use forkyard_protocol::router::{ToMaster, ToRouter};

pub(super) fn preloader_answer(input: &[u8]) {
    survives::<Answer>(input);
}

pub(super) fn router_orders(input: &[u8]) {
    survives::<ToMaster>(input);
    survives::<ToRouter<forkyard_config::Pool>>(input);
}

pub(super) fn inspector_messages(input: &[u8]) {
    survives::<InspectRequest>(input);
    if let Some(seen) = survives::<InspectReply>(input)
        && let Some(message) = inspector::encode(&seen)
    {
        assert!(message.len() <= inspector::MOST_BYTES);
        assert_eq!(inspector::decode::<InspectReply>(&message), Some(seen));
    }
}

pub(super) fn control_request(input: &[u8]) {
    survives::<Request>(input);
}

pub(super) fn control_answer(input: &[u8]) {
    survives::<ControlAnswer>(input);
}

fn message<K: MessageKind>(input: &[u8]) {
    if let Some((kind, session, rest)) = channel::parse::<K>(input) {
        assert!(rest.len() <= MOST_BYTES);
        let mut again = channel::head(kind, session).to_vec();
        assert_eq!(again.len(), HEAD_BYTES);
        again.extend_from_slice(rest);
        assert_eq!(again, input);
    }
}

pub(super) fn router_channel(input: &[u8]) {
    message::<FromWorker>(input);
    message::<ToWorker>(input);
}
