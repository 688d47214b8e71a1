//! The boot's environment, and each way in which it fails.

use super::{ONE, worker_pool};
use crate::support::prelude::*;

const WELL: &str = "<?php while (forkyard_handle_request(function () { echo 'well'; }));";

#[derive(Debug)]
struct Case {
    name: &'static str,
    script: &'static str,
    application: &'static str,
    summary: &'static str,
    more: &'static str,
}

const CASES: &[Case] = &[
    Case {
        name: "page",
        script: "<?php echo 'an ordinary page';",
        application: "",
        summary: "the worker script ended without calling forkyard_handle_request()",
        more: "an ordinary page",
    },
    Case {
        name: "exits",
        script: "<?php echo 'no configuration'; exit(1);",
        application: "",
        summary: "the worker script ended without calling forkyard_handle_request()",
        more: "no configuration",
    },
    Case {
        name: "throws",
        script: "<?php function boot() { throw new LogicException('no database'); } boot();",
        application: "",
        summary: "the worker script failed while the application booted: Uncaught LogicException: no database in",
        more: "throws.php(1): boot()",
    },
    Case {
        name: "fatal",
        script: "<?php class A {} eval('class A {}');",
        application: "",
        summary: "the worker script failed while the application booted: Cannot declare class A, because the name is already in use in",
        more: "boots once",
    },
    Case {
        name: "syntax",
        script: "<?php this is not PHP;",
        application: "",
        summary: "the worker script failed while the application booted: syntax error, unexpected",
        more: "PHP",
    },
    Case {
        name: "late",
        script: "<?php fwrite(fopen('php://stderr', 'w'), 'about to'); while (true) sleep(1);",
        application: "boot_timeout = \"3s\"\n",
        summary: "",
        more: "about to",
    },
    Case {
        name: "warm",
        script: "<?php while (forkyard_handle_request(function () { http_response_code(503); echo 'no cache'; }));",
        application: "warm_up_requests = [\"/first\"]\n",
        summary: "the warm-up request /first was answered with 503",
        more: "no cache",
    },
    Case {
        name: "warmthrow",
        script: "<?php while (forkyard_handle_request(function () { throw new Exception('not warm'); }));",
        application: "warm_up_requests = [\"/second\"]\n",
        summary: "the warm-up request /second was answered with 500",
        more: "not warm",
    },
    Case {
        name: "warmfatal",
        script: "<?php class A {} while (forkyard_handle_request(function () { eval('class A {}'); }));",
        application: "warm_up_requests = [\"/third\"]\n",
        summary: "the worker script failed in the warm-up request /third: Cannot declare class A",
        more: "A",
    },
    Case {
        name: "warmends",
        script: "<?php forkyard_handle_request(function () { echo 'once'; });",
        application: "warm_up_requests = [\"/fourth\"]\n",
        summary: "the worker script ended in the warm-up request /fourth",
        more: "while that returns true",
    },
];

#[test]
fn each_failure_has_its_report_and_the_pool_comes_when_it_is_mended() {
    let daemon = Daemon::start(|dir| {
        let control = with_control(dir);
        let pools: String = CASES
            .iter()
            .map(|case| {
                let script = format!("{}.php", case.name);
                fs::write(dir.join(&script), case.script).expect("write");
                let settings = "pm = \"ondemand\"\nmax_children = 1\n";
                worker_pool(dir, case.name, &script, settings, case.application)
            })
            .collect();
        control + &pools
    });
    each(CASES, |case| {
        let refusal = daemon.get(case.name, "any.php");
        assert_starts(&refusal.text(), "Status: 503");
        let report = daemon
            .at_socket(&["error", &refusal.error_id(), "--json"])
            .output();
        let report = parsed(&text_of(&report.expect("forkyard").stdout));
        let error = &report["error"];
        let step = match case.summary {
            "" => "SPAWNING_KIT_HANDSHAKE_PERFORM",
            _ => "SUBPROCESS_APP_LOAD_OR_EXEC",
        };
        assert_eq!(error["step"], step, "{report:#}");
        let summary = error["summary"].as_str().unwrap_or_default();
        assert!(summary.contains(case.summary), "{}: {summary}", case.name);
        if case.more != "boots once" {
            assert_contains(&report.to_string(), case.more);
        }
        assert!(!error["solution_description"].is_null(), "{report:#}");
    });
    for case in CASES {
        daemon.write(&format!("{}.php", case.name), WELL);
    }
    for case in CASES {
        wait_until("the application to be up", || {
            daemon.get(case.name, "any.php").body() == "well"
        });
    }
}

