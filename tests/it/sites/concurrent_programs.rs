//! HTTP programs with concurrent requests in one instance.

use super::Sites;
use super::concurrent::{Bench, body, go, marks};
use crate::support::fcgi::Client;
use crate::support::{assert_starts, process, until, wait_until};
use nix::sys::signal::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const PROGRAM: &str = r#"
const fs = require('fs');
let underWay = 0, most = 0, gone = 0;
const exists = file => fs.existsSync(`${__dirname}/${file}`);
const mark = file => fs.writeFileSync(`${__dirname}/${file}`, '');
const until = (test, then) => test() ? then() : setTimeout(until, 2, test, then);
const on = {
  '/pid': (request, response) => response.end(String(process.pid)),
  '/met': (request, response, query) => until(() => most >= query, () => response.end(String(process.pid))),
  '/until': (request, response) => until(() => exists('go'), () => response.end(String(process.pid))),
  '/most': (request, response) => response.end(String(most)),
  '/events': (request, response, query) => { response.write('begun\n'); mark(`open.${query}`); },
  '/gone': (request, response, query) => until(() => gone >= query, () => response.end(String(gone))),
  '/stuck': () => {},
  '/dies': () => process.kill(process.pid, 'SIGKILL'),
  '/echo': (request, response, query) => until(() => !query || exists(query), () => request.pipe(response)),
  '/large': (request, response, query) => {
    const piece = Buffer.alloc(1000000, 'x');
    let left = Number(query);
    const more = () => { while (left > 0) { left--; mark(`sent.${left}`); if (!response.write(piece)) return; } response.end(); };
    response.on('drain', more);
    more();
  },
};
require('http').createServer((request, response) => {
  most = Math.max(most, ++underWay);
  response.on('close', () => { underWay--; if (!response.writableEnded) { gone++; mark(`left.${gone}`); } });
  const [path, query] = request.url.split('?');
  on[path](request, response, query ?? '');
}).listen(process.env.PORT, '127.0.0.1');
"#;

fn add(bench: &Bench, name: &str, own: &str) -> PathBuf {
    let own = format!("runtime = \"node\"\n{own}");
    bench
        .sites
        .add(name, 0, &[("app.js", PROGRAM), ("forkyard.toml", &own)])
}

fn many(bench: &Bench, root: &Path, path: &str, query: &str, count: usize) -> Vec<Client> {
    (0..count).map(|_| bench.send(root, path, query)).collect()
}

fn pids(clients: &mut [Client]) -> BTreeMap<u32, usize> {
    let mut pids = BTreeMap::new();
    for client in clients {
        let body = body(client);
        let pid = body.parse().unwrap_or_else(|_| panic!("no pid: {body}"));
        *pids.entry(pid).or_default() += 1;
    }
    pids
}

#[test]
fn requests_of_one_program_wait_at_the_same_time_and_take_one_place() {
    let bench = Bench::start("max = 2");
    let root = add(&bench, "app", "");
    assert!(bench.get(&root, "pid", "").parse::<u32>().is_ok());
    let mut clients = many(&bench, &root, "met", "200", 150);
    bench.wait_for_sessions(&root, &[150]);
    bench.sites.php("other", 1, "echo 'other';");
    assert_eq!(bench.sites.body("/other/"), "other");
    clients.extend(many(&bench, &root, "met", "200", 50));
    assert_eq!(pids(&mut clients).len(), 1);
    bench.wait_for_sessions(&root, &[0]);
    bench.sites.end();
}

#[test]
fn kept_connections_have_many_requests() {
    let bench = Bench::start("user_switching = false\ndefault_user = \"www-data\"\nrouter_user = \"nobody\"");
    let root = add(&bench, "app", "");
    let pid: u32 = bench.get(&root, "pid", "").parse().expect("a pid");
    let mut clients: Vec<Client> = (0..8)
        .map(|_| bench.sites.daemon.client("sites").kept())
        .collect();
    for _ in 0..4 {
        for client in &mut clients {
            client.send(&Bench::params(&root, "met", "8"), b"").expect("send");
        }
        assert_eq!(pids(&mut clients), BTreeMap::from([(pid, 8)]));
    }
    bench.sites.end();
}

