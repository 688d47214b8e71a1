//! Instances and routers die.

use super::stand::{Stand, said};
use crate::support::prelude::*;

#[test]
fn an_instance_that_dies_at_work_takes_its_request_along_and_no_other() {
    let stand = Stand::start(&["shop"], &["max=2"]);
    let first = stand.said("shop", "x").pid;
    let mut idle = stand.client().kept();
    stand.ask(&mut idle, "shop", "x", b"");
    let mut client = stand.client().kept();
    let answer = stand.ask(&mut client, "shop", "die", b"");
    assert_eq!(
        (answer.ended, answer.stdout.len()),
        (false, 0),
        "{}",
        answer.text()
    );
    assert_ne!(said(&stand.ask(&mut idle, "shop", "x", b"")).pid, first);
}

#[test]
fn a_request_that_was_not_begun_goes_to_another_instance() {
    let stand = Stand::start(&["shop"], &["max=1"]);
    let first = stand.said("shop", "x").pid;
    process::signal(first, Signal::SIGSTOP);
    let mut client = stand.client();
    stand.send(&mut client, "shop", "x", b"body");
    stand.wait_for_number("active", 1);
    process::signal(first, Signal::SIGKILL);
    let answer = said(&client.answer().expect("an answer"));
    assert_ne!(answer.pid, first);
    assert_eq!(answer.length, 4);
}

#[test]
fn an_instance_that_leaves_by_itself_loses_no_request() {
    let stand = Stand::start(&["shop"], &["max=2"]);
    let mut client = stand.client().kept();
    for turn in 0..30 {
        let query = if turn % 3 == 0 { "retire" } else { "x" };
        let answer = stand.ask(&mut client, "shop", query, b"");
        assert_eq!(said(&answer).application, stand.root("shop"), "turn {turn}");
    }
}

#[test]
fn a_new_router_takes_over_what_runs() {
    let stand = Stand::start(&["shop", "blog"], &["max=2", "max_per_app=1"]);
    let (shop, blog) = (stand.said("shop", "x").pid, stand.said("blog", "x").pid);
    let mut busy = stand.client();
    stand.send(&mut busy, "shop", "sleep=700", b"");
    stand.wait_until_busy();
    stand.replace_router();
    let mut next = stand.client();
    stand.send(&mut next, "shop", "next", b"");
    assert_eq!(stand.said("blog", "x").pid, blog, "it serves at once");
    assert_eq!(said(&busy.answer().expect("an answer")).pid, shop);
    assert_eq!(
        said(&next.answer().expect("an answer")).pid,
        shop,
        "when it is free"
    );
    assert_eq!(stand.count("spawned"), 2);
    stand.order(&format!("detach {shop}"));
    wait_until("it is gone", || !process::runs(shop));
    assert_ne!(stand.said("shop", "x").pid, shop);
}

#[test]
fn a_router_that_is_told_to_finish_serves_what_waits() {
    let stand = Stand::start(&["shop"], &["max=1"]);
    stand.said("shop", "x");
    let mut idle = stand.client().kept();
    stand.ask(&mut idle, "shop", "x", b"");
    let (mut busy, mut waits) = stand.busy_and_waiting(|| stand.client().kept(), "sleep=500");
    stand.say("finish");
    assert_eq!(idle.read_raw().expect("the end"), b"");
    let (busy, waits) = (
        busy.answer().expect("an answer"),
        waits.answer().expect("an answer"),
    );
    assert_eq!(said(&busy).pid, said(&waits).pid);
    stand.wait_for("finished");
    stand.wait_for("router_gone");
}
