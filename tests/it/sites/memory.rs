//! `memory_limit`: a larger process is replaced after its request, in application pools and pools of one.

use super::Sites;
use crate::support::prelude::*;

const PHP: &str = "<?php ini_set('memory_limit', '512M'); $held = []; if (isset($_GET['hoard'])) { \
                   for ($i = 0; $i < 20000; $i++) $held[] = str_repeat('x', 10000); } echo getmypid();";
const WSGI: &str = "import os\nheld = []\ndef application(environ, start_response):\n    \
                    if environ['QUERY_STRING'] and not held:\n        held.append(b'x' * 200_000_000)\n    \
                    start_response('200 OK', [])\n    return [str(os.getpid()).encode()]\n";
const ASGI: &str = "import os\nheld = []\nasync def application(scope, receive, send):\n    \
                    assert scope['type'] == 'http'\n    \
                    if scope['query_string'] and not held:\n        held.append(b'x' * 200_000_000)\n    \
                    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n    \
                    await send({'type': 'http.response.body', 'body': str(os.getpid()).encode()})\n";
const RACK: &str = "held = nil\nrun ->(env) { held ||= 'x' * 200_000_000 unless env['QUERY_STRING'].empty?\n\
                    [200, {}, [Process.pid.to_s]] }\n";
const FASTCGI: &str = concat!(
    include_str!("../../support/fastcgi_server.py"),
    r#"
held = []

def answer(params):
    if b"QUERY_STRINGhoard" in params and not held:
        held.append(b"x" * 200_000_000)
    return b"%d" % os.getpid()

serve(answer)
"#
);
const NODE: &str = "let held;\nrequire('http').createServer((request, response) => {\n  \
                    if (request.url.includes('?')) held ??= Buffer.alloc(200_000_000, 'x');\n  \
                    response.end(String(process.pid));\n}).listen(process.env.PORT);\n";
const HTTP_SETTINGS: &str = "runtime = \"http\"\nstart_command = \"/bin/sh -c 'node serve.js; exit'\"\n";
const FASTCGI_SETTINGS: &str = "runtime = \"fastcgi\"\nstart_command = \"python3 app.py\"\n";

#[test]
fn an_instance_of_any_runtime_that_uses_more_memory_than_it_may_is_replaced() {
    let sites = Sites::start("max = 20\nmemory_limit = \"100M\"");
    let kinds = [
        ("php", vec![("index.php", PHP)]),
        ("wsgi", vec![("passenger_wsgi.py", WSGI)]),
        ("asgi", vec![("asgi.py", ASGI)]),
        ("rack", vec![("config.ru", RACK)]),
        (
            "fastcgi",
            vec![("app.py", FASTCGI), ("forkyard.toml", FASTCGI_SETTINGS)],
        ),
        ("node", vec![("app.js", NODE)]),
        ("http", vec![("serve.js", NODE), ("forkyard.toml", HTTP_SETTINGS)]),
    ];
    let mut first = BTreeMap::new();
    for (kind, files) in &kinds {
        for manner in ["modest", "hoards"] {
            let name = format!("{kind}-{manner}");
            sites.add(&name, 0, files);
            first.insert(name.clone(), sites.body(&format!("/{name}/")));
        }
    }
    for (kind, _) in &kinds {
        let hoards = format!("{kind}-hoards");
        wait_until(&format!("another instance of {hoards}"), || {
            sites.body(&format!("/{kind}-modest/"));
            sites.body(&format!("/{hoards}/?hoard")) != first[&hoards]
        });
    }
    for (kind, _) in &kinds {
        let modest = format!("{kind}-modest");
        let instance = first[&modest].parse().expect("a process id");
        assert!(process::runs(instance), "{modest} {instance}");
    }
    assert_contains(&sites.daemon.log(), "it uses more than memory_limit");
}

#[test]
fn the_status_shows_programs_that_speak_http() {
    let sites = Sites::start("max = 4\nmax_idle_time = \"2s\"");
    sites.add("app", 0, &[("app.js", NODE)]);
    let pid: i64 = sites.body("/app/").parse().expect("a pid");
    sites.body("/app/?hoard");
    let status = sites.status();
    let program = &status["book"]["applications"][0]["programs"][0];
    assert_eq!(program["pid"], pid, "{status:#}");
    assert_eq!(program["state"], "up", "{status:#}");
    assert_eq!(program["requests"], 2, "{status:#}");
    assert!(program["memory"].as_u64() > Some(200_000_000), "{status:#}");
    let table = sites.table(&["sites"]);
    let line = table.lines().find(|line| line.contains("program 0, up"));
    assert!(
        line.is_some_and(|line| line.contains(&pid.to_string())),
        "{table}"
    );
    wait_until("its end", || !process::runs(pid as u32));
}

