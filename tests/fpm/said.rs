//! What workers write, in the log: php-fpm's own tests of it, on both programs.

use super::both::{forkyard_fpm, without_time};
use super::pair::{Fpm, is_possible};

struct Case {
    name: &'static str,
    limit: usize,
    buffering: bool,
    decorate: bool,
    script: &'static str,
}

const fn case(
    name: &'static str,
    limit: usize,
    buffering: bool,
    decorate: bool,
    script: &'static str,
) -> Case {
    Case {
        name,
        limit,
        buffering,
        decorate,
        script,
    }
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    case("log-bm-limit-1024-msg-80", 1024, true, true, "error_log(str_repeat('t', 80));"),
    case("log-bm-limit-2048-msg-4000", 2048, true, true, "error_log(str_repeat('t', 4000));"),
    case("log-bm-in-shutdown-fn", 1024, true, true, "register_shutdown_function(function () { error_log(str_repeat('e', 80)); });"),
    case("log-bwd-limit-1050-msg-2048", 1050, true, true, "file_put_contents('php://stderr', str_repeat('a', 2048) . \"\\n\");"),
    case("log-bwd-limit-1050-msg-2900", 1050, true, true, "file_put_contents('php://stderr', str_repeat('a', 2900) . \"\\n\");"),
    case("log-bwd-limit-8000-msg-4096", 8000, true, true, "file_put_contents('php://stderr', str_repeat('a', 4096) . \"\\n\");"),
    case("log-bwd-msg-with-nl", 1024, true, true, "file_put_contents('php://stderr', \"abc\\nabc\\n\\n\");"),
    case("log-bwd-multiple-msgs", 1024, true, true, "foreach (['msg 1 - ', 'msg 2 - ', 'msg 3'] as $text) { file_put_contents('php://stderr', $text); usleep(1); }"),
    case("log-bwd-multiple-msgs-stdout-stderr", 1024, true, true, "file_put_contents('php://stdout', str_repeat('a', 100) . \"\\n\"); usleep(20000); file_put_contents('php://stderr', str_repeat('b', 2048) . \"\\n\"); usleep(20000); file_put_contents('php://stdout', str_repeat('c', 20)); usleep(20000); file_put_contents('php://stderr', str_repeat('d', 20));"),
    case("log-bwp-limit-1024-msg-120", 1024, true, false, "file_put_contents('php://stderr', str_repeat('a', 120) . \"\\n\");"),
    case("log-bwp-limit-1500-msg-3300", 1500, true, false, "file_put_contents('php://stderr', str_repeat('a', 3300) . \"\\n\");"),
    case("log-bwp-msg-flush-split-real", 1024, true, false, "file_put_contents('php://stderr', str_repeat('a', 1022));"),
    case("log-bwp-realloc-buffer", 4096, true, false, "file_put_contents('php://stderr', str_repeat('a', 100)); usleep(1); file_put_contents('php://stderr', str_repeat('a', 3900)); "),
    case("log-dwd-limit-1050-msg-2048", 1050, false, true, "file_put_contents('php://stderr', str_repeat('a', 2048) . \"\\n\");"),
    case("log-dwd-limit-1050-msg-2900", 1050, false, true, "file_put_contents('php://stderr', str_repeat('a', 2900) . \"\\n\");"),
    case("log-dwd-limit-8000-msg-4096", 8000, false, true, "file_put_contents('php://stderr', str_repeat('a', 4096) . \"\\n\");"),
    case("log-dwp-limit-1000-msg-2000", 1000, false, false, "file_put_contents('php://stderr', str_repeat('a', 2000) . \"\\n\");"),
];

fn said(fpm: &Fpm, script: &str, mark: &str) -> (Vec<String>, String) {
    let answer = fpm.ask(&fpm.params(script, ""), b"");
    fpm.ask(&fpm.params("mark.php", mark), b"");
    let log = fpm.wait_for("error", mark);
    let lines = log
        .lines()
        .skip_while(|line| !line.contains("ready to handle connections"))
        .skip(1)
        .filter(|line| !line.contains("interval set"))
        .take_while(|line| !line.contains(mark));
    (lines.map(str::to_owned).collect(), answer.error_text())
}

fn without_pid(line: &str) -> String {
    let line = without_time(line);
    match line.split_once("] child ") {
        Some((before, after)) => {
            let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
            let digits = after.len() - rest.len();
            format!("{before}] child {}{rest}", "9".repeat(digits))
        }
        None => line.to_owned(),
    }
}

const MARK: &str = "<?php file_put_contents('php://stderr', $_SERVER['QUERY_STRING'] . \"\\n\");";

const PLAIN: &str = "catch_workers_output = yes\ndecorate_workers_output = no";

