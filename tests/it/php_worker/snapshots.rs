//! Workers restored after each request (`worker_mode = "snapshot"`): no state survives a request.

use super::{ONE, ask, case, mode_pool, ordinary_pool, say, status, status_of, write_script};
use crate::support::prelude::*;

const SNAPSHOT: &str = "worker_mode = \"snapshot\"\n";

const MORE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/php_worker/kernel.php");
const ORDINARY: &str =
    "<?php require_once __DIR__ . '/state.php'; require_once __DIR__ . '/kernel.php'; handle_more();";
const WORKER: &str = "<?php require_once __DIR__ . '/state.php'; require_once __DIR__ . '/kernel.php'; while (forkyard_handle_request('handle_more'));";

fn write_scripts(dir: &Path) {
    write_script(dir, WORKER);
    fs::copy(MORE, dir.join("kernel.php")).expect("copy");
    fs::write(dir.join("index.php"), ORDINARY).expect("write");
}

const FRESH: &str = "1 no no 14 no Europe/Paris no";
const SETTINGS: &str = "php_value = { \"date.timezone\" = \"Europe/Paris\", precision = \"14\" }\n";

fn snapshot_pool(dir: &Path, name: &str, script: &str, settings: &str, application: &str) -> String {
    mode_pool(dir, name, script, settings, &format!("{SNAPSHOT}{application}"))
}

fn snapshot(settings: &str, application: &str) -> Daemon {
    Daemon::start(|dir| {
        write_scripts(dir);
        let settings = format!("{ONE}{settings}");
        let application = format!("{SETTINGS}{application}");
        with_control(dir)
            + &ordinary_pool(dir, "www", &settings, &application)
            + &snapshot_pool(dir, "snap", "worker.php", &settings, &application)
    })
}

fn pid(daemon: &Daemon) -> u32 {
    say(daemon, "snap", "pid", "").parse().expect("a pid")
}

fn facts(daemon: &Daemon, pool: &str) -> Value {
    serde_json::from_str(&say(daemon, pool, "facts", "")).expect("JSON")
}

#[test]
fn each_request_begins_with_what_has_booted_after_any_end_of_the_one_before() {
    let daemon = snapshot("request_terminate_timeout = \"20s\"\n", "");
    for _ in 0..3 {
        assert_eq!(say(&daemon, "www", "memory of the process", ""), FRESH);
        assert_eq!(say(&daemon, "snap", "memory of the process", ""), FRESH);
        assert_eq!(say(&daemon, "snap", "held input", ""), "none");
    }
    let before = pid(&daemon);
    for (name, problem) in [
        ("exit", ""),
        ("nested exit", ""),
        ("exception", "uncaught in"),
        ("exception handler", ""),
        ("fatal", "Cannot declare class Noted"),
        ("memory", "Allowed memory size of 8388608 bytes exhausted"),
        ("time limit", "Maximum execution time of 1 second exceeded"),
        ("in shutdown", "Cannot declare class Noted"),
        ("throws in shutdown", "Uncaught RuntimeException: thrown late"),
        ("exits in shutdown", ""),
        (
            "exception handler throws",
            "Uncaught RuntimeException: instead of it",
        ),
        ("throws in output", "Uncaught RuntimeException: thrown in output"),
        ("destructor", ""),
        ("shutdown", ""),
        ("directory", ""),
        ("peak", ""),
    ] {
        let params = case(&daemon, name, "token=t&big=1&id=abc");
        let answers = ["www", "snap"].map(|pool| ask(&daemon, pool, &params, b""));
        let [ordinary, own] = &answers;
        assert!(own.ended, "{name}");
        assert_eq!(own.text(), ordinary.text(), "{name}");
        assert!(own.error_text().contains(problem), "{name}: {}", own.error_text());
        assert_eq!(say(&daemon, "snap", "memory of the process", ""), FRESH, "{name}");
        assert_eq!(say(&daemon, "snap", "directory", ""), "home 022", "{name}");
        assert_eq!(pid(&daemon), before, "{name}: it is the same process");
    }
    drop(daemon.send("snap", &case(&daemon, "flood", "")));
    assert_eq!(say(&daemon, "snap", "memory of the process", ""), FRESH);
    assert_eq!(pid(&daemon), before);
    assert!(!ask(&daemon, "snap", &case(&daemon, "crash", ""), b"").ended);
    daemon.wait_for("exited on signal 11 (SIGSEGV");
    assert_eq!(say(&daemon, "snap", "memory of the process", ""), FRESH);
    let facts = facts(&daemon, "snap");
    assert_has(&facts, json!({"mode": "snapshot", "isolation": "rewind"}));
    assert!(
        facts["rewound"].as_u64() > Some(50) && facts["requests"].as_u64() == Some(2),
        "{facts}"
    );
    assert_eq!(
        facts["given_up"],
        json!({"thread": 0, "child": 0, "identity": 0, "priority": 0, "limit": 0, "memory": 0, "descriptor": 0, "call": 0})
    );
}