#[test]
fn a_process_of_any_runtime_that_uses_more_memory_than_it_may_is_replaced() {
    let kinds = [
        ("php", "index.php", PHP),
        ("wsgi", "wsgi.py", WSGI),
        ("asgi", "asgi.py", ASGI),
        ("rack", "config.ru", RACK),
        ("fastcgi", "app.py", FASTCGI),
        ("node", "app.js", NODE),
        ("http", "serve.js", NODE),
    ];
    let daemon = Daemon::start(|dir| {
        let one = |(kind, file, text): &(&str, &str, &str)| {
            let root = dir.join(kind);
            fs::create_dir(&root).expect("mkdir");
            fs::write(root.join(file), text).expect("write");
            let root = root.display();
            let settings = "memory_limit = \"100M\"\ncatch_workers_output = true\n";
            let application = match *kind {
                "php" => format!("runtime = \"php\"\nversion = {:?}", env!("FORKYARD_PHP")),
                "fastcgi" => format!("{FASTCGI_SETTINGS}root = \"{root}\""),
                "http" => format!("{HTTP_SETTINGS}root = \"{root}\""),
                _ => format!("runtime = \"{kind}\"\nroot = \"{root}\""),
            };
            pool(dir, kind, settings, &application)
        };
        let pools: Vec<String> = kinds.iter().map(one).collect();
        format!("[global]\nlog_level = \"debug\"\n{}", pools.join("\n"))
    });
    let ask = |kind: &str, file: &str, query: &str| {
        let root = daemon.dir.join(kind);
        let answer = daemon.client(kind).request(&Params::get(&root, file, query), b"");
        answer.expect("an answer").body()
    };
    let is_replaced = |kind: &str, file: &str| {
        let modest = ask(kind, file, "");
        assert!(modest.parse::<u32>().is_ok(), "{kind}: {modest}");
        wait_until(&format!("another process of {kind}"), || {
            let pid = ask(kind, file, "hoard");
            assert!(pid.parse::<u32>().is_ok(), "{kind}: {pid}");
            pid != modest
        });
    };
    std::thread::scope(|scope| {
        for (kind, file, _) in &kinds {
            scope.spawn(|| is_replaced(kind, file));
        }
    });
    daemon.wait_for_count("a worker is replaced: it uses", kinds.len() - 2);
    for pool in ["node", "http"] {
        let why = "its program uses more than memory_limit: it gets new processes";
        daemon.wait_for(&format!("[pool {pool}] {why}"));
    }
}

const GROWING: [(&str, &str, &str); 2] = [
    (
        "wsgi",
        "passenger_wsgi.py",
        "import os\nheld = []\ndef application(environ, start_response):\n    held.append(b'x' * 27_000_000)\n    \
         start_response('200 OK', [])\n    return [str(os.getpid()).encode()]\n",
    ),
    (
        "rack",
        "config.ru",
        "held = []\nrun ->(env) { held << 'x' * 27_000_000\n[200, {}, [Process.pid.to_s]] }\n",
    ),
];
const MOST_REQUESTS: usize = 4;

fn assert_short_lived(what: &str, ask: impl Fn() -> String) {
    let pids: Vec<String> = (0..16).map(|_| ask()).collect();
    let mut counts = BTreeMap::<&str, usize>::new();
    for pid in &pids {
        assert!(pid.parse::<u32>().is_ok(), "{what}: {pid}");
        *counts.entry(pid).or_default() += 1;
    }
    assert!(
        counts.values().all(|count| *count <= MOST_REQUESTS),
        "{what}: {counts:?}"
    );
}

#[test]
fn no_request_begins_in_an_instance_that_was_found_to_use_more_than_it_may() {
    let sites = Sites::start("max = 6\nmemory_limit = \"100M\"");
    for (kind, file, text) in GROWING {
        sites.add(kind, 0, &[(file, text)]);
        assert_short_lived(kind, || sites.body(&format!("/{kind}/")));
    }
}

#[test]
fn no_request_begins_in_a_worker_that_was_found_to_use_more_than_it_may() {
    let managers = [
        ("static", ""),
        (
            "dynamic",
            "start_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 1\n",
        ),
        ("ondemand", ""),
    ];
    for (kind, file, text) in GROWING {
        let daemon = Daemon::start(|dir| {
            let root = dir.join(kind);
            fs::create_dir(&root).expect("mkdir");
            fs::write(root.join(file), text).expect("write");
            let one = |(pm, more): &(&str, &str)| {
                let settings = format!("pm = \"{pm}\"\nmax_children = 1\n{more}memory_limit = \"100M\"\n");
                let application = application_in(kind, &root, "");
                pool(dir, pm, &settings, &application)
            };
            let pools: Vec<String> = managers.iter().map(one).collect();
            pools.join("\n")
        });
        for (pm, _) in managers {
            assert_short_lived(&format!("{kind} {pm}"), || {
                let params = Params::get(&daemon.dir.join(kind), file, "");
                daemon.ask(pm, &params).body()
            });
        }
    }
}
