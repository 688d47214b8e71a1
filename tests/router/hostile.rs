//! Clients that mean no good, or nothing.

use super::stand::{Stand, said};
use crate::support::prelude::*;
use fastcgi::{MAX_CONTENT, RecordType, append_pair, header};
use std::io::ErrorKind;

/// The connection closes, and not by the test's timeout. Unread data is lost with it.
fn assert_is_closed(client: &mut Client) -> Vec<u8> {
    match client.read_raw() {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Vec::new(),
        Err(error) => panic!("it is still open: {error}"),
    }
}

fn begin(keep: bool) -> Vec<u8> {
    let mut wire = header(RecordType::BeginRequest, 1, 8, 0).to_vec();
    wire.extend([0, 1, u8::from(keep), 0, 0, 0, 0, 0]);
    wire
}

fn pair(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut pairs = Vec::new();
    append_pair(&mut pairs, name, value);
    pairs
}

fn append_params(wire: &mut Vec<u8>, pairs: &[u8]) {
    for piece in pairs.chunks(MAX_CONTENT) {
        wire.extend(header(RecordType::Params, 1, piece.len() as u16, 0));
        wire.extend_from_slice(piece);
    }
}

fn request_of_no_application(keep: bool) -> Vec<u8> {
    let mut wire = begin(keep);
    append_params(&mut wire, &pair(b"FORKYARD_APP_ROOT", b"/no/such/application"));
    wire.extend(header(RecordType::Params, 1, 0, 0));
    wire
}

#[test]
fn a_silent_client_costs_nobody_anything_and_is_closed() {
    let stand = Stand::start_with(&["shop"], &["max=1"], "client_timeout = \"300ms\"\n");
    let mut silent: Vec<_> = (0..50).map(|_| stand.client()).collect();
    let mut half = stand.client();
    half.send_raw(&[1, 1, 0, 1, 0, 8]).expect("it listens");
    stand.said("shop", "x");
    for client in &mut silent {
        assert_eq!(client.read_raw().expect("the end"), b"");
    }
    assert_eq!(half.read_raw().unwrap_or_default(), b"");
    assert_eq!(stand.view()["connections"].as_u64(), Some(0));
}

#[test]
fn a_connection_is_over_with_the_router_s_own_answer_whether_the_client_closes_it_or_not() {
    let stand = Stand::start_with(&["shop"], &["max=1"], "client_timeout = \"10m\"\n");
    let mut client = stand.client();
    assert_contains(&stand.ask(&mut client, "missing", "x", b"").text(), "404 ");
    stand.wait_for_number("connections", 0);
    drop(client);
}

#[test]
fn what_is_no_fastcgi_is_closed() {
    let stand = Stand::start(&["shop"], &["max=1"]);
    for bytes in [&b"GET / HTTP/1.0\r\n\r\n"[..], &[0; 100], &[0xff; 9]] {
        let mut client = stand.client();
        client.send_raw(bytes).expect("it listens");
        assert_is_closed(&mut client);
    }
    let mut client = stand.client();
    client
        .send_raw(&[1, 5, 0, 1, 0xff, 0xff, 0, 0])
        .expect("it listens");
    client.shut();
    assert_is_closed(&mut client);
    assert!(process::runs(stand.router()));
    stand.said("shop", "x");
}

#[test]
fn questions_are_answered_by_the_router() {
    let stand = Stand::start(&["shop"], &["max=1"]);
    let pairs = pair(b"FCGI_MPXS_CONNS", b"");
    let mut wire = header(RecordType::GetValues, 0, pairs.len() as u16, 0).to_vec();
    wire.extend(&pairs);
    wire.extend([1, 77, 0, 0, 0, 0, 0, 0]);
    let mut client = stand.client().kept();
    client.send_raw(&wire).expect("it listens");
    assert_eq!(said(&stand.ask(&mut client, "shop", "x", b"abc")).length, 3);
    assert!(process::runs(stand.router()));
}