struct Piece {
    start: u64,
    name: String,
    bytes: Vec<u8>,
}

fn memory(pid: u32) -> Vec<Piece> {
    use std::os::unix::fs::FileExt;
    let maps = read_file(format!("/proc/{pid}/maps"));
    let file = fs::File::open(format!("/proc/{pid}/mem")).expect("mem");
    let mut all: Vec<Piece> = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
        let (start, rest) = line.split_once('-').expect("a range");
        let (end, rest) = rest.split_once(' ').expect("flags");
        let number = |text| u64::from_str_radix(text, 16).expect("a number");
        let (start, end) = (number(start), number(end));
        let mut bytes = vec![0; (end - start) as usize];
        file.read_exact_at(&mut bytes, start).expect("read");
        let name = rest.splitn(5, ' ').nth(4).unwrap_or_default().trim().to_owned();
        // The kernel may list one mapping as two if a part of it was mapped again.
        match all.last_mut() {
            Some(last) if last.name == name && last.start + last.bytes.len() as u64 == start => {
                last.bytes.extend(bytes);
            }
            _ => all.push(Piece { start, name, bytes }),
        }
    }
    all
}

fn when_put_back(daemon: &Daemon, pid: u32) {
    until("a worker that was put back", || {
        let pool = status_of(daemon, "snap");
        let generations = pool["generations"].as_array()?;
        let mut workers = generations
            .iter()
            .filter_map(|it| it["workers"].as_array())
            .flatten();
        let is_idle = |worker: &Value| worker["pid"] == pid && worker["stage"] == "Idle";
        workers.any(is_idle).then_some(())
    });
    until("a waiting worker", || {
        let text = fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
        let is_waiting = ["232 ", "281 ", "441 "].iter().any(|call| text.starts_with(call));
        is_waiting.then_some(())
    });
}

fn is_apart(piece: &Piece) -> bool {
    piece.name == "[stack]" || piece.name.starts_with("/memfd:forkyard worker")
}

/// Words that changed without a known reason. Known are:
///
/// * The worker's counters and wait state: they lie in separate, named memory.
/// * `errno` of the worker's last call: accept(2) without a connection, or none.
/// * `struct rseq`, which the kernel writes.
/// * The wait for the next request: on the stack below the snapshot's frames, with current times.
fn unexplained(before: &[Piece], now: &[Piece], [errno, rseq]: [u64; 2]) -> Vec<(u64, String)> {
    const RSEQ_BYTES: u64 = 32;
    let mut different = Vec::new();
    let [before, now] =
        [before, now].map(|all| all.iter().filter(|piece| !is_apart(piece)).collect::<Vec<_>>());
    assert_eq!(before.len(), now.len());
    for (old, new) in before.into_iter().zip(now) {
        assert_eq!(
            (old.start, old.bytes.len()),
            (new.start, new.bytes.len()),
            "{}",
            old.name
        );
        let pages = old.bytes.chunks(4096).zip(new.bytes.chunks(4096)).enumerate();
        for (page, (a, b)) in pages.filter(|(_, (a, b))| a != b) {
            for (word, (a, b)) in a.chunks(8).zip(b.chunks(8)).enumerate() {
                let at = old.start + (page * 4096 + word * 8) as u64;
                let is_known = at == errno & !7 || (rseq..rseq + RSEQ_BYTES).contains(&at);
                if a != b && !is_known {
                    different.push((at, old.name.clone()));
                }
            }
        }
    }
    different
}

