//! The log and the report show the cause of a failed start once, and where an application hangs.

use super::{Broken, WELL_WSGI};
use crate::support::prelude::*;

#[test]
fn the_cause_is_told_once() {
    let source = "import nowhere_to_be_found\n";
    let broken = Broken::start("wsgi", "wsgi.py", source, "", "");
    wait_until("three tries", || {
        broken.ask();
        broken.daemon.log().matches("is started again in").count() >= 3
    });
    let log = broken.daemon.log();
    assert_lacks(&log, "workers go on");
    assert_lacks(&log, "preloader exited");
    assert!(log.matches("error ").count() >= 3, "{log}");
    assert_eq!(log.matches("wsgi.py\", line 1, in <module>").count(), 1, "{log}");
    broken.heals("wsgi.py", WELL_WSGI);
}

#[test]
fn where_an_import_hangs_is_shown() {
    let cases = [
        (
            "wsgi",
            "wsgi.py",
            "import time\ndef connect_to_database():\n    time.sleep(1000)\nconnect_to_database()\n",
            "in connect_to_database",
        ),
        (
            "rack",
            "config.ru",
            "def connect_to_database = sleep(1000)\nconnect_to_database\n",
            "in `connect_to_database'",
        ),
    ];
    let shows = |(runtime, file, source, place): (&str, &str, &str, &str)| {
        let broken = Broken::start(runtime, file, source, "", "start_timeout = \"9s\"\n");
        let id = broken.refused();
        let report = broken.report(&id);
        assert_eq!(report["error"]["category"], "TIMEOUT_ERROR", "{report:#}");
        let output = report["diagnostics"]["subprocess"]["stdout_and_err"].to_string();
        assert!(
            output.contains(place) && output.contains(file),
            "{runtime}: {output}"
        );
        let solution = report["error"]["solution_description"].to_string();
        assert!(
            solution.contains("still loading") && !solution.contains("listen()"),
            "{runtime}: {solution}"
        );
        broken.daemon.wait_for(place);
        assert_lacks(&broken.daemon.log(), "did not answer");
    };
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || shows(case));
        }
    });
}

#[test]
fn a_closed_directory_on_the_way_to_an_interpreter_is_named() {
    skip_if!(needs_root());
    let broken = Broken::start("wsgi", "python", "", "", "interpreter = \"ROOT/python\"\n");
    let link = broken.root.path().join("python");
    fs::remove_file(&link).expect("remove");
    symlink("python3", link).expect("symlink");
    let other = broken.root.path().join("python3");
    symlink(broken.root.path().join("closed/bin/python"), other).expect("symlink");
    let closed = broken.root.path().join("closed");
    fs::create_dir_all(closed.join("bin")).expect("mkdir");
    symlink("/usr/bin/python3", closed.join("bin/python")).expect("symlink");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).expect("chmod");
    let id = until("the refusal for that", || {
        let id = broken.refused();
        let report = broken.report(&id);
        report["error"]["summary"]
            .to_string()
            .contains("can't be entered")
            .then_some(id)
    });
    let report = broken.report(&id);
    let solution = report["error"]["solution_description"].to_string();
    let wanted = format!("chmod o+x {}", closed.display());
    assert!(
        solution.contains(&wanted) && !solution.contains("Install"),
        "{report:#}"
    );
}

#[test]
fn the_port_that_a_program_listens_on_instead_is_named() {
    let port = TcpListener::bind("127.0.0.1:0")
        .expect("bind")
        .local_addr()
        .expect("port")
        .port();
    let source = format!("require('http').createServer((q, r) => r.end('x')).listen({port}, '127.0.0.1');\n");
    let application = "start_command = \"node app.js\"\nstart_timeout = \"4s\"\n";
    let broken = Broken::start("http", "app.js", &source, "", application);
    broken.refused();
    let line = broken.daemon.wait_for("the application can't start");
    assert_contains(&line, &format!("listens on port {port}, and not on"));
}

