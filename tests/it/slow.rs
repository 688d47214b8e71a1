//! The slow log, compared with php-fpm's.

use crate::support::prelude::*;

const STOCK: &str = concat!("/usr/sbin/php-fpm", env!("FORKYARD_PHP"));

/// Every kind of call; the trace has to show each line.
const INCLUDED: &str = "<?php
class A {
    static function deep() {
        if ($_GET['how'] == 'sleep') {
            sleep(3);
        } elseif ($_GET['how'] == 'read') {
            [$a, $b] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
            stream_set_timeout($a, 3);
            fread($a, 1);
        } else {
            $end = microtime(true) + 3;
            while (microtime(true) < $end) { self::busy(); }
        }
    }
    static function busy() { for ($i = 0; $i < 50; $i++) { $x = str_repeat('x', 10); } }
    function __toString(): string { self::deep(); return ''; }
}
function f() {
    return array_map(
        function ($x) { return 'a' . new A; },
        [1]
    );
}
eval('f();');
";
const SCRIPT: &str = "<?php
function before() {}
before();
include __DIR__ . '/included.php';
echo 'done';
";

fn slow_pool(dir: &Path, settings: &str) -> String {
    let log = dir.join("slow.log");
    php_pool(
        dir,
        &format!(
            "pm = \"static\"\nmax_children = 2\nstatus_path = \"/status\"\nslowlog = \"{}\"\n\
             request_slowlog_timeout = \"1s\"\n{settings}",
            log.display()
        ),
        "",
    )
}

fn write_scripts(dir: &Path) {
    fs::write(dir.join("included.php"), INCLUDED).expect("write");
    fs::write(dir.join("slow.php"), SCRIPT).expect("write");
}

fn daemon(settings: &str) -> Daemon {
    let daemon = Daemon::start(|dir| {
        write_scripts(dir);
        slow_pool(dir, settings)
    });
    daemon.wait_for_workers("www", 2);
    daemon
}

fn entry(log: &Path) -> String {
    fs::read_to_string(log).unwrap_or_default()
}

fn comparable(entry: &str, dir: &Path) -> String {
    let dir = dir.display().to_string();
    let line = |line: &str| -> String {
        let line = line.replace(&dir, "DIR");
        if let Some((_, call)) = line.strip_prefix("[0x").and_then(|rest| rest.split_once("] ")) {
            return format!("[ADDRESS] {call}");
        }
        match line.split_once("]  [pool www] pid ") {
            Some((time, pid)) => {
                assert!(
                    time.len() == 21 && pid.bytes().all(|byte| byte.is_ascii_digit()),
                    "{line}"
                );
                "[TIME]  [pool www] pid PID".to_owned()
            }
            None => line,
        }
    };
    entry.lines().map(line).collect::<Vec<_>>().join("\n")
}

struct Stock {
    _process: process::Guard,
    dir: tempfile::TempDir,
}

