//! Requests that wait behind another: some begin, and the others are answered.

use super::{dead, hold, release, visit, wait_for_last_hour};
use crate::it::holding::{APPLICATIONS, Application, Site, VISITOR};
use crate::support::prelude::*;
use forkyard_protocol::dead_work::DeadWork;
use forkyard_protocol::numbers::PoolNumbers;

const MANAGERS: [&str; 3] = [
    "pm = \"static\"\nmax_children = 1\n",
    "pm = \"dynamic\"\nmax_children = 1\nmin_spare_servers = 1\nmax_spare_servers = 1\n",
    "pm = \"ondemand\"\nmax_children = 1\n",
];
const LONG: f64 = 5.0;

/// Parameters that differ from a visitor's.
type Changes = &'static [(&'static str, &'static str)];

/// Clients that leave after their requests: name, parameters, body, and whether the request begins.
const LEAVING: [(&str, Changes, &str, bool); 7] = [
    ("left", &[], "", false),
    ("head", &[("REQUEST_METHOD", "HEAD")], "", false),
    (
        "posted",
        &[("REQUEST_METHOD", "POST"), ("CONTENT_LENGTH", "4")],
        "body",
        true,
    ),
    ("own", &[("REMOTE_ADDR", "127.0.0.1")], "", true),
    ("server", &[("SERVER_ADDR", VISITOR)], "", true),
    ("wanted", &[("RUN_ABANDONED", "1")], "", true),
    (
        "cron",
        &[("REQUEST_URI", "/blog/wp-cron.php?doing_wp_cron=1")],
        "",
        true,
    ),
];

