//! Reports of FastCGI programs that failed to start: for the operator, and only of their own pool.

use super::fastcgi_programs::{ODD, pid_of, start};
use crate::support::prelude::*;
use nix::sys::socket::{SockType, getsockopt, sockopt};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

fn last_error(daemon: &Daemon, pool: &str) -> Option<Value> {
    let status: Value = serde_json::from_str(&daemon.shown(&["status", "--json"])).expect("JSON");
    let pools = status["pools"].as_array().expect("pools").clone();
    let found = pools.into_iter().find(|it| it["name"] == pool)?;
    Some(found["last_error"].clone()).filter(|error| !error.is_null())
}

fn refused(daemon: &Daemon, name: &str) -> String {
    daemon.get(name, "x").error_id()
}

/// Exits the first time and hangs afterwards, so that there is one report.
const ONCE: &str = "import os, sys, time\nif os.path.exists('failed'): time.sleep(1000)\nopen('failed', 'w')\n\
                    sys.exit('the database is not there')\n";

fn two(command: &str) -> Daemon {
    Daemon::start(|dir| {
        fs::write(dir.join("odd.py"), ODD).expect("write");
        fs::write(dir.join("once.py"), ONCE).expect("write");
        let one = |name: &str, command: &str| {
            let root = dir.display();
            let application =
                format!("runtime = \"fastcgi\"\nroot = \"{root}\"\nstart_command = \"python3 {command}\"");
            pool(dir, name, "", &application)
        };
        let control = dir.join("control.sock");
        format!(
            "[global]\ncontrol = \"{}\"\n{}{}",
            control.display(),
            one("www", command),
            one("other", "odd.py well")
        )
    })
}

#[test]
fn the_operator_can_ask_for_the_report() {
    let daemon = two("once.py");
    let id = refused(&daemon, "www");
    until("the last error", || {
        last_error(&daemon, "www").filter(|error| error["id"] == *id)
    });
    let text = daemon.shown(&["error", &id]);
    assert_contains(&text, &id);
    assert_contains(&text, "the database is not there");
    assert_contains(&text, "PATH=/usr");
    assert_eq!(daemon.shown(&["error"]), text, "the last one of all");
    let json: Value = serde_json::from_str(&daemon.shown(&["error", &id, "--json"])).expect("JSON");
    assert_eq!(json["error"]["id"], *id);
    assert_eq!(json["error"]["step"], "SUBPROCESS_APP_LOAD_OR_EXEC");
    let subprocess = &json["diagnostics"]["subprocess"];
    assert_eq!(subprocess["stdout_and_err"], "the database is not there\n");
    assert!(
        subprocess["envvars"]
            .as_str()
            .is_some_and(|text| text.contains("PATH=")),
        "{json:#}"
    );
    assert!(subprocess["pid"].as_i64().is_some_and(|pid| pid > 1), "{json:#}");
    let html = daemon.shown(&["error", &id, "--html"]);
    assert_contains(&html, "<html");
    assert_contains(&html, "the database is not there");
    assert!(last_error(&daemon, "other").is_none());
    let table = daemon.shown(&["status"]);
    let (_, line) = table
        .split_once(&format!("last error {id}, "))
        .expect("the error");
    let (_, line) = line.split_once("s ago, ").expect("its age");
    assert_starts(
        line,
        "requests are refused: The application exited with code 1 during startup.",
    );
    let metrics = daemon.shown(&["status", "--metrics"]);
    assert_contains(&metrics, "forkyard_pool_failed_starts_total{pool=\"other\"} 0\n");
    assert_lacks(&metrics, "forkyard_pool_failed_starts_total{pool=\"www\"} 0\n");
}

#[test]
fn a_report_with_much_output_is_cut_and_arrives() {
    let daemon = start("", |dir| {
        let program =
            "import sys, os\nfor n in range(4000): os.write(1, b'\\1' * 100)\nsys.exit('the last word')\n";
        fs::write(dir.join("loud.py"), program).expect("write");
        "start_command = \"python3 loud.py\"\n[global]\ncontrol = \"DIR/control.sock\"\n".to_owned()
    });
    let id = refused(&daemon, "www");
    let text = until("the report", || {
        Some(daemon.shown(&["error", &id])).filter(|text| !text.is_empty())
    });
    assert_contains(&text, "the last word");
    assert_contains(&text, "exited with code 1");
}

