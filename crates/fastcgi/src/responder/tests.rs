use super::super::client::Request;
use super::super::pairs::append_pair;
use super::super::record::{Header, header};
use super::*;

const PARAMS: &[(&[u8], &[u8])] = &[
    (b"REQUEST_METHOD", b"POST"),
    (b"CONTENT_LENGTH", b"5"),
    (b"EMPTY", b""),
];

fn request() -> Request<'static> {
    Request {
        params: PARAMS,
        body: b"hello",
        keep: true,
        ..Request::default()
    }
}

fn wire(request: &Request<'_>) -> Vec<u8> {
    let mut wire = Vec::new();
    request.encode(&mut wire);
    wire
}

fn record(kind: u8, id: u16, content: &[u8], padding: u8) -> Vec<u8> {
    let mut record = header(RecordType::Data, id, content.len() as u16, padding).to_vec();
    record[1] = kind;
    record.extend_from_slice(content);
    record.resize(record.len() + usize::from(padding), 0xee);
    record
}

fn begin(id: u16, role: u16, keep: bool) -> Vec<u8> {
    record(1, id, &[0, role as u8, u8::from(keep), 9, 9, 9, 9, 9], 0)
}

fn said(responder: &mut Responder, wire: &[u8]) -> Vec<String> {
    let (mut said, mut at) = (Vec::new(), 0);
    loop {
        let (consumed, meaning) = responder.receive(&wire[at..]);
        at += consumed;
        said.push(match meaning {
            Input::More => {
                assert_eq!(at, wire.len());
                return said;
            }
            Input::Request => format!("request {}", responder.request_id()),
            Input::Body(piece) => format!("body {}", String::from_utf8_lossy(piece)),
            Input::BodyEnd => {
                responder.finish();
                "end".to_owned()
            }
            Input::Abort => {
                responder.finish();
                "abort".to_owned()
            }
            Input::Reply(reply) => format!("reply {:?}", reply.bytes()),
            Input::Broken(violation) => {
                assert_eq!(responder.receive(b"more"), (4, Input::Broken(violation)));
                said.push(violation.to_string());
                return said;
            }
        });
    }
}

fn said_of(wire: &[u8]) -> Vec<String> {
    said(&mut Responder::new(Limits::default()), wire)
}

fn end_bytes(id: u8, status: u8) -> String {
    format!(
        "reply {:?}",
        [1, 3, 0, id, 0, 8, 0, 0, 0, 0, 0, 0, status, 0, 0, 0]
    )
}

#[test]
fn a_request_is_understood() {
    let mut responder = Responder::new(Limits::default());
    assert!(responder.is_between_requests());
    let wire = wire(&request());
    let (first, meaning) = responder.receive(&wire);
    assert_eq!(meaning, Input::Request);
    assert_eq!(
        (responder.role(), responder.keep(), responder.request_id()),
        (Role::Responder, true, 1)
    );
    assert_eq!(
        responder.params().at(0),
        Some((&b"FCGI_ROLE"[..], &b"RESPONDER"[..]))
    );
    assert_eq!(responder.params().iter().skip(1).collect::<Vec<_>>(), PARAMS);
    let (second, meaning) = responder.receive(&wire[first..]);
    assert_eq!(meaning, Input::Body(b"hello"));
    assert!(!responder.body_ended());
    let (third, meaning) = responder.receive(&wire[first + second..]);
    assert_eq!(meaning, Input::BodyEnd);
    assert!(responder.body_ended() && !responder.is_between_requests());
    assert_eq!(first + second + third, wire.len());
    responder.finish();
    assert!(responder.is_between_requests());
}

#[test]
fn requests_follow_each_other_on_a_kept_connection() {
    let mut both = wire(&request());
    both.extend(wire(&Request {
        id: 7,
        body: b"",
        ..request()
    }));
    assert_eq!(
        said_of(&both),
        ["request 1", "body hello", "end", "request 7", "end"]
    );
}

