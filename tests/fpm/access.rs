//! The access log, compared line by line with php-fpm's.

use super::both::forkyard_fpm;
use super::pair::{Fpm, is_possible};
use crate::support::prelude::*;

const SCRIPTS: &[(&str, &str)] = &[
    (
        "a.php",
        "<?php header('X-A: one'); header('X-A: two', false); header('x-b: three'); echo 'hello';",
    ),
    (
        "status.php",
        "<?php http_response_code(418); header('Location: /x', false, 418); echo 'x';",
    ),
    ("fatal.php", "<?php nothing_of_this_name();"),
    ("empty.php", " "),
    (
        "finish.php",
        "<?php http_response_code(201); echo 'x'; fastcgi_finish_request(); usleep(1000);",
    ),
    ("a.txt", "no script"),
];

fn requests(fpm: &Fpm) -> Vec<(Params, Vec<u8>)> {
    let get = |script: &str, query: &str| (fpm.params(script, query), Vec::new());
    let with = |name: &str, value: &str| (fpm.params("a.php", "").with(name, value), Vec::new());
    let post = fpm.params("a.php", "p=1").with("REQUEST_METHOD", "POST");
    let post = post
        .with("CONTENT_LENGTH", "5")
        .with("CONTENT_TYPE", "text/plain");
    vec![
        get("a.php", ""),
        get("a.php", "x=1&y=%20"),
        (post, b"12345".to_vec()),
        with("REQUEST_METHOD", "HEAD"),
        with("HTTP_AUTHORIZATION", "Basic dXNlcjpwYXNz"),
        with("REMOTE_USER", "somebody"),
        with("EXTRA", "value"),
        get("status.php", ""),
        get("fatal.php", ""),
        get("empty.php", ""),
        get("finish.php", ""),
        get("missing.php", ""),
        get("a.php/info", "q"),
        get("a.txt", ""),
        get("ping", ""),
        (fpm.params("ping", "").with("REQUEST_METHOD", "HEAD"), Vec::new()),
    ]
}

fn lines(fpm: &Fpm) -> Vec<String> {
    for (params, body) in requests(fpm) {
        fpm.ask(&params, &body);
    }
    let text = fpm.read("access");
    text.lines().map(str::to_owned).collect()
}

fn pool(format: &str) -> String {
    format!("ping.path = /ping\naccess.log = {{DIR}}/access\naccess.format = '{format}'\n")
}

fn masked(line: &str) -> String {
    let mut text = String::new();
    for c in line.chars() {
        match c {
            '0'..='9' if text.ends_with('9') => {}
            '0'..='9' => text.push('9'),
            c => text.push(c),
        }
    }
    text
}

#[test]
fn every_token_is_as_in_php_fpm() {
    skip_if!(!is_possible());
    let format = "%% f=%f l=%l m=%m n=%n q=%q Q=%Q r=%r R=%R s=%s u=%u e=%{EXTRA}e,%{SCRIPT_FILENAME}e,%{PATH_INFO}e \
                  o=%{X-A}o,%{x-b}o,%{X-B}o,%{Content-type}o,%{Location}o,%{Cache-Control}o \
                  t=%{%Y-%m-%d|%%|%Z}t T=%{}T";
    let [stock, ours] = Fpm::both("", &pool(format), SCRIPTS);
    let (stock, ours) = (lines(&stock), lines(&ours));
    assert_eq!(stock.len(), requests_count(), "{stock:#?}");
    let date = |lines: Vec<String>| -> Vec<String> {
        let cut = |line: &String| match line.split_once(" T=") {
            Some((rest, time)) => format!("{rest} T={}", masked(time)),
            None => line.clone(),
        };
        lines.iter().map(cut).collect()
    };
    for (stock, ours) in date(stock).iter().zip(date(ours)) {
        assert_eq!(*stock, ours);
    }
}

fn requests_count() -> usize {
    16
}

