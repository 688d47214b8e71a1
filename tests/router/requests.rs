//! Requests reach their application.

use super::stand::{Stand, said};
use crate::random::Random;
use crate::support::prelude::*;
use std::collections::HashSet;

#[test]
fn a_request_is_answered_by_its_application() {
    let stand = Stand::start(&["shop", "blog"], &["max=4"]);
    for application in ["shop", "blog", "shop"] {
        assert_eq!(stand.said(application, "x").application, stand.root(application));
    }
    let view = stand.view();
    assert_eq!(
        (view["instances"].as_u64(), view["totals"]["lent"].as_u64()),
        (Some(2), Some(3)),
        "{view}"
    );
}

#[test]
fn the_root_is_named_in_three_ways() {
    let stand = Stand::start(&["shop", "blog"], &["max=4"]);
    let shop = stand.root("shop");
    let plain = Params::get(&shop.join("public"), "x", "y");
    let mut client = stand.client().kept();
    let answer = client.request(&plain, b"").expect("an answer");
    assert_eq!(said(&answer).application, shop, "the parent of the document root");
    let blog = stand.root("blog").display().to_string();
    let answer = client.request(&plain.clone().with("PASSENGER_APP_ROOT", &blog), b"");
    assert_eq!(said(&answer.expect("an answer")).application, stand.root("blog"));
    let shop = shop.display().to_string();
    let both = plain.with("PASSENGER_APP_ROOT", &blog).with("APP_ROOT", &shop);
    let answer = client.request(&both, b"").expect("an answer");
    assert_eq!(said(&answer).application, stand.root("shop"));
}

#[test]
fn what_is_no_application_is_not_found() {
    let stand = Stand::start(&["shop"], &["max=1"]);
    let mut client = stand.client().kept();
    for _ in 0..3 {
        let answer = stand.ask(&mut client, "none", "", b"body");
        assert_starts(&answer.text(), "Status: 404 Not Found\r\n");
    }
    let answer = client.request(&stand.params("shop", "").with("APP_ROOT", "shop"), b"");
    assert_starts(&answer.expect("an answer").text(), "Status: 403 Forbidden\r\n");
    assert_eq!(said(&stand.ask(&mut client, "shop", "", b"four")).length, 4);
    let lines = stand
        .log()
        .lines()
        .filter(|line| line.contains("no application"))
        .count();
    assert_eq!(lines, 1, "{}", stand.log());
}

#[test]
fn mixed_applications_on_kept_connections_reach_the_right_one_always() {
    const NAMES: [&str; 6] = ["one", "two", "three", "four", "five", "six"];
    let stand = Stand::start(&NAMES, &["max=4"]);
    let stand = &stand;
    let socket = stand.path().join("stand.sock");
    let roots: Vec<_> = NAMES
        .iter()
        .map(|name| (stand.root(name), stand.params(name, "x")))
        .collect();
    let (socket, roots) = (&socket, &roots);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || {
                let mut random = Random::new(seed);
                let connect = || Client::connect(socket).expect("it listens");
                let mut clients: Vec<_> = (0..8).map(|_| connect().kept()).collect();
                for turn in 0..300 {
                    let at = random.below(clients.len());
                    let (root, params) = &roots[random.below(roots.len())];
                    let body = vec![b'x'; random.below(3000)];
                    let said = said(&clients[at].request(params, &body).expect("an answer"));
                    assert_eq!(&said.application, root, "seed {seed}, turn {turn}");
                    assert_eq!(said.length, body.len() as u64, "seed {seed}, turn {turn}");
                    if random.one_in(20) {
                        clients[at] = connect().kept();
                    }
                }
            });
        }
    });
    let view = stand.view();
    assert_eq!(view["totals"]["lent"].as_u64(), Some(1200), "{view}");
    assert!(view["instances"].as_u64() <= Some(4), "{view}");
}

#[test]
fn a_body_is_not_the_router_s_to_read() {
    let stand = Stand::start(&["shop"], &["max=1"]);
    stand.said("shop", "warm");
    let before = sleeps(stand.router());
    let body = vec![b'x'; 10 << 20];
    let mut client = stand.client().kept();
    let answer = stand.ask(&mut client, "shop", "", &body);
    assert_eq!(said(&answer).length, 10 << 20);
    let calls = sleeps(stand.router()) - before;
    assert!(calls < 100, "{calls} context switches of the router");
    let answer = stand.ask(&mut client, "shop", "", b"abc");
    assert_eq!(said(&answer).length, 3, "and the connection goes on");
}

fn sleeps(pid: u32) -> u64 {
    let line = process::status_line(pid, "voluntary_ctxt_switches");
    line.and_then(|line| line.trim().parse().ok()).expect("a number")
}

#[test]
fn a_request_that_trickles_in_is_served() {
    let stand = Stand::start(&["shop"], &["max=1"]);
    let wire = encoded(&Request {
        keep: true,
        params: &stand.params("shop", "").pairs(),
        body: b"12345",
        record_content: 50,
        ..Request::default()
    });
    let mut client = stand.client();
    for byte in &wire {
        client.send_raw(std::slice::from_ref(byte)).expect("it reads");
    }
    assert_eq!(said(&client.answer().expect("an answer")).length, 5);
    let twice = [&wire[..], &wire[..]].concat();
    client.send_raw(&twice).expect("it reads");
    let pids: HashSet<u32> = (0..2)
        .map(|_| said(&client.answer().expect("an answer")).pid)
        .collect();
    assert_eq!(pids.len(), 1);
}

#[test]
fn an_answer_may_end_before_its_application_is_done() {
    let stand = Stand::start(&["shop"], &["max=1"]);
    stand.said("shop", "warm");
    let mut client = stand.client().kept();
    let first = stand.ask(&mut client, "shop", "finish", b"");
    let second = stand.ask(&mut client, "shop", "next", b"");
    assert_eq!(said(&first).pid, said(&second).pid, "it is waited for");
}

#[test]
fn a_connection_that_other_users_have_had_is_not_kept() {
    let stand = Stand::start(&["shop"], &["max=1", "one_user=0"]);
    let mut client = stand.client().kept();
    let answer = stand.ask(&mut client, "shop", "", b"abc");
    assert_eq!((said(&answer).length, answer.ended), (3, true));
    assert_eq!(client.read_raw().expect("the end"), b"");
}
