//! Queued requests: how long they wait, and their answers.

use super::stand::{Stand, said};
use crate::support::prelude::*;

#[test]
fn a_full_queue_is_answered_503_and_a_late_request_504() {
    let stand = Stand::start(&["shop"], &["max=1", "queue=1", "queue_ms=400"]);
    stand.said("shop", "warm");
    let (mut busy, mut waits) = stand.busy_and_waiting(|| stand.client(), "sleep=1500");
    let refused = stand.get("shop", "x").text();
    assert_starts(&refused, "Status: 503 Service Unavailable\r\n");
    assert_contains(&refused, "\r\nRetry-After: 1\r\n");
    let late = waits.answer().expect("an answer").text();
    assert_starts(&late, "Status: 504 Gateway Timeout\r\n");
    said(&busy.answer().expect("an answer"));
    let counters = stand.application("shop")["counters"].clone();
    assert_has(&counters, json!({"queue_full": 1, "timed_out": 1}));
}

#[test]
fn who_goes_while_it_waits_is_forgotten() {
    let stand = Stand::start(&["shop"], &["max=1"]);
    stand.said("shop", "warm");
    let mut busy = stand.client();
    stand.send(&mut busy, "shop", "sleep=2500", b"");
    stand.wait_until_busy();
    let visit = stand.params("shop", "x").with("REMOTE_ADDR", "198.51.100.7");
    let mut waits = stand.client();
    waits.send(&visit, b"").expect("it listens");
    stand.wait_for_number("waiting", 1);
    drop(waits);
    stand.wait_for_number("waiting", 0);
    said(&busy.answer().expect("an answer"));
    let counters = stand.application("shop")["counters"].clone();
    assert_has(&counters, json!({"lent": 2, "abandoned": 1}));
}

#[test]
fn who_may_still_read_or_has_started_work_keeps_its_place() {
    let stand = Stand::start(&["shop"], &["max=1"]);
    stand.said("shop", "warm");
    let mut busy = stand.client();
    stand.send(&mut busy, "shop", "sleep=1500", b"");
    stand.wait_until_busy();
    let visit = stand.params("shop", "x").with("REMOTE_ADDR", "198.51.100.7");
    for params in [
        visit.clone().posting(4),
        visit.clone().with("REMOTE_ADDR", "127.0.0.1"),
    ] {
        let mut left = stand.client();
        left.send(&params, b"body").expect("it listens");
    }
    let mut half = stand.client();
    half.send(&visit, b"").expect("it listens");
    half.shut();
    stand.wait_for_number("waiting", 3);
    said(&busy.answer().expect("an answer"));
    said(&half.answer().expect("an answer"));
    stand.wait_until_idle();
    let counters = stand.application("shop")["counters"].clone();
    assert_has(&counters, json!({"lent": 5, "abandoned": 0}));
}

#[test]
fn an_application_that_can_t_be_started_is_answered_503_with_the_report_s_id() {
    let stand = Stand::start(&["shop", "blog"], &["max=2"]);
    stand.order(&format!("break {}", stand.root("shop").display()));
    let answer = stand.get("shop", "x").text();
    assert_starts(&answer, "Status: 503 Service Unavailable\r\n");
    assert_contains(&answer, "Error ID: error-");
    stand.said("blog", "x");
}

#[test]
fn an_instance_serves_as_many_requests_as_it_may() {
    let stand = Stand::start(&["shop"], &["max=1", "max_requests=3"]);
    let mut client = stand.client().kept();
    let mut pids = Vec::new();
    for _ in 0..9 {
        pids.push(said(&stand.ask(&mut client, "shop", "x", b"")).pid);
    }
    for three in pids.chunks(3) {
        assert!(three.iter().all(|pid| *pid == three[0]), "{pids:?}");
    }
    pids.dedup();
    assert_eq!(pids.len(), 3);
}

#[test]
fn a_restart_file_and_an_order_bring_new_instances() {
    let stand = Stand::start(&["shop"], &["max=2", "throttle_ms=0"]);
    let first = stand.said("shop", "x").pid;
    assert_eq!(stand.said("shop", "x").pid, first);
    std::fs::write(stand.root("shop").join("tmp/restart.txt"), "").expect("write");
    // There is a free slot, so the old instance serves until the new one is ready.
    let second = stand.wait_for_another(first);
    let root = stand.root("shop").display().to_string();
    stand.order(&format!("restart {root} rolling"));
    stand.wait_for_another(second);
    let unknown = stand
        .admin_request("restart /nowhere")
        .expect_err("it is unknown");
    assert_contains(&unknown, "/nowhere is no application");
}

#[test]
fn a_link_that_is_switched_leads_to_another_application() {
    let stand = Stand::start(&["release-1", "release-2"], &["max=2", "throttle_ms=0"]);
    let link = stand.path().join("apps/current");
    let params = || {
        stand
            .params("release-1", "x")
            .with("APP_ROOT", &link.display().to_string())
    };
    let mut client = stand.client().kept();
    for release in ["release-1", "release-2"] {
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(stand.root(release), &link).expect("symlink");
        let answer = client.request(&params(), b"").expect("an answer");
        assert_eq!(said(&answer).application, stand.root(release));
    }
}

#[test]
fn orders_are_answered() {
    let stand = Stand::start(&["shop", "blog"], &["max=3"]);
    let pid = stand.said("shop", "x").pid;
    let root = stand.root("shop").display().to_string();
    let lease = stand.order(&format!("take {root}"));
    assert_eq!(lease["pid"].as_u64(), Some(u64::from(pid)));
    assert_ne!(said(&stand.get("shop", "x")).pid, pid, "it is lent");
    let lease = lease["lease"].as_u64().expect("a number");
    stand.order(&format!("return {lease}"));
    stand.order(&format!("return {lease}"));
    stand.order(&format!("disable {pid}"));
    for _ in 0..3 {
        assert_ne!(stand.said("shop", "x").pid, pid);
    }
    stand.order(&format!("enable {pid}"));
    stand.order(&format!("detach {pid}"));
    until("it is gone", || {
        (!crate::support::process::runs(pid)).then_some(())
    });
    assert!(stand.admin_request("detach 1").is_err());
    assert!(stand.admin_request("take nothing").is_err());
    stand.order("max 1");
    stand.wait_for_number("instances", 1);
    assert!(stand.admin_request("max 0").is_err());
}

#[test]
fn what_nobody_asks_for_is_forgotten() {
    let stand = Stand::start(&["shop"], &["max=1", "forget_ms=300"]);
    let pid = stand.said("shop", "x").pid;
    stand.order(&format!("detach {pid}"));
    let known = || stand.view()["applications"].as_array().map(Vec::len);
    wait_until("it is forgotten", || known() == Some(0));
    stand.said("shop", "x");
}

#[test]
fn an_instance_that_uses_too_much_memory_is_replaced() {
    let stand = Stand::start(&["shop"], &["max=1", "memory_limit=1"]);
    let first = stand.said("shop", "x").pid;
    stand.wait_for_another(first);
}
