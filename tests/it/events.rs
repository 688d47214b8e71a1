//! `forkyard events`: what happened to the daemon and its pools, over upgrades and killed masters.

use crate::it::upgrade;
use crate::support::prelude::*;

const STATIC: &str = "pm = \"static\"\nmax_children = 1\n";
const WSGI: &str =
    "def application(environ, start_response):\n    start_response('200 OK', [])\n    return [b'fine']\n";
const HTTP: &str = "import os\nfrom http.server import BaseHTTPRequestHandler, HTTPServer\n\
    HTTPServer(('127.0.0.1', int(os.environ['PORT'])), BaseHTTPRequestHandler).serve_forever()\n";

fn events(daemon: &Daemon, more: &[&str]) -> Vec<Value> {
    let arguments = [&["--json"], more].concat();
    let output = daemon.at_socket(&[&["events"][..], &arguments].concat()).output();
    let output = output.expect("forkyard");
    let events = parsed(&text_of(&output.stdout));
    events.as_array().expect("events").clone()
}

/// Waits for an event of a pool, or of the daemon, whose text contains `text`.
fn wait_for(daemon: &Daemon, pool: Option<&str>, kind: &str, text: &str) -> Value {
    until(&format!("{kind} of {pool:?}: {text}"), || {
        let events = events(daemon, &[]).into_iter();
        let mut found = events.filter(|event| {
            let is_its = event.get("pool").and_then(Value::as_str) == pool;
            let says = event["text"].as_str().unwrap_or_default().contains(text);
            is_its && event["kind"] == kind && says
        });
        found.next_back()
    })
}

/// Without what changes if an event happens once more.
fn numbers(events: &[Value]) -> Vec<(u64, String)> {
    let number = |event: &Value| (event["number"].as_u64().expect("a number"), event.to_string());
    events.iter().map(number).collect()
}

fn kill_process(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid as i32), signal).expect("kill");
}

#[test]
fn a_death_is_an_event_in_every_kind_of_pool() {
    let daemon = Daemon::start(|dir| {
        let place = |name: &str, file: &str, text: &str| {
            let root = dir.join(name);
            fs::create_dir_all(&root).expect("mkdir");
            write_program(&root.join(file), text);
            root
        };
        let wsgi = place("wsgi", "wsgi.py", WSGI);
        let cgi = place("cgi", "app.cgi", "#!/bin/sh\necho\n");
        let http = place("http", "app.py", HTTP);
        let command = format!("runtime = \"http\"\nroot = {http:?}\nstart_command = \"python3 app.py\"\n");
        let dynamic = "pm = \"dynamic\"\nmax_children = 2\nstart_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 1\n";
        with_control(dir)
            + &pool(dir, "static", STATIC, PHP)
            + &pool(dir, "dynamic", dynamic, PHP)
            + &pool(
                dir,
                "ondemand",
                "pm = \"ondemand\"\nmax_children = 1\nprocess_idle_timeout = \"60s\"\n",
                PHP,
            )
            + &pool(dir, "wsgi", STATIC, &application_in("wsgi", wsgi, ""))
            + &pool(dir, "cgi", STATIC, &application_in("cgi", cgi, ""))
            + &pool(dir, "http", STATIC, &command)
    });
    daemon.write("pid.php", "<?php echo getmypid();");
    assert!(daemon.get("ondemand", "pid.php").ended);
    each(["static", "dynamic", "ondemand", "wsgi", "cgi", "http"], |pool| {
        let worker = daemon.wait_for_workers(pool, 1)[0];
        kill_process(worker, Signal::SIGKILL);
        let event = wait_for(
            &daemon,
            Some(pool),
            "worker-died",
            "a worker exited on signal 9 (SIGKILL)",
        );
        let detail = event["detail"].as_str().unwrap_or_default();
        assert_starts(detail, &format!("child {worker} after "));
    });
    let program = until("the program", || {
        let status = daemon.status(&["http"]);
        let pid = &status["pools"][0]["generations"][0]["programs"][0]["pid"];
        pid.as_u64().and_then(|pid| u32::try_from(pid).ok())
    });
    kill_process(program, Signal::SIGKILL);
    let event = wait_for(&daemon, Some("http"), "program-died", "on signal 9 (SIGKILL)");
    assert_eq!(event["detail"], format!("process {program}"));
}