#[test]
fn numbers_look_as_in_php_fpm() {
    skip_if!(!is_possible());
    let format = "%C %{user}C %{system}C %{total}C %d %{seconds}d %{milli}d %{mili}d %{micro}d %M %{kilo}M %{mega}M %{bytes}M \
                  %p %P %t %T";
    let [stock, ours] = Fpm::both("", &pool(format), SCRIPTS);
    let (stock, ours) = (lines(&stock), lines(&ours));
    assert_eq!(stock.len(), ours.len());
    for (stock, ours) in stock.iter().zip(&ours) {
        let shape = |line: &str| masked(line).replace("nan", "9.9").replace("inf", "9.9");
        assert_eq!(shape(stock), shape(ours), "{stock}\n{ours}");
    }
    let memory = |lines: &[String]| -> Vec<String> {
        let field = |line: &String| line.split(' ').nth(9).unwrap_or_default().to_owned();
        lines[..14].iter().map(field).collect()
    };
    assert_eq!(memory(&stock), memory(&ours));
}

#[test]
fn what_is_not_to_be_seen_is_not_there() {
    skip_if!(!is_possible());
    let pool = format!(
        "{}access.suppress_path[] = /a.php\naccess.suppress_path[] = /ping\naccess.suppress_path[] = /missing.php\n",
        pool("%m %r%Q%q %s")
    );
    let [stock, ours] = Fpm::both("", &pool, SCRIPTS);
    let (stock, ours) = (lines(&stock), lines(&ours));
    assert_eq!(stock, ours);
    assert!(!ours.iter().any(|line| line.contains("ping")), "{ours:#?}");
    assert!(ours.contains(&"GET /missing.php 404".to_owned()), "{ours:#?}");
}

#[test]
fn a_long_line_is_cut_as_in_php_fpm() {
    skip_if!(!is_possible());
    let [stock, ours] = Fpm::both("", &pool("%{EXTRA}e|%{EXTRA}e|%s"), SCRIPTS);
    let cut = |fpm: &Fpm| {
        fpm.ask(&fpm.params("a.php", "").with("EXTRA", &"x".repeat(700)), b"");
        fpm.ask(&fpm.params("a.php", ""), b"");
        fpm.read("access")
    };
    let (stock, ours) = (cut(&stock), cut(&ours));
    assert!(stock.replace('\0', "") == ours, "{:?}", &ours[1000..]);
    assert_eq!(ours.lines().next().map(str::len), Some(1023));
}

#[test]
fn a_client_can_not_forge_a_line() {
    skip_if!(!is_possible());
    let fpm = Fpm::start(forkyard_fpm(), "", &pool("\"%q\" %{EXTRA}e"), SCRIPTS);
    let params = fpm.params("a.php", "a\"b\n127.0.0.1 - \x1b[2J\\");
    fpm.ask(&params.with("EXTRA", "x\ny"), b"");
    assert_eq!(
        fpm.read("access"),
        "\"a\\x22b\\x0A127.0.0.1 - \\x1B[2J\\x5C\" x\\x0Ay\n"
    );
}

#[test]
fn lines_are_json_if_that_is_wanted() {
    skip_if!(!is_possible());
    let own = r#"escape=json {"query":"%q","extra":"%{EXTRA}e","status":%s}"#;
    for format in ["json", own] {
        let fpm = Fpm::start(forkyard_fpm(), "", &pool(format), SCRIPTS);
        let query = "a\"b\n\\\u{1b}";
        fpm.ask(&fpm.params("status.php", query).with("EXTRA", "x"), b"");
        let line = fpm.read("access");
        let said: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(
            (&said["query"], &said["status"]),
            (&query.into(), &418.into()),
            "{line}"
        );
        assert_eq!(line.lines().count(), 1);
    }
}

