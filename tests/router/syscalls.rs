//! System calls of router and instance for a request, counted by strace.

use super::stand::Stand;
use crate::support::prelude::*;

const REQUESTS: u64 = 50;

fn count(stand: &Stand, pid: u32, act: impl FnOnce()) -> BTreeMap<String, u64> {
    strace::count(pid, stand.path(), act)
}

#[test]
fn a_request_on_a_kept_connection_costs_few_calls() {
    let stand = Stand::start(&["shop"], &["max=1"]);
    let pid = stand.said("shop", "x").pid;
    let mut client = stand.client().kept();
    let params = stand.params("shop", "hello");
    let mut ask = || {
        for _ in 0..REQUESTS {
            assert_eq!(client.request(&params, b"").expect("an answer").body(), "hello");
        }
    };
    ask();
    let worker = count(&stand, pid, &mut ask);
    let of = |name: &str| worker.get(name).copied().unwrap_or(0);
    let expected = ["recvmsg", "recvfrom", "sendto", "sendmsg", "close"];
    for name in expected {
        assert!(
            (REQUESTS - 1..=REQUESTS + 1).contains(&of(name)),
            "{name}: {worker:?}"
        );
    }
    // The processor time of a request is measured if it takes over a millisecond, as on a busy machine.
    let measured = of("clock_gettime");
    assert!(measured <= REQUESTS, "{worker:?}");
    let sum = worker.values().sum::<u64>() - of("fcntl") - measured;
    assert!(sum <= 6 * REQUESTS + 8, "{worker:?}");

    let router = count(&stand, stand.router(), &mut ask);
    let of = |name: &str| router.get(name).copied().unwrap_or(0);
    assert!(
        (REQUESTS - 1..=REQUESTS + 1).contains(&of("sendmsg")),
        "{router:?}"
    );
    assert!(of("recvfrom") <= 2 * REQUESTS + 2, "{router:?}");
    assert!(of("epoll_wait") <= 2 * REQUESTS + 2, "{router:?}");
    assert!(of("recvmsg") <= REQUESTS + 2, "{router:?}");
    assert!(of("epoll_ctl") <= 2, "{router:?}");
    let sum = router.values().sum::<u64>() - of("fcntl");
    assert!(sum <= 6 * REQUESTS + 10, "{router:?}");
}

#[test]
fn a_router_of_which_nobody_wants_anything_makes_no_calls() {
    let stand = Stand::start(&["shop"], &["max=1"]);
    stand.said("shop", "x");
    let calls = count(&stand, stand.router(), || {
        for _ in 0..20 {
            crate::support::pause();
        }
    });
    let sum: u64 = calls.values().sum();
    assert!(sum <= 2, "{calls:?}");
}