/// Makes an event of each other kind that a daemon with pools of PHP has.
fn make_events(daemon: &Daemon, master: u32, text: &str) {
    let write = |text: &str| write_file(daemon.dir.join("forkyard.toml"), text);
    wait_for(daemon, None, "start", "started");
    daemon.write("crash.php", "<?php posix_kill(getmypid(), 11); sleep(5);");
    for _ in 0..3 {
        assert!(!daemon.get("www", "crash.php").ended);
    }
    let of_crash = || wait_for(daemon, Some("www"), "worker-died", "signal 11 (SIGSEGV");
    until("each death to be counted", || {
        let all = events(daemon, &["www"]).into_iter();
        let all = all.filter(|event| event["kind"] == "worker-died");
        let count: u64 = all.map(|event| event["count"].as_u64().unwrap_or(1)).sum();
        (count >= 3).then_some(())
    });
    let detail = of_crash()["detail"].as_str().unwrap_or_default().to_owned();
    assert_contains(&detail, "serving \"GET /crash.php\"");

    daemon.write("sleep.php", "<?php sleep(30);");
    assert_eq!(daemon.get("late", "sleep.php").status(), "504 Gateway Timeout");
    let late = wait_for(
        daemon,
        Some("late"),
        "timed-out",
        "request_terminate_timeout is over",
    );
    assert!(late["took_ms"].as_u64().expect("a time") >= 1000, "{late}");

    daemon.write(
        "hold.php",
        "<?php while (!file_exists(__DIR__ . '/go')) { usleep(2000); clearstatcache(); } echo 'held';",
    );
    let hold = || daemon.send("full", &Params::get(&daemon.dir, "hold.php", ""));
    let mut held = [hold(), hold(), hold()];
    wait_for(
        daemon,
        Some("full"),
        "max-children",
        "all 2 of max_children are needed",
    );
    fs::write(daemon.dir.join("go"), "").expect("go");
    for client in &mut held {
        assert_eq!(client.answer().expect("answer").body(), "held");
    }
    let over = wait_for(
        daemon,
        Some("full"),
        "max-children-over",
        "fewer than max_children",
    );
    assert!(over["took_ms"].is_u64(), "{over}");

    write("nonsense");
    assert_ne!(
        daemon
            .at_socket(&["reload"])
            .output()
            .expect("forkyard")
            .status
            .code(),
        Some(0)
    );
    let refused = wait_for(daemon, None, "reload-refused", "by forkyard reload: refused");
    assert_contains(refused["text"].as_str().expect("text"), "forkyard.toml:1:");
    write(&text.replace("max_requests = 7000", "max_requests = 7001"));
    assert_eq!(daemon.said(&["reload"]).0, Some(0));
    let done = wait_for(
        daemon,
        None,
        "reload",
        "by forkyard reload: reload done; replaced: www",
    );
    assert!(done["took_ms"].is_u64(), "{done}");
    assert_eq!(daemon.said(&["restart", "late", "--wait"]).0, Some(0));
    wait_for(
        daemon,
        None,
        "restart",
        "new processes: reload done; replaced: late",
    );
    assert_eq!(daemon.said(&["reopen-logs"]).0, Some(0));
    wait_for(daemon, None, "logs-reopened", "");
    assert_eq!(daemon.said(&["drain"]).0, Some(0));
    wait_for(daemon, None, "drain", "drained");
    let named = |title: &str| until(title, || process::child_titled(master, title));
    let preloader = named("forkyard: preloader late");
    kill_process(preloader, Signal::SIGKILL);
    wait_for(daemon, Some("late"), "preloader-died", "signal 9 (SIGKILL)");
    let router = named("forkyard: router sites");
    kill_process(router, Signal::SIGKILL);
    let died = wait_for(
        daemon,
        Some("sites"),
        "helper-died",
        "the router exited on signal 9",
    );
    assert_eq!(died["detail"], format!("process {router}"));
}