#[test]
fn memory_is_what_it_was_and_has_no_secret() {
    let daemon = snapshot("", "php_admin_value = { \"ffi.enable\" = \"true\" }\n");
    let pid = pid(&daemon);
    let places: Vec<u64> = say(&daemon, "snap", "places", "")
        .split(' ')
        .map(|place| place.parse().expect("a number"))
        .collect();
    when_put_back(&daemon, pid);
    let before = memory(pid);
    for round in 0..30 {
        if round == 9 {
            let second = || std::time::UNIX_EPOCH.elapsed().expect("a time").as_secs();
            let begun = second();
            wait_until("another second", || second() > begun);
        }
        for name in [
            "memory of the process",
            "exception",
            "mixture",
            "peak",
            "session before",
            "response",
        ] {
            say(&daemon, "snap", name, "token=verysecrettoken&big=1");
        }
        if round == 3 {
            ask(
                &daemon,
                "snap",
                &case(&daemon, "fatal", "token=verysecrettoken"),
                b"",
            );
        }
        if ![0, 1, 9, 29].contains(&round) {
            continue;
        }
        when_put_back(&daemon, pid);
        let now = memory(pid);
        let found = unexplained(&before, &now, [places[0], places[1]]);
        assert!(found.is_empty(), "round {round}: {found:x?}");
        let secret = b"verysecrettoken";
        for piece in now.iter().filter(|piece| is_apart(piece)) {
            let found = piece
                .bytes
                .windows(secret.len())
                .position(|window| window == secret);
            assert_eq!(found, None, "round {round}: {:x} {}", piece.start, piece.name);
        }
    }
    assert_eq!(self::pid(&daemon), pid);
}

#[test]
fn no_random_value_comes_twice() {
    let daemon = snapshot("", "");
    let mut seen = BTreeSet::new();
    for _ in 0..50 {
        for value in say(&daemon, "snap", "random of all", "").split(' ') {
            assert!(seen.insert(value.to_owned()), "{value}");
        }
    }
    assert_eq!(seen.len(), 50 * 7);
}

#[test]
fn what_the_kernel_keeps_is_put_back_or_the_worker_is_replaced_by_a_counted_reason() {
    let daemon = snapshot("", "");
    let first = pid(&daemon);
    let descriptors = || {
        let list = fs::read_dir(format!("/proc/{first}/fd")).expect("fd");
        list.map(|entry| entry.expect("entry").file_name())
            .collect::<BTreeSet<_>>()
    };
    when_put_back(&daemon, first);
    let before = descriptors();
    for _ in 0..3 {
        assert_eq!(say(&daemon, "snap", "descriptors", ""), "200");
        assert_eq!(say(&daemon, "snap", "limits", ""), "not yet");
    }
    assert_eq!(pid(&daemon), first);
    when_put_back(&daemon, first);
    assert_eq!(descriptors(), before);
    let mut last = first;
    for (name, reason) in [
        ("leaves a child", "child"),
        ("lowers a limit", "limit"),
        ("is nice", "priority"),
        ("leads a session", "identity"),
    ] {
        say(&daemon, "snap", name, "");
        let now = pid(&daemon);
        assert_ne!(now, last, "{name}");
        last = now;
        let facts = facts(&daemon, "snap");
        assert_eq!(facts["given_up"][reason], 1, "{facts}");
        assert_eq!(say(&daemon, "snap", "memory of the process", ""), FRESH, "{name}");
    }
    let known = until("all exits", || {
        let pool = status_of(&daemon, "snap");
        let exits = pool["counts"]["exits"].as_array()?.clone();
        (exits.len() == 4).then_some(pool)
    });
    for exits in known["counts"]["exits"].as_array().expect("a list") {
        assert_eq!(
            (exits["cause"].as_str(), exits["count"].as_u64()),
            (Some("not_put_back"), Some(1)),
            "{known:#}"
        );
        let reasons = ["child", "limit", "priority", "identity"];
        assert!(
            reasons.contains(&exits["reason"].as_str().unwrap_or_default()),
            "{known:#}"
        );
    }
    let rewound = &known["generations"][0]["boot"]["rewound"];
    for (name, least) in [("requests", 10), ("micros", 1), ("pages", 10)] {
        assert!(rewound[name].as_u64() >= Some(least), "{known:#}");
    }
    let text = status(&daemon, &["snap"]);
    assert_contains(&text, ", not_put_back child 1");
    assert_contains(&text, " put back in ");
    assert_contains(&text, " pages each");
    let metrics = status(&daemon, &["--metrics"]);
    for line in [
        "forkyard_pool_boot_rewound_requests{pool=\"snap\"} ",
        "forkyard_pool_boot_rewinding_seconds{pool=\"snap\"} ",
        "forkyard_pool_boot_rewound_pages{pool=\"snap\"} ",
        "forkyard_pool_worker_exits_total{pool=\"snap\",cause=\"not_put_back\",reason=\"child\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let line = daemon.wait_for(
        "a worker is replaced: it can't be put back to its snapshot: a child process was left behind",
    );
    assert_contains(&line, "[pool snap]");
}