fn assert_dead_work_ends(application: &'static Application, manager: &str, is_tcp: bool, is_kept: bool) {
    let row = format!("{} {manager:?} tcp {is_tcp} kept {is_kept}", application.runtime);
    let address = is_tcp.then(|| format!("127.0.0.1:{}", free_port()));
    let settings = format!("{manager}access.log = \"ROOT/access\"\naccess.format = \"%s %m %q\"\n");
    let site = Site::start(application, &settings, address);
    let warm = || {
        let mut client = site.client();
        client.keep = is_kept;
        if is_kept {
            let answer = client.request(&visit(&site, "warm", 0.0), b"");
            assert_eq!(answer.expect("an answer").body(), "done", "{row}");
        }
        client
    };
    let leaving: Vec<Client> = LEAVING.iter().map(|_| warm()).collect();
    let (mut half, mut patient) = (warm(), warm());
    let warmed = site.begun().len();
    let held = hold(&site);
    for (mut client, (name, changes, body, _)) in leaving.into_iter().zip(LEAVING) {
        let params = visit(&site, name, LONG);
        let params = changes
            .iter()
            .fold(params, |all, (name, value)| all.with(name, value));
        client.send(&params, body.as_bytes()).expect("send");
        client.leave();
    }
    half.send(&visit(&site, "half", LONG), b"").expect("send");
    half.shut();
    patient.send(&visit(&site, "patient", LONG), b"").expect("send");
    release(&site, held);
    assert_eq!(patient.answer().expect("an answer").body(), "done", "{row}");
    // A half-closing client of ASGI is disconnected, and a CGI program without a client is killed.
    let goes_on = application.runtime != "cgi";
    if goes_on && application.runtime != "asgi" {
        assert_eq!(half.answer().expect("an answer").body(), "done", "{row}");
    }
    let begins = |(name, _, _, begins): &(&'static str, _, _, bool)| begins.then_some(*name);
    let mut wanted: Vec<&str> = LEAVING.iter().filter_map(begins).collect();
    wanted.extend(["held", "half", "patient"]);
    wanted.sort_unstable();
    let dead = until(&format!("{row}: the end of the queue"), || {
        let (dead, begun) = (dead(&site), site.begun());
        let is_over = !goes_on || begun.len() >= warmed + wanted.len();
        (dead.abandoned >= 2 && is_over).then_some(dead)
    });
    let mut begun = site.begun().split_off(warmed);
    begun.sort_unstable();
    match goes_on {
        true => assert_eq!(begun, wanted, "{row}"),
        false => assert!(
            begun.iter().all(|name| wanted.contains(&name.as_str())),
            "{row}: {begun:?}"
        ),
    }
    assert_eq!(dead.counts(), [2, 0, 0, 0, 0, 0], "{row}");
    let logged = until("the access log's lines", || {
        let log = read_file(site.root.path().join("access"));
        let mut left: Vec<String> = log
            .lines()
            // A killed CGI program also has this status.
            .filter(|line| {
                line.starts_with("499") && (goes_on || line.ends_with("=left") || line.ends_with("=head"))
            })
            .map(str::to_owned)
            .collect();
        left.sort_unstable();
        (left.len() == 2).then_some(left)
    });
    assert_eq!(logged, ["499 GET n=left", "499 HEAD n=head"], "{row}");
    let text = site.daemon.shown(&["status", "www"]);
    assert_contains(&text, "\n  dead work: abandoned 2\n");
    let hour = wait_for_last_hour(&site, &row);
    let (errors, client_errors) = (hour.errors, site.numbers().requests.client_error);
    assert_eq!(hour.dead_work.abandoned, 2, "{row}");
    assert!(client_errors == 2 || (!goes_on && client_errors > 2), "{row}");
    // Other requests without a client have no answer.
    assert!(errors + 2 < hour.requests, "{row}: {hour:?}");
    assert_contains(
        &site.daemon.shown(&["status", "www"]),
        "; dead work: abandoned 2\n",
    );
}

fn assert_all_ways(application: &'static Application) {
    let ways = MANAGERS.iter().flat_map(|manager| {
        [(false, false), (false, true), (true, false), (true, true)].map(|way| (*manager, way))
    });
    each(ways, |(manager, (is_tcp, is_kept))| {
        assert_dead_work_ends(application, manager, is_tcp, is_kept);
    });
}

tests! {
    fn abandoned_requests_of_php_do_not_begin() => assert_all_ways(&APPLICATIONS[0]);
    fn abandoned_requests_of_cgi_do_not_begin() => assert_all_ways(&APPLICATIONS[1]);
    fn abandoned_requests_of_wsgi_do_not_begin() => assert_all_ways(&APPLICATIONS[2]);
    fn abandoned_requests_of_asgi_do_not_begin() => assert_all_ways(&APPLICATIONS[3]);
}

/// Sends requests with these parameters while the worker is busy. Returns the answers and the counts.
fn refused(
    application: &'static Application,
    settings: &str,
    rows: &[(&str, f64, Changes)],
) -> (Vec<Answer>, PoolNumbers, Vec<String>) {
    let settings = format!("{}ping.path = \"/ping\"\n{settings}", MANAGERS[0]);
    let site = Site::start(application, &settings, None);
    let held = hold(&site);
    let mut clients: Vec<Client> = Vec::new();
    for (name, ago, changes) in rows {
        let params = visit(&site, name, *ago);
        let params = changes
            .iter()
            .fold(params, |all, (name, value)| all.with(name, value));
        let mut client = site.client();
        client.send(&params, b"").expect("send");
        clients.push(client);
    }
    release(&site, held);
    let answers = clients
        .iter_mut()
        .map(|client| client.answer().expect("an answer"));
    let answers = answers.collect();
    wait_for_last_hour(&site, application.runtime);
    (answers, site.numbers(), site.begun())
}

#[test]
fn late_requests_are_answered_before_they_begin() {
    for application in [&APPLICATIONS[0], &APPLICATIONS[3]] {
        let settings = "max_request_queue_time = \"60s\"\n";
        let (answers, numbers, begun) = refused(
            application,
            settings,
            &[
                ("deadline", 50.0, &[("REQUEST_TIMEOUT", "50")]),
                ("milliseconds", 50.0, &[("REQUEST_TIMEOUT", "20000ms")]),
                ("posted", 61.0, &[("REQUEST_METHOD", "POST")]),
                ("in-time", 50.0, &[("REQUEST_TIMEOUT", "3600")]),
                ("nonsense", 50.0, &[("REQUEST_TIMEOUT", "soon")]),
                ("future", -60.0, &[]),
                (
                    "job",
                    61.0,
                    &[("FORKYARD_JOB_ID", "7"), ("REQUEST_METHOD", "POST")],
                ),
                ("ping", 61.0, &[("SCRIPT_NAME", "/ping")]),
            ],
        );
        let statuses: Vec<String> = answers.iter().map(Answer::status).collect();
        let (unavailable, late) = ("503 Service Unavailable", "504 Gateway Timeout");
        let name = application.runtime;
        assert_eq!(
            statuses
                .iter()
                .map(|status| status.split(' ').next().unwrap_or_default())
                .collect::<Vec<_>>(),
            ["503", "503", "504", "200", "200", "200", "200", "200"],
            "{name}"
        );
        assert_eq!(
            (statuses[0].as_str(), statuses[2].as_str()),
            (unavailable, late),
            "{name}"
        );
        for answer in &answers[..2] {
            assert_contains(&answer.text(), "\r\nRetry-After: ");
        }
        assert_eq!(answers[7].body(), "pong", "{name}");
        assert_eq!(begun, ["held", "in-time", "nonsense", "future", "job"], "{name}");
        assert_eq!(numbers.dead_work.counts(), [0, 2, 1, 0, 0, 2], "{name}");
        let hour = numbers.last_hour.expect("an hour");
        assert_eq!(
            (hour.errors, hour.dead_work.counts()),
            (3, [0, 2, 1, 0]),
            "{name}"
        );
        assert_eq!(numbers.requests.server_error, 3, "{name}");
        assert_eq!(hour.requests, numbers.run.count + 3, "{name}");
    }
}

#[test]
fn abandoned_requests_run_where_that_is_wanted() {
    // An application notes whether it has got one of the times; ASGI's gets no parameters.
    let ways = APPLICATIONS
        .iter()
        .flat_map(|application| MANAGERS.map(|manager| (application, manager)));
    each(ways, |(application, manager)| {
        let settings = format!("{manager}abandoned = \"run\"\n");
        let site = Site::start(application, &settings, None);
        let held = hold(&site);
        for name in ["one", "two"] {
            let params = visit(&site, name, LONG).with("REQUEST_TIMEOUT", "3600");
            site.client().send(&params, b"").expect("send");
        }
        release(&site, held);
        // A CGI program without a client is killed, perhaps before it notes anything.
        wait_until("all requests", || match application.runtime {
            "cgi" => site.numbers().requests.counts().iter().sum::<u64>() == 3,
            _ => site.begun().len() == 3,
        });
        let all = ["held", "one", "two"];
        assert!(site.begun().iter().all(|name| all.contains(&name.as_str())));
        assert_eq!(dead(&site), DeadWork::default());
    });
}

/// WordPress starts its work by requests to itself that it leaves after 10 ms.
#[test]
fn requests_that_are_left_at_once_run() {
    let site = Site::start(&APPLICATIONS[0], MANAGERS[0], None);
    let held = hold(&site);
    let names: Vec<String> = (0..10).map(|number| format!("n{number}")).collect();
    for name in &names {
        let params = visit(&site, name, 0.0).with("REQUEST_METHOD", "POST");
        site.client().send(&params, b"").expect("send");
    }
    release(&site, held);
    wait_until("all requests", || site.begun().len() == 11);
    assert_eq!(site.begun()[1..], names);
    assert_eq!(dead(&site), DeadWork::default());
}

/// Without REQUEST_START the wait is known from the listening socket and from kept connections.
#[test]
fn the_wait_is_known_without_the_web_server_s_time() {
    let site = Site::start(&APPLICATIONS[0], MANAGERS[0], None);
    let without = |name: &str| {
        let mut params = visit(&site, name, 0.0);
        params.0.retain(|(name, _)| name != "REQUEST_START");
        params
    };
    let mut kept = site.client().kept();
    kept.request(&without("warm"), b"").expect("an answer");
    let held = hold(&site);
    let begin = Instant::now();
    kept.send(&without("kept"), b"").expect("send");
    drop(kept);
    wait_until("more than a second", || {
        begin.elapsed() > Duration::from_millis(1_500)
    });
    let mut patient = site.client();
    patient.send(&without("patient"), b"").expect("send");
    release(&site, held);
    assert_eq!(patient.answer().expect("an answer").body(), "done");
    assert_eq!(
        (site.begun(), dead(&site).abandoned),
        (vec!["warm".into(), "held".into(), "patient".into()], 1)
    );
}

#[test]
fn a_request_that_waited_costs_one_poll_and_others_none() {
    const REQUESTS: u64 = 40;
    let site = Site::start(&APPLICATIONS[0], MANAGERS[0], None);
    let worker = site.daemon.wait_for_workers("www", 1)[0];
    let count = |ago: f64| {
        let mut client = site.client().kept();
        let ask = |client: &mut Client| {
            let answer = client.request(&visit(&site, "n", ago), b"");
            assert_eq!(answer.expect("an answer").body(), "done");
        };
        ask(&mut client);
        strace::count(worker, site.root.path(), || {
            (0..REQUESTS).for_each(|_| ask(&mut client))
        })
    };
    let (quick, waited) = (count(0.0), count(LONG));
    let polls = |calls: &BTreeMap<String, u64>| calls.get("poll").copied().unwrap_or(0);
    let (before, after) = (polls(&quick), polls(&waited));
    assert_eq!(after, before + REQUESTS, "{quick:?} {waited:?}");
}
