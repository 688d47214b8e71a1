//! Which scripts a release runs, and which files they include.

use super::gradual::{Visitors, application};
use super::{Application, MANAGERS, PHP, Shop};
use crate::support::prelude::*;

const CGI: Application = Application {
    name: "cgi",
    runtime: "cgi",
    files: [
        (
            "index.cgi",
            "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\nRELEASE RELEASE RELEASE'\n",
        ),
        ("part.txt", ""),
    ],
    more: "",
    loads_at_start: false,
};

const FASTCGI: Application = Application {
    name: "fastcgi",
    runtime: "fastcgi",
    files: PHP,
    more: "root = \"LINK\"\nstart_command = \"php-cgi\"\n",
    loads_at_start: false,
};

const SHARED: &str = "release_shared = [\"DIR/none\", \"DIR/shared\"]\n";

/// Writes a start file elsewhere, which answers `9 9 …`.
fn place(shop: &Shop, directory: &str) {
    let directory = shop.daemon.dir.join(directory);
    fs::create_dir_all(&directory).expect("a directory");
    for (name, text) in shop.application.files {
        write_program(&directory.join(name), text.replace("RELEASE", "9"));
    }
}

#[test]
fn a_script_that_leads_out_of_its_release_is_denied() {
    let kinds = [application("php"), application("zygote"), &CGI, &FASTCGI];
    for (kind, manager) in kinds.into_iter().zip(MANAGERS.into_iter().cycle()) {
        for is_shared in [true, false] {
            let settings = format!("{manager}{}", if is_shared { SHARED } else { "" });
            let shop = Shop::start(kind, &settings, false);
            shop.assert_serves("1", &[]);
            place(&shop, "shared");
            place(&shop, "other");
            let release = shop.daemon.dir.join("releases/1");
            for name in ["shared", "other"] {
                symlink(shop.daemon.dir.join(name), release.join(name)).expect("a link");
            }
            let script = kind.files[0].0;
            let asked = |directory: &str| {
                let root = shop.daemon.dir.join(directory);
                let answer = shop.daemon.ask("shop", &Params::get(&root, script, ""));
                match answer.text().contains("403 Forbidden") {
                    true => "403".to_owned(),
                    false => answer.body()[..2].to_owned(),
                }
            };
            let stored = if is_shared { "9 " } else { "403" };
            let rows = [
                ("current", "1 "),
                ("releases/2", "1 "),
                ("current/shared", stored),
                ("current/other", "403"),
                ("current.last/other", "403"),
                ("releases/2/other", "403"),
                ("shared", "9 "),
                ("other", "9 "),
            ];
            for round in 0..2 {
                for (directory, expected) in rows {
                    assert_eq!(asked(directory), expected, "{}, {directory}, {round}", kind.name);
                }
            }
            let log = shop
                .daemon
                .wait_for("or leads out of its release and release_shared");
            let warned = log.lines().filter(|line| {
                line.contains("WARNING") && line.contains("leads out of its release and release_shared")
            });
            assert_eq!(warned.count(), 1, "{log}");
            // A script that is named elsewhere runs as it is, and counts if it is in no shared directory.
            let outside = if is_shared { 2 } else { 4 };
            assert_contains(
                &shop.daemon.shown(&["releases"]),
                &format!("{outside} requests had a script in no release"),
            );
            let status = parsed(&shop.daemon.shown(&["status", "shop", "--json"]));
            let refusals = &status["pools"][0]["counts"]["refusals"][0];
            let count = if is_shared { 6 } else { 8 };
            assert_eq!(
                (&refusals["cause"], &refusals["count"]),
                (&Value::from("outside"), &Value::from(count)),
                "{status}"
            );
        }
    }
}

#[test]
fn a_path_of_apache_s_mod_proxy_gets_the_release() {
    for name in ["php", "zygote"] {
        let shop = Shop::start(application(name), MANAGERS[0], false);
        shop.move_link("releases/2");
        for directory in ["current", "releases/2"] {
            let root = shop.daemon.dir.join(directory);
            let script = format!("proxy:fcgi://localhost:9000{}/index.php", root.display());
            let params = Params::get(&root, "index.php", "").with("SCRIPT_FILENAME", &script);
            assert_eq!(shop.daemon.ask("shop", &params).body(), "1 1 1", "{name}");
        }
    }
}

#[test]
fn a_deployment_names_a_file_of_another_release() {
    for name in ["php", "zygote"] {
        let steps = "pm = \"static\"\nmax_children = 2\ngradual = [50]\nstep_time = \"1s\"\n";
        let shop = Shop::start(application(name), steps, false);
        shop.assert_serves("1", &[]);
        let link = shop.daemon.dir.join("current").display().to_string();
        let text = PHP[0].1.replace("RELEASE", "2");
        let text = text.replace("'part.php'", &format!("'{link}/part.php'"));
        write_file(shop.daemon.dir.join("releases/2/index.php"), text);
        let visitors = Visitors::start(&shop, &["/"], 2, false);
        let (code, text) = shop.deploy(&["--json", &shop.release("2")]);
        assert_eq!(code, 0, "{text}");
        let result = parsed(&text);
        let remarks = result["remarks"].to_string();
        let file = shop.daemon.dir.join("releases/1/part.php");
        let named = format!("a request included {}, which is not in", file.display());
        assert_contains(&remarks, &named);
        let log = shop.daemon.log();
        assert_eq!(log.matches(&named).count(), 1, "{log}");
        // A release that names its own files has no such remark.
        let (code, text) = shop.deploy(&["--json", &shop.release("3")]);
        assert_eq!(code, 0, "{text}");
        assert_lacks(&text, "a request included");
        visitors.end();
    }
}
