//! HTTP programs with concurrent requests in one instance.

use super::Sites;
use super::concurrent::{Bench, go, many, marks, pids};
use crate::support::prelude::*;

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

pub(super) fn add(bench: &Bench, name: &str, own: &str) -> PathBuf {
    let own = format!("runtime = \"node\"\n{own}");
    bench
        .sites
        .add(name, 0, &[("app.js", PROGRAM), ("forkyard.toml", &own)])
}

#[test]
fn bodies_are_streamed_both_ways_and_wait_for_who_is_slow() {
    let bench = Bench::start("");
    let root = add(&bench, "app", "");
    let sent: Vec<u8> = (0..8_000_000_u32).map(|number| (number % 251) as u8).collect();
    each([("", true), ("", false), ("go", true)], |(query, length)| {
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
            std::thread::sleep(Duration::from_millis(200));
            go(&root);
        }
        let answer = receives.answer().expect("answer");
        sender.join().expect("sender");
        let end = answer.stdout.len().saturating_sub(sent.len());
        assert!(
            answer.ended && answer.stdout[end..] == sent[..],
            "{} {}",
            answer.ended,
            answer.stdout.len()
        );
    });
    let mut slow = bench.send(&root, "large", "100");
    wait_until("it has begun", || marks(&root, "sent.") > 0);
    std::thread::sleep(Duration::from_millis(300));
    let ahead = marks(&root, "sent.");
    assert!(ahead < 60, "{ahead} MB are sent");
    assert!(bench.get(&root, "pid", "").parse::<u32>().is_ok());
    assert!(slow.answer().expect("answer").stdout.len() > 100_000_000);
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
}
