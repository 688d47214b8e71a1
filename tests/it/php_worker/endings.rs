//! Shutdown handlers of the boot and of warm-up requests run as in a pool without a worker script.

use super::applications::{self, POOLS, request};
use super::{ONE, ask, mode_pool, ordinary_pool, worker_pool};
use crate::support::prelude::*;

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

/// As Symfony's and Laravel's kernels do: the first request registers a reporter of fatal errors.
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

fn plain(script: &str, settings: &str) -> Daemon {
    Daemon::start(|dir| {
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
    })
}

const LITTLE: &str = "php_admin_value = { memory_limit = \"32M\", display_errors = \"0\" }\n";

#[test]
fn a_plain_script_reports_its_fatal_errors_in_every_request() {
    let daemon = plain(PLAIN, LITTLE);
    let well = Params::get(&daemon.dir, "index.php", "");
    each(WAYS, |way| {
        let failing = Params::get(&daemon.dir, "index.php", &format!("way={way}"));
        let answer = fails_alike(&daemon, way, &well, &failing);
        let is_reported = answer.text().contains("[boot][first request][request]");
        let is_fatal = !["warning", "held", "shutdown", "callback", "handler"].contains(&way);
        assert_eq!(is_reported, is_fatal, "{} {}", answer.text(), answer.error_text());
    });
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

tests! {
    fn symfony_reports_its_fatal_errors_in_every_request() => framework_reports(applications::SYMFONY, "symfony");
    fn laravel_reports_its_fatal_errors_in_every_request() => framework_reports(applications::LARAVEL, "laravel");
}

const PRINTING: &str = r#"<?php
class Dumper
{
    public ?string $text = null;

    public function __construct(private string $name)
    {
    }

    public function __destruct()
    {
        if ($this->text !== null) {
            echo "[$this->name $this->text]";
        }
    }
}
register_shutdown_function(fn () => print('[boot]'));
$kept = new Dumper('first');
$last = new Dumper('last');
$inner = new Dumper('inner');
$handler = function () use ($inner): void {
    if (!isset($_GET['code'])) {
        return;
    }
    register_shutdown_function(fn () => print('[request]'));
    foreach ([$GLOBALS['kept'], $GLOBALS['last'], $inner] as $dumper) {
        $dumper->text = $_GET['text'];
    }
    $GLOBALS['own'] = new Dumper('own');
    $GLOBALS['own']->text = $_GET['text'];
    http_response_code(500);
    exit((int) $_GET['code']);
};
function serve(callable $handler): void
{
    $local = new Dumper('local');
    $local->text = 'of the script';
    if (!function_exists('forkyard_handle_request')) {
        $handler();
    }
    while (forkyard_handle_request($handler));
    echo 'never reached in a snapshot';
}
serve($handler);
"#;

#[test]
fn what_is_printed_after_the_handler_is_in_the_answer() {
    let daemon = plain(PRINTING, "");
    let get = |code: u8| Params::get(&daemon.dir, "index.php", &format!("text=dumped&code={code}"));
    for _ in 0..3 {
        let ordinary = ask(&daemon, "www", &get(1), b"").text();
        assert_starts(&ordinary, "Status: 500");
        assert_ends(
            &ordinary,
            "[local of the script][boot][request][own dumped][inner dumped][last dumped][first dumped]",
        );
        assert_eq!(ask(&daemon, "snap", &get(1), b"").text(), ordinary);
        assert_eq!(ask(&daemon, "snap", &get(0), b"").text(), ordinary);
        assert_eq!(ask(&daemon, "loop", &get(1), b"").text(), ordinary);
    }
    assert_eq!(ask(&daemon, "loop", &get(0), b"").body(), "[request]");
}

const COUNTING: &str = r#"<?php
$calls = $boot = 0;
$kept = '';
register_shutdown_function(function () use (&$boot) { $boot++; });
session_set_save_handler(new SessionHandler(), true);
while (forkyard_handle_request(function () use (&$calls, &$boot, &$kept) {
    echo "$calls $boot ";
    $kept .= 'x';
    for ($i = 0; $i < 100; $i++) {
        register_shutdown_function(function (string $text) use (&$calls) { $calls++; }, str_repeat($kept[0], 1000));
    }
    register_shutdown_function(fn () => register_shutdown_function(fn () => print('nested')));
    session_register_shutdown();
    echo memory_get_usage() >> 17, ' ';
}));
"#;

#[test]
fn functions_of_requests_do_not_add_up_in_a_loop() {
    let daemon = plain(COUNTING, "");
    let said = |_| ask(&daemon, "loop", &Params::get(&daemon.dir, "index.php", ""), b"").body();
    let all: Vec<String> = (0..300).map(said).collect();
    let words_of = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
    for (number, text) in all.iter().enumerate() {
        let words = words_of(text);
        assert_eq!(words[..2], [(number * 100).to_string(), "0".to_owned()], "{text}");
        assert_eq!(words[3], "nested");
        assert_eq!(words[2], words_of(&all[1])[2], "{number}: {text}");
    }
}

const LEAVING: &str = r#"<?php
class Left
{
    public function __construct(private string $text)
    {
    }

    public function __destruct()
    {
        echo $this->text;
        throw new RuntimeException("thrown by $this->text");
    }
}
while (forkyard_handle_request(function () {
    echo 'own ', $_GET['text'] ?? '';
    if (isset($_GET['text'])) {
        $_GET['left'] = $_SERVER['left'] = new Left('secret of ' . $_GET['text']);
    }
}));
"#;

#[test]
fn what_a_request_has_left_in_superglobals_prints_into_no_other_answer() {
    let daemon = plain(LEAVING, "");
    for text in ["alice", "bob", "carol"] {
        let answer = ask(
            &daemon,
            "loop",
            &Params::get(&daemon.dir, "index.php", &format!("text={text}")),
            b"",
        );
        assert_eq!(answer.body(), format!("own {text}"), "{}", answer.error_text());
        assert_starts(&answer.text(), "Content-type");
    }
    daemon.wait_for("Uncaught RuntimeException: thrown by secret of alice");
}
