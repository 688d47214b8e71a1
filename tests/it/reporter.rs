//! `status_listen`: the status while all workers are busy, after a reload, after the reporter's death, and with hostile
//! clients.

use crate::support::prelude::*;

fn start(settings: &str) -> Daemon {
    let daemon = Daemon::start(|dir| pool(dir, settings));
    make_fifo(&daemon.dir.join("gate"));
    daemon.write("wait.php", "<?php fopen(__DIR__ . '/gate', 'r'); echo 'through';");
    daemon.write("a.php", "<?php echo 'a';");
    daemon
}

fn pool(dir: &Path, settings: &str) -> String {
    let settings = format!(
        "pm = \"static\"\nmax_children = 1\nstatus_listen = \"DIR/status.sock\"\nping.path = \"/ping\"\n{settings}"
    );
    let user = if is_root() { "user = \"www-data\"\n" } else { "" };
    let listen = "listen = { address = \"DIR/www.sock\", mode = \"0666\" }\n";
    php_pool(dir, &format!("{listen}{user}{settings}"), "")
}

fn reporters(daemon: &Daemon) -> Vec<u32> {
    let mut all = process::children(daemon.pid());
    all.retain(|pid| process::title(*pid) == "forkyard: reporter www");
    all
}

fn ask(daemon: &Daemon, uri: &str, query: &str) -> String {
    let mut client = Client::connect(&daemon.dir.join("status.sock")).expect("connect");
    let params = Params::get(&daemon.dir, "", query).with("SCRIPT_NAME", uri);
    let answer = client.request(&params, b"").expect("answer");
    assert!(answer.ended);
    answer.body()
}

fn field(text: &str, name: &str) -> String {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let value = value.unwrap_or_else(|| panic!("no {name} in {text}"));
    value.trim().to_owned()
}

#[test]
fn the_status_is_told_while_every_worker_is_busy() {
    let daemon = start("");
    assert!(reporters(&daemon).is_empty(), "nobody has asked");
    let mut busy = daemon.send("www", &Params::get(&daemon.dir, "wait.php", "x=1"));
    wait_until("a busy worker", || {
        let text = ask(&daemon, "/", "full");
        text.contains("\nstate:                Running\n")
    });
    let text = ask(&daemon, "/", "full");
    assert_eq!(field(&text, "pool:"), "www");
    assert_eq!(field(&text, "idle processes:"), "0");
    assert_eq!(field(&text, "active processes:"), "1");
    assert_eq!(field(&text, "request URI:"), "/wait.php?x=1");
    let reporter = reporters(&daemon)[0];
    // SECCOMP_MODE_FILTER (proc(5)).
    assert_eq!(process::status_line(reporter, "Seccomp").as_deref(), Some("2"));
    let mut waiting = daemon.send("www", &Params::get(&daemon.dir, "a.php", ""));
    assert_eq!(field(&ask(&daemon, "/", ""), "listen queue:"), "1");
    for (query, text) in [
        ("json", "\"active processes\":1"),
        ("xml", "<active-processes>1</active-processes>"),
        ("html&full", "<th>active processes</th><td>1</td>"),
        ("openmetrics", "phpfpm_active_processes 1"),
    ] {
        let said = ask(&daemon, "/", query);
        assert!(said.contains(text), "{query}: {said}");
    }
    assert_eq!(ask(&daemon, "/ping", ""), "pong");
    assert_eq!(ask(&daemon, "/a.php", ""), "File not found.\n");
    drop(fs::OpenOptions::new().write(true).open(daemon.dir.join("gate")));
    assert_eq!(busy.answer().expect("answer").body(), "through");
    assert_eq!(waiting.answer().expect("answer").body(), "a");
}