impl Stock {
    fn start(settings: &str) -> Option<Stock> {
        if crate::skip::needs_file(STOCK) {
            return None;
        }
        let dir = directory();
        let path = dir.path();
        write_scripts(path);
        let user = if is_root() {
            "user = www-data\ngroup = www-data\n"
        } else {
            ""
        };
        let text = format!(
            "[global]\nerror_log = {0}/fpm.log\ndaemonize = no\n[www]\nlisten = {0}/www.sock\nlisten.mode = 0666\n\
             pm = static\npm.max_children = 1\n{user}slowlog = {0}/slow.log\nrequest_slowlog_timeout = 1s\n{settings}",
            path.display()
        );
        fs::write(path.join("fpm.conf"), text).expect("write");
        let process = Command::new(STOCK)
            .args(["-n", "-F", "-y"])
            .arg(path.join("fpm.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("php-fpm");
        let stock = Stock {
            _process: process::Guard::terminate(process),
            dir,
        };
        until("php-fpm", || {
            Client::connect(&stock.dir.path().join("www.sock")).ok()
        });
        Some(stock)
    }

    fn entry(&self, how: &str) -> String {
        let path = self.dir.path();
        let mut client = Client::connect(&path.join("www.sock")).expect("connect");
        let params = Params::get(path, "slow.php", &format!("how={how}"));
        client.request(&params, b"").expect("answer");
        let log = entry(&path.join("slow.log"));
        fs::write(path.join("slow.log"), "").expect("write");
        comparable(&log, path)
    }
}

fn comparable_line(log: &str, text: &str, dir: &Path) -> String {
    let line = log
        .lines()
        .find(|line| line.contains(text))
        .unwrap_or_else(|| panic!("no {text} in\n{log}"));
    let (_, line) = line.split_once("] ").expect("a time");
    let line = line.replace(&dir.display().to_string(), "DIR");
    let mut shown = String::new();
    let mut rest = line.as_str();
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        let end = from
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(from.len());
        let number = &from[..end];
        shown.push_str(before);
        shown.push_str(match number.split_once('.') {
            Some((_, micros)) if micros.len() == 6 => "SECONDS",
            _ if number.len() > 2 => "PID",
            _ => number,
        });
        rest = &from[end..];
    }
    shown + rest
}

#[test]
fn the_log_has_php_fpms_lines() {
    let Some(stock) = Stock::start("request_terminate_timeout = 2s\n") else {
        return;
    };
    let daemon = daemon("request_terminate_timeout = \"2s\"\n");
    let theirs = stock.dir.path();
    let mut client = Client::connect(&theirs.join("www.sock")).expect("connect");
    let _ = client.request(&Params::get(theirs, "slow.php", "how=sleep"), b"");
    let _ = daemon.get("www", "slow.php?how=sleep");
    daemon.wait_for("exited on signal 15");
    let log = until("php-fpm's log", || {
        let log = entry(&theirs.join("fpm.log"));
        log.contains("exited on signal 15").then_some(log)
    });
    for text in [
        "executing too slow",
        "execution timed out",
        "about to trace",
        "finished trace of",
    ] {
        assert_eq!(
            comparable_line(&daemon.log(), text, &daemon.dir),
            comparable_line(&log, text, theirs),
        );
    }
    let (ours, theirs) = (
        comparable_line(&daemon.log(), "exited on signal 15", &daemon.dir),
        comparable_line(&log, "exited on signal 15", theirs),
    );
    assert!(ours.starts_with(&theirs), "{ours}\n{theirs}");
}

#[test]
fn entries_are_php_fpms() {
    let daemon = daemon("");
    let stock = Stock::start("");
    let log = daemon.dir.join("slow.log");
    for (index, how) in ["sleep", "read"].into_iter().enumerate() {
        let answer = daemon.get("www", &format!("slow.php?how={how}"));
        assert_eq!(answer.body(), "done", "it was not disturbed");
        daemon.wait_for_count("finished trace of ", index + 1);
        let ours = comparable(&entry(&log), &daemon.dir);
        fs::write(&log, "").expect("write");
        let expected = format!(
            "\n[TIME]  [pool www] pid PID\nscript_filename = DIR/slow.php\n\
             [ADDRESS] {}() DIR/included.php:{}\n\
             [ADDRESS] deep() DIR/included.php:16\n\
             [ADDRESS] __toString() DIR/included.php:20\n\
             [ADDRESS] {{closure}}() unknown:0\n\
             [ADDRESS] array_map() DIR/included.php:19\n\
             [ADDRESS] f() DIR/included.php(24) : eval()'d code:1\n\
             [ADDRESS] [INCLUDE_OR_EVAL]() DIR/included.php:24\n\
             [ADDRESS] [INCLUDE_OR_EVAL]() DIR/slow.php:4",
            if how == "sleep" { "sleep" } else { "fread" },
            if how == "sleep" { 5 } else { 9 },
        );
        if let Some(stock) = &stock {
            assert_eq!(ours, stock.entry(how), "{how}");
        } else {
            assert_eq!(ours, expected, "{how}");
        }
        assert_eq!(ours.lines().count(), expected.lines().count(), "{ours}");
    }
    let line = daemon.wait_for("executing too slow");
    let place = daemon.dir.join("slow.php");
    let expected = format!(
        ", script '{}' (request: \"GET /slow.php?how=sleep\") executing too slow (1.",
        place.display()
    );
    assert_contains(&line, "WARNING: [pool www] child ");
    assert_contains(&line, &expected);
    assert!(line.ends_with(" sec), logging"), "{line}");
}

#[test]
fn a_script_that_computes_is_seen_too() {
    let daemon = daemon("");
    assert_eq!(daemon.get("www", "slow.php?how=compute").body(), "done");
    daemon.wait_for("finished trace of ");
    let text = comparable(&entry(&daemon.dir.join("slow.log")), &daemon.dir);
    assert_contains(&text, "[ADDRESS] deep() DIR/included.php:");
    assert_ends(&text, "[ADDRESS] [INCLUDE_OR_EVAL]() DIR/slow.php:4");
}

#[test]
fn a_request_is_written_down_once_and_counted() {
    let daemon = daemon("request_slowlog_trace_depth = 2\n");
    assert_eq!(daemon.get("www", "slow.php?how=sleep").body(), "done");
    assert_eq!(daemon.get("www", "slow.php?how=sleep").body(), "done");
    daemon.wait_for_count("finished trace of ", 2);
    let text = entry(&daemon.dir.join("slow.log"));
    assert_eq!(text.matches("script_filename").count(), 2, "{text}");
    assert_eq!(text.matches("[0x").count(), 4, "two calls each: {text}");
    let params = Params::get(&daemon.dir, "status", "").with("SCRIPT_NAME", "/status");
    let status = daemon.ask("www", &params).body();
    assert!(
        status
            .lines()
            .any(|line| line.starts_with("slow requests:") && line.ends_with(" 2")),
        "{status}"
    );
}

#[test]
fn sleep_is_not_cut_short() {
    let daemon = daemon("");
    daemon.write(
        "nap.php",
        "<?php $t = hrtime(true); $left = sleep(2); echo $left, ' ', (hrtime(true) - $t) >= 2e9 ? 'whole' : 'cut';",
    );
    assert_eq!(daemon.get("www", "nap.php").body(), "0 whole");
    daemon.wait_for("finished trace of ");
}

#[test]
fn what_is_slow_is_written_down_before_it_is_ended() {
    let daemon = daemon("request_terminate_timeout = \"1s\"\n");
    assert_starts(&daemon.get("www", "slow.php?how=sleep").text(), "Status: 504");
    daemon.wait_for("finished trace of ");
    let text = entry(&daemon.dir.join("slow.log"));
    assert_contains(&text, "] sleep() ");
    assert_lacks(&text, "+++");
}

#[test]
fn usr1_opens_the_log_again() {
    let daemon = daemon("");
    let log = daemon.dir.join("slow.log");
    assert_eq!(daemon.get("www", "slow.php?how=sleep").body(), "done");
    daemon.wait_for("finished trace of ");
    let moved = daemon.dir.join("moved");
    fs::rename(&log, &moved).expect("rename");
    let before = entry(&moved);
    daemon.signal(Signal::SIGUSR1);
    daemon.wait_for("error log file re-opened");
    assert_eq!(daemon.get("www", "slow.php?how=sleep").body(), "done");
    daemon.wait_for_count("finished trace of ", 2);
    assert_eq!(entry(&moved), before);
    assert!(entry(&log).contains("] sleep() "));
    assert_eq!(
        fs::metadata(&log)
            .map(|it| std::os::unix::fs::PermissionsExt::mode(&it.permissions()) & 0o777)
            .ok(),
        Some(0o600)
    );
}

#[test]
fn workers_of_an_earlier_preloader_are_seen() {
    let daemon = Daemon::start(|dir| {
        write_scripts(dir);
        format!("[global]\nlog_level = \"debug\"\n{}", slow_pool(dir, ""))
    });
    let old = daemon.wait_for_workers("www", 2);
    // A worker that the preloader has forked but not yet reported would be killed with it.
    for pid in &old {
        daemon.wait_for(&format!("[pool www] child {pid} started"));
    }
    let preloader = daemon.preloaders("www")[0];
    process::signal(preloader, Signal::SIGKILL);
    daemon.wait_for("[pool www] the preloader exited on signal 9");
    assert_eq!(daemon.get("www", "slow.php?how=sleep").body(), "done");
    daemon.wait_for("finished trace of ");
    process::signal(old[0], Signal::SIGKILL);
    wait_until("a worker of a new preloader", || {
        let now = daemon.workers("www");
        now.len() == 2 && now != old
    });
    process::signal(old[1], Signal::SIGKILL);
    wait_until("workers of a new preloader only", || {
        let now = daemon.workers("www");
        now.len() == 2 && !now.contains(&old[1])
    });
    assert_eq!(daemon.get("www", "slow.php?how=sleep").body(), "done");
    daemon.wait_for_count("finished trace of ", 2);
    let text = entry(&daemon.dir.join("slow.log"));
    assert_eq!(text.matches("] sleep() ").count(), 2, "{text}");
}

#[test]
fn without_root() {
    skip_if!(needs_root());
    let configure = |dir: &Path| {
        write_scripts(dir);
        slow_pool(dir, "").replace("user = \"www-data\"\n", "")
    };
    let daemon = Daemon::start_by(configure, |dir| as_user(forkyard(&["run"], dir), 65_534));
    assert_eq!(daemon.get("www", "slow.php?how=sleep").body(), "done");
    daemon.wait_for("finished trace of ");
    let text = entry(&daemon.dir.join("slow.log"));
    assert_contains(&text, "] sleep() ");
    assert_lacks(&text, "+++");
}

#[test]
fn a_log_that_cannot_be_opened_is_an_error_at_the_start() {
    let dir = directory();
    fs::write(dir.path().join("forkyard.toml"), slow_pool(dir.path(), "")).expect("write");
    fs::create_dir(dir.path().join("slow.log")).expect("mkdir");
    let output = forkyard(&["run"], dir.path()).output().expect("forkyard");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("is a directory; give the path of a file in it"),
        "{said}"
    );
    assert!(!dir.path().join("www.sock").exists());
}

