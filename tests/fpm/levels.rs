//! Log output at each `log_level`, and worker output with and without decoration.

use super::both::{STOCK, forkyard_fpm, without_time};
use super::pair::{Fpm, is_possible};
use crate::support::prelude::*;
use std::fs::OpenOptions;

const LEVELS: [&str; 5] = ["debug", "notice", "warning", "error", "alert"];

const SOURCES: &[(&str, &str)] = &[
    (
        "stdout.php",
        "<?php file_put_contents('php://stdout', \"to stdout\\n\");",
    ),
    (
        "stderr.php",
        "<?php file_put_contents('php://stderr', \"to stderr\\n\");",
    ),
    ("error_log.php", "<?php error_log('logged');"),
    (
        "error_log_elsewhere.php",
        "<?php ini_set('error_log', __DIR__ . '/php.log'); error_log('logged');",
    ),
    (
        "error_log_stderr.php",
        "<?php ini_set('error_log', '/dev/stderr'); error_log('logged');",
    ),
    ("warning.php", "<?php echo $x;"),
    ("fatal.php", "<?php nofunc();"),
    ("long.php", "<?php error_log(str_repeat('x', 3000));"),
    ("denied.txt", "text"),
    ("crash.php", "<?php posix_kill(getmypid(), 11); sleep(9);"),
];

type Logged = (&'static str, Vec<String>, String);

fn run(fpm: &Fpm, level: &str, is_caught: bool) -> Vec<Logged> {
    let connect = || Client::connect_tcp(&fpm.address).ok();
    until("the socket", connect);
    let mut seen = 0;
    let mut logged = Vec::new();
    for (script, _) in SOURCES {
        let text = {
            let mut client = connect().expect("it listens");
            let answer = client.request(&fpm.params(script, ""), b"");
            let text = answer.map(|answer| answer.error_text()).unwrap_or_default();
            text.replace(&fpm.path("").display().to_string(), "DIR/")
        };
        if *script == "crash.php" && matches!(level, "debug" | "notice") {
            let is_started = |line: &str| line.contains("NOTICE: ") && line.ends_with(" started");
            wait_until("the new worker", || fpm.read("error").lines().any(is_started));
        }
        let mark = format!("mark {script}");
        fpm.ask(&fpm.params("mark.php", script), b"");
        if !is_caught {
            let mut log = OpenOptions::new().append(true).open(fpm.path("error"));
            writeln!(log.as_mut().expect("it is there"), "{mark}").expect("writable");
        }
        let log = fpm.wait_for("error", &mark);
        let lines: Vec<&str> = log.lines().collect();
        let is_mark = |line: &&str| line.contains(&mark);
        let end = lines.iter().rposition(is_mark).unwrap_or(lines.len());
        let new = lines[seen..end].iter().map(|line| plain(line));
        logged.push((*script, new.filter(|line| is_compared(line)).collect(), text));
        seen = end + 1;
    }
    logged
}

fn plain(line: &str) -> String {
    let line = match line.split_once("] ") {
        Some((time, rest)) if time.len() == 28 && time.starts_with('[') => rest,
        _ => without_time(line),
    };
    let mut words: Vec<&str> = Vec::new();
    for word in line.split(' ') {
        match words.last() {
            Some(&"child" | &"pid" | &"after") => words.push("N"),
            _ => words.push(word),
        }
        let before = match words[..] {
            [.., "pid", "N", function, "line", number] if ends_origin(function, number) => 5,
            [.., function, "line", number] if ends_origin(function, number) => 3,
            _ => 0,
        };
        words.truncate(words.len() - before);
    }
    words.join(" ").replace('\0', "")
}

fn ends_origin(function: &str, number: &str) -> bool {
    function.ends_with("(),") && number.ends_with(':')
}

fn is_compared(line: &str) -> bool {
    let is_added = [
        " child N was serving ",
        " child N was sent signal ",
        " a request is refused: ",
    ];
    !line.starts_with("DEBUG: ") && !is_added.iter().any(|added| line.contains(added))
}

fn bare(line: &str) -> &str {
    let text = line.strip_prefix("WARNING: [pool www] child N said into ");
    let text = text
        .and_then(|text| text.split_once(": \""))
        .map(|(_, text)| text);
    let text = text.unwrap_or(line);
    text.strip_suffix('"').unwrap_or(text)
}

#[test]
fn every_source_is_logged_at_every_level_as_by_php_fpm() {
    skip_if!(!is_possible());
    let mark = "<?php file_put_contents('php://stderr', 'mark ' . $_SERVER['QUERY_STRING'] . \"\\n\");";
    let mut scripts = SOURCES.to_vec();
    scripts.push(("mark.php", mark));
    for level in LEVELS {
        for (caught, decorated) in [(true, true), (true, false), (false, true)] {
            let word = |flag| if flag { "yes" } else { "no" };
            let pool = format!(
                "catch_workers_output = {}\ndecorate_workers_output = {}\nphp_admin_value[extension] = posix.so\n\
                 php_admin_flag[log_errors] = on\nphp_admin_flag[display_errors] = off",
                word(caught),
                word(decorated)
            );
            let global = format!("log_level = {level}");
            let start = |program: &str| run(&Fpm::launch(program, &global, &pool, &scripts), level, caught);
            let [stock, ours] = [STOCK, forkyard_fpm()].map(start);
            for (stock, ours) in stock.into_iter().zip(ours) {
                compare(level, decorated, stock, ours);
            }
        }
    }
}

fn compare(level: &str, decorated: bool, stock: Logged, ours: Logged) {
    let (script, mut theirs, their_text) = stock;
    let (_, mut lines, text) = ours;
    let case = format!("log_level = {level}, decorated: {decorated}, {script}");
    if (script, level) == ("long.php", "debug") {
        return;
    }
    assert_eq!(text, their_text, "{case}: FastCGI's STDERR");
    let hides_warnings = matches!(level, "error" | "alert");
    if decorated && hides_warnings {
        assert!(lines.iter().all(|line| line != bare(line)), "{case}: {lines:#?}");
        assert!(
            theirs.iter().all(|line| line.ends_with('"')),
            "{case}: {theirs:#?}"
        );
    }
    if decorated && (hides_warnings || script == "long.php") {
        let joins = script == "long.php";
        for all in [&mut theirs, &mut lines] {
            let texts: Vec<String> = all.iter().map(|line| bare(line).to_owned()).collect();
            *all = if joins { vec![texts.concat()] } else { texts };
        }
    }
    assert_eq!(lines, theirs, "{case}");
}

#[test]
fn workers_leave_the_signals_of_faults_at_their_defaults() {
    skip_if!(!is_possible());
    let script = ("pid.php", "<?php echo getmypid();");
    for fpm in Fpm::both("", "", &[script]) {
        let pid = fpm.get("pid.php").parse().expect("a pid");
        let caught = process::status_line(pid, "SigCgt").expect("a worker");
        let caught = u64::from_str_radix(&caught, 16).expect("signals");
        for fault in [
            Signal::SIGSEGV,
            Signal::SIGBUS,
            Signal::SIGFPE,
            Signal::SIGILL,
            Signal::SIGABRT,
        ] {
            assert_eq!(caught & 1 << (fault as i32 - 1), 0, "{fault}: {caught:x}");
        }
    }
}
