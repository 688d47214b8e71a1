//! Clients that ask for the wrong thing, ask slowly, or keep asking.

use super::{Got, Place, Site, TRANSPORTS, Transport, Wire};
use crate::support::prelude::*;

#[test]
fn wrong_requests_are_refused_and_closed() {
    each(TRANSPORTS, |transport| {
        let site = Site::start(transport, 1);
        let long = format!(
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
            "x".repeat(9000)
        );
        for (request, status) in [
            (
                "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
                405,
            ),
            ("DELETE /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
            ("GET /metrics HTTP/1.1\r\nHost: evil.test\r\n\r\n", 421),
            (
                "GET http://evil.test/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
                421,
            ),
            ("GET /metrics HTTP/1.1\r\n\r\n", 400),
            (
                "GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n",
                413,
            ),
            ("\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}", 400),
            (&long, 431),
        ] {
            let got = Got::read(&site.place.talk(request)).expect("an answer");
            assert_eq!(got.status, status, "{request}");
            assert_contains(&got.header, "\r\nConnection: close");
            assert_eq!(got.header.contains("\r\nAllow: GET, HEAD"), status == 405);
        }
        let head = site
            .place
            .talk("HEAD /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "));
        assert!(length.expect("a length").parse::<u32>().expect("a number") > 1000);
        assert_ends(&head, "\r\n\r\n");
    });
}

#[test]
fn names_of_hosts_are_the_operator_s() {
    let port = free_port();
    let daemon = Daemon::start(|dir| {
        let hosts = "web_hosts = [\"Numbers.example.org\"]\n";
        let global = format!("{}{}{hosts}", with_control(dir), Place::Tcp(port).key());
        global + &php_pool(dir, "", "")
    });
    let place = Place::Tcp(port);
    place.wait_for("/health/live", 200);
    for (host, status) in [
        ("numbers.example.org:9180", 200),
        ("127.0.0.1", 200),
        ("[::1]:1", 200),
        ("example.org", 421),
    ] {
        let request = format!("GET /health/live HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        assert_eq!(
            Got::read(&place.talk(&request)).expect("an answer").status,
            status,
            "{host}"
        );
    }
    drop(daemon);
}

/// Reads one answer, as long as its header says.
fn answer(reader: &mut BufReader<Wire>) -> (String, String) {
    let mut header = String::new();
    while !header.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut header).expect("a line"), 0, "{header}");
    }
    let length = header
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.expect("a length").parse().expect("a number")];
    reader.read_exact(&mut body).expect("a body");
    (header, text_of(&body))
}

#[test]
fn a_connection_has_many_requests_and_pipelined_ones_in_order() {
    each(TRANSPORTS, |transport| {
        let site = Site::start(transport, 1);
        let request = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let mut reader = BufReader::new(site.place.connect().expect("connect"));
        for _ in 0..3 {
            reader
                .get_mut()
                .write_all(request("/health/live").as_bytes())
                .expect("write");
            assert_eq!(answer(&mut reader).1, "{\"state\":\"live\"}\n");
        }
        let all = [
            request("/status/www?json"),
            request("/nothing"),
            request("/health/ready"),
        ];
        reader
            .get_mut()
            .write_all(all.concat().as_bytes())
            .expect("write");
        assert_starts(&answer(&mut reader).1, "{\"pool\":\"www\"");
        assert_starts(&answer(&mut reader).0, "HTTP/1.1 404 ");
        assert_eq!(answer(&mut reader).1, "{\"state\":\"ready\"}\n");
    });
}

#[test]
fn slow_and_idle_clients_keep_nobody_from_the_numbers() {
    let site = Site::start(Transport::Unix, 1);
    let mut clients = Vec::new();
    for index in 0..400 {
        let mut wire = site.place.connect().expect("connect");
        let bytes: &[u8] = match index % 4 {
            0 => b"",
            1 => b"GET /metr",
            2 => b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\nGET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
            _ => b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n",
        };
        let _ = wire.write_all(bytes);
        clients.push(wire);
    }
    assert_eq!(site.place.get("/health/live").status, 200);
    let [web] = site.processes()[..] else {
        panic!("one process, and the first");
    };
    let open = fs::read_dir(format!("/proc/{web}/fd")).expect("fd").count();
    assert!(open < 150, "{open} descriptors");
    let mut slow = site.place.connect().expect("connect");
    slow.write_all(b"GET /health/live HT").expect("write");
    let begun = Instant::now();
    let rest = slow.rest();
    assert!(
        rest.is_empty() && begun.elapsed() < Duration::from_secs(20),
        "{rest}"
    );
    assert_eq!(site.place.get("/health/live").status, 200);
    assert_eq!(site.daemon.get("www", "a.php").body(), "a");
}

#[test]
fn the_master_is_asked_ten_times_a_second_at_most() {
    let site = Site::start(Transport::Unix, 1);
    let report = site.daemon.dir.join("calls");
    let mut strace = strace::attach(site.daemon.pid(), &report, &["-e", "trace=memfd_create"]);
    let begun = Instant::now();
    let mut asked = 0;
    while begun.elapsed() < Duration::from_secs(1) {
        assert_eq!(site.place.get("/metrics").status, 200);
        asked += 1;
    }
    let most = begun.elapsed().as_millis() as usize / 100 + 1;
    process::signal(strace.id(), Signal::SIGINT);
    let _ = strace.wait();
    let made = read_file(&report).matches("forkyard-numbers").count();
    assert!(
        made <= most && asked > made,
        "{made} answers to {asked} requests, and {most} may be"
    );
}