#[test]
fn counts_of_the_worker_survive_and_its_limits_hold() {
    let daemon = Daemon::start(|dir| {
        write_scripts(dir);
        let settings = "status_path = \"/status\"\nmax_requests = 6\n";
        snapshot_pool(dir, "snap", "worker.php", &format!("{ONE}{settings}"), "")
            + &snapshot_pool(
                dir,
                "two",
                "worker.php",
                "pm = \"static\"\nmax_children = 2\n",
                "",
            )
    });
    let pids: Vec<u32> = (0..12).map(|_| pid(&daemon)).collect();
    let apart: BTreeSet<u32> = pids.iter().copied().collect();
    assert_eq!(apart.len(), 2, "{pids:?}");
    assert!(pids[..6].iter().all(|pid| *pid == pids[0]), "{pids:?}");
    let status = daemon.get("snap", "status?json&full").body();
    let status: Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(status["accepted conn"], 13, "{status:#}");
    let mut clients: Vec<_> = (0..3).map(|_| daemon.client("two").kept()).collect();
    for round in 0..8 {
        for client in &mut clients {
            let params = case(&daemon, "", &format!("token={round}"));
            let answer = client.request(&params, b"").expect("answer");
            assert_eq!(answer.body(), format!("hello {round}"));
        }
    }
    assert_eq!(
        say(&daemon, "two", "memory of the process", "").split(' ').next(),
        Some("1")
    );
}

#[test]
fn each_request_boots_where_the_kernel_refuses_to_put_a_worker_back() {
    let daemon = Daemon::start(|dir| {
        write_scripts(dir);
        let refused = "confine.deny_system_calls = true\n";
        let ondemand = format!("pm = \"ondemand\"\nmax_children = 1\n{refused}");
        snapshot_pool(dir, "auto", "worker.php", &format!("{ONE}{refused}"), SETTINGS)
            + &snapshot_pool(dir, "rewind", "worker.php", &ondemand, "isolation = \"rewind\"\n")
    });
    let line = daemon.wait_for("each request boots the application: this kernel can't put a worker back");
    assert_contains(&line, "[pool auto]");
    assert_contains(&line, "userfaultfd");
    for _ in 0..2 {
        assert_eq!(say(&daemon, "auto", "memory of the process", ""), FRESH);
        assert_eq!(say(&daemon, "auto", "exit", ""), "before exit and shutdown");
    }
    assert_eq!(
        say(&daemon, "auto", "marks", "").split(',').next(),
        Some("[\"1\"")
    );
    assert_starts(&daemon.get("rewind", "any.php").text(), "Status: 503");
    daemon.wait_for("userfaultfd: Operation not permitted");
}

