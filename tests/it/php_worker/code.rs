//! Causes of a new boot: the application, or changed files.

use super::{ONE, worker_pool, write_script};
use crate::support::prelude::*;

const COUNTS: &str = r#"<?php
$boot = count(file(__DIR__ . '/boots')) + 1;
file_put_contents(__DIR__ . '/boots', "boot\n", FILE_APPEND);
if (isset($argv)) { exit; }
if (function_exists('opcache_reset')) { opcache_reset(); }
while (forkyard_handle_request(function () use ($boot) {
    switch ($_GET['do'] ?? '') {
        case 'reset':
            echo json_encode(opcache_reset()), ' ';
            break;
        case 'fill':
            // Files whose code is kept, until no more is.
            for ($i = 0; $i < 400 && !($status = opcache_get_status(false))['cache_full']; $i++) {
                $file = __DIR__ . "/fill/$boot-$i.php";
                $functions = '';
                // What is large no longer fits, long before OPcache calls itself full.
                $count = $status['memory_usage']['free_memory'] > 500_000 ? 300 : 10;
                for ($j = 0; $j < $count; $j++) {
                    $functions .= "function f{$boot}_{$i}_{$j}(\$a) { return [\$a + $j, \$a * $j, \$a - $j, 't$j']; }\n";
                }
                file_put_contents($file, "<?php\n$functions");
                touch($file, time() - 100);
                opcache_compile_file($file);
            }
            echo json_encode(opcache_get_status(false)['cache_full']), ' ';
            break;
    }
    echo $boot;
}));
"#;

fn say(daemon: &Daemon, pool: &str, query: &str) -> String {
    let params = Params::get(&daemon.dir, "index.php", query);
    daemon.ask(pool, &params).body()
}

fn counting(application: &str) -> Daemon {
    let daemon = Daemon::start(|dir| {
        fs::write(dir.join("worker.php"), COUNTS).expect("write");
        fs::write(dir.join("boots"), "").expect("write");
        fs::create_dir(dir.join("fill")).expect("mkdir");
        for path in ["boots", "fill"] {
            make_writable(&dir.join(path));
        }
        worker_pool(dir, "www", "worker.php", ONE, application)
    });
    daemon.wait_for_workers("www", 1);
    daemon
}

#[test]
fn opcache_reset_asks_for_one_more_boot_and_an_opcache_that_is_full_for_one() {
    let daemon = counting(
        "php_admin_value = { \"opcache.memory_consumption\" = \"8\", \"opcache.interned_strings_buffer\" = \"2\" }\n",
    );
    assert_eq!(say(&daemon, "www", ""), "1");
    assert_eq!(say(&daemon, "www", "do=reset"), "true 1");
    daemon.wait_for("[pool www] opcache_reset() was called: it gets new processes");
    wait_until("another boot", || say(&daemon, "www", "") == "2");
    wait_until("its OPcache to be full", || {
        say(&daemon, "www", "do=fill").starts_with("true 2")
    });
    wait_until("another boot", || say(&daemon, "www", "") == "3");
    let line = daemon.wait_for("its OPcache has no memory left for new code");
    assert_contains(&line, "[pool www]");
    daemon.wait_for("raise opcache.memory_consumption");
    assert_eq!(daemon.log().matches("it gets new processes").count(), 2);
}

#[test]
fn opcache_reset_is_refused_where_opcache_refuses_it() {
    let daemon = counting("php_admin_value = { \"opcache.restrict_api\" = \"/none\" }\n");
    assert!(say(&daemon, "www", "do=reset").ends_with("false 1"));
    assert!(!daemon.log().contains("it gets new processes"));
}

const READS: &str = r#"<?php
require __DIR__ . '/src/one.php';
$all = [one(), trim(file_get_contents(__DIR__ . '/config/app.yaml'))];
while (forkyard_handle_request(function () use ($all) { echo implode(' ', $all); }));
"#;

