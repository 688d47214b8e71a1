//! Workers that die at work: the report, the list, and the request that is sent again.

mod programs;
mod received;

use crate::support::prelude::*;

const SETTINGS: &str = "pm = \"static\"\nmax_children = 1\ncatch_workers_output = true\n";

fn daemon(settings: &str) -> Daemon {
    let is_limited = env!("FORKYARD_PHP") >= "8.3";
    let stack = if is_limited {
        ", \"zend.max_allowed_stack_size\" = \"-1\""
    } else {
        ""
    };
    let values = format!("php_admin_value = {{ \"ffi.enable\" = \"1\"{stack} }}\n");
    let settings = format!("{SETTINGS}{settings}");
    let daemon = Daemon::start(|dir| with_control(dir) + &php_pool(dir, &settings, &values));
    daemon.write("ok.php", "<?php echo getmypid();");
    daemon
}

fn crashes(daemon: &Daemon, more: &[&str]) -> Vec<Value> {
    let output = daemon.shown(&[&["crashes", "--json"], more].concat());
    parsed(&output).as_array().expect("a list").clone()
}

/// The crash that comes next: the worker's line in the log has its report.
fn next(daemon: &Daemon, count: usize) -> Value {
    let log = daemon.wait_for_count(" seconds from start, report ", count);
    let id = log.trim_end().rsplit(' ').next().expect("an id").to_owned();
    let crash = crashes(daemon, &[]).into_iter().next().expect("a crash");
    assert_eq!(crash["id"], id.as_str(), "{log}");
    crash
}

