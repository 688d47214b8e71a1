//! Out-of-band work of applications in an application pool.

use super::{Sites, get, visitors};
use crate::it::documents::blocks;
use crate::support::prelude::*;

fn documented(kind: &str, does: &str, instead: &str) -> String {
    let blocks = blocks::read(&blocks::root().join("docs/reference/application-pool.md"));
    let shown = blocks.iter().find(|block| block.kind == kind).expect(kind);
    assert!(shown.text.contains(does), "{}", shown.text);
    shown.text.replace(does, instead)
}

fn whole(sites: &Sites, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", sites.nginx.port)).expect("connect");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("send");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answer");
    answer
}

fn lines(root: &Path) -> Vec<String> {
    let text = fs::read_to_string(root.join("log")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn wait_for_lines(root: &Path, count: usize) -> Vec<String> {
    until("lines", || {
        let lines = lines(root);
        (lines.len() >= count).then_some(lines)
    })
}

fn python(work: &str) -> String {
    format!(
        "import os, time, forkyard\ndef note(text):\n    with open('log', 'a') as log:\n        log.write(text + '\\n')\n\
         @forkyard.out_of_band\ndef work():\n{work}\n\
         def application(environ, start):\n    start('200 OK', [('X-Passenger-Request-OOB-Work', 'true')])\n    \
         return [str(os.getpid()).encode()]\n"
    )
}

/// Records its start, waits for the file `go`, and records its end.
const HELD: &str = "    note(f'begin {os.getpid()}')\n    while not os.path.exists('go'):\n        time.sleep(0.01)\n    \
                    note(f'end {os.getpid()}')\n";

#[test]
fn what_the_document_shows_is_done_and_its_header_is_not_seen() {
    let sites = Sites::start("max = 6");
    let ruby = documented(
        "ruby",
        "GC.start",
        "File.write(\"log\", \"#{Process.pid}\\n\", mode: \"a\")",
    );
    let passenger = ruby
        .replace("Forkyard.out_of_band", "PhusionPassenger.on_event(:oob_work)")
        .replace("forkyard-request-oob-work", "!~Request-OOB-Work");
    let note = "__import__('builtins').open('log', 'a').write(f'{__import__(\"os\").getpid()}\\n')";
    let python = documented("python", "gc.collect()", note);
    let asgi = "import os, asyncio, forkyard\n@forkyard.out_of_band\nasync def work():\n    await asyncio.sleep(0)\n    \
                open('log', 'a').write(f'{os.getpid()}\\n')\n\
                async def application(scope, receive, send):\n    assert scope['type'] == 'http'\n    \
                await send({'type': 'http.response.start', 'status': 200, 'headers': [(b'Forkyard-Request-OOB-Work', b'true')]})\n    \
                await send({'type': 'http.response.body', 'body': b'hello'})\n";
    let rows = [
        ("ruby", "config.ru", &ruby),
        ("passenger", "config.ru", &passenger),
        ("wsgi", "passenger_wsgi.py", &python),
        ("asgi", "asgi.py", &asgi.to_owned()),
    ];
    each(rows, |(name, file, code)| {
        let root = sites.add(name, 0, &[(file, code)]);
        let answer = whole(&sites, &format!("/{name}/"));
        assert_starts(&answer, "HTTP/1.1 200 ");
        assert_contains(&answer, "hello");
        assert!(!answer.to_ascii_lowercase().contains("oob-work"), "{answer}");
        let worked = wait_for_lines(&root, 1);
        let pid: u32 = worked[0].parse().expect("a process id");
        assert!(sites.instances().contains(&pid), "{pid} is no instance");
        assert!(sites.body(&format!("/{name}/")).contains("hello"));
        wait_for_lines(&root, 2);
    });
    assert_lacks(&sites.daemon.log(), "failed");
}

#[test]
fn one_instance_at_a_time_works_and_requests_go_to_the_others() {
    let sites = Sites::start("max = 2\nmin_instances = 2");
    let root = sites.add("app", 0, &[("passenger_wsgi.py", &python(HELD))]);
    sites.body("/app/");
    let begun = wait_for_lines(&root, 1);
    let pid: u32 = begun[0]
        .strip_prefix("begin ")
        .expect(&begun[0])
        .parse()
        .expect("pid");
    let status = sites.status();
    let instances = status["book"]["applications"][0]["instances"]
        .as_array()
        .expect("instances")
        .clone();
    let working = instances.iter().find(|one| one["pid"] == pid).expect("it");
    assert_eq!(working["state"], "working", "{status}");
    let load = visitors(sites.nginx.port, &["/app/"], 3);
    load.wait_for(30);
    for (status, body) in load.end() {
        assert_eq!(status, 200, "{body}");
        assert_ne!(body, pid.to_string(), "a request was given to the one that works");
    }
    assert_eq!(lines(&root), begun);
    fs::write(root.join("go"), "").expect("go");
    let all = wait_for_lines(&root, 4);
    for pair in all.chunks(2) {
        assert_eq!(pair[1], pair[0].replace("begin", "end"), "{all:?}");
    }
    assert_ne!(all[0], all[2], "each of the two has worked");
    let load = visitors(sites.nginx.port, &["/app/"], 3);
    wait_until("a new answer", || {
        load.count(|(_, seen)| seen == &pid.to_string()) > 0
    });
    load.end();
}

#[test]
fn a_request_waits_for_the_only_instance_that_there_may_be() {
    let sites = Sites::start("max = 1");
    let root = sites.add("app", 0, &[("passenger_wsgi.py", &python(HELD))]);
    let pid = sites.body("/app/");
    wait_for_lines(&root, 1);
    let port = sites.nginx.port;
    let waits = std::thread::spawn(move || get(port, "/app/").expect("answer"));
    wait_until("a request that waits", || sites.status()["book"]["waiting"] == 1);
    fs::write(root.join("go"), "").expect("go");
    assert_eq!(waits.join().expect("client"), (200, pid));
}

#[test]
fn work_that_fails_is_logged_and_the_instance_serves_on() {
    let sites = Sites::start("max = 2\nmax_per_app = 1");
    let work = "    note('begin')\n    raise LookupError('no such\\ncache')\n";
    sites.add("snake", 0, &[("passenger_wsgi.py", &python(work))]);
    let ruby = "PhusionPassenger.on_event(:oob_work) { raise \"no such stone\" }\n\
                run ->(env) { [200, { \"x-passenger-request-oob-work\" => \"1\" }, [Process.pid.to_s]] }\n";
    sites.add("gem", 0, &[("config.ru", ruby)]);
    for (name, problem) in [
        ("snake", "LookupError: no such cache ("),
        ("gem", "no such stone (RuntimeError)"),
    ] {
        let pid = sites.body(&format!("/{name}/"));
        let line = sites
            .daemon
            .wait_for(&format!("[pool sites:{name}] out-of-band work failed: "));
        assert!(line.contains(problem), "{line}");
        assert_lacks(&sites.daemon.log(), "forkyard/");
        for _ in 0..3 {
            assert_eq!(sites.body(&format!("/{name}/")), pid);
        }
    }
}

#[test]
fn an_instance_whose_work_does_not_end_is_replaced() {
    let sites = Sites::start("max = 2\nwork_timeout = \"1s\"");
    let root = sites.add("app", 0, &[("passenger_wsgi.py", &python(HELD))]);
    let pid: u32 = sites.body("/app/").parse().expect("pid");
    wait_for_lines(&root, 1);
    sites.daemon.wait_for("its out-of-band work did not end");
    wait_until("its end", || !process::runs(pid));
    sites.daemon.wait_for("was doing its out-of-band work");
    fs::write(root.join("go"), "").expect("go");
    let next = sites.body("/app/");
    assert_ne!(next, pid.to_string());
    wait_until("the next one's work", || {
        lines(&root).contains(&format!("end {next}"))
    });
}

#[test]
fn the_next_router_hears_who_has_asked() {
    let sites = Sites::start("max = 2\nmin_instances = 2");
    let root = sites.add("app", 0, &[("passenger_wsgi.py", &python(HELD))]);
    let first = sites.body("/app/");
    wait_for_lines(&root, 1);
    let second = sites.body("/app/");
    assert_ne!(second, first, "it has asked and has to wait");
    let router = sites.companion("router");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(router as i32), Signal::SIGKILL).expect("kill");
    wait_until("the next router", || sites.companion("router") != router);
    assert_eq!(sites.body("/app/"), second);
    fs::write(root.join("go"), "").expect("go");
    wait_until("the work of both", || {
        let lines = lines(&root);
        let ended = |pid: &String| lines.contains(&format!("end {pid}"));
        ended(&first) && ended(&second)
    });
    let expected = [&first, &second].map(|pid| [format!("begin {pid}"), format!("end {pid}")]);
    assert_eq!(lines(&root), expected.concat());
}