fn one(text: &str) -> String {
    format!("<?php function one() {{ return '{text}'; }}")
}

#[test]
fn a_watched_file_that_changes_leads_to_a_new_boot_and_one_that_is_broken_changes_nothing() {
    let daemon = Daemon::start(|dir| {
        fs::create_dir_all(dir.join("src/deep")).expect("mkdir");
        fs::create_dir(dir.join("config")).expect("mkdir");
        fs::write(dir.join("worker.php"), READS).expect("write");
        fs::write(dir.join("src/one.php"), one("first")).expect("write");
        fs::write(dir.join("config/app.yaml"), "a").expect("write");
        let watch = "watch = [\"DIR/src/**/*.php\", \"DIR/config/*.yaml\", \"DIR/gone/*.php\"]\n";
        worker_pool(dir, "www", "worker.php", ONE, watch)
    });
    let says = |text: &str| wait_until(text, || say(&daemon, "www", "") == text);
    says("first a");
    let line = daemon.wait_for("/gone are not noticed: it is not there");
    assert_contains(&line, "[pool www]");
    daemon.write("src/notes.txt", "x");
    daemon.write("src/new~", &one("second"));
    fs::rename(daemon.dir.join("src/new~"), daemon.dir.join("src/one.php")).expect("rename");
    daemon.wait_for("[pool www] a watched file has changed: it gets new processes");
    says("second a");
    daemon.write("config/app.yaml", "b");
    says("second b");
    daemon.write("src/one.php", "<?php this is broken");
    daemon.wait_for("while the application booted: syntax error");
    assert_eq!(say(&daemon, "www", ""), "second b");
    daemon.write("src/one.php", "<?php require __DIR__ . '/deep/new/two.php';");
    let new = daemon.dir.join("src/deep/new");
    fs::create_dir(&new).expect("mkdir");
    fs::write(new.join("two.php"), one("third")).expect("write");
    says("third b");
    fs::write(new.join("two.php"), one("fourth")).expect("write");
    says("fourth b");
}

#[test]
fn its_functions_say_what_the_worker_is() {
    let script = "<?php require __DIR__ . '/state.php'; \
                  file_put_contents(__DIR__ . '/booting', json_encode(forkyard_worker())); \
                  while (forkyard_handle_request('handle'));";
    let daemon = Daemon::start(|dir| {
        write_script(dir, script);
        fs::write(dir.join("booting"), "").expect("write");
        make_writable(&dir.join("booting"));
        worker_pool(
            dir,
            "www",
            "worker.php",
            ONE,
            "warm_up_requests = [\"/?case=worker\"]\n",
        )
    });
    let ask = || -> Value {
        let said = super::say(&daemon, "www", "worker", "");
        serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"))
    };
    let (first, second) = (ask(), ask());
    assert_eq!(
        read_file(daemon.dir.join("booting")),
        r#"{"mode":"loop","is_booting":true,"booted":null,"requests":0}"#
    );
    assert_has(&first, json!({"mode": "loop", "is_booting": false}));
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970")
        .as_secs_f64();
    let booted = first["booted"].as_f64().expect("a time");
    assert!(booted <= now && booted > now - 300.0, "{first}");
    assert_eq!((&first["requests"], &second["requests"]), (&1.into(), &2.into()));
    assert_eq!(first["booted"], second["booted"]);

    // Headers after output that was flushed early are not sent.
    let answer = super::ask(&daemon, "www", &super::case(&daemon, "headers send", ""), b"");
    let text = answer.text();
    assert_starts(&text, "Status: 203");
    assert_contains(&text, "Link: </a>; rel=preload\r\n");
    assert_lacks(&text, "X-Late");
    assert_eq!(answer.body(), r#"[0,"a, b",0,true]"#);
    for (status, expected) in [(99, "between 100 and 999"), (1000, "between 100 and 999")] {
        let said = super::say(&daemon, "www", "headers send", &format!("status={status}"));
        assert!(said.contains(expected), "{said}");
    }
}