#[test]
fn parameters_that_are_too_large_are_refused() {
    let stand = Stand::start(&["shop"], &["max=1"]);
    let large = "x".repeat(90_000);
    let answer = stand
        .client()
        .request(&stand.params("shop", "x").with("HTTP_A", &large), b"abc");
    assert_eq!(said(&answer.expect("an answer")).length, 3, "larger than a look");
    let huge = "x".repeat(600_000);
    let params = stand.params("shop", "x").with("HTTP_A", &huge);
    let answer = stand.client().request(&params, b"abc").expect("an answer");
    assert_eq!(said(&answer).length, 3, "its root is known early");
    let mut wire = begin(false);
    append_params(&mut wire, &pair(b"HTTP_A", huge.as_bytes()));
    let mut client = stand.client();
    let _ = client.send_raw(&wire);
    let end = assert_is_closed(&mut client);
    if !end.is_empty() {
        assert_eq!(
            (end[1], end[12]),
            (RecordType::EndRequest as u8, 2),
            "FCGI_OVERLOADED"
        );
    }
    stand.said("shop", "x");
}

#[test]
fn a_refused_client_that_breaks_the_protocol_has_no_other_request() {
    let stand = Stand::start(&["shop"], &["max=1"]);
    let mut client = stand.client().kept();
    client
        .send_raw(&request_of_no_application(true))
        .expect("it listens");
    let refusal = client.answer().expect("an answer");
    assert!(refusal.ended, "{}", refusal.text());
    client.send_raw(&begin(true)).expect("it listens");
    until("it to be read", || {
        (stand.view()["connections"].as_u64() <= Some(1)).then_some(())
    });
    let _ = client.send(&stand.params("shop", "x"), b"");
    assert_eq!(client.read_raw().unwrap_or_default(), b"");
    stand.said("shop", "x");
}

#[test]
fn bodies_that_nobody_reads_and_never_end_hold_up_nobody_else() {
    let stand = Stand::start(&["shop"], &["max=1"]);
    let wire = request_of_no_application(false);
    let mut piece = header(RecordType::Stdin, 1, MAX_CONTENT as u16, 0).to_vec();
    piece.resize(piece.len() + MAX_CONTENT, b'x');
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut client = stand.client();
            client.send_raw(&wire).expect("it listens");
            let (piece, is_over) = (&piece, &is_over);
            scope.spawn(move || while !is_over.load(Ordering::Relaxed) && client.send_raw(piece).is_ok() {});
        }
        for _ in 0..20 {
            stand.said("shop", "x");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn incomplete_requests_have_a_budget_together() {
    const CLIENTS: usize = 800;
    let stand = Stand::start(&["shop"], &["max=1"]);
    stand.said("shop", "x");
    let resident = || {
        let line = process::status_line(stand.router(), "VmRSS").expect("the router runs");
        let number = line
            .split(' ')
            .next()
            .and_then(|number| number.parse::<usize>().ok());
        number.expect("a number") / 1024
    };
    let before = resident();
    let mut wire = begin(true);
    append_params(&mut wire, &pair(b"NAME", &[b'x'; 110_000])[..100 << 10]);
    let mut clients: Vec<_> = (0..CLIENTS)
        .filter_map(|_| {
            let mut client = stand.client();
            client.send_raw(&wire).ok().map(|()| client)
        })
        .collect();
    let sent = clients.len() as u64;
    until("all connections to be accepted", || {
        (stand.view()["accepted_connections"].as_u64()? > sent).then_some(())
    });
    until("the budget", || {
        let left = stand.view()["connections"].as_u64()?;
        (left < CLIENTS as u64 / 2).then_some(())
    });
    let most = resident();
    assert!(most < before + 64, "{before} MiB, then {most} MiB");
    stand.said("shop", "x");
    clients.clear();
    wait_until("the memory", || resident() < before + 8);
}

#[test]
fn a_record_of_another_version_is_closed_at_once() {
    let stand = Stand::start(&["shop"], &["max=1"]);
    for wire in [
        &[2, 1, 0, 1, 0, 8, 0, 0][..],
        &[2, 9, 0, 0, 0, 0, 0, 0],
        &[3, 4, 0, 1, 0, 0, 0, 0],
    ] {
        let mut client = stand.client();
        client.send_raw(wire).expect("it listens");
        assert_eq!(client.read_raw().expect("the end"), b"", "{wire:?}");
    }
    stand.said("shop", "x");
}

#[test]
fn stray_records_give_a_connection_no_more_time() {
    let stand = Stand::start_with(&["shop"], &["max=1"], "client_timeout = \"1s\"\n");
    for is_kept in [false, true] {
        let mut client = stand.client().kept();
        if is_kept {
            stand.ask(&mut client, "shop", "x", b"");
        }
        until("the connection's end", || {
            client.send_raw(&[1, 8, 0, 7, 0, 0, 0, 0]).err().map(|_| ())
        });
    }
    stand.said("shop", "x");
}