fn without_the_capability(settings: &str) -> Option<(Daemon, tempfile::TempDir)> {
    if needs_root() {
        return None;
    }
    let dir = directory();
    write_scripts(dir.path());
    fs::write(dir.path().join("forkyard.toml"), slow_pool(dir.path(), settings)).expect("write");
    let daemon = Daemon::start_bounded(dir.path(), "-sys_ptrace");
    Some((daemon, dir))
}

#[test]
fn who_may_not_look_says_so() {
    let Some((daemon, dir)) = without_the_capability("") else {
        return;
    };
    assert_eq!(daemon.get("www", "slow.php?how=sleep").body(), "done");
    let line = daemon.wait_for("failed to trace child ");
    assert_contains(&line, "ERROR: [pool www] ");
    assert_contains(&line, "Permission denied");
    let text = entry(&dir.path().join("slow.log"));
    assert!(text.ends_with("/slow.php\n+++ dump failed\n"), "{text}");
}

#[test]
fn the_pools_user_may_look_at_dumpable_workers() {
    let is_restricted =
        fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").is_ok_and(|scope| scope.trim() != "0");
    skip_if!(crate::skip::skip_unless(
        !is_restricted,
        "Yama lets no process look into another here"
    ));
    let Some((daemon, dir)) = without_the_capability("process.dumpable = true\n") else {
        return;
    };
    assert_eq!(daemon.get("www", "slow.php?how=sleep").body(), "done");
    daemon.wait_for("finished trace of ");
    let text = entry(&dir.path().join("slow.log"));
    assert_contains(&text, "] sleep() ");
    assert_lacks(&text, "+++");
}
