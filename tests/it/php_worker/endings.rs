//! How requests end: what the boot and the warm-up requests have registered for it, as in a pool whose script runs from its
//! beginning for each request.

use super::applications::{self, POOLS, request};
use super::{ONE, ask, mode_pool, ordinary_pool, worker_pool};
use crate::support::daemon::{Daemon, make_writable};
use crate::support::fcgi::{Answer, Params};
use std::fs;
use std::path::Path;

/// Cases of fail.php. The last one leaves a handler in a loop.
const WAYS: [&str; 15] = [
    "exception",
    "undefined",
    "parse",
    "compile",
    "memory",
    "time",
    "recursion",
    "user",
    "destructor",
    "held",
    "warning",
    "shutdown",
    "buffer",
    "callback",
    "handler",
];

/// What is alike in all pools. They differ in the script that calls, in the time, and in what Symfony has noted while it booted.
fn lasting(text: &str) -> String {
    let varies = ["#", "Date: ", "date: ", "Set-Cookie: "];
    let lines = text
        .lines()
        .filter(|line| !varies.iter().any(|begin| line.trim_start().starts_with(begin)));
    let text = lines
        .collect::<Vec<_>>()
        .join("\n")
        .replace("worker.php", "index.php");
    let messages = text
        .split("; PHP message: ")
        .map(|message| message.trim_start_matches("PHP message: "));
    let messages: Vec<_> = messages
        .filter(|message| !message.contains("User Deprecated: Since symfony"))
        .collect();
    messages.join("\n").replace(|c: char| c.is_ascii_digit(), "0")
}

/// The pools' answers to a request that fails in this way, which are alike. Each pool has answered another request before.
fn fails_alike(daemon: &Daemon, way: &str, well: &Params, failing: &Params) -> Answer {
    let [ordinary, others @ ..] = POOLS.map(|pool| {
        let before = ask(daemon, pool, well, b"");
        assert!(
            before.ended && !before.text().starts_with("Status"),
            "{way} in {pool}: {}",
            before.text()
        );
        ask(daemon, pool, failing, b"")
    });
    for (other, pool) in others.iter().zip(&POOLS[1..]) {
        assert!(other.ended, "{way} in {pool}");
        assert_eq!(
            lasting(&other.text()),
            lasting(&ordinary.text()),
            "{way} in {pool}"
        );
        assert_eq!(
            lasting(&other.error_text()),
            lasting(&ordinary.error_text()),
            "{way} in {pool}"
        );
    }
    ordinary
}

/// As Symfony's and Laravel's kernels do: the first request registers what reports fatal errors.
const PLAIN: &str = r#"<?php
require_once __DIR__ . '/fail.php';
register_shutdown_function(fn () => report('boot'));
function report(string $by): void
{
    $error = error_get_last();
    if ($error && ($error['type'] & (E_ERROR | E_PARSE | E_COMPILE_ERROR | E_USER_ERROR))) {
        error_log("$by reports " . strtok($error['message'], "\n"));
        while (ob_get_level()) {
            ob_end_clean();
        }
        http_response_code(500);
        echo "[$by]";
    }
}
$handler = function (): void {
    static $booted = false;
    if (!$booted) {
        $booted = true;
        register_shutdown_function(fn () => report('first request'));
    }
    if (isset($_GET['way'])) {
        register_shutdown_function(fn () => report('request'));
        fail($_GET['way']);
    }
    echo 'well';
};
if (function_exists('forkyard_handle_request')) {
    while (forkyard_handle_request($handler));
} else {
    $handler();
}
"#;

/// A daemon with a script as that of all pools.
fn plain(script: &str, settings: &str) -> Daemon {
    let daemon = Daemon::start(|dir| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/php_worker/fail.php");
        fs::copy(source, dir.join("fail.php")).expect("copy");
        fs::write(dir.join("index.php"), script).expect("write");
        let boot = format!("{settings}warm_up_requests = [\"/\", \"/\"]\n");
        ordinary_pool(dir, "www", ONE, settings)
            + &worker_pool(dir, "loop", "index.php", ONE, &boot)
            + &mode_pool(
                dir,
                "snap",
                "index.php",
                ONE,
                &format!("worker_mode = \"snapshot\"\nisolation = \"rewind\"\n{boot}"),
            )
    });
    make_writable(&daemon.dir);
    daemon
}

const LITTLE: &str = "php_admin_value = { memory_limit = \"32M\", display_errors = \"0\" }\n";

#[test]
fn a_plain_script_reports_its_fatal_errors_in_every_request() {
    let daemon = plain(PLAIN, LITTLE);
    let well = Params::get(&daemon.dir, "index.php", "");
    for way in WAYS {
        let failing = Params::get(&daemon.dir, "index.php", &format!("way={way}"));
        let answer = fails_alike(&daemon, way, &well, &failing);
        let is_reported = answer.text().contains("[boot][first request][request]");
        let is_fatal = !["warning", "held", "shutdown", "callback", "handler"].contains(&way);
        assert_eq!(
            is_reported,
            is_fatal,
            "{way}: {} {}",
            answer.text(),
            answer.error_text()
        );
    }
}

fn framework_reports(application: applications::Application<'_>, name: &str) {
    let daemon = application.start();
    fs::copy(
        format!("{}/fail.php", applications::APPLICATIONS),
        daemon.dir.join("fail.php"),
    )
    .expect("copy");
    let well = request(&daemon, "/hello/you", "");
    for way in WAYS {
        let answer = fails_alike(
            &daemon,
            way,
            &well,
            &request(&daemon, &format!("/fail/{way}"), ""),
        );
        assert!(answer.ended, "{name}: {way}");
    }
}

#[test]
fn symfony_reports_its_fatal_errors_in_every_request() {
    framework_reports(applications::SYMFONY, "symfony");
}

#[test]
fn laravel_reports_its_fatal_errors_in_every_request() {
    framework_reports(applications::LARAVEL, "laravel");
}