fn configure(dir: &Path) -> String {
    let path = dir.display();
    fs::create_dir_all(dir.join("apps")).expect("apps");
    let full = "pm = \"dynamic\"\nmax_children = 2\nstart_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 1\n";
    with_control(dir)
        + &pool(dir, "www", &format!("{STATIC}max_requests = 7000\n"), PHP)
        + &pool(
            dir,
            "late",
            &format!("{STATIC}request_terminate_timeout = \"1s\"\n"),
            &format!("{PHP}preloader = \"own\"\n"),
        )
        + &pool(dir, "full", full, PHP)
        + &format!(
            "[pool.sites]\nlisten = \"{path}/sites.sock\"\nrouting = \"application\"\n[pool.sites.applications]\n\
             directories = [\"{path}/apps\"]\n"
        )
}

#[test]
fn events_are_kept_over_an_upgrade() {
    let daemon = Daemon::start_by(configure, upgrade::installed);
    let path = daemon.dir.clone();
    make_events(&daemon, daemon.pid(), &read_file(path.join("forkyard.toml")));

    let before = numbers(&events(&daemon, &[]));
    write_program(&path.join("bin/forkyard.new"), "#!/bin/sh\nexit 3\n");
    fs::rename(path.join("bin/forkyard.new"), path.join("bin/forkyard")).expect("rename");
    assert_ne!(daemon.said(&["upgrade"]).0, Some(0));
    let failed = wait_for(
        &daemon,
        None,
        "upgrade-failed",
        "by forkyard upgrade: the new program ended with code 3",
    );
    assert!(failed["took_ms"].is_u64(), "{failed}");
    upgrade::install(&path);
    assert_eq!(daemon.said(&["upgrade"]).0, Some(0));
    let done = wait_for(&daemon, None, "upgrade", "by forkyard upgrade: ");
    assert!(done["took_ms"].is_u64(), "{done}");
    let after = numbers(&events(&daemon, &[]));
    for event in &before {
        assert!(after.contains(event), "{event:?} is not in {after:#?}");
    }
    assert!(after.is_sorted_by_key(|(number, _)| *number));
    let text = daemon.shown(&["events", "www", "--since", "1h"]);
    assert_contains(&text, "  www  worker-died  a worker exited on signal 11 (SIGSEGV");
    assert_lacks(&text, "upgrade");
}

#[test]
fn events_are_kept_if_the_master_is_killed() {
    let daemon = Daemon::start_kept(configure);
    make_events(&daemon, daemon.kept_master(), &configure(&daemon.dir));
    let before = numbers(&events(&daemon, &[]));
    let master = daemon.kept_master();
    kill_process(master, Signal::SIGKILL);
    daemon.next_kept_master(master);
    let text = format!("follows process {master}, whose workers go on");
    wait_for(&daemon, None, "takeover", &text);
    let after = numbers(&events(&daemon, &[]));
    for event in &before {
        assert!(after.contains(event), "{event:?} is not in {after:#?}");
    }
}

#[test]
fn an_owner_reads_the_events_of_own_processes() {
    skip_if!(needs_root());
    const OWNER: u32 = 33;
    let daemon = Daemon::start(|dir| {
        let root = dir.join("app");
        fs::create_dir_all(&root).expect("mkdir");
        write_program(&root.join("wsgi.py"), WSGI);
        let other = pool(dir, "other", STATIC, PHP).replace("user = \"www-data\"", "user = \"backup\"");
        with_control(dir) + &pool(dir, "shop", STATIC, &application_in("wsgi", root, "")) + &other
    });
    fs::set_permissions(&daemon.dir, Permissions::from_mode(0o755)).expect("chmod");
    for pool in ["shop", "other"] {
        kill_process(daemon.wait_for_workers(pool, 1)[0], Signal::SIGKILL);
        wait_for(&daemon, Some(pool), "worker-died", "signal 9");
    }
    let read = |uid: u32| {
        let mut command = forkyard(&["events", "--json"], &daemon.dir);
        let output = command.uid(uid).gid(uid).output().expect("forkyard");
        let events = parsed(&text_of(&output.stdout));
        let pools = events.as_array().expect("events").iter();
        let pools = pools.map(|event| event["pool"].as_str().unwrap_or("-").to_owned());
        pools
            .collect::<BTreeSet<String>>()
            .into_iter()
            .collect::<Vec<String>>()
    };
    assert_eq!(read(OWNER), ["shop"]);
    assert_eq!(read(34), ["other"]);
    assert!(read(35).is_empty());
}