fn tail(text: &str) -> String {
    text.to_owned()
}

#[test]
fn a_pipelined_request_waits_for_the_current_one_to_finish() {
    let mut both = wire(&Request {
        body: b"",
        ..request()
    });
    let one = both.len();
    both.extend_from_within(..);
    for cut in one..both.len() {
        let mut responder = Responder::new(Limits::default());
        let (mut at, mut meanings) = (0, Vec::new());
        loop {
            let (consumed, meaning) = responder.receive(&both[at..cut]);
            at += consumed;
            meanings.push(meaning);
            if meaning == Input::More {
                break;
            }
        }
        assert_eq!(meanings, [Input::Request, Input::BodyEnd, Input::More]);
        assert_eq!(responder.receive(&both[at..cut]).1, Input::More);
        responder.finish();
        assert_eq!(responder.is_between_requests(), cut == one);
        assert_eq!(
            said(&mut responder, &both[at..]),
            ["request 1", "end"],
            "cut at {cut}"
        );
    }
}

#[test]
fn an_unread_body_is_skipped_after_the_answer() {
    let wire = wire(&Request {
        record_content: 2,
        ..request()
    });
    for stop in 0..3 {
        let mut responder = Responder::new(Limits::default());
        let mut at = 0;
        for _ in 0..=stop {
            at += responder.receive(&wire[at..]).0;
        }
        responder.finish();
        assert!(!responder.is_between_requests());
        while at < wire.len() {
            let (consumed, meaning) = responder.receive(&wire[at..at + 1]);
            assert_eq!((consumed, meaning), (1, Input::More));
            at += 1;
        }
        assert!(responder.is_between_requests());
    }
}

#[test]
fn the_rest_of_a_request_ends_before_the_next_one() {
    let cut_short = [begin(1, 1, true), record(4, 1, b"", 0), record(5, 1, b"cut", 3)].concat();
    for first in [wire(&request()), cut_short] {
        let all = [&first[..], &wire(&request())].concat();
        for cut in 1..=all.len() {
            let mut responder = Responder::new(Limits::default());
            let mut at = responder.receive(&first).0;
            responder.finish();
            for end in [cut, all.len()] {
                loop {
                    let (used, meaning) = responder.receive_rest(&all[at..end.max(at)]);
                    assert_eq!(meaning, Input::More, "cut at {cut}");
                    at += used;
                    if used == 0 {
                        break;
                    }
                }
            }
            assert_eq!(
                said(&mut responder, &all[at..]),
                ["request 1", "body hello", "end"],
                "cut at {cut}"
            );
        }
    }
}

#[test]
fn a_request_may_begin_though_the_last_body_never_ended() {
    let mut responder = Responder::new(Limits::default());
    let first = [
        begin(1, 1, true),
        record(4, 1, b"", 0),
        record(5, 1, b"cut sh", 0),
    ]
    .concat();
    assert_eq!(responder.receive(&first).1, Input::Request);
    responder.finish();
    let rest = [&first[24..], &wire(&request())].concat();
    assert_eq!(said(&mut responder, &rest), ["request 1", "body hello", "end"]);
}

#[test]
fn padding_and_foreign_records_are_skipped() {
    let mut pairs = Vec::new();
    append_pair(&mut pairs, b"A", b"1");
    let wire = [
        record(5, 1, b"left over", 3),
        record(5, 1, b"", 0),
        record(1, 3, &[0, 1, 0, 0, 0, 0, 0, 0], 255),
        record(4, 2, b"\xff", 1),
        record(4, 3, &pairs, 7),
        record(8, 3, b"data", 0),
        record(6, 3, b"stdout?", 1),
        record(77, 3, b"unknown", 1),
        record(9, 3, b"not management", 0),
        record(4, 3, b"", 9),
        record(5, 9, b"", 0),
        record(5, 3, b"body", 8),
        record(8, 3, b"", 0),
        record(5, 3, b"", 200),
        record(5, 3, b"", 0),
    ]
    .concat();
    let mut responder = Responder::new(Limits::default());
    assert_eq!(said(&mut responder, &wire), ["request 3", "body body", "end"]);
    assert!(responder.is_between_requests() && !responder.keep());
    assert_eq!(responder.params().get(b"A"), Some(&b"1"[..]));
}

