//! A restart tries the new code whatever the pool's process manager, and whether it has a worker or not: code that can't serve takes
//! the place of none that can.

use crate::support::daemon::{Daemon, forkyard, make_writable, pool};
use crate::support::fcgi::Params;
use crate::support::{place_library, until};
use std::fs;

/// An application: `VALUE` is what it answers.
struct Case {
    runtime: &'static str,
    file: &'static str,
    good: &'static str,
    broken: &'static str,
    settings: &'static str,
}

pub(super) const PMS: [(&str, &str, bool); 4] = [
    ("static", "pm = \"static\"\nmax_children = 1\n", true),
    (
        "dynamic",
        "pm = \"dynamic\"\nmax_children = 2\nstart_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 1\n",
        true,
    ),
    ("ondemand", "pm = \"ondemand\"\nmax_children = 1\n", true),
    (
        "empty",
        "pm = \"ondemand\"\nmax_children = 1\nprocess_idle_timeout = \"1s\"\n",
        false,
    ),
];

pub(super) fn command(daemon: &Daemon, arguments: &[&str]) -> (Option<i32>, String) {
    let output = forkyard(arguments, &daemon.dir).output().expect("forkyard");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

pub(super) fn workers(daemon: &Daemon, name: &str) -> u64 {
    let status: serde_json::Value =
        serde_json::from_str(&command(daemon, &["status", "--json", name]).1).expect("JSON");
    let pool = &status["pools"][0];
    pool["busy"].as_u64().expect("busy") + pool["idle"].as_u64().expect("idle")
}

fn tries_before_it_serves(case: &Case) {
    place_library();
    let daemon = Daemon::start(|dir| {
        let mut text = format!("[global]\ncontrol = \"{}/control.sock\"\n", dir.display());
        for (name, pm, _) in PMS {
            let root = dir.join(name);
            fs::create_dir(&root).expect("mkdir");
            make_writable(&root);
            fs::write(root.join(case.file), case.good.replace("VALUE", "one")).expect("write");
            let mut settings = case.settings.replace("ROOT", &root.display().to_string());
            if case.runtime == "php" {
                settings += &format!("version = {:?}\n", env!("FORKYARD_PHP"));
            }
            text += &pool(
                dir,
                name,
                pm,
                &format!("runtime = \"{}\"\n{settings}", case.runtime),
            );
        }
        text
    });
    for (name, _, stays) in PMS {
        let label = format!("{} {name}", case.runtime);
        let ask = || {
            let params = Params::get(&daemon.dir, "x", "");
            daemon
                .client(name)
                .request(&params, b"")
                .expect("an answer")
                .body()
        };
        let file = daemon.dir.join(name).join(case.file);
        assert_eq!(ask(), "one", "{label}");
        if !stays {
            until("no worker", || (workers(&daemon, name) == 0).then_some(()));
        }
        fs::write(&file, case.broken).expect("write");
        let (code, text) = command(&daemon, &["restart", name, "--wait"]);
        assert_eq!(code, Some(70), "{label}: {text}");
        assert_eq!(ask(), "one", "{label}");
        let (code, text) = command(&daemon, &["health", "--ready"]);
        assert_eq!(code, Some(0), "{label}: {text}");
        fs::write(&file, case.good.replace("VALUE", "two")).expect("write");
        let (code, text) = command(&daemon, &["restart", name, "--wait"]);
        assert_eq!(code, Some(0), "{label}: {text}");
        assert_eq!(ask(), "two", "{label}");
    }
}

#[test]
fn a_wsgi_pool_is_tried() {
    tries_before_it_serves(&Case {
        runtime: "wsgi",
        file: "wsgi.py",
        good: "def application(environ, start):\n    start('200 OK', [])\n    return [b'VALUE']\n",
        broken: "import no_such_module\n",
        settings: "root = \"ROOT\"\n",
    });
}

/// The preloader comes up, and every worker fails.
#[test]
fn an_asgi_pool_is_tried_with_its_lifespan() {
    let good = "async def app(scope, receive, send):\n    \
            if scope['type'] == 'lifespan':\n        \
                await receive()\n        \
                await send({'type': 'lifespan.startup.complete'})\n        \
                await receive()\n        \
                await send({'type': 'lifespan.shutdown.complete'})\n        \
                return\n    \
            await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n    \
            await send({'type': 'http.response.body', 'body': b'VALUE'})\n";
    tries_before_it_serves(&Case {
        runtime: "asgi",
        file: "main.py",
        good,
        broken: "async def app(scope, receive, send):\n    \
                await receive()\n    \
                await send({'type': 'lifespan.startup.failed', 'message': 'no database'})\n",
        settings: "root = \"ROOT\"\nentry = \"main:app\"\n",
    });
}

#[test]
fn a_rack_pool_is_tried() {
    tries_before_it_serves(&Case {
        runtime: "rack",
        file: "config.ru",
        good: "run ->(env) { [200, {}, ['VALUE']] }\n",
        broken: "raise 'no'\n",
        settings: "root = \"ROOT\"\n",
    });
}

#[test]
fn a_node_pool_is_tried() {
    tries_before_it_serves(&Case {
        runtime: "node",
        file: "app.js",
        good: "require('http').createServer((_, response) => response.end('VALUE')).listen(process.env.PORT)\n",
        broken: "throw new Error('no')\n",
        settings: "root = \"ROOT\"\n",
    });
}

#[test]
fn a_loop_of_php_is_tried() {
    tries_before_it_serves(&Case {
        runtime: "php",
        file: "worker.php",
        good: "<?php while (forkyard_handle_request(function () { echo 'VALUE'; })) {}\n",
        broken: "<?php throw new Exception('no');\n",
        settings: "worker = \"ROOT/worker.php\"\nworker_mode = \"loop\"\n",
    });
}

/// A pool that nobody asks has no process made for it by a reload, and one that somebody asked lately is tried by one of changed
/// files.
#[test]
fn pools_that_nobody_asks_cost_no_process() {
    place_library();
    let daemon = Daemon::start(|dir| {
        let mut text = format!("[global]\ncontrol = \"{}/control.sock\"\n", dir.display());
        let code = "def application(environ, start):\n    start('200 OK', [])\n    return [b'well']\n";
        fs::write(dir.join("wsgi.py"), code).expect("write");
        for at in 0..20 {
            let root = format!("runtime = \"wsgi\"\nroot = \"{}\"\n", dir.display());
            let pm = "pm = \"ondemand\"\nmax_children = 1\n";
            text += &pool(dir, &format!("p{at}"), pm, &root);
        }
        text
    });
    let children = || crate::support::process::children(daemon.pid()).len();
    let before = children();
    let (code, text) = command(&daemon, &["reload", "--all"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(text.matches("replaced p").count(), 20, "{text}");
    assert_eq!(children(), before, "{text}");
    assert!(!daemon.log().contains("preloader"), "{}", daemon.log());
}
