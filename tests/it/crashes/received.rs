//! The parameters of a request that ends its worker.

use super::{SETTINGS, daemon, next, report, text};
use crate::support::prelude::*;

/// An application that dies of `?how`, in each kind of pool.
fn kinds() -> Daemon {
    let daemon = Daemon::start(|dir| {
        let code = "import ctypes, os\ndef application(environ, start_response):\n    \
            how = environ['QUERY_STRING'][4:8]\n    \
            if how == 'segv':\n        ctypes.string_at(8)\n    \
            if how == 'exit':\n        os._exit(4)\n    os.kill(os.getpid(), 9)\n";
        let apps = dir.join("apps/one");
        fs::create_dir_all(&apps).expect("mkdir");
        for root in [dir, &apps] {
            fs::write(root.join("passenger_wsgi.py"), code).expect("write");
        }
        if is_root() {
            for path in [apps.clone(), apps.join("passenger_wsgi.py")] {
                chown(path, Some(33), Some(33)).expect("chown");
            }
        }
        let path = dir.display();
        let sites = format!(
            "\n[pool.sites]\nlisten = {{ address = \"{path}/sites.sock\", mode = \"0666\" }}\n\
             routing = \"application\"\n[pool.sites.applications]\ndirectories = [\"{path}/apps\"]\nmin_uid = 1\n"
        );
        let php = format!(
            "runtime = \"php\"\nversion = \"{}\"\nphp_admin_value = {{ \"ffi.enable\" = \"1\" }}\n",
            env!("FORKYARD_PHP")
        );
        let dynamic = "pm = \"dynamic\"\nmax_children = 2\nstart_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 1\n";
        with_control(dir)
            + &pool(dir, "www", SETTINGS, &php)
            + &pool(dir, "dynamic", dynamic, &php)
            + &pool(dir, "ondemand", "pm = \"ondemand\"\nmax_children = 1\n", &php)
            + &pool(dir, "wsgi", SETTINGS, &application_in("wsgi", dir, ""))
            + &sites
    });
    daemon.write(
        "dies.php",
        "<?php if ($_GET['how'] == 'segv') { FFI::string(FFI::cast('char*', 8), 1); } \
         if ($_GET['how'] == 'exit') { FFI::cdef('void _exit(int);')->_exit(4); } posix_kill(getmypid(), 9); sleep(60);",
    );
    daemon
}

#[test]
fn a_report_has_all_parameters_if_the_worker_could_keep_them() {
    let daemon = kinds();
    let mut count = 0;
    for pool in ["www", "dynamic", "ondemand", "wsgi", "sites"] {
        for (how, is_kept) in [("segv", true), ("exit", false), ("kill", false)] {
            let query = format!("how={how}&token=abc");
            let params = Params::get(&daemon.dir, "dies.php", &query)
                .with("HTTP_COOKIE", "a=abc")
                .with("HTTP_AUTHORIZATION", "Basic abc")
                .with("HTTP_REFERER", "https://x/?password=abc&b=2")
                .with("HTTP_X_MARK", "here")
                .with(
                    "FORKYARD_APP_ROOT",
                    &daemon.dir.join("apps/one").display().to_string(),
                );
            let _answer = daemon.send(pool, &params).answer();
            count += 1;
            let crash = next(&daemon, count);
            let report = report(&daemon, &crash);
            assert_lacks(&report.to_string(), "abc");
            let request = &report["request"];
            let source = if is_kept { "received" } else { "scoreboard" };
            assert_eq!(text(request, "source"), source, "{pool}, {how}: {report}");
            assert_eq!(text(request, "query"), format!("how={how}&token=[hidden]"));
            let shown = daemon.shown(&["error", text(&crash, "id")]);
            assert_eq!(shown.contains("HTTP_X_MARK=here\n"), is_kept, "{shown}");
            assert_eq!(
                shown.contains("the scoreboard, which has only"),
                !is_kept,
                "{shown}"
            );
            for (name, value) in [
                ("HTTP_COOKIE", "[hidden]"),
                ("HTTP_AUTHORIZATION", "[hidden]"),
                ("HTTP_REFERER", "https://x/?password=[hidden]&b=2"),
                ("REQUEST_URI", &format!("/dies.php?how={how}&token=[hidden]")),
                ("HTTP_X_MARK", "here"),
            ] {
                let value = if is_kept { value } else { "" };
                assert_eq!(text(&request["params"], name), value, "{pool}, {how}");
            }
        }
    }
    assert_lacks(&daemon.log(), "abc");
}

#[test]
fn parameters_that_come_in_pieces_are_kept_and_a_body_is_not() {
    let daemon = daemon("");
    let die = "FFI::string(FFI::cast('char*', 8), 1);";
    daemon.write(
        "dies.php",
        &format!("<?php strlen(file_get_contents('php://input')); {die}"),
    );
    let body = "the body".repeat(4);
    let params = Params::get(&daemon.dir, "dies.php", "a=1").posting(body.len());
    let long = params.clone().with("HTTP_X_LONG", &"x".repeat(3_000));
    let wire = long.request(body.as_bytes());
    let mut client = daemon.client("www");
    for piece in [&wire[..16], &wire[16..100], &wire[100..2_000], &wire[2_000..]] {
        client.send_raw(piece).expect("send");
        wait_until("the worker to read", || {
            daemon.status(&[])["pools"][0]["idle"] == 0 || daemon.log().contains(", report ")
        });
    }
    let _answer = client.answer();
    let crash = next(&daemon, 1);
    let whole = report(&daemon, &crash);
    assert_eq!(text(&whole["request"]["params"], "HTTP_X_LONG").len(), 3_000);
    assert_eq!(text(&whole["request"]["params"], "CONTENT_LENGTH"), "32");
    assert_lacks(&whole.to_string(), "the body");

    // A large body overwrites the parameters.
    let body = vec![b'x'; 300_000];
    let params = params.posting(body.len());
    let _answer = daemon.client("www").request(&params, &body);
    let crash = next(&daemon, 2);
    assert_eq!(text(&report(&daemon, &crash)["request"], "source"), "scoreboard");

    // The first of too many parameters are kept.
    let many = params
        .with("HTTP_X_LONG", &"x".repeat(20_000))
        .with("HTTP_X_LAST", "y");
    let many = many.with("REQUEST_METHOD", "GET").with("CONTENT_LENGTH", "");
    let _answer = daemon.send("www", &many).answer();
    let crash = next(&daemon, 3);
    let cut = report(&daemon, &crash);
    assert_eq!(text(&cut["request"]["params"], "SERVER_NAME"), "localhost");
    assert!(cut["request"]["params"].get("HTTP_X_LAST").is_none(), "{cut}");
}