const HOLD_PHP: &str =
    "<?php while (!file_exists(__DIR__ . '/go')) { usleep(2000); clearstatcache(); } echo 'held';";
const HOLD_WSGI: &str = "import os, time\ndef application(environ, start_response):\n    \
    while not os.path.exists(os.path.dirname(__file__) + '/../go'):\n        time.sleep(0.002)\n    \
    start_response('200 OK', [])\n    return [b'held']\n";
const HOLD_ASGI: &str = "import asyncio, os\nasync def application(scope, receive, send):\n    \
    assert scope['type'] == 'http'\n    \
    while not os.path.exists(os.path.dirname(__file__) + '/../go'):\n        await asyncio.sleep(0.002)\n    \
    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n    \
    await send({'type': 'http.response.body', 'body': b'held'})\n";
const HOLD_CGI: &str =
    "#!/bin/sh\nwhile [ ! -e ../go ]; do sleep 0.01; done\nprintf 'Content-Type: text/plain\\n\\nheld'\n";

#[test]
fn each_kind_of_pool_that_is_too_small_has_an_event_and_its_end() {
    let daemon = Daemon::start(|dir| {
        for (name, file, text) in [
            ("wsgi", "wsgi.py", HOLD_WSGI),
            ("asgi", "asgi.py", HOLD_ASGI),
            ("cgi", "app.cgi", HOLD_CGI),
        ] {
            fs::create_dir_all(dir.join(name)).expect("mkdir");
            write_program(&dir.join(name).join(file), text);
        }
        let fixed = "pm = \"static\"\nmax_children = 2\n";
        let dynamic = "pm = \"dynamic\"\nmax_children = 2\nstart_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 1\n";
        let ondemand = "pm = \"ondemand\"\nmax_children = 2\nprocess_idle_timeout = \"200ms\"\n";
        let app = |name: &str, more: &str| application_in(name, dir.join(name), more);
        with_control(dir)
            + &pool(dir, "static", fixed, PHP)
            + &pool(dir, "dynamic", dynamic, PHP)
            + &pool(dir, "ondemand", ondemand, PHP)
            + &pool(dir, "wsgi", fixed, &app("wsgi", ""))
            + &pool(dir, "asgi", fixed, &app("asgi", "concurrency = 1\n"))
            + &pool(dir, "cgi", fixed, &app("cgi", ""))
    });
    daemon.write("hold.php", HOLD_PHP);
    let lines = daemon.log().lines().count();
    let pools = ["static", "wsgi", "asgi", "cgi", "dynamic", "ondemand"];
    let params = |pool: &str| match pool {
        "wsgi" => Params::get(&daemon.dir.join("wsgi"), "wsgi.py", ""),
        "asgi" => Params::get(&daemon.dir.join("asgi"), "asgi.py", ""),
        "cgi" => Params::get(&daemon.dir.join("cgi"), "app.cgi", ""),
        _ => Params::get(&daemon.dir, "hold.php", ""),
    };
    let mut held: Vec<Client> = Vec::new();
    for pool in pools {
        held.extend((0..4).map(|_| daemon.send(pool, &params(pool))));
    }
    each(pools, |pool| {
        let text = match pool {
            "dynamic" | "ondemand" => "all 2 of max_children are needed",
            _ => "all 2 of max_children are busy, and connections wait",
        };
        wait_for(&daemon, Some(pool), "max-children", text);
    });
    fs::write(daemon.dir.join("go"), "").expect("go");
    for client in &mut held {
        assert_eq!(client.answer().expect("answer").body(), "held");
    }
    each(pools, |pool| {
        let over = wait_for(
            &daemon,
            Some(pool),
            "max-children-over",
            "fewer than max_children",
        );
        assert!(over["took_ms"].is_u64(), "{over}");
        let of_pool = events(&daemon, &[pool]);
        let begun = of_pool.iter().filter(|event| event["kind"] == "max-children");
        assert_eq!(begun.count(), 1, "{of_pool:#?}");
    });
    let log = daemon.log();
    let new: Vec<&str> = log.lines().skip(lines).collect();
    let of_static = |line: &&&str| {
        ["static", "wsgi", "asgi", "cgi"]
            .iter()
            .any(|it| line.contains(*it))
    };
    assert_eq!(new.iter().find(of_static), None, "{new:#?}");
}

