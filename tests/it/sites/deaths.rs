//! kill -9 of everything, under load.

use super::{Sites, get, visitors};
use crate::support::prelude::*;

fn php(sites: &Sites) {
    sites.php("app", 0, "usleep(2000); echo 'fine';");
    assert_eq!(sites.body("/app/"), "fine");
}

fn bad(answers: &[(u16, String)]) -> usize {
    answers
        .iter()
        .filter(|answer| **answer != (200, "fine".to_owned()))
        .count()
}

#[test]
fn a_router_that_is_killed_is_followed_by_one_that_knows_the_instances() {
    let sites = Sites::start("max = 3");
    php(&sites);
    let (before, router) = (sites.instances(), sites.companion("router"));
    let load = visitors(sites.nginx.port, &["/app/"], 3);
    load.wait_for(30);
    process::signal(router, Signal::SIGKILL);
    wait_until("another router", || !process::runs(router));
    assert_ne!(sites.companion("router"), router);
    load.wait_for(60);
    let answers = load.end();
    assert!(bad(&answers) <= 3, "{} of {}", bad(&answers), answers.len());
    assert!(before.is_subset(&sites.instances()), "the instances go on");
    assert_eq!(sites.body("/app/"), "fine");
}

#[test]
fn a_inspector_that_is_killed_costs_no_request() {
    let sites = Sites::start("max = 3");
    php(&sites);
    let inspector = sites.companion("inspector");
    let load = visitors(sites.nginx.port, &["/app/"], 3);
    load.wait_for(30);
    process::signal(inspector, Signal::SIGKILL);
    wait_until("its end", || !process::runs(inspector));
    assert_ne!(sites.companion("inspector"), inspector);
    load.wait_for(30);
    sites.php("other", 0, "echo 'other';");
    assert_eq!(sites.body("/other/"), "other");
    assert_eq!(bad(&load.end()), 0, "{}", sites.daemon.log());
}

#[test]
fn an_instance_that_is_killed_takes_its_own_request_with_it_and_no_other() {
    let sites = Sites::start("max = 3");
    php(&sites);
    let load = visitors(sites.nginx.port, &["/app/"], 3);
    load.wait_for(30);
    let mut killed = 0;
    for _ in 0..4 {
        let Some(victim) = sites.instances().into_iter().next() else {
            continue;
        };
        process::signal(victim, Signal::SIGKILL);
        killed += 1;
        load.wait_for(20);
    }
    let answers = load.end();
    assert!(bad(&answers) <= killed, "{} of {}", bad(&answers), answers.len());
}

#[test]
fn a_preloader_that_is_killed_costs_no_request() {
    let sites = Sites::start("max = 3\nmax_requests = 5");
    php(&sites);
    let load = visitors(sites.nginx.port, &["/app/"], 3);
    load.wait_for(30);
    for _ in 0..2 {
        let preloader = until("a preloader", || {
            let children = process::children(sites.daemon.pid());
            let is_one = |pid: &u32| process::title(*pid).starts_with("forkyard: preloader");
            children.into_iter().find(is_one)
        });
        process::signal(preloader, Signal::SIGKILL);
        wait_until("its end", || !process::runs(preloader));
        load.wait_for(40);
    }
    assert_eq!(bad(&load.end()), 0, "{}", sites.daemon.log());
}

/// An instance keeps its slot until its process exits: it is killed, and no other instance is refused because of it.
#[test]
fn an_instance_that_closes_its_channel_and_stays_is_ended() {
    let sites = Sites::start("max = 2\nmax_spawning = 2\nmax_per_app = 2");
    let leave = "import os, time\ndef application(environ, start_response):\n    os.closerange(3, 200)\n    time.sleep(600)\n";
    sites.add("evil", 0, &[("passenger_wsgi.py", leave)]);
    sites.wsgi("good", 1, "'good'");
    let port = sites.nginx.port;
    let evil: Vec<_> = (0..2)
        .map(|_| std::thread::spawn(move || get(port, "/evil/")))
        .collect();
    wait_until("both places to be taken", || sites.instances().len() == 2);
    let stuck = sites.instances();
    assert_eq!(sites.body("/good/"), "good");
    process::wait_for_ends(&stuck);
    for client in evil {
        let _ = client.join().expect("client");
    }
    assert_lacks(&sites.daemon.log(), "instances, and no more may be");
}
