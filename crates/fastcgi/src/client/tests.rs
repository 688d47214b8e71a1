use super::super::output::Output;
use super::*;

fn parts(answer: &mut Answer, wire: &[u8], cut: usize) -> (Vec<u8>, Vec<u8>, Vec<String>) {
    let (mut stdout, mut stderr, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    for piece in wire.chunks(cut) {
        let mut at = 0;
        loop {
            let (consumed, part) = answer.receive(&piece[at..]);
            at += consumed;
            match part {
                Part::More => break,
                Part::Stdout(bytes) => stdout.extend_from_slice(bytes),
                Part::Stderr(bytes) => stderr.extend_from_slice(bytes),
                Part::Broken => {
                    rest.push("broken".to_owned());
                    break;
                }
                part => rest.push(format!("{part:?}")),
            }
        }
        assert_eq!(at, piece.len());
    }
    (stdout, stderr, rest)
}

#[test]
fn an_answer_may_be_cut_anywhere() {
    let mut output = Output::new();
    output.begin(4);
    output.stdout(b"out");
    output.stderr(b"error");
    output.stdout(b"put");
    output.end(3, ProtocolStatus::RequestComplete);
    let wire = output.pending();
    for cut in 1..=wire.len() {
        let mut answer = Answer::new();
        let (stdout, stderr, rest) = parts(&mut answer, wire, cut);
        assert_eq!(
            (stdout.as_slice(), stderr.as_slice()),
            (&b"output"[..], &b"error"[..])
        );
        let expected = ["End { app_status: 3, status: RequestComplete }"];
        assert_eq!(rest, expected, "cut at {cut}");
        assert_eq!(answer.request_id(), 4);
    }
}

#[test]
fn streams_may_be_closed_by_an_empty_record() {
    let wire = [RecordType::Stderr, RecordType::Stdout].map(|kind| header(kind, 1, 0, 0));
    let (.., rest) = parts(&mut Answer::new(), &wire.concat(), 16);
    assert_eq!(rest, ["Closed(Stderr)", "Closed(Stdout)"]);
}

#[test]
fn what_is_no_answer_breaks_it() {
    let garbage: [&[u8]; 4] = [
        b"HTTP/1.1 502 Bad Gateway",
        &[0; 8],
        &[1, 3, 0, 1, 0, 7, 0, 0],
        &[1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0],
    ];
    for wire in garbage {
        assert_eq!(parts(&mut Answer::new(), wire, wire.len()).2, ["broken"]);
        let mut answer = Answer::new();
        parts(&mut answer, wire, 1);
        assert_eq!(answer.receive(b"x"), (1, Part::Broken));
    }
}

#[test]
fn requests_are_cut_and_padded_as_asked() {
    let request = Request {
        body: &[b'x'; 10],
        record_content: 4,
        pads: true,
        ..Request::default()
    };
    let mut wire = Vec::new();
    request.encode(&mut wire);
    assert_eq!(wire.len(), 16 + 8 + 3 * 16 + 8);
    let mut bare = Vec::new();
    Request {
        pads: false,
        ..request
    }
    .encode(&mut bare);
    assert_eq!(bare.len(), 16 + 8 + 3 * 8 + 10 + 8);
}

#[test]
fn a_question_for_limits_is_answered() {
    let wire = get_values();
    assert_eq!((wire.len() % 8, wire[1]), (0, RecordType::GetValues as u8));
    let mut responder = super::super::Responder::new(super::super::Limits::default());
    let (used, input) = responder.receive(&wire);
    let super::super::Input::Reply(reply) = input else {
        panic!("{input:?}");
    };
    assert_eq!(used, wire.len());
    let (_, part) = Answer::new().receive(reply.bytes());
    assert!(
        matches!(part, Part::Other(RecordType::GetValuesResult, _)),
        "{part:?}"
    );
}