const NOTES: &str = r#"<?php
$found = [[
    $_SERVER['SCRIPT_NAME'], basename($_SERVER['SCRIPT_FILENAME']), $_SERVER['APP_ENV'], isset($_SERVER['REQUEST_URI']),
    isset($_SERVER['HTTP_HOST']), basename(getcwd()) === basename(__DIR__), $_GET, PHP_SAPI, count(get_included_files()),
]];
echo "printed in the boot\n";
error_log('logged in the boot');
frankenphp_log('told in the boot', FRANKENPHP_LOG_LEVEL_INFO, ['a' => 1]);
header('X-Boot: lost');
setcookie('boot', 'lost');
register_shutdown_function(function () { file_put_contents(__DIR__ . '/ends', getmypid() . "\n", FILE_APPEND); });
$pid = getmypid();
$count = 0;
while (frankenphp_handle_request(function () use (&$found, &$count, $pid) {
    $count++;
    if (getmypid() === $pid) {
        $found[] = [$_SERVER['REQUEST_METHOD'], $_SERVER['REQUEST_URI'], $_SERVER['HTTP_HOST'], $_GET, $_SERVER['APP_ENV']];
        header('X-Warm: lost');
        echo 'thrown away';
        return;
    }
    frankenphp_log('told in a request', FRANKENPHP_LOG_LEVEL_WARN);
    header('X-A: 1');
    header('X-A: 2', false);
    echo json_encode([$found, $count, isset($_SERVER['APP_ENV']), frankenphp_response_headers()['X-A'], $_SERVER['REQUEST_URI']]);
}));
"#;

#[test]
fn boot_and_warm_up_requests_leave_the_application_and_nothing_else() {
    let daemon = Daemon::start(|dir| {
        fs::write(dir.join("notes.php"), NOTES).expect("write");
        let application = "warm_up_requests = [\"/\", \"/login?from=home\"]\n\
                           warm_up_server = { APP_ENV = \"prod\" }\n";
        let settings = "pm = \"static\"\nmax_children = 2\n";
        worker_pool(dir, "www", "notes.php", settings, application)
    });
    daemon.wait_for_workers("www", 2);
    let answer = daemon.get("www", "index.php");
    let text = answer.text();
    assert_lacks(&text, "lost");
    assert_lacks(&text, "thrown away");
    assert_lacks(&text, "printed");
    let expected = r#"[[["\/notes.php","notes.php","prod",false,false,true,[],"fpm-fcgi",1],["GET","\/","localhost",[],"prod"],["GET","\/login?from=home","localhost",{"from":"home"},"prod"]],3,false,"1, 2","\/index.php"]"#;
    assert_eq!(answer.body(), expected);
    for line in [
        "printed in the boot",
        "PHP message: logged in the boot",
        "told in the boot {\"a\":1}",
    ] {
        daemon.wait_for(line);
    }
    assert_contains(&daemon.wait_for("told in a request"), "WARNING: [pool www]");
    let workers = daemon.wait_for_workers("www", 2);
    for worker in &workers {
        process::signal(*worker, Signal::SIGKILL);
    }
    assert_eq!(daemon.get("www", "index.php").body(), expected);
}

#[test]
fn workers_of_one_boot_draw_different_numbers() {
    let script = "<?php mt_rand(); rand(); lcg_value(); uniqid('', true); require __DIR__ . '/state.php'; \
                  while (forkyard_handle_request('handle'));";
    let daemon = Daemon::start(|dir| {
        super::write_script(dir, script);
        worker_pool(dir, "www", "worker.php", ONE, "loop_requests = 2\n")
    });
    let mut seen = std::collections::HashSet::new();
    for _ in 0..12 {
        let said = super::say(&daemon, "www", "random", "");
        for word in said.split(' ') {
            assert!(seen.insert(word.to_owned()), "{word} came twice");
        }
    }
}
