//! What tenants choose (names, messages, what their programs write) on its way to root's terminal.

use super::Sites;
use crate::support::prelude::*;
use forkyard_base::text::is_control;

const ODD: &str = "\u{1b}[2J\u{202e}x\u{2028}\u{9b}2J\u{2066}";

fn ask(sites: &Sites, root: &Path) -> String {
    let root = root.to_str().expect("UTF-8");
    let params = Params::get(&sites.daemon.dir, "x", "").with("FORKYARD_APP_ROOT", root);
    sites.daemon.ask("sites", &params).text()
}

#[test]
fn what_a_tenant_chose_is_shown_and_not_obeyed() {
    let sites = Sites::start("max = 3");
    let good = sites.wsgi(&format!("good{ODD}"), 0, "'well'");
    let code = "import sys\nsys.stderr.write('\\x1b[2J\\u202e\\u2028 written\\n')\n\
                raise ValueError('it \\x1b[2J\\u202e\\u2028\\x9b broke')\n";
    let bad = sites.add(&format!("bad{ODD}"), 1, &[("passenger_wsgi.py", code)]);
    assert!(ask(&sites, &good).ends_with("well"));
    assert!(ask(&sites, &bad).contains("503"));
    for arguments in [
        &["status"][..],
        &["status", "sites"],
        &["status", "--json"],
        &["status", "--metrics"],
        &["status", "--metrics=prometheus"],
        &["error"],
        &["error", "--json"],
        &["error", "--html"],
        &["health"],
        &["health", "--ready"],
        &["top", "--once", "--interval", "1ms", "--view", "applications"],
        &["top", "--once", "--interval", "1ms", "--view", "failures"],
        &["top", "--once", "--interval", "1ms", "--json"],
        &["restart", bad.to_str().expect("UTF-8")],
        &["restart", "--blocking", bad.to_str().expect("UTF-8")],
    ] {
        let output = sites.forkyard(arguments);
        for stream in [&output.stdout, &output.stderr] {
            let text = std::str::from_utf8(stream).expect("UTF-8");
            let odd = text.chars().find(|c| is_control(*c) && !matches!(c, '\n' | '\t'));
            assert_eq!(odd, None, "{arguments:?}: {text}");
        }
        if arguments.contains(&"--json") {
            let _: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        }
    }
    let known = sites.status()["book"]["applications"].to_string();
    assert_contains(&known, "good");
    assert_contains(&known, "bad");
    let log = sites.daemon.log();
    assert_contains(&log, "written");
    assert_contains(&log, "broke");
    let odd = log.chars().find(|c| is_control(*c) && !matches!(c, '\n' | '\t'));
    assert_eq!(odd, None, "{log}");
}
