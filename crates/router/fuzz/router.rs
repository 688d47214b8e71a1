//! Fuzz targets of the router's connections and worker messages.

use super::reading::{InputEvent, RequestInput, Rest};
use super::request::{HeadLook, RequestHead, read_head, read_head_early, root_of};
use fastcgi::{Input, Limits, Params, Responder, Violation};
use forkyard_fuzz::in_pieces;

const LIMITS: Limits = Limits {
    params_bytes: 2_000,
    params_count: 100,
};
const ROOT: &[u8] = b"ROOT";
const MOST_MEMORY: usize = 64 * 1024 + 2 * 65_536 + 4 * 4096;

fn steps(pieces: &[Vec<u8>]) -> (usize, InputEvent) {
    let mut reading = RequestInput::new(LIMITS, Vec::new());
    let mut replies = 0;
    for (at, piece) in pieces.iter().enumerate() {
        reading.receive(piece);
        loop {
            assert!(reading.memory() <= MOST_MEMORY, "{} bytes", reading.memory());
            match reading.step(ROOT) {
                InputEvent::More => break,
                InputEvent::Reply(_) => replies += 1,
                InputEvent::Request { head, mut bytes } => {
                    bytes.extend(pieces[at + 1..].concat());
                    return (replies, InputEvent::Request { head, bytes });
                }
                broken @ InputEvent::Broken(_) => return (replies, broken),
            }
        }
    }
    (replies, InputEvent::More)
}

#[derive(Debug, PartialEq)]
enum Heard {
    Request(u16, bool, Vec<(Vec<u8>, Vec<u8>)>),
    Body(Vec<u8>),
    BodyEnd,
    Abort,
    Reply(Vec<u8>),
    Broken(Violation),
}

fn heard(input: &[u8]) -> (Vec<Heard>, Responder) {
    let mut responder = Responder::new(LIMITS);
    let (mut heard, mut at) = (Vec::new(), 0);
    loop {
        let (used, input) = responder.receive(&input[at..]);
        at += used;
        match input {
            Input::More => return (heard, responder),
            Input::Request => {
                let params = responder.params().iter();
                let params = params
                    .map(|(name, value)| (name.to_vec(), value.to_vec()))
                    .collect();
                heard.push(Heard::Request(responder.request_id(), responder.keep(), params));
            }
            Input::Body(piece) => match heard.last_mut() {
                Some(Heard::Body(body)) => body.extend_from_slice(piece),
                _ => heard.push(Heard::Body(piece.to_vec())),
            },
            Input::BodyEnd => {
                heard.push(Heard::BodyEnd);
                return (heard, responder);
            }
            Input::Abort => heard.push(Heard::Abort),
            Input::Reply(_) if heard.is_empty() => {}
            Input::Reply(reply) => heard.push(Heard::Reply(reply.bytes().to_vec())),
            Input::Broken(violation) => {
                heard.push(Heard::Broken(violation));
                return (heard, responder);
            }
        }
    }
}

fn root(params: &Params) -> Option<Vec<u8>> {
    root_of(|name| params.get(name), ROOT).map(|root| root.into_owned())
}

/// Checks that all three readers find the same application, and that the encoded request is equivalent to the input.
pub(crate) fn requests(input: &[u8]) {
    let (at_once, in_parts) = (steps(&[input.to_vec()]), {
        let mut pieces = Vec::new();
        in_pieces(input, |piece| pieces.push(piece.to_vec()));
        steps(&pieces)
    });
    assert_eq!(format!("{at_once:?}"), format!("{in_parts:?}"));
    let (replies, step) = at_once;
    let (original, responder) = heard(input);
    match &step {
        InputEvent::Request { head, bytes } => {
            let (passed, _) = heard(bytes);
            assert_eq!(passed, original, "what is passed on");
            check_worker(head, input);
        }
        InputEvent::Broken(violation) => {
            assert_eq!(original, [Heard::Broken(*violation)]);
        }
        InputEvent::More => {
            assert!(original.is_empty() || original.len() == 1 && !responder.is_at_boundary())
        }
        InputEvent::Reply(_) => panic!("a reply is no end"),
    }
    match read_head(input, ROOT) {
        HeadLook::Request(head) => {
            assert_eq!(replies, 0);
            match &step {
                InputEvent::Request { head: other, .. } => assert_eq!(*other, owned(&head)),
                InputEvent::Broken(Violation::ParamsTooLong { .. } | Violation::ParamsTooMany { .. }) => {}
                InputEvent::More => check_worker(&head, input),
                other => panic!("{head:?}, but {other:?}"),
            }
            if let Some(early) = read_head_early(input, ROOT) {
                assert_eq!((early.id, early.keep), (head.id, head.keep));
                let is_named = early.root.as_ref().is_some_and(|root| !root.is_empty());
                assert!(!is_named || early.root == head.root);
            }
        }
        HeadLook::Partial => {
            assert_eq!(replies, 0);
            match step {
                InputEvent::More
                | InputEvent::Broken(Violation::ParamsTooLong { .. } | Violation::ParamsTooMany { .. }) => {}
                other => panic!("partial, but {other:?}"),
            }
        }
        HeadLook::Other => {}
    }
}

fn check_worker(head: &RequestHead<'_>, input: &[u8]) {
    let mut responder = Responder::new(LIMITS);
    let mut at = 0;
    loop {
        let (used, input) = responder.receive(&input[at..]);
        at += used;
        match input {
            Input::Request => break,
            Input::More => panic!("no request, but {head:?}"),
            Input::Broken(violation) => panic!("{violation}, but {head:?}"),
            _ => {}
        }
    }
    assert_eq!((responder.request_id(), responder.keep()), (head.id, head.keep));
    assert_eq!(
        root(responder.params()),
        head.root.as_ref().map(|root| root.to_vec())
    );
}

fn owned(head: &RequestHead<'_>) -> RequestHead<'static> {
    RequestHead {
        id: head.id,
        keep: head.keep,
        root: head.root.as_ref().map(|root| root.to_vec().into()),
    }
}

/// Checks that a refused request's end doesn't depend on how it is split.
pub(crate) fn bodies(input: &[u8]) {
    let whole = Rest::new(LIMITS, input);
    let mut pieces = Rest::new(LIMITS, b"");
    in_pieces(input, |piece| pieces.receive(piece));
    let ends = [&whole, &pieces].map(|rest| (rest.has_ended(), rest.is_broken()));
    assert_eq!(ends[0], ends[1]);
    let (whole, pieces) = (whole.into_after(), pieces.into_after());
    assert_eq!(whole, pieces);
    assert!(input.ends_with(&whole));
}
