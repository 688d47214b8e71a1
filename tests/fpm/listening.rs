//! Listening addresses and allowed clients: IPv4, IPv6, and malformed lists.

use super::both::{STOCK, forkyard_fpm, is_stock_there, said, without_time};
use super::pair::{Fpm, is_possible};
use crate::support::prelude::*;

const PING: &str = "ping.path = /ping\naccess.log = {DIR}/access\n";

fn has_ipv6() -> bool {
    let has_it = TcpListener::bind("[::1]:0").is_ok();
    !crate::skip::skip_unless(has_it, "this machine has no IPv6")
}

fn port_of(fpm: &Fpm) -> &str {
    fpm.address.rsplit(':').next().unwrap_or_default()
}

fn pings(fpm: &Fpm) -> [String; 2] {
    ["127.0.0.1", "[::1]"].map(|host| {
        let address = format!("{host}:{}", port_of(fpm));
        let answer =
            Client::connect_tcp(&address).and_then(|mut client| client.request(&fpm.params("ping", ""), b""));
        answer.map_or_else(|_| String::new(), |answer| answer.body())
    })
}

fn start(program: &str, host: &str, pool: &str) -> Fpm {
    let pool = format!("{PING}{pool}\nlisten = {host}{{PORT}}");
    Fpm::start(program, "", &pool, &[])
}

#[test]
fn every_address_of_ipv6_is_every_address_of_ipv4_as_well() {
    skip_if!(!is_possible() || !has_ipv6());
    for host in ["[::]:", ""] {
        for (clients, expected) in [
            ("", ["pong", "pong"]),
            ("listen.allowed_clients = 127.0.0.1", ["pong", ""]),
            ("listen.allowed_clients = ::1", ["", "pong"]),
            ("listen.allowed_clients = ::1,127.0.0.1", ["pong", "pong"]),
        ] {
            let seen = [STOCK, forkyard_fpm()].map(|program| {
                let fpm = start(program, host, clients);
                (
                    pings(&fpm),
                    fpm.read("access")
                        .lines()
                        .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
                        .collect::<Vec<_>>(),
                )
            });
            assert_eq!(seen[0], seen[1], "{host} {clients}");
            assert_eq!(seen[1].0, expected, "{host} {clients}");
        }
    }
}

#[test]
fn a_port_that_is_taken_for_ipv6_is_tried_for_ipv4() {
    skip_if!(!is_stock_there() || needs_root() || !has_ipv6());
    let directory = tempfile::tempdir().expect("there is room");
    let taken = TcpListener::bind("[::]:0").expect("there is a port");
    let port = taken.local_addr().expect("it is bound").port();
    let path = directory.path().join("fpm.conf");
    let log = directory.path().join("log");
    let text = format!(
        "error_log = {}\n[www]\nuser = www-data\nlisten = {port}\npm = static\npm.max_children = 1\n",
        log.display()
    );
    fs::write(&path, text).expect("writable");
    let path = path.to_string_lossy();
    let logs = [STOCK, forkyard_fpm()].map(|program| {
        let (_, code) = said(program, &["-n", "-F", "-y", &path]);
        let text = fs::read_to_string(&log).unwrap_or_default();
        let _ = fs::remove_file(&log);
        let lines: Vec<String> = text.lines().map(|line| without_time(line).to_owned()).collect();
        (lines, code)
    });
    assert_eq!(logs[0], logs[1]);
    let first = "NOTICE: Failed implicitly binding to ::, retrying with 0.0.0.0";
    assert_eq!(logs[1].0.first().map(String::as_str), Some(first), "{logs:?}");
}

#[test]
fn a_wrong_address_in_the_list_is_an_error_and_not_the_end() {
    skip_if!(!is_possible());
    for (list, ping) in [
        ("xxx", ""),
        ("xxx,127.0.0.1", "pong"),
        ("10.0.0.0/8,192.0.2.1", ""),
    ] {
        let pool = format!("listen.allowed_clients = {list}\ncatch_workers_output = yes");
        let logs = [STOCK, forkyard_fpm()].map(|program| {
            let fpm = start(program, "127.0.0.1:", &pool);
            assert_eq!(pings(&fpm)[0], ping, "{program}: {list}");
            fpm.signal(Signal::SIGTERM);
            let log = fpm.wait_for("error", "bye-bye!");
            let said = log
                .lines()
                .filter_map(|line| line.split_once(" said into ").map(|(_, said)| said.to_owned()));
            said.collect::<Vec<_>>()
        });
        assert_eq!(logs[0], logs[1], "{list}");
        assert!(!logs[1].is_empty());
    }
    let fpm = start(forkyard_fpm(), "127.0.0.1:", "listen.allowed_clients = xxx");
    let log = fpm.read("error");
    for text in [
        "ERROR: [pool www] Wrong IP address 'xxx' in listen.allowed_clients",
        "There are no allowed addresses",
    ] {
        assert!(log.contains(text), "{log}");
    }
    let address = format!("127.0.0.1:{}", port_of(&fpm));
    assert!(TcpStream::connect(address).is_ok());
    assert_eq!(pings(&fpm)[0], "");
    fpm.wait_for(
        "error",
        "Connection disallowed: IP address '127.0.0.1' has been dropped.",
    );
}