#[test]
fn a_rotated_log_is_written_anew_by_the_same_worker() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    skip_if!(!is_possible());
    let fpm = Fpm::start(forkyard_fpm(), "", &pool("%p %q"), SCRIPTS);
    let mut expected = 0;
    let mut ask = || {
        expected += 1;
        fpm.ask(&fpm.params("a.php", &expected.to_string()), b"");
    };
    ask();
    for turn in 1..=3 {
        ask();
        fs::rename(fpm.path("access"), fpm.path(&format!("access.{turn}"))).expect("it is there");
        fs::rename(fpm.path("error"), fpm.path(&format!("error.{turn}"))).expect("it is there");
        ask();
        fpm.signal(Signal::SIGUSR1);
        let said = fpm.wait_for("error", "access log file re-opened");
        assert_contains(&said, "NOTICE: error log file re-opened");
        ask();
    }
    let mut lines = Vec::new();
    for name in ["access.1", "access.2", "access.3", "access"] {
        lines.extend(fpm.read(name).lines().map(str::to_owned));
    }
    assert_eq!(fpm.read("access").lines().count(), 1);
    let numbers: Vec<String> = lines
        .iter()
        .filter_map(|line| line.split_once(' ').map(|(_, number)| number.to_owned()))
        .collect();
    let wanted: Vec<String> = (1..=expected).map(|number: i32| number.to_string()).collect();
    assert_eq!(numbers, wanted);
    let pids: BTreeSet<&str> = lines.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(pids.len(), 1, "no worker was replaced");
    let file = fs::metadata(fpm.path("access")).expect("it is there");
    assert_eq!((file.permissions().mode() & 0o777, file.uid()), (0o600, 0));
}

#[test]
fn a_status_that_comes_after_the_headers_is_the_one_in_the_log() {
    skip_if!(!is_possible());
    let scripts = [
        ("a.php", "<?php echo 'Not OK'; http_response_code(500);"),
        (
            "b.php",
            "<?php echo 'x'; flush(); http_response_code(404); fastcgi_finish_request();",
        ),
        ("c.php", "<?php http_response_code(404); echo 'x';"),
        ("d.php", "<?php echo 'OK';"),
        (
            "e.php",
            "<?php header('Status: 402 Pay'); echo 'x'; http_response_code(402);",
        ),
    ];
    let pool = "access.log = {DIR}/access\naccess.format = '%r %s'\naccess.suppress_path[] = /a.php\n\
                access.suppress_path[] = /d.php\n";
    let logs = Fpm::both("", pool, &scripts).map(|fpm| {
        for (script, _) in scripts {
            fpm.ask(&fpm.params(script, ""), b"");
        }
        fpm.signal(Signal::SIGTERM);
        fpm.wait_for("error", "bye-bye!");
        fpm.read("access")
    });
    let [mut stock, ours] = logs;
    // Since PHP 8.3 the status can't change once headers are sent: a.php is suppressed, and php-fpm logs for e.php the
    // code that was not sent.
    let is_fixed = env!("FORKYARD_PHP") != "8.2";
    if is_fixed {
        stock = stock.replace("/e.php 200", "/e.php 402");
    }
    assert_eq!(stock, ours);
    assert_eq!(ours.lines().count(), if is_fixed { 3 } else { 4 }, "{ours}");
}

#[test]
fn standard_error_stays_what_it_was() {
    skip_if!(!is_possible());
    let pool = "access.log = /dev/stderr\naccess.format = 'line %q'\n";
    let fpm = Fpm::start(forkyard_fpm(), "", pool, SCRIPTS);
    fpm.ask(&fpm.params("a.php", "1"), b"");
    fpm.signal(Signal::SIGUSR1);
    fpm.wait_for("error", "access log file re-opened");
    fpm.ask(&fpm.params("a.php", "2"), b"");
    fpm.signal(Signal::SIGUSR2);
    fpm.wait_for("error", "using inherited socket");
    fpm.ask(&fpm.params("a.php", "3"), b"");
    let seen = fpm.read("stderr");
    let lines: Vec<&str> = seen.lines().filter(|line| line.starts_with("line ")).collect();
    assert_eq!(lines, ["line 1", "line 2", "line 3"]);
    assert!(!fpm.read("error").contains("line "));
}