#[test]
fn the_reporter_is_nobody_in_particular() {
    let daemon = start("env = { SECRET = \"of www\" }\n");
    ask(&daemon, "/", "");
    let [reporter] = reporters(&daemon)[..] else {
        panic!("one reporter");
    };
    if is_root() {
        let worker = daemon.wait_for_workers("www", 1)[0];
        match nix::unistd::User::from_name("forkyard").expect("users") {
            Some(own) => {
                let uid = format!("{0}\t{0}\t{0}\t{0}", own.uid);
                assert_eq!(process::status_line(reporter, "Uid"), Some(uid));
            }
            None => {
                for line in ["Uid", "Gid", "Groups"] {
                    assert_eq!(
                        process::status_line(reporter, line),
                        process::status_line(worker, line)
                    );
                }
            }
        }
    }
    assert_eq!(process::status_line(reporter, "NoNewPrivs").as_deref(), Some("1"));
    assert_eq!(process::status_line(reporter, "Threads").as_deref(), Some("1"));
    let environment = fs::read(format!("/proc/{reporter}/environ")).unwrap_or_default();
    assert!(!String::from_utf8_lossy(&environment).contains("SECRET"));
    let maps = read_file(format!("/proc/{reporter}/maps"));
    let boards: Vec<&str> = maps
        .lines()
        .filter(|line| line.contains("memfd:forkyard"))
        .collect();
    assert!(
        boards.iter().all(|line| line.contains(" r--s ")) && !boards.is_empty(),
        "{maps}"
    );
    let descriptors = fs::read_dir(format!("/proc/{reporter}/fd")).expect("fd").count();
    assert!(descriptors < 14, "{descriptors}");
    let mut boards = 0;
    for entry in fs::read_dir(format!("/proc/{reporter}/fd"))
        .expect("fd")
        .flatten()
    {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        if target.to_string_lossy().contains("memfd:forkyard") {
            boards += 1;
            let name = entry.file_name().to_string_lossy().into_owned();
            let info = read_file(format!("/proc/{reporter}/fdinfo/{name}"));
            let flags = info
                .lines()
                .find_map(|line| line.strip_prefix("flags:"))
                .expect("flags");
            assert!(flags.trim().ends_with('0'), "opened for reading: {flags}");
        }
    }
    assert!(boards <= 1);
}

#[test]
fn a_reload_shows_the_new_workers() {
    let daemon = start("");
    for _ in 0..5 {
        assert_eq!(daemon.get("www", "a.php").body(), "a");
    }
    let before = ask(&daemon, "/", "");
    assert_eq!(field(&before, "accepted conn:"), "5");
    let old = reporters(&daemon);
    let text = pool(&daemon.dir, "").replace("max_children = 1", "max_children = 2");
    daemon.write("forkyard.toml", &text);
    daemon.reload_until("the new workers serve");
    let after = until("the new generation's status", || {
        let text = ask(&daemon, "/", "");
        (field(&text, "total processes:") == "2").then_some(text)
    });
    assert_eq!(field(&after, "accepted conn:"), "0");
    assert!(reporters(&daemon).iter().all(|pid| !old.contains(pid)));
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("status_listen"))
        .collect();
    daemon.write("forkyard.toml", &lines.join("\n"));
    daemon.signal(Signal::SIGUSR2);
    wait_until("the address to be closed", || {
        !daemon.dir.join("status.sock").exists()
    });
    wait_until("the reporter to be gone", || reporters(&daemon).is_empty());
    assert_eq!(daemon.get("www", "a.php").body(), "a");
}

#[test]
fn a_pool_that_moves_keeps_its_status_address() {
    let daemon = start("");
    ask(&daemon, "/", "");
    let text = pool(&daemon.dir, "").replace("/www.sock", "/other.sock");
    daemon.write("forkyard.toml", &text);
    daemon.reload_until("reload done");
    assert_eq!(daemon.get("other", "a.php").body(), "a");
    wait_until("the moved pool's status", || {
        let text = ask(&daemon, "/", "");
        field(&text, "accepted conn:") == "1"
    });
}

#[test]
fn the_death_of_a_reporter_harms_nobody() {
    let mut daemon = start("");
    let worker = daemon.wait_for_workers("www", 1);
    for _ in 0..3 {
        ask(&daemon, "/", "");
        for pid in reporters(&daemon) {
            process::signal(pid, Signal::SIGKILL);
        }
        assert_eq!(daemon.get("www", "a.php").body(), "a");
    }
    daemon.wait_for_count("the reporter is not well", 3);
    ask(&daemon, "/", "");
    assert_eq!(daemon.wait_for_workers("www", 1), worker);
    let last = reporters(&daemon);
    daemon.end(Signal::SIGTERM);
    assert!(last.iter().all(|pid| !process::runs(*pid)));
    assert!(!daemon.dir.join("status.sock").exists());
}