#[test]
fn management_records_are_answered_at_any_time() {
    let mut question = Vec::new();
    append_pair(&mut question, b"FCGI_MPXS_CONNS", b"");
    append_pair(&mut question, b"FCGI_MAX_CONNS", b"");
    let mut responder = Responder::new(Limits::default());
    responder.set_values(Values {
        max_connections: Some(12),
        max_requests: None,
    });
    let whole = wire(&request());
    let wire = [
        record(9, 0, &question, 2),
        whole[..16].to_vec(),
        record(99, 0, b"??", 2),
        whole[16..].to_vec(),
    ]
    .concat();
    let mut content = Vec::new();
    append_pair(&mut content, b"FCGI_MAX_CONNS", b"12");
    append_pair(&mut content, b"FCGI_MPXS_CONNS", b"0");
    let mut values = record(10, 0, &content, 4);
    let length = values.len();
    values[length - 4..].fill(0);
    let unknown = [1, 11, 0, 0, 0, 8, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0];
    let expected = [
        format!("reply {values:?}"),
        format!("reply {unknown:?}"),
        tail("request 1"),
        tail("body hello"),
        tail("end"),
    ];
    assert_eq!(said(&mut responder, &wire), expected);
}

#[test]
fn a_second_request_at_the_same_time_is_refused_and_ignored() {
    let whole = wire(&request());
    let other = wire(&Request {
        id: 2,
        body: b"other",
        ..request()
    });
    let wire = [&whole[..16], &other, &whole[16..], &other].concat();
    let expected = [
        end_bytes(2, 1),
        tail("request 1"),
        tail("body hello"),
        tail("end"),
        tail("request 2"),
        tail("body other"),
        tail("end"),
    ];
    assert_eq!(said_of(&wire), expected);
}

#[test]
fn all_roles_are_served_and_named() {
    for (number, name) in [(1, "RESPONDER"), (2, "AUTHORIZER"), (3, "FILTER")] {
        let mut responder = Responder::new(Limits::default());
        let wire = [begin(1, number, false), record(4, 1, b"", 0)].concat();
        assert_eq!(responder.receive(&wire).1, Input::Request);
        assert_eq!(
            responder.params().at(0),
            Some((&b"FCGI_ROLE"[..], name.as_bytes()))
        );
        assert_eq!(responder.role() as u16, number);
    }
}

#[test]
fn an_unknown_role_is_refused() {
    for role in [0, 4] {
        let kept = [
            begin(1, role, true),
            wire(&request())[16..].to_vec(),
            wire(&request()),
        ]
        .concat();
        let expected = [
            end_bytes(1, 3),
            tail("request 1"),
            tail("body hello"),
            tail("end"),
        ];
        assert_eq!(said_of(&kept), expected);
        let closed = said_of(&begin(1, role, false));
        assert_eq!(closed, [format!("fastcgi request 1: unknown role {role}")]);
    }
    let reply = Violation::UnknownRole {
        request_id: 1,
        role: 0,
    }
    .reply();
    assert_eq!(
        reply.map(|reply| format!("reply {:?}", reply.bytes())),
        Some(end_bytes(1, 3))
    );
}

#[test]
fn a_request_can_be_aborted_at_any_stage() {
    let whole = wire(&request());
    let abort = record(2, 1, b"", 0);
    let stranger = record(2, 5, b"", 0);
    let early = [&whole[..16], &abort, &whole].concat();
    let expected = [
        end_bytes(1, 0),
        tail("request 1"),
        tail("body hello"),
        tail("end"),
    ];
    assert_eq!(said_of(&early), expected);
    let early = [begin(1, 1, false), abort.clone()].concat();
    assert_eq!(
        said_of(&early),
        ["fastcgi request 1: aborted before its parameters ended"]
    );
    let before_the_end = whole.len() - 8;
    let late = [&whole[..before_the_end], &stranger, &abort, &abort].concat();
    let mut responder = Responder::new(Limits::default());
    assert_eq!(said(&mut responder, &late), ["request 1", "body hello", "abort"]);
    assert!(responder.is_between_requests());
}