fn reports_of(worker: u32) -> OwnedFd {
    // SAFETY: system calls that take numbers; the new descriptors are this process' own.
    let pidfd = unsafe { OwnedFd::from_raw_fd(libc::syscall(libc::SYS_pidfd_open, worker, 0) as RawFd) };
    let numbers = fs::read_dir(format!("/proc/{worker}/fd")).expect("/proc");
    let numbers = numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok());
    let found = numbers.filter_map(|number| {
        // SAFETY: as above.
        let copy = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), number, 0) };
        // SAFETY: as above.
        let copy = (copy >= 0).then(|| unsafe { OwnedFd::from_raw_fd(copy as RawFd) })?;
        let is_it = getsockopt(&copy, sockopt::SockType).is_ok_and(|kind| kind == SockType::SeqPacket)
            && getsockopt(&copy, sockopt::SndBuf).is_ok_and(|bytes| bytes == 2 * 192 * 1024);
        is_it.then_some(copy)
    });
    found.last().expect("the socket")
}

fn resident_kib(pid: u32) -> u64 {
    let status = read_file(format!("/proc/{pid}/status"));
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn a_worker_that_lies_harms_its_own_pool_alone() {
    let daemon = two("once.py");
    let id = refused(&daemon, "www");
    until("the last error", || last_error(&daemon, "www"));
    pid_of(&daemon.get("other", "x"));
    let worker = daemon.wait_for_workers("other", 1)[0];
    let socket = reports_of(worker);
    let before = resident_kib(daemon.pid());
    let forged = |id: u32, output: &str| {
        json!({
            "id": id, "pid": 7, "fall": {"Stranger": "[pool www] forged\u{1b}[2J"}, "started": u64::MAX, "prepared": 0,
            "executed": null, "ended": u64::MAX, "output": output, "envvars": null,
        })
        .to_string()
    };
    let send = |bytes: &[u8]| {
        until("room in the socket", || {
            match nix::unistd::write(&socket, bytes) {
                Ok(_) => Some(()),
                Err(nix::errno::Errno::EAGAIN) => None,
                Err(errno) => panic!("write: {errno}"),
            }
        });
    };
    send(forged(u32::from_str_radix(&id, 16).expect("an id"), "").as_bytes());
    send(forged(1, "mine").as_bytes());
    let mine = until("the pool's own report", || last_error(&daemon, "other"));
    assert_eq!(mine["id"], "00000001");
    let text = daemon.shown(&["error", &id]);
    assert_contains(&text, "the database is not there");
    assert_lacks(&text, "forged");
    let text = daemon.shown(&["error", "00000001"]);
    assert!(text.contains("forged") && !text.contains('\u{1b}'), "{text}");
    for bytes in [
        &b""[..],
        b"{",
        &[0xff; 4096],
        b"[]",
        b"{\"id\":1}",
        &[b' '; 190_000],
    ] {
        send(bytes);
    }
    let large = forged(2, &"x".repeat(180_000)).replace("\"id\":2", "\"id\":ID");
    for number in 10..1000_u32 {
        send(large.replace("\"id\":ID", &format!("\"id\":{number}")).as_bytes());
    }
    pid_of(&daemon.get("other", "x"));
    let metrics = daemon.shown(&["status", "--metrics"]);
    let count = metrics
        .lines()
        .find_map(|line| line.strip_prefix("forkyard_pool_failed_starts_total{pool=\"other\"} "));
    let count: u32 = count.expect("a count").parse().expect("a number");
    assert!((1..100).contains(&count), "{count}");
    assert!(
        daemon
            .shown(&["error", &id])
            .contains("the database is not there")
    );
    let grown = resident_kib(daemon.pid()).saturating_sub(before);
    assert!(grown < 16 * 1024, "the master has grown by {grown} KiB");
    assert!(process::runs(worker));
}

#[test]
fn reports_arrive_after_an_upgrade() {
    let mut daemon = two("odd.py exits");
    refused(&daemon, "www");
    until("the last error", || last_error(&daemon, "www"));
    let text = daemon.shown(&["upgrade"]);
    assert!(text.contains("has taken over"), "{text}\n{}", daemon.log());
    let error = until("an error of after the upgrade", || last_error(&daemon, "www"));
    let text = daemon.shown(&["error", error["id"].as_str().expect("an id")]);
    assert_contains(&text, "the database is not there");
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
}