const DATABASE: &str = r#"<?php
$database = new SQLite3(__DIR__ . '/data/base');
$database->exec('create table entry (text)');
while (forkyard_handle_request(function () use ($database) {
    $database->exec('begin immediate');
    $database->exec("insert into entry values ('never')");
    echo $database->querySingle('select count(*) from entry');
}));
"#;
const OTHER: &str = r#"<?php
$database = new SQLite3(__DIR__ . '/data/base');
$database->busyTimeout(60000);
$database->exec("insert into entry values ('other')");
echo $database->querySingle('select count(*) from entry');
"#;

#[test]
fn a_transaction_that_a_request_leaves_in_a_database_of_the_boot_locks_nobody_out() {
    let daemon = Daemon::start(|dir| {
        make_folder(&dir.join("data"));
        fs::write(dir.join("worker.php"), DATABASE).expect("write");
        fs::write(dir.join("other.php"), OTHER).expect("write");
        snapshot_pool(dir, "snap", "worker.php", ONE, "") + &ordinary_pool(dir, "www", ONE, "")
    });
    for round in 0..3 {
        assert_eq!(daemon.get("snap", "any.php").body(), (round + 1).to_string());
        let other = daemon.get("www", "other.php");
        assert_eq!(other.body(), (round + 1).to_string(), "{}", other.error_text());
    }
}

const HOOKS: &str = r#"<?php
require __DIR__ . '/state.php';
$booted = bin2hex(random_bytes(8));
$before = $after = 0;
$seen = [];
forkyard_before_snapshot(function () use (&$before) { $before++; });
forkyard_after_snapshot(function () use (&$after) { $after++; });
while (forkyard_handle_request(function () use ($booted, &$before, &$after, &$seen) {
    $seen[] = $_SERVER['REQUEST_URI'];
    echo json_encode([$booted, $before, $after, $seen]);
})) {
}
echo 'the rest';
while (true) {
    // Does not mind that it is to end.
    forkyard_handle_request(fn () => print('never'));
}
"#;

#[test]
fn warm_up_requests_and_functions_around_the_snapshot() {
    let daemon = Daemon::start(|dir| {
        write_script(dir, HOOKS);
        fs::write(dir.join("fails.php"), "<?php forkyard_before_snapshot(fn () => throw new Exception('no snapshot'));\nwhile (forkyard_handle_request(fn () => 1));").expect("write");
        let ondemand = "pm = \"ondemand\"\nmax_children = 1\n";
        snapshot_pool(
            dir,
            "snap",
            "worker.php",
            ONE,
            "warm_up_requests = [\"/one\", \"/two\"]\n",
        ) + &snapshot_pool(dir, "fails", "fails.php", ondemand, "")
    });
    let ask = || daemon.get("snap", "any.php").body();
    let first = ask();
    let (booted, rest) = first.split_once(',').expect("a list");
    assert_eq!(rest, "1,1,[\"\\/one\",\"\\/two\",\"\\/any.php\"]]the rest");
    for _ in 0..4 {
        assert_eq!(ask(), format!("{booted},{rest}"));
    }
    assert_starts(&daemon.get("fails", "any.php").text(), "Status: 503");
    daemon.wait_for("a function of forkyard_before_snapshot() failed");
}

#[test]
fn memory_does_not_grow() {
    let daemon = snapshot("", "");
    let first = pid(&daemon);
    let round = || {
        for name in ["memory of the process", "mixture", "peak"] {
            say(&daemon, "snap", name, "big=1");
        }
    };
    let resident = || {
        when_put_back(&daemon, first);
        let text = read_file(format!("/proc/{first}/statm"));
        let mut words = text
            .split(' ')
            .map(|word| word.trim().parse::<u64>().expect("a number"));
        (words.next(), words.next().expect("resident"))
    };
    for _ in 0..20 {
        round();
    }
    let (size, before) = resident();
    for _ in 0..150 {
        round();
    }
    let (size_now, now) = resident();
    assert_eq!(size_now, size);
    assert!(now < before + 200, "{before} pages before, {now} now");
    assert!(process::runs(first));
}