#[test]
fn what_breaks_a_connection() {
    let cut_pair = [
        begin(1, 1, true),
        record(4, 1, &[5, 5, b'n'], 0),
        record(4, 1, b"", 0),
    ]
    .concat();
    let cases: [(Vec<u8>, &str); 6] = [
        (vec![0; 8], "not a fastcgi record: version 0, type 0"),
        (
            record(1, 1, &[0; 7], 0),
            "fastcgi begin request record of 7 bytes, 8 expected",
        ),
        (
            [begin(1, 1, true), begin(1, 1, true)].concat(),
            "fastcgi request 1 begun again before its input ended",
        ),
        (
            cut_pair,
            "fastcgi request 1: parameters end inside a name-value pair",
        ),
        (
            [begin(1, 1, true), record(5, 1, b"", 0)].concat(),
            "fastcgi request 1: input before the parameters ended",
        ),
        (
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            "not a fastcgi record: version 71, type 69",
        ),
    ];
    for (wire, message) in cases {
        assert_eq!(said_of(&wire).join("; "), message);
    }
}

#[test]
fn records_of_other_versions_are_none() {
    let first = [begin(1, 1, false), record(4, 1, b"", 0)].concat();
    for (at, kind) in [(0, 1), (16, 4)] {
        let mut wire = first.clone();
        wire[at] = 2;
        let message = format!("not a fastcgi record: version 2, type {kind}");
        assert_eq!(said_of(&wire), [message]);
    }
}

#[test]
fn parameters_beyond_the_limits_are_refused_as_overload() {
    let whole = wire(&request());
    let bytes: usize = PARAMS.iter().map(|(name, value)| name.len() + value.len()).sum();
    let refused = |params_bytes, params_count| {
        said(
            &mut Responder::new(Limits {
                params_bytes,
                params_count,
            }),
            &whole,
        )
        .remove(0)
    };
    assert_eq!(refused(bytes, 3), "request 1");
    let message = format!("fastcgi request 1: parameters longer than {} bytes", bytes - 1);
    assert_eq!(refused(bytes - 1, 3), message);
    assert_eq!(refused(bytes, 2), "fastcgi request 1: more than 2 parameters");
    let reply = Violation::ParamsTooMany {
        request_id: 1,
        limit: 2,
    }
    .reply();
    assert_eq!(
        reply.map(|reply| format!("reply {:?}", reply.bytes())),
        Some(end_bytes(1, 2))
    );
}

#[test]
fn a_reset_forgets_the_connection() {
    let whole = wire(&request());
    for cut in 0..whole.len() {
        let mut responder = Responder::new(Limits::default());
        responder.receive(&whole[..cut]);
        responder.reset();
        assert!(responder.is_between_requests() && responder.params().is_empty());
        assert_eq!(said(&mut responder, &whole), ["request 1", "body hello", "end"]);
    }
}

#[test]
fn the_bodys_pieces_are_borrowed_from_the_input() {
    let whole = wire(&request());
    let mut responder = Responder::new(Limits::default());
    let (at, _) = responder.receive(&whole);
    let (_, meaning) = responder.receive(&whole[at..at + 10]);
    let Input::Body(piece) = meaning else {
        panic!("{meaning:?}")
    };
    assert_eq!(piece, b"he");
    assert_eq!(piece.as_ptr(), whole[at + 8..].as_ptr());
    assert_eq!(
        Header::decode(*whole[at..].first_chunk().unwrap()).content_length,
        5
    );
}