#[test]
fn a_client_that_leaves_is_missed_by_the_program_and_by_no_other_client() {
    let bench = Bench::start("");
    let root = add(&bench, "app", "");
    let mut other = bench.send(&root, "until", "");
    let leaving = bench.send(&root, "events", "1");
    wait_until("it is open", || marks(&root, "open.1") == 1);
    bench.wait_for_sessions(&root, &[2]);
    drop(leaving);
    assert_eq!(bench.get(&root, "gone", "1"), "1");
    bench.wait_for_sessions(&root, &[1]);
    go(&root);
    assert!(body(&mut other).parse::<u32>().is_ok());
    bench.sites.end();
}

#[test]
fn bodies_are_streamed_both_ways_and_wait_for_who_is_slow() {
    let bench = Bench::start("");
    let root = add(&bench, "app", "");
    let sent: Vec<u8> = (0..8_000_000_u32).map(|number| (number % 251) as u8).collect();
    for (query, length) in [("", true), ("", false), ("go", true)] {
        let mut params = Bench::params(&root, "echo", query).with("REQUEST_METHOD", "POST");
        if length {
            params = params.with("CONTENT_LENGTH", &sent.len().to_string());
        } else {
            params = params.with("HTTP_TRANSFER_ENCODING", "chunked");
        }
        let (mut receives, mut sends) = bench.sites.daemon.client("sites").split();
        let bytes = sent.clone();
        let sender = std::thread::spawn(move || sends.send(&params, &bytes).expect("send"));
        if !query.is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(200));
            go(&root);
        }
        let answer = receives.answer().expect("answer");
        sender.join().expect("sender");
        let end = answer.stdout.len().saturating_sub(sent.len());
        assert!(
            answer.ended && answer.stdout[end..] == sent[..],
            "{query} {length} {} {} {}",
            answer.ended,
            answer.stdout.len(),
            bench.sites.daemon.log()
        );
    }
    let mut slow = bench.send(&root, "large", "100");
    wait_until("it has begun", || marks(&root, "sent.") > 0);
    std::thread::sleep(std::time::Duration::from_millis(300));
    let ahead = marks(&root, "sent.");
    assert!(ahead < 60, "{ahead} MB are sent");
    assert!(bench.get(&root, "pid", "").parse::<u32>().is_ok());
    assert!(slow.answer().expect("answer").stdout.len() > 100_000_000);
    bench.sites.end();
}

#[test]
fn a_router_that_is_killed_is_followed_by_one_that_knows_the_requests_under_way() {
    let bench = Bench::start("");
    let root = add(&bench, "app", "");
    let mut clients = many(&bench, &root, "until", "", 7);
    bench.wait_for_sessions(&root, &[7]);
    let router = bench.sites.companion("router");
    process::signal(router, Signal::SIGKILL);
    wait_until("its end", || !process::runs(router));
    assert_ne!(bench.sites.companion("router"), router);
    bench.wait_for_sessions(&root, &[7]);
    go(&root);
    assert_eq!(pids(&mut clients).len(), 1);
    bench.wait_for_sessions(&root, &[0]);
    bench.sites.end();
}

#[test]
fn a_restart_waits_for_the_requests_under_way() {
    let bench = Bench::start("max = 4");
    let root = add(&bench, "app", "");
    let mut clients = many(&bench, &root, "until", "", 5);
    bench.wait_for_sessions(&root, &[5]);
    let name = root.display().to_string();
    let output = bench.sites.forkyard(&["restart", &name, "--rolling"]);
    assert!(output.status.success(), "{output:?}");
    let old: u32 = bench.get(&root, "pid", "").parse().expect("a pid");
    let new = until("another program", || {
        let pid: u32 = bench.get(&root, "pid", "").parse().expect("a pid");
        (old != pid).then_some(pid)
    });
    go(&root);
    let answered = pids(&mut clients);
    assert_eq!(answered.len(), 1);
    assert!(!answered.contains_key(&new), "the old one has answered");
    wait_until("the end of the old one", || {
        !answered.keys().any(|pid| process::runs(*pid))
    });
    bench.sites.end();
}

#[test]
fn a_program_is_replaced_after_max_requests_and_no_request_is_lost() {
    let bench = Bench::start("max_requests = 40\nmax = 4");
    let root = add(&bench, "app", "");
    let mut seen = BTreeSet::new();
    wait_until("three programs", || {
        let mut clients = many(&bench, &root, "pid", "", 16);
        seen.extend(pids(&mut clients).into_keys());
        seen.len() >= 3
    });
    bench.sites.end();
}

