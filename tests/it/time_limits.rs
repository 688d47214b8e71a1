//! PHP's time limit counts the CPU time of one request, although its timer outlives requests.

use crate::support::prelude::*;

const PHP: &str = r#"<?php
$cpu = fn() => ($u = getrusage())['ru_utime.tv_sec'] + $u['ru_stime.tv_sec'] + ($u['ru_utime.tv_usec'] + $u['ru_stime.tv_usec']) / 1e6;
$burn = function ($seconds) use ($cpu) { $end = $cpu() + $seconds; while ($cpu() < $end); };
switch ($_SERVER['QUERY_STRING']) {
    case 'short': break;
    case 'body': strlen(file_get_contents('php://input')); break;
    case 'long': $burn(0.7); break;
    case 'fatal': nowhere();
    case 'more': set_time_limit(3); $burn(1.5); break;
    case 'restarted': $burn(0.7); set_time_limit(1); $burn(0.7); break;
    case 'unlimited': set_time_limit(0); $burn(0.9); break;
    case 'unlimited-ini': ini_set('max_execution_time', '0'); $burn(0.9); break;
    case 'limited-again': set_time_limit(0); $burn(0.7); set_time_limit(1); $burn(0.7); break;
    case 'endless-again': set_time_limit(0); $burn(0.3); set_time_limit(1); while (true);
    case 'endless': while (true);
    case 'endless-later': $burn(0.7); set_time_limit(1); while (true);
    case 'endless-end': register_shutdown_function(function () { while (true); }); break;
}
echo 'done';
"#;

fn daemon() -> Daemon {
    let daemon = Daemon::start(|dir| {
        let limit = "php_value = { max_execution_time = \"1\" }";
        php_pool(dir, "", limit)
    });
    daemon.write("limits.php", PHP);
    daemon
}

#[test]
fn a_request_has_its_own_cpu_time_and_no_more() {
    let daemon = daemon();
    let mut kept = daemon.client("www").kept();
    let exceeds = |answer: &str| answer.contains("Maximum execution time of 1 second");
    // Each request finds the state that the last one has left.
    let rows = [
        ("short", false),
        ("long", false),
        ("long", false),
        ("body", false),
        ("more", false),
        ("long", false),
        ("restarted", false),
        ("endless", true),
        ("short", false),
        ("long", false),
        ("fatal", false),
        ("endless", true),
        ("endless-later", true),
        ("endless-end", true),
        ("long", false),
        // Computing without a limit takes nothing from what follows.
        ("short", false),
        ("unlimited", false),
        ("long", false),
        ("unlimited-ini", false),
        ("long", false),
        ("limited-again", false),
        ("endless-again", true),
        ("short", false),
        ("unlimited", false),
        ("endless", true),
    ];
    for (number, (query, is_over)) in rows.into_iter().enumerate() {
        let params = Params::get(&daemon.dir, "limits.php", query);
        let answer = match number % 2 {
            0 => kept.request(&params, b"").expect("answer"),
            _ => daemon.ask("www", &params),
        };
        let text = format!("{}{}", answer.body(), String::from_utf8_lossy(&answer.stderr));
        assert_eq!(exceeds(&text), is_over, "{query}: {text}");
        let is_done = !is_over && query != "fatal";
        assert!(!is_done || text.contains("done"), "{query}: {text}");
    }
}

#[test]
fn many_requests_do_not_add_up() {
    let daemon = daemon();
    for _ in 0..4 {
        for query in ["long", "short", "short"] {
            let body = daemon
                .ask("www", &Params::get(&daemon.dir, "limits.php", query))
                .body();
            assert_eq!(body, "done", "{query}");
        }
    }
}