fn report(daemon: &Daemon, crash: &Value) -> Value {
    parsed(&daemon.shown(&["error", "--json", crash["id"].as_str().expect("an id")]))
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

#[test]
fn a_death_at_work_has_a_report_with_its_cause() {
    let daemon = daemon("request_terminate_timeout = \"1s\"\n");
    let own = std::process::id();
    let rows = [
        (
            "posix_kill(getmypid(), 11); sleep(60);",
            "signal",
            "sent by itself",
        ),
        (
            "posix_kill(getmypid(), 15); sleep(60);",
            "signal",
            "(SIGTERM), sent by itself",
        ),
        (
            "posix_kill(getmypid(), 9); sleep(60);",
            "signal",
            "(SIGKILL), sender unknown",
        ),
        (
            "echo FFI::string(FFI::cast('char*', 8), 1);",
            "signal",
            "(SIGSEGV",
        ),
        (
            "function f() { array_map('f', [1]); } f();",
            "stack_overflow",
            "stack overflow: was killed by signal 11",
        ),
        ("FFI::cdef('void abort(void);')->abort();", "signal", "(SIGABRT"),
        (
            "FFI::cdef('void _exit(int);')->_exit(3);",
            "exit",
            "exited with code 3 during the request",
        ),
        (
            "FFI::cdef('void _exit(int);')->_exit(0);",
            "exit",
            "exited with code 0 during the request",
        ),
        ("while (true) {}", "time_limit", "time limit"),
    ];
    for (count, (code, kind, cause)) in rows.into_iter().enumerate() {
        daemon.write("dies.php", &format!("<?php ini_set('memory_limit', -1); {code}"));
        let _answer = daemon
            .send(
                "www",
                &Params::get(&daemon.dir, "dies.php", &format!("row={count}&token=abc")),
            )
            .answer();
        let crash = next(&daemon, count + 1);
        assert_eq!(text(&crash, "kind"), kind, "{code}: {crash}");
        assert_contains(text(&crash, "cause"), cause);
        assert_eq!(
            text(&crash, "request"),
            format!("GET /dies.php?row={count}&token=[hidden]"),
            "{code}"
        );
        let report = report(&daemon, &crash);
        assert_eq!(text(&report["request"], "script"), text(&crash, "script"));
        let is_kept = kind != "exit" && !cause.contains("SIGKILL");
        let source = if is_kept { "received" } else { "scoreboard" };
        assert_eq!(text(&report["request"], "source"), source, "{code}");
        assert!(
            report["diagnostics"]["subprocess"]["peak_memory"].as_u64() > Some(1 << 20),
            "{report}"
        );
        assert_lacks(&report.to_string(), "abc");
    }
    // By another process.
    let mark = daemon.dir.join("mark");
    daemon.write(
        "waits.php",
        "<?php touch($_GET['mark']); while (true) { usleep(1000); }",
    );
    let worker: u32 = daemon.get("www", "ok.php").body().parse().expect("a pid");
    let query = format!("mark={}", mark.display());
    let _client = daemon.send("www", &Params::get(&daemon.dir, "waits.php", &query));
    wait_until("the request to run", || mark.exists());
    process::signal(worker, Signal::SIGUSR2);
    let crash = next(&daemon, rows.len() + 1);
    assert_contains(
        text(&crash, "cause"),
        &format!("(SIGUSR2), sent by process {own} ("),
    );
    let report = report(&daemon, &crash);
    assert_eq!(text(&report["diagnostics"], "stage"), "Running");
    assert_eq!(report["diagnostics"]["subprocess"]["pid"], worker);
}

#[test]
fn a_worker_over_its_memory_names_the_request_and_none_is_lost() {
    let daemon = daemon("memory_limit = \"150M\"\n");
    // It is not freed at the request's end.
    let code = "$a = FFI::new('char[33554432]', false, true); FFI::memset($a, 1, 32 << 20);";
    daemon.write("large.php", &format!("<?php {code} echo 'large';"));
    let crash = until("the report", || {
        assert_eq!(daemon.get("www", "large.php?a=1").body(), "large");
        crashes(&daemon, &["www"]).into_iter().next()
    });
    assert_eq!(text(&crash, "kind"), "memory_limit", "{crash}");
    assert_eq!(text(&crash, "request"), "GET /large.php?a=1");
    let shown = daemon.shown(&["error", text(&crash, "id")]);
    assert_contains(&shown, "after it had served GET /large.php?a=1");
    assert_contains(&shown, "No request was lost");
}

/// A control group of version 1 with a limit of memory; `None`: there is no such hierarchy.
fn memory_group() -> Option<PathBuf> {
    let text = read_file("/proc/self/cgroup");
    let own = text
        .lines()
        .find_map(|line| line.split_once(":memory:").map(|(_, path)| path.to_owned()))?;
    let name = format!("forkyard-crash-{}", std::process::id());
    let group = Path::new("/sys/fs/cgroup/memory")
        .join(own.trim_start_matches('/'))
        .join(name);
    fs::create_dir(&group).ok()?;
    write_file(group.join("memory.limit_in_bytes"), "400M");
    Some(group)
}

#[test]
fn the_kernel_s_kill_for_memory_is_told_from_another() {
    skip_if!(needs_root());
    let Some(group) = memory_group() else {
        crate::skip::skip("cgroup v1 has no memory controller here");
        return;
    };
    let dir = directory();
    let values = "php_admin_value = { \"memory_limit\" = \"-1\" }\n";
    let text = with_control(dir.path()) + &php_pool(dir.path(), SETTINGS, values);
    write_file(dir.path().join("forkyard.toml"), text);
    let mut command = Command::new("/bin/sh");
    let enter = "echo $$ > \"$1/cgroup.procs\" && exec \"$2\" run -c \"$3\"";
    command.args(["-c", enter, "sh"]).arg(&group);
    command.arg(env!("CARGO_BIN_EXE_forkyard"));
    command.arg(dir.path().join("forkyard.toml"));
    let mut daemon = Daemon::launch(dir.path(), command).ready();
    for (count, (code, kind)) in [
        ("posix_kill(getmypid(), 9); sleep(60);", "signal"),
        ("$a = str_repeat('x', 1 << 30);", "out_of_memory"),
        ("posix_kill(getmypid(), 9); sleep(60);", "signal"),
    ]
    .into_iter()
    .enumerate()
    {
        daemon.write("dies.php", &format!("<?php {code}"));
        let _answer = daemon
            .send("www", &Params::get(&daemon.dir, "dies.php", ""))
            .answer();
        assert_eq!(next_kind(&daemon, count + 1), kind, "{code}");
    }
    daemon.end(Signal::SIGTERM);
    wait_until("the group to be empty", || fs::remove_dir(&group).is_ok());
}

fn next_kind(daemon: &Daemon, count: usize) -> String {
    text(&next(daemon, count), "kind").to_owned()
}

#[test]
fn php_fpm_s_words_stay_and_the_number_of_the_report_follows() {
    let daemon = daemon("");
    daemon.write("dies.php", "<?php posix_kill(getmypid(), 11); sleep(60);");
    for count in 1..4 {
        let _answer = daemon
            .send("www", &Params::get(&daemon.dir, "dies.php", ""))
            .answer();
        let crash = next(&daemon, count);
        assert_eq!(crash["deaths"], count, "{crash}");
    }
    let crash = next(&daemon, 3);
    let line = daemon.wait_for(&format!(", report {}", text(&crash, "id")));
    assert_contains(&line, "WARNING: [pool www] child ");
    assert_contains(&line, " exited on signal 11 (SIGSEGV");
    assert_contains(&line, " seconds from start, report ");
    // An idle worker was not at work.
    let idle: u32 = daemon.get("www", "ok.php").body().parse().expect("a pid");
    wait_until("the worker to be idle", || {
        daemon.status(&[])["pools"][0]["idle"] == 1
    });
    process::signal(idle, Signal::SIGKILL);
    let line = daemon.wait_for(&format!("child {idle} exited on signal 9 (SIGKILL)"));
    assert_ends(&line, " seconds from start");
    assert_eq!(crashes(&daemon, &["www"]).len(), 3);
}

#[test]
fn a_report_has_the_worker_s_last_output() {
    let daemon = daemon("");
    daemon.write(
        "dies.php",
        "<?php file_put_contents('php://stderr', \"the last words\\n\"); posix_kill(getmypid(), 11); sleep(60);",
    );
    let _answer = daemon
        .send("www", &Params::get(&daemon.dir, "dies.php", ""))
        .answer();
    let crash = next(&daemon, 1);
    let shown = daemon.shown(&["error", text(&crash, "id")]);
    assert_contains(&shown, "The worker's last output:\n  the last words\n");
    assert_contains(&shown, "request   GET /dies.php\n");
    assert_contains(
        &shown,
        &format!("forkyard replay {} --to POOL", text(&crash, "id")),
    );
}

#[test]
fn workers_that_end_as_they_should_leave_no_report() {
    let daemon = daemon("max_requests = 1\n");
    daemon.write("waits.php", "<?php touch($_GET['mark']); sleep(60);");
    let first = daemon.get("www", "ok.php").body();
    assert_ne!(first, daemon.get("www", "ok.php").body(), "max_requests");
    assert_success(&daemon.run(&["restart", "www", "--wait"]));
    let worker: u32 = daemon.wait_for_workers("www", 1)[0];
    let mark = daemon.dir.join("mark");
    let query = format!("mark={}", mark.display());
    let _client = daemon.send("www", &Params::get(&daemon.dir, "waits.php", &query));
    wait_until("the request to run", || mark.exists());
    assert_success(&daemon.run(&["terminate", &worker.to_string()]));
    daemon.wait_for(&format!("child {worker}, script"));
    daemon.wait_for("is ended by forkyard terminate");
    process::wait_for_end(worker);
    assert!(daemon.get("www", "ok.php").ended);
    assert_eq!(daemon.shown(&["crashes"]), "no worker has died at work\n");
}

#[test]
fn a_python_application_s_death_has_one_too() {
    let daemon = Daemon::start(|dir| {
        let code = "import os, sys\ndef application(environ, start_response):\n    \
            print('the last words', file=sys.stderr, flush=True)\n    \
            if environ['QUERY_STRING'] == 'exit':\n        os._exit(4)\n    os.kill(os.getpid(), 9)\n";
        fs::write(dir.join("passenger_wsgi.py"), code).expect("write");
        with_control(dir) + &pool(dir, "www", SETTINGS, &application_in("wsgi", dir, ""))
    });
    let rows = [
        ("exit", "exit", "exited with code 4"),
        ("kill", "signal", "(SIGKILL), sender unknown"),
    ];
    for (count, (query, kind, cause)) in rows.into_iter().enumerate() {
        let _answer = daemon.send("www", &Params::get(&daemon.dir, "x", query)).answer();
        let crash = next(&daemon, count + 1);
        assert_eq!(text(&crash, "kind"), kind, "{crash}");
        assert_contains(text(&crash, "cause"), cause);
        assert_contains(text(&crash, "request"), &format!("?{query}"));
        let report = report(&daemon, &crash);
        assert_contains(text(&report["diagnostics"], "output"), "the last words");
    }
}

/// The log of slow requests has its calls, and so has the report.
#[test]
fn a_request_that_takes_too_long_has_its_calls() {
    let rows = [
        ("equal", "php", "1s"),
        ("earlier", "php", "500ms"),
        ("python", "wsgi", "500ms"),
        ("none", "php", ""),
    ];
    let daemon = Daemon::start(|dir| {
        let app = dir.join("app");
        fs::create_dir_all(&app).expect("mkdir");
        let code =
            "import time\ndef deep():\n    time.sleep(30)\ndef application(environ, start):\n    deep()\n";
        write_file(app.join("wsgi.py"), code);
        let mut text = with_control(dir);
        for (name, runtime, slow) in rows {
            let mut settings = format!("{SETTINGS}request_terminate_timeout = \"1s\"\n");
            if !slow.is_empty() {
                let log = dir.join(format!("{name}.slow"));
                settings += &format!("slowlog = {log:?}\nrequest_slowlog_timeout = \"{slow}\"\n");
            }
            let application = match runtime {
                "php" => PHP.to_owned(),
                _ => application_in(runtime, &app, ""),
            };
            text += &pool(dir, name, &settings, &application);
        }
        text
    });
    daemon.write("deep.php", "<?php\nfunction deep() { sleep(30); }\ndeep();\n");
    for (count, (name, runtime, _)) in rows.into_iter().enumerate() {
        let _answer = daemon
            .send(name, &Params::get(&daemon.dir, "deep.php", ""))
            .answer();
        let crash = next(&daemon, count + 1);
        assert_eq!(text(&crash, "kind"), "time_limit", "{name} {crash}");
        let report = report(&daemon, &crash);
        let calls = text(&report["diagnostics"], "calls");
        if name == "none" {
            assert_eq!(calls, "");
            continue;
        }
        assert_contains(calls, "deep");
        assert_contains(
            calls,
            if runtime == "php" {
                "deep.php:2"
            } else {
                "wsgi.py:3"
            },
        );
        let after = report["diagnostics"]["calls_after"].as_f64().expect("a time");
        assert!((0.4..30.0).contains(&after), "{after}");
        let shown = daemon.shown(&["error", text(&crash, "id")]);
        assert_contains(&shown, ", from the log of slow requests:\n  [0x");
    }
}

/// The calls that lead to a fault, in the worker's last output. An application's own choice wins.
#[test]
fn a_fault_of_python_has_its_stack() {
    let wsgi = "import ctypes, os\ndef deep(how):\n    \
        os.abort() if how == 'abort' else ctypes.string_at(8)\n\
        def application(environ, start_response):\n    deep(environ['QUERY_STRING'])\n";
    let asgi = "import ctypes, os\ndef deep(how):\n    \
        os.abort() if how == b'abort' else ctypes.string_at(8)\n\
        async def application(scope, receive, send):\n    deep(scope['query_string'])\n";
    let quiet = format!("import faulthandler\nfaulthandler.disable()\n{wsgi}");
    let elsewhere = format!(
        "import faulthandler, os\nfaulthandler.enable(open(os.path.dirname(__file__) + '/calls', 'w'))\n{wsgi}"
    );
    let rows = [
        ("wsgi", "wsgi", "wsgi.py", wsgi, "", true),
        ("late", "wsgi", "wsgi.py", wsgi, "preload = false\n", true),
        ("threads", "wsgi", "wsgi.py", wsgi, "threads = 2\n", true),
        ("asgi", "asgi", "asgi.py", asgi, "", true),
        ("quiet", "wsgi", "wsgi.py", quiet.as_str(), "", false),
        ("elsewhere", "wsgi", "wsgi.py", elsewhere.as_str(), "", false),
    ];
    let daemon = Daemon::start(|dir| {
        let mut text = with_control(dir);
        for (name, interface, file, code, more, _) in rows {
            fs::create_dir_all(dir.join(name)).expect("mkdir");
            write_file(dir.join(name).join(file), code);
            let application = application_in(interface, dir.join(name), more);
            text += &pool(dir, name, SETTINGS, &application);
        }
        write_file(dir.join("elsewhere/calls"), "");
        make_writable(&dir.join("elsewhere/calls"));
        text
    });
    let mut count = 0;
    for (name, _, file, _, _, has_stack) in rows {
        for (how, signal, words) in [
            ("fault", "SIGSEGV", "Fatal Python error: Segmentation fault"),
            ("abort", "SIGABRT", "Fatal Python error: Aborted"),
        ] {
            let _answer = daemon.send(name, &Params::get(&daemon.dir, "x", how)).answer();
            count += 1;
            let crash = next(&daemon, count);
            assert_eq!(text(&crash, "kind"), "signal", "{name} {crash}");
            assert_contains(text(&crash, "cause"), signal);
            let report = report(&daemon, &crash);
            let output = text(&report["diagnostics"], "output");
            assert_eq!(output.contains(words), has_stack, "{name} {how}: {output}");
            assert_eq!(output.contains("in deep"), has_stack, "{name} {how}: {output}");
            assert_eq!(output.contains(file), has_stack, "{name} {how}: {output}");
        }
    }
    let calls = read_file(daemon.dir.join("elsewhere/calls"));
    assert_contains(&calls, "Segmentation fault");
    assert_contains(&calls, "in deep");
}

#[test]
fn a_request_is_sent_again_without_its_session() {
    let daemon = daemon("");
    let gives = "<?php if (file_exists('DIR/well')) { file_put_contents('DIR/seen', json_encode($_SERVER)); \
        http_response_code(404); exit('fine'); } posix_kill(getmypid(), 11); sleep(60);";
    let gives = gives.replace("DIR", &daemon.dir.display().to_string());
    daemon.write("dies.php", &gives);
    let params = Params::get(&daemon.dir, "dies.php", "a=1&token=abc").with("HTTP_COOKIE", "PHPSESSID=1");
    let _answer = daemon.send("www", &params).answer();
    let crash = next(&daemon, 1);
    let id = text(&crash, "id");

    let (code, said) = daemon.said(&["replay", id, "--to", "www"]);
    assert_eq!(code, Some(70), "it dies again: {said}");
    assert_contains(&said, "its worker closed the connection, as one that dies does");
    next(&daemon, 2);

    daemon.write("well", "");
    let said = exited(Some(0), daemon.said(&["replay", id, "--to", "www"]));
    assert_starts(&said, "GET /dies.php?a=1&token=[hidden]: 404 Not Found\n");
    assert_contains(&said, "it carries no session");
    assert_contains(&said, "the values of secrets in its query are not in the report");
    let seen = parsed(&read_file(daemon.dir.join("seen")));
    assert_eq!(text(&seen, "SCRIPT_NAME"), "/dies.php");
    assert!(seen.get("HTTP_COOKIE").is_none(), "{seen}");

    for (arguments, expected) in [
        (["replay", id, "--to", "none"], "there is no pool none"),
        (
            ["replay", "00000000", "--to", "www"],
            "there is no report of error 00000000",
        ),
    ] {
        let said = exited(Some(70), daemon.said(&arguments));
        assert_contains(&said, expected);
    }
    let said = exited(Some(70), daemon.said(&["crashes", "none"]));
    assert_contains(&said, "there is no pool none");

    fs::remove_file(daemon.dir.join("well")).expect("remove");
    let _answer = daemon.put("www", &Params::get(&daemon.dir, "dies.php", "").posting(1), b"x");
    let crash = next(&daemon, 3);
    let said = exited(
        Some(70),
        daemon.said(&["replay", text(&crash, "id"), "--to", "www"]),
    );
    assert_contains(&said, "is POST: only GET and HEAD are sent again");
}

#[test]
fn owners_see_the_crashes_of_their_own_pools() {
    skip_if!(needs_root());
    let daemon = Daemon::start(|dir| {
        let of = |name: &str, user: &str| {
            let root = dir.join(name);
            fs::create_dir(&root).expect("mkdir");
            let code = "import os\ndef application(environ, start_response):\n    os._exit(4)\n";
            fs::write(root.join("passenger_wsgi.py"), code).expect("write");
            let settings = format!("{SETTINGS}user = \"{user}\"\n");
            pool(dir, name, &settings, &application_in("wsgi", &root, ""))
        };
        with_control(dir) + &of("mine", "www-data") + &of("theirs", "nobody")
    });
    for (count, pool) in ["mine", "theirs"].into_iter().enumerate() {
        let _answer = daemon.send(pool, &Params::get(&daemon.dir, "x", "")).answer();
        next(&daemon, count + 1);
    }
    let all = crashes(&daemon, &[]);
    let pools = |crashes: &[Value]| -> Vec<String> {
        crashes
            .iter()
            .map(|crash| text(crash, "pool").to_owned())
            .collect()
    };
    assert_eq!(pools(&all), ["theirs", "mine"]);
    assert_eq!(pools(&crashes(&daemon, &["mine"])), ["mine"]);
    let [user, group] = process::user_and_group(daemon.workers("mine")[0]);
    let as_owner = |arguments: &[&str]| {
        let mut command = daemon.at_socket(arguments);
        command
            .uid(user.parse().expect("a user"))
            .gid(group.parse().expect("a group"));
        said_by(&mut command)
    };
    let said = exited(Some(0), as_owner(&["crashes", "--json"]));
    assert_eq!(pools(parsed(&said).as_array().expect("a list")), ["mine"]);
    let (mine, theirs) = (text(&all[1], "id"), text(&all[0], "id"));
    assert_eq!(as_owner(&["error", mine]).0, Some(0));
    let said = exited(Some(70), as_owner(&["error", theirs]));
    assert_contains(&said, "there is no report of error");
    assert_eq!(as_owner(&["crashes", "theirs"]).1, "no worker has died at work\n");
    let said = exited(Some(0), as_owner(&["status", "--json"]));
    let status: Value = serde_json::from_str(&said).expect("JSON");
    let pools: Vec<_> = status["pools"].as_array().expect("pools").iter().collect();
    assert_eq!(pools.len(), 1, "{said}");
    assert_eq!(pools[0]["name"], "mine");
    assert!(
        pools[0]["numbers"]["requests"]["none"].as_u64() >= Some(1),
        "{said}"
    );
    assert!(status["config"] == "" && status["log"].is_null(), "{said}");
}