#[test]
fn a_request_that_takes_too_long_is_ended_alone() {
    let bench = Bench::start("max_request_time = \"1s\"");
    let root = add(&bench, "app", "");
    let pid = bench.get(&root, "pid", "");
    let stuck = bench.send(&root, "stuck", "");
    let mut other = bench.beside_until_its_time_is_up(stuck, &root);
    go(&root);
    assert_eq!(body(&mut other), pid);
    wait_until("the program to notice", || root.join("left.1").exists());
    bench.sites.end();
}

#[test]
fn a_program_that_dies_takes_its_own_requests_with_it() {
    let bench = Bench::start("");
    let [root, other] = ["app", "other"].map(|name| add(&bench, name, ""));
    let mut unharmed = bench.send(&other, "until", "");
    let first = bench.get(&root, "pid", "");
    let mut clients = many(&bench, &root, "events", "1", 3);
    wait_until("they are open", || marks(&root, "open.1") == 1);
    bench.wait_for_sessions(&root, &[3]);
    let answer = bench.send(&root, "dies", "").answer().expect("answer");
    assert_starts(&answer.text(), "Status: 50");
    for client in &mut clients {
        assert!(!client.answer().is_ok_and(|answer| answer.ended), "it is cut");
    }
    assert_ne!(bench.get(&root, "pid", ""), first);
    bench.wait_for_sessions(&root, &[0]);
    go(&other);
    assert!(body(&mut unharmed).parse::<u32>().is_ok());
    bench.sites.end();
}

#[test]
fn requests_are_spread_over_the_processes_that_an_application_asks_for() {
    let bench = Bench::start("max = 6\nmax_per_app = 3");
    let root = add(&bench, "app", "instances = 2\n");
    assert!(bench.get(&root, "pid", "").parse::<u32>().is_ok());
    let programs = bench.status(&root)["programs"].as_array().map_or(0, Vec::len);
    assert_eq!(programs, 2);
    let mut clients = many(&bench, &root, "until", "", 20);
    wait_until("all are under way", || {
        bench.sessions(&root).iter().sum::<u64>() == 20
    });
    go(&root);
    let answered = pids(&mut clients);
    let counts: Vec<usize> = answered.values().copied().collect();
    assert!(
        counts.len() == 2 && counts.iter().all(|count| *count >= 8),
        "{answered:?}"
    );
    let greedy = add(&bench, "greedy", "instances = 50\n");
    assert!(bench.get(&greedy, "pid", "").parse::<u32>().is_ok());
    let programs = bench.status(&greedy)["programs"].as_array().map_or(0, Vec::len);
    assert_eq!(programs, 3);
    bench.sites.end();
}

#[test]
fn requests_wait_for_a_program_that_starts_and_are_told_that_it_can_not() {
    let sites = Sites::start("");
    let slow = format!("setTimeout(() => {{{PROGRAM}}}, 500);");
    sites.add("slow", 0, &[("app.js", &slow)]);
    sites.add(
        "broken",
        0,
        &[("app.js", "throw new Error('the database is not there');")],
    );
    let bench = Bench { sites };
    let root = bench.sites.apps.join("slow");
    assert_eq!(pids(&mut many(&bench, &root, "pid", "", 10)).len(), 1);
    let answer = bench
        .send(&bench.sites.apps.join("broken"), "pid", "")
        .answer()
        .expect("answer");
    assert_starts(&answer.text(), "Status: 503");
    fs::remove_dir_all(bench.sites.apps.join("broken")).expect("rmdir");
    bench.sites.end();
}

#[test]
fn an_application_has_its_program_listen_on_the_socket_that_it_is_given() {
    let bench = Bench::start("");
    let program = r#"
import os, socket
server = socket.socket(socket.AF_UNIX)
server.bind(os.environ["SOCKET"])
server.listen(8)
while True:
    client, _ = server.accept()
    if client.recv(65536):
        body = b"%d %s" % (os.getpid(), os.environ.get("PORT", "no port").encode())
        client.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    client.close()
"#;
    let own = "runtime = \"http\"\nstart_command = \"python3 app.py\"\nhandshake = \"socket\"\n";
    let root = bench
        .sites
        .add("app", 0, &[("app.py", program), ("forkyard.toml", own)]);
    let answer = bench.get(&root, "x", "");
    let (pid, port) = answer.split_once(' ').unwrap_or_else(|| panic!("{answer}"));
    assert_eq!(
        (&*bench.status(&root)["programs"][0]["pid"].to_string(), port),
        (pid, "no port")
    );
    bench.sites.end();
}