#[test]
fn hostile_clients_keep_nobody_from_the_status() {
    let daemon = start("");
    let path = daemon.dir.join("status.sock");
    ask(&daemon, "/", "");
    let mut clients = Vec::new();
    for index in 0..1000 {
        let mut stream = UnixStream::connect(&path).expect("connect");
        let bytes: &[u8] = match index % 4 {
            0 => b"",
            1 => &[1, 1, 0, 1, 0, 8, 0],
            2 => b"GET / HTTP/1.1\r\n\r\n",
            _ => &[1, 9, 0, 0, 0, 0, 0, 0],
        };
        let _ = std::io::Write::write_all(&mut stream, bytes);
        clients.push(stream);
    }
    assert_eq!(field(&ask(&daemon, "/", ""), "pool:"), "www");
    let [reporter] = reporters(&daemon)[..] else {
        panic!("one reporter, and the first");
    };
    let open = fs::read_dir(format!("/proc/{reporter}/fd")).expect("fd").count();
    assert!(open < 150, "{open} descriptors");
    let mut greedy = Client::connect(&path).expect("connect").kept();
    let params = Params::get(&daemon.dir, "", "full").with("SCRIPT_NAME", "/");
    for _ in 0..200 {
        if greedy.send(&params, b"").is_err() {
            break;
        }
    }
    assert_eq!(ask(&daemon, "/ping", ""), "pong");
    let kept = process::status_line(reporter, "VmHWM").expect("VmHWM");
    let kilobytes: u64 = kept
        .split_whitespace()
        .next()
        .and_then(|n| n.parse().ok())
        .expect("kB");
    assert!(kilobytes < 40_000, "{kept}");
    for mut stream in clients {
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    assert_eq!(daemon.get("www", "a.php").body(), "a");
}

#[test]
fn a_reporter_that_nobody_asks_leaves_and_comes_back() {
    let daemon = start("");
    let mut kept = Client::connect(&daemon.dir.join("status.sock"))
        .expect("connect")
        .kept();
    let params = Params::get(&daemon.dir, "", "").with("SCRIPT_NAME", "/");
    for _ in 0..3 {
        assert_eq!(
            field(&kept.request(&params, b"").expect("answer").body(), "pool:"),
            "www"
        );
    }
    let first = reporters(&daemon);
    assert_eq!(first.len(), 1);
    drop(kept);
    wait_until("the reporter to leave", || reporters(&daemon).is_empty());
    ask(&daemon, "/", "");
    assert_ne!(reporters(&daemon), first);
    assert_lacks(&daemon.log(), "not well");
}

#[test]
fn a_reporter_that_waits_makes_no_system_calls() {
    let daemon = start("");
    let mut kept = Client::connect(&daemon.dir.join("status.sock"))
        .expect("connect")
        .kept();
    let params = Params::get(&daemon.dir, "", "").with("SCRIPT_NAME", "/");
    wait_until("an idle worker", || {
        let text = kept.request(&params, b"").expect("answer").body();
        field(&text, "idle processes:") == "1"
    });
    assert_eq!(daemon.get("www", "a.php").body(), "a");
    let reporter = reporters(&daemon)[0];
    let calls = |pid: u32| {
        let switches = process::status_line(pid, "voluntary_ctxt_switches").expect("it runs");
        switches.parse::<u64>().expect("a number")
    };
    let both = [reporter, daemon.pid()];
    wait_until("both to sleep", || {
        let before = both.map(calls);
        pause();
        let is_asleep = both.iter().all(|pid| process::state(*pid) == Some('S'));
        is_asleep && both.map(calls) == before
    });
    let before = both.map(calls);
    for _ in 0..100 {
        pause();
    }
    assert_eq!(both.map(calls), before, "nobody woke");
    kept.request(&params, b"").expect("answer");
}