#[test]
fn a_crowded_static_pool_is_an_event_although_nobody_reads() {
    let daemon = Daemon::start(|dir| {
        let fixed = |workers: u32| format!("pm = \"static\"\nmax_children = {workers}\n");
        with_control(dir)
            + &pool(dir, "one", &fixed(1), PHP)
            + &pool(dir, "two", &fixed(2), PHP)
            + &pool(dir, "large", &fixed(10), PHP)
    });
    daemon.write("short.php", "<?php usleep(20000); echo 'fine';");
    each(["one", "two", "large"], |pool| {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..60 {
                        assert_eq!(daemon.get(pool, "short.php").body(), "fine");
                    }
                });
            }
        });
    });
    let end = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("a time");
    for pool in ["one", "two"] {
        let text = "are busy, and connections wait";
        let event = wait_for(&daemon, Some(pool), "max-children", text);
        let time = event["time_ms"].as_u64().expect("a time");
        assert!(u128::from(time) < end.as_millis(), "{event}");
        wait_for(
            &daemon,
            Some(pool),
            "max-children-over",
            "fewer than max_children",
        );
    }
    let of_large = events(&daemon, &["large"]);
    assert!(
        of_large.iter().all(|event| event["kind"] != "max-children"),
        "{of_large:#?}"
    );
}

#[test]
fn every_command_refuses_a_pool_that_is_not_there() {
    let daemon = Daemon::start(|dir| {
        let cgi = application_in("cgi", dir, "");
        let ondemand = "pm = \"ondemand\"\nmax_children = 1\n";
        with_control(dir) + &pool(dir, "www", ondemand, &cgi) + &pool(dir, "old", ondemand, &cgi)
    });
    let rows: [&[&str]; 16] = [
        &["status", "gone"],
        &["status", "gone", "--json"],
        &["advise", "gone"],
        &["logs", "gone"],
        &["routes", "gone"],
        &["events", "gone"],
        &["events", "gone", "--json"],
        &["events", "gone", "--since", "1h"],
        &["opcache", "gone"],
        &["crashes", "gone"],
        &["releases", "gone"],
        &["rollback", "gone"],
        &["deploy", "gone", "/tmp"],
        &["resize", "gone", "2"],
        &["restart", "gone"],
        &["health", "--ready", "--pool", "gone"],
    ];
    each(rows, |words| {
        let (code, said) = daemon.said(words);
        assert!(matches!(code, Some(70 | 78)), "{code:?}: {said}");
        assert_contains(&said, "forkyard: there is no pool gone");
    });
    let said = exited(Some(70), daemon.said(&["events", "gone"]));
    assert_eq!(said, "forkyard: there is no pool gone; there are old, www\n");
    assert_eq!(daemon.said(&["events", "www"]), (Some(0), String::new()));
    let said = exited(Some(70), daemon.said(&["pool", "remove", "gone"]));
    assert_contains(&said, "forkyard: there is no pool gone");
    let said = exited(Some(70), daemon.said(&["resize", "www", "2"]));
    assert_contains(
        &said,
        "forkyard: pool www is no application pool: its key max_children ",
    );

    for name in ["old", "www"] {
        exited(Some(0), daemon.said(&["pool", "remove", name]));
    }
    let said = exited(Some(70), daemon.said(&["events", "gone"]));
    assert_eq!(said, "forkyard: there is no pool gone; there is none\n");
    assert_eq!(
        daemon.said(&["health", "--ready"]).0,
        Some(0),
        "as the documents say"
    );
}