fn settings(case: &Case) -> (String, String) {
    let flag = |flag| if flag { "yes" } else { "no" };
    (
        format!(
            "log_limit = {}\nlog_buffering = {}",
            case.limit,
            flag(case.buffering)
        ),
        format!(
            "catch_workers_output = yes\ndecorate_workers_output = {}",
            flag(case.decorate)
        ),
    )
}

#[test]
fn output_is_logged_as_php_fpm_does() {
    skip_if!(!is_possible());
    for case in CASES {
        let (global, pool) = settings(case);
        let script = format!("<?php {}", case.script);
        let scripts = [("a.php", script.as_str()), ("mark.php", MARK)];
        let [stock, ours] =
            Fpm::both(&global, &pool, &scripts).map(|fpm| said(&fpm, "a.php", "the end of it"));
        assert_eq!(stock.1, ours.1, "{}: FastCGI's STDERR", case.name);
        let longest = ours.0.iter().map(|line| line.len() + 1).max();
        assert!(longest <= Some(case.limit), "{}: {longest:?}", case.name);
        let plain = |lines: &[String]| lines.iter().map(|line| without_pid(line)).collect::<Vec<_>>();
        let (mut stock, mut ours) = (plain(&stock.0), plain(&ours.0));
        if case.name == "log-bwd-multiple-msgs-stdout-stderr" {
            stock.sort();
            ours.sort();
        }
        assert!(!ours.is_empty(), "{}", case.name);
        let lengths = |lines: &[String]| lines.first().map(|line| line.find("said into"));
        if lengths(&stock) == lengths(&ours) {
            assert_eq!(stock, ours, "{}", case.name);
        }
    }
}

#[test]
fn what_looks_like_a_mark_ends_a_line() {
    skip_if!(!is_possible());
    let scripts = [
        (
            "a.php",
            "<?php foreach ([1021, 1022, 1023, 1024, 1025, 1026] as $length) file_put_contents('php://stderr', \
             str_repeat('a', $length) . \"\\0fscf\\0\" . str_repeat('b', 10) . \"\\n\");",
        ),
        ("mark.php", MARK),
    ];
    let fpm = Fpm::start(forkyard_fpm(), "log_limit = 2048", PLAIN, &scripts);
    let (lines, _) = said(&fpm, "a.php", "the end of it");
    let expected: Vec<String> = (1021..=1026)
        .flat_map(|length| ["a".repeat(length), "b".repeat(10)])
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn unfinished_lines_of_two_requests_are_two() {
    skip_if!(!is_possible());
    let scripts = [
        (
            "a.php",
            "<?php file_put_contents('php://stderr', 'part ' . $_SERVER['QUERY_STRING']);",
        ),
        ("mark.php", MARK),
    ];
    let fpm = Fpm::start(forkyard_fpm(), "", PLAIN, &scripts);
    let mut expected = Vec::new();
    for number in 0..200 {
        fpm.ask(&fpm.params("a.php", &number.to_string()), b"");
        expected.push(format!("part {number}"));
    }
    let (lines, _) = said(&fpm, "mark.php", "the end of it");
    assert_eq!(lines, expected);
}

#[test]
fn marks_beside_the_limit_of_a_line_end_lines_as_in_php_fpm() {
    skip_if!(!is_possible());
    for length in [1009, 1013] {
        let script = format!(
            "<?php file_put_contents('php://stderr', str_repeat('a', {length}) . \"Quarkslab\\0fscf\\0Quarkslab\");"
        );
        let scripts = [("a.php", script.as_str()), ("mark.php", MARK)];
        let [stock, ours] = Fpm::both("", PLAIN, &scripts).map(|fpm| said(&fpm, "a.php", "the end of it").0);
        assert_eq!(stock, ours);
        assert_eq!(
            ours,
            [format!("{}Quarkslab", "a".repeat(length)), "Quarkslab".to_owned()]
        );
    }
}

#[test]
fn output_is_logged_before_the_signal_that_follows_it() {
    skip_if!(!is_possible());
    for round in 0..20 {
        let scripts = [("a.php", "<?php file_put_contents('php://stderr', \"said\\n\");")];
        let fpm = Fpm::start(forkyard_fpm(), "", "catch_workers_output = yes", &scripts);
        fpm.ask(&fpm.params("a.php", ""), b"");
        fpm.signal(nix::sys::signal::Signal::SIGTERM);
        let log = fpm.wait_for("error", "bye-bye!");
        let at = |text| log.find(text).unwrap_or(usize::MAX);
        assert!(
            at("said into stderr") < at("Terminating ..."),
            "round {round}:\n{log}"
        );
    }
}
