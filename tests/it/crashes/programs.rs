//! HTTP programs whose processes die with a request.

use super::{crashes, report, text};
use crate::support::prelude::*;

#[test]
fn a_program_s_process_that_dies_with_a_request_has_a_report() {
    let server = "
        const http = require('http');
        http.createServer((request, response) => {
          if (request.url.startsWith('/well')) return response.end(String(process.pid));
          if (request.url.startsWith('/say')) return process.stdout.write('the first words\\n', () => response.end());
          process.stdout.write('the last words\\n', () => {
            if (request.url.startsWith('/exit')) process.exit(3);
            process.kill(process.pid, 'SIGKILL');
          });
        }).listen(Number(process.env.PORT));
    ";
    let pools = [
        ("static", "pm = \"static\"\nmax_children = 2\n"),
        ("ondemand", "pm = \"ondemand\"\nmax_children = 2\n"),
    ];
    let daemon = Daemon::start(|dir| {
        let root = dir.join("app");
        fs::create_dir(&root).expect("mkdir");
        fs::write(root.join("server.js"), server).expect("write");
        let pools =
            pools.map(|(name, settings)| pool(dir, name, settings, &application_in("node", &root, "")));
        with_control(dir) + &pools.concat()
    });
    let params = |path: &str, query: &str| {
        let uri = format!("{path}?{query}");
        let params = Params::get(&daemon.dir, path, query).with("REQUEST_URI", &uri);
        params.posting(0)
    };
    for (pool, _) in pools {
        let rows = [
            ("/exit", "exit", "exited with code 3 during the request"),
            ("/kill", "signal", "(SIGKILL), sender unknown"),
        ];
        for (count, (path, kind, cause)) in rows.into_iter().enumerate() {
            let pid = daemon.ask(pool, &params("/well", "")).body();
            // The report also has output that was in the log before the process died.
            daemon.ask(pool, &params("/say", ""));
            daemon.wait_for(&format!("process {pid} said: \"the first words\""));
            let answer = daemon.ask(pool, &params(path, "a=1&token=abc"));
            assert_starts(&answer.status(), "502");
            let all = until("the report", || {
                Some(crashes(&daemon, &[pool])).filter(|all| all.len() > count)
            });
            let crash = &all[0];
            assert_eq!(
                (text(crash, "kind"), text(crash, "pool")),
                (kind, pool),
                "{crash}"
            );
            assert_contains(text(crash, "cause"), cause);
            assert_eq!(text(crash, "request"), format!("POST {path}?a=1&token=[hidden]"));
            let report = report(&daemon, crash);
            let process = &report["diagnostics"]["subprocess"];
            assert_eq!(process["pid"].to_string(), pid, "{report}");
            assert!(process["peak_memory"].as_u64() > Some(1 << 20), "{report}");
            let shown = daemon.shown(&["error", text(crash, "id")]);
            assert_contains(
                &shown,
                "The process's last output:\n  the first words\n  the last words\n",
            );
            daemon.wait_for(&format!("it is started again (report {})", text(crash, "id")));
        }
    }
    // One without a request was not at work.
    let idle: u32 = daemon
        .ask("static", &params("/well", ""))
        .body()
        .parse()
        .expect("a pid");
    let before = crashes(&daemon, &[]).len();
    process::signal(idle, Signal::SIGKILL);
    daemon.wait_for(&format!(
        "process {idle} of the application exited on signal 9 (SIGKILL)"
    ));
    assert_eq!(crashes(&daemon, &[]).len(), before);
}