#[test]
fn a_lifespan_that_fails_has_a_report() {
    let source = "async def app(scope, receive, send):\n    if scope['type'] == 'lifespan':\n        await receive()\n        \
                  print('looking for the database')\n        \
                  await send({'type': 'lifespan.startup.failed', 'message': 'no database'})\n";
    let broken = Broken::start(
        "asgi",
        "main.py",
        source,
        "pm = \"static\"\nmax_children = 1\n",
        "entry = \"main:app\"\n",
    );
    let line = broken.daemon.wait_for("the application can't start");
    assert_contains(&line, "the application's start failed: no database");
    let id = line
        .split("error ")
        .nth(1)
        .expect("an id")
        .trim_end_matches([')', '\n']);
    let report = broken.report(id);
    let output = report["diagnostics"]["subprocess"]["stdout_and_err"].to_string();
    assert!(
        output.contains("looking for the database") && output.contains("RuntimeError"),
        "{report:#}"
    );
    let said = broken.daemon.wait_for("looking for the database");
    assert_contains(&said, "said into stdout");
}

#[test]
fn the_error_itself_is_the_headline() {
    let lifespan = "import traceback\nclass DbError(Exception): pass\nasync def app(scope, receive, send):\n    \
                    if scope['type'] == 'lifespan':\n        await receive()\n        try:\n            \
                    raise DbError('no database\\n(Background on this error at: https://example.org)')\n        \
                    except Exception:\n            \
                    await send({'type': 'lifespan.startup.failed', 'message': traceback.format_exc()})\n            raise\n";
    let after = "import forkyard, os\n@forkyard.after_fork\ndef begin(): os.environ['NO_SUCH_URL']\n\
                 def application(environ, start): pass\n";
    let node = "start_command = \"node app.js\"\n";
    let workers = "pm = \"static\"\nmax_children = 1\n";
    let cases = [
        (
            "asgi",
            "main.py",
            lifespan,
            workers,
            "",
            "main.DbError: no database",
            "The output shows where",
        ),
        (
            "wsgi",
            "wsgi.py",
            after,
            workers,
            "",
            "KeyError: 'NO_SUCH_URL'",
            "Set NO_SUCH_URL in env or env_file",
        ),
        (
            "wsgi",
            "wsgi.py",
            "import os\nos.environ['NO_SUCH_URL']\n",
            "",
            "",
            "KeyError: 'NO_SUCH_URL'",
            "Set NO_SUCH_URL in env or env_file",
        ),
        (
            "rack",
            "config.ru",
            "ENV.fetch('NO_SUCH_URL')\n",
            "",
            "",
            "key not found: \"NO_SUCH_URL\" (KeyError)",
            "Set NO_SUCH_URL in env or env_file",
        ),
        (
            "http",
            "app.js",
            "require('no-such-module');\n",
            "",
            node,
            "with code 1 during startup: Error: Cannot find module 'no-such-module'",
            "Read the application's output",
        ),
        (
            "http",
            "app.js",
            "let x = ;\n",
            "",
            node,
            "with code 1 during startup: SyntaxError: Unexpected token ';'",
            "Read the application's output",
        ),
    ];
    let shows = |(runtime, file, source, settings, application, summary, solution): (
        &str,
        &str,
        &str,
        &str,
        &str,
        &str,
        &str,
    )| {
        let broken = Broken::start(runtime, file, source, settings, application);
        if settings.is_empty() {
            broken.refused();
        }
        let line = broken.daemon.wait_for("can't start: ");
        assert_contains(&line, &format!("{summary} (step"));
        let id = line
            .split("error ")
            .last()
            .expect("an id")
            .trim_end_matches([')', '\n']);
        let report = broken.report(id);
        let advice = report["error"]["solution_description"].to_string();
        assert!(advice.contains(solution), "{report:#}");
    };
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || shows(case));
        }
    });
}
