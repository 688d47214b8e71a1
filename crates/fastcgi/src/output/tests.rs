use super::super::client::{Answer, Part};
use super::super::record::Header;
use super::*;

fn records(mut wire: &[u8]) -> Vec<(u8, u16, Vec<u8>)> {
    let mut records = Vec::new();
    while let Some(first) = wire.first_chunk() {
        let header = Header::decode(*first);
        let length = usize::from(header.content_length);
        assert_eq!((length + usize::from(header.padding_length)) % 8, 0);
        let content = &wire[8..8 + length];
        wire = &wire[8 + length..];
        let (padding, rest) = wire.split_at(usize::from(header.padding_length));
        assert!(padding.iter().all(|byte| *byte == 0));
        wire = rest;
        records.push((header.kind, header.request_id, content.to_vec()));
    }
    assert!(wire.is_empty());
    records
}

const END: &[u8] = &[0; 8];

#[test]
fn an_answer_is_one_piece() {
    let mut output = Output::new();
    output.begin(3);
    assert_eq!(output.stdout(b"Status: 200\r\n"), 13);
    assert_eq!(output.stdout(b"\r\nhello"), 7);
    output.end(0, ProtocolStatus::RequestComplete);
    let expected = [(6, 3, b"Status: 200\r\n\r\nhello".to_vec()), (3, 3, END.to_vec())];
    assert_eq!(records(output.pending()), expected);
    let length = output.pending().len();
    output.consume(length);
    assert!(output.is_empty());
}

#[test]
fn error_text_stays_in_its_place() {
    let mut output = Output::new();
    output.begin(1);
    output.stdout(b"a");
    output.stderr(b"b");
    output.stderr(b"c");
    output.stdout(b"d");
    output.end(7, ProtocolStatus::RequestComplete);
    let expected = [
        (6, 1, b"a".to_vec()),
        (7, 1, b"bc".to_vec()),
        (6, 1, b"d".to_vec()),
        (3, 1, vec![0, 0, 0, 7, 0, 0, 0, 0]),
    ];
    assert_eq!(records(output.pending()), expected);
}

#[test]
fn an_empty_answer_ends_too() {
    let mut output = Output::new();
    assert_eq!(output.stdout(b"before any answer"), 17);
    output.begin(9);
    assert_eq!(output.stdout(b""), 0);
    output.end(0, ProtocolStatus::Overloaded);
    output.end(0, ProtocolStatus::RequestComplete);
    assert_eq!(output.stdout(b"too late"), 8);
    assert_eq!(records(output.pending()), [(3, 9, vec![0, 0, 0, 0, 2, 0, 0, 0])]);
}

#[test]
fn what_does_not_fit_is_not_taken_but_the_end_always_fits() {
    for first in [0, 1, 7, 8, 100, 65_000] {
        let mut output = Output::new();
        output.begin(1);
        output.stderr(&vec![b'e'; first]);
        let room = output.room();
        assert_eq!(output.stdout(&vec![b'x'; 100_000]), room);
        assert_eq!((output.stdout(b"y"), output.room()), (0, 0));
        assert_eq!(output.stderr(b"y"), 0);
        output.end(0, ProtocolStatus::RequestComplete);
        assert_eq!(output.buffer.capacity(), CAPACITY);
        assert!(output.pending().len() <= CAPACITY);
        records(output.pending());
    }
}

#[test]
fn a_long_answer_survives_partial_writes() {
    let body: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_be_bytes).collect();
    let (mut output, mut wire, mut given) = (Output::new(), Vec::new(), 0);
    output.begin(1);
    for step in 1.. {
        given += output.stdout(&body[given..]);
        let pending = output.pending();
        let written = pending.len().min(1 + step * 7919 % 40_000);
        wire.extend_from_slice(&pending[..written]);
        output.consume(written);
        if given == body.len() {
            break;
        }
    }
    output.end(0, ProtocolStatus::RequestComplete);
    wire.extend_from_slice(output.pending());
    assert_eq!(output.buffer.capacity(), CAPACITY);
    let (mut answer, mut at, mut received) = (Answer::new(), 0, Vec::new());
    loop {
        let (consumed, part) = answer.receive(&wire[at..]);
        at += consumed;
        match part {
            Part::Stdout(piece) => received.extend_from_slice(piece),
            Part::End { app_status, status } => {
                assert_eq!(
                    (app_status, status, at),
                    (0, ProtocolStatus::RequestComplete, wire.len())
                );
                break;
            }
            part => panic!("{part:?}"),
        }
    }
    assert!(received == body);
}

#[test]
fn an_open_record_is_never_consumed() {
    let mut output = Output::new();
    output.begin(1);
    output.stdout(b"first");
    assert_eq!(output.pending().len(), 16);
    output.stdout(b"second");
    output.consume(1000);
    assert_eq!(records(output.pending()), [(6, 1, b"second".to_vec())]);
}

#[test]
fn replies_stand_between_records() {
    let mut output = Output::new();
    output.begin(1);
    output.stdout(b"a");
    assert!(output.reply(&Reply::unknown_type(50)));
    output.stdout(b"b");
    let expected = [
        (6, 1, b"a".to_vec()),
        (11, 0, vec![50, 0, 0, 0, 0, 0, 0, 0]),
        (6, 1, b"b".to_vec()),
    ];
    assert_eq!(records(output.pending()), expected);
    output.stdout(&[0; 100_000]);
    assert!(!output.reply(&Reply::unknown_type(50)));
}

#[test]
fn answers_may_queue() {
    let mut output = Output::new();
    for id in 1..=3 {
        output.begin(id);
        output.stdout(&[b'x'; 40_000]);
        output.end(0, ProtocolStatus::RequestComplete);
    }
    let records = records(output.pending());
    let ends: Vec<u16> = records
        .iter()
        .filter(|(kind, ..)| *kind == 3)
        .map(|(_, id, _)| *id)
        .collect();
    assert_eq!(ends, [1, 2, 3]);
}

#[test]
fn an_abandoned_answer_leaves_nothing_behind() {
    let mut output = Output::new();
    output.begin(1);
    output.stdout(b"secret");
    output.stderr(b"secret");
    output.abandon();
    assert!(output.is_empty());
    assert_eq!(output.stdout(b"more"), 4, "taken and dropped");
    output.begin(2);
    output.stdout(b"fine");
    output.end(0, ProtocolStatus::RequestComplete);
    let whole = output.pending().to_vec();
    let mut fresh = Output::new();
    fresh.begin(2);
    fresh.stdout(b"fine");
    fresh.end(0, ProtocolStatus::RequestComplete);
    assert_eq!(whole, fresh.pending());
}
