//! Workers that fail after the application has loaded: a lifespan without its database, a hook after the fork.

use super::{Broken, forkyard_at};
use crate::support::{assert_contains, assert_success, wait_until};

const ASGI: &str = "import os\n\
    async def app(scope, receive, send):\n    \
        if scope['type'] == 'lifespan':\n        \
            await receive()\n        \
            if not os.path.exists('ROOT/database'):\n            \
                await send({'type': 'lifespan.startup.failed', 'message': 'the database is down'})\n            \
                return\n        \
            await send({'type': 'lifespan.startup.complete'})\n        \
            await receive()\n        \
            await send({'type': 'lifespan.shutdown.complete'})\n        \
            return\n    \
        await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n    \
        await send({'type': 'http.response.body', 'body': b'well'})\n";
const WSGI: &str = "import os, forkyard\n\
    @forkyard.after_fork\n\
    def connect():\n    \
        if not os.path.exists('ROOT/database'):\n        \
            raise OSError('the database is down')\n\
    def application(environ, start):\n    \
        start('200 OK', [])\n    \
        return [b'well']\n";
const RACK: &str = "Forkyard.after_fork { raise 'the database is down' unless File.exist?('ROOT/database') }\n\
    run ->(env) { [200, {}, ['well']] }\n";

const STATIC: &str = "pm = \"static\"\nmax_children = 2\n";
const DYNAMIC: &str =
    "pm = \"dynamic\"\nmax_children = 2\nstart_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 1\n";
const ONDEMAND: &str = "pm = \"ondemand\"\nmax_children = 2\n";

fn refuses_and_heals(runtime: &str, file: &str, source: &str, pm: &str) {
    let entry = if runtime == "asgi" {
        "entry = \"main:app\"\n"
    } else {
        ""
    };
    let broken = Broken::start(runtime, file, source, pm, entry);
    let report = broken.report(&broken.refused());
    assert!(report.to_string().contains("the database is down"), "{report:#}");
    wait_until("three longer delays", || {
        broken.refused();
        let log = broken.daemon.log();
        ["in 0.1 s", "in 0.2 s", "in 0.4 s"]
            .iter()
            .all(|delay| log.contains(delay))
    });
    let health = forkyard_at(&broken.daemon, &["health", "--ready"]);
    let said = String::from_utf8_lossy(&health.stderr).into_owned();
    assert!(!health.status.success(), "{health:?}");
    assert_contains(&said, "www: failing");
    assert_contains(&said, "the database is down");
    broken.heals_unchecked("database", "");
    let health = forkyard_at(&broken.daemon, &["health", "--ready"]);
    assert_success(&health);
}

#[test]
fn an_asgi_pool_whose_lifespan_fails_refuses_requests() {
    for pm in [STATIC, DYNAMIC, ONDEMAND] {
        refuses_and_heals("asgi", "main.py", ASGI, pm);
    }
}

#[test]
fn a_wsgi_pool_whose_function_after_the_fork_fails_refuses_requests() {
    for pm in [STATIC, DYNAMIC, ONDEMAND] {
        refuses_and_heals("wsgi", "wsgi.py", WSGI, pm);
    }
}

#[test]
fn a_rack_pool_whose_function_after_the_fork_fails_refuses_requests() {
    for pm in [STATIC, DYNAMIC, ONDEMAND] {
        refuses_and_heals("rack", "config.ru", RACK, pm);
    }
}

#[test]
fn a_worker_that_ends_with_code_0_before_it_serves_has_a_report() {
    let source = WSGI.replace("raise OSError('the database is down')", "os._exit(0)");
    let broken = Broken::start("wsgi", "wsgi.py", &source, STATIC, "");
    let report = broken.report(&broken.refused());
    assert!(report.to_string().contains("exited with code 0"), "{report:#}");
    broken.heals_unchecked("database", "");
}
