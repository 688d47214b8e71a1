//! How many workers both releases have while they share the requests.

use super::Shop;
use super::visitors::{Visitors, application};
use crate::support::prelude::*;

const EIGHT: &str = "pm = \"static\"\nmax_children = 8\n";
/// Deploys release 2, and returns the command's exit code and the most workers that there were meanwhile.
fn most_workers(shop: &Shop) -> (Option<i32>, usize) {
    let mut command = forkyard(
        &["deploy", "shop", &shop.release("2"), "--wait"],
        &shop.daemon.dir,
    );
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut deploying = command.spawn().expect("a deployment");
    let mut most = 0;
    loop {
        most = most.max(shop.daemon.workers("shop").len());
        if let Some(status) = deploying.try_wait().expect("wait") {
            return (status.code(), most);
        }
    }
}

#[test]
fn both_releases_of_a_static_pool_have_about_as_many_workers_as_one() {
    for (name, is_kept) in [
        ("zygote", false),
        ("php", true),
        ("wsgi", false),
        ("asgi", true),
        ("node", false),
        ("cgi", true),
    ] {
        let steps = "gradual = [10, 50]\nstep_time = \"1s\"\n";
        let shop = Shop::start(application(name), &format!("{EIGHT}{steps}"), false);
        shop.daemon.wait_for_workers("shop", 8);
        let visitors = Visitors::start(&shop, &["/"], 4, is_kept);
        let (code, most) = most_workers(&shop);
        assert_eq!(code, Some(0), "{name}: {}", shop.daemon.log());
        // Ten, and one that leaves.
        assert!(most <= 11, "{name}: {most}");
        shop.daemon.wait_for_workers("shop", 8);
        let seen = visitors.end();
        assert!(seen.keys().all(|text| text.starts_with("200")), "{seen:?}");
        println!("{name} kept {is_kept}: {most}");
    }
}

#[test]
fn workers_that_made_room_come_back_with_the_old_release() {
    for name in ["zygote", "wsgi"] {
        let steps = "gradual = [50]\nstep_time = \"600s\"\n";
        let shop = Shop::start(application(name), &format!("{EIGHT}{steps}"), false);
        let old = shop.daemon.wait_for_workers("shop", 8);
        let visitors = Visitors::start(&shop, &["/"], 4, false);
        let mut command = forkyard(&["deploy", "shop", &shop.release("2")], &shop.daemon.dir);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut deploying = command.spawn().expect("a deployment");
        shop.daemon.wait_for("the new release gets 50 % of the requests");
        let are_old = |workers: &[u32]| workers.iter().filter(|pid| old.contains(pid)).count();
        let mut shared = Vec::new();
        wait_until("four workers of each release", || {
            shared = shop.daemon.workers("shop");
            shared.len() == 8 && are_old(&shared) == 4
        });
        let (code, said) = shop.daemon.said(&["rollback", "shop"]);
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(deploying.wait().expect("wait").code(), Some(70));
        wait_until("eight workers of the old release", || {
            let now = shop.daemon.workers("shop");
            let stayed = now.iter().filter(|pid| shared.contains(pid)).count();
            now.len() == 8 && stayed == 4 && are_old(&now) == 4
        });
        shop.assert_serves("1", &[]);
        let seen = visitors.end();
        assert!(seen.keys().all(|text| text.starts_with("200")), "{seen:?}");
    }
}
