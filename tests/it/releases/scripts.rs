//! Which scripts a release runs, and which files they include.

use super::visitors::{Visitors, application};
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
    more: "root = \"DIR\"\n",
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
                ("current/shared", stored),
                ("current/other", "403"),
                ("current.last/other", "403"),
                ("releases/1/other", "403"),
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
            // A script outside of all releases runs unchanged, and is counted unless it is in a shared directory.
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
        let text = exited(0, shop.deploy(&["--json", &shop.release("2")]));
        let result = parsed(&text);
        let remarks = result["remarks"].to_string();
        let file = shop.daemon.dir.join("releases/1/part.php");
        let named = format!("a request included {}, which is not in", file.display());
        assert_contains(&remarks, &named);
        let log = shop.daemon.log();
        assert_eq!(log.matches(&named).count(), 1, "{log}");
        // A release that names its own files has no such remark.
        let text = exited(0, shop.deploy(&["--json", &shop.release("3")]));
        assert_lacks(&text, "a request included");
        visitors.end();
    }
}

/// PHP that doesn't look whether files have changed.
const fn compiling(name: &'static str, more: &'static str) -> Application {
    Application {
        name,
        runtime: "php",
        files: PHP,
        more,
        loads_at_start: false,
    }
}

const COMPILING: [Application; 4] = [
    compiling(
        "own",
        concat!(
            "version = \"",
            env!("FORKYARD_PHP"),
            "\"\npreloader = \"own\"\nphp_admin_value.\"opcache.validate_timestamps\" = 0\n"
        ),
    ),
    compiling(
        "own, kept",
        concat!(
            "version = \"",
            env!("FORKYARD_PHP"),
            "\"\npreloader = \"own\"\nphp_admin_value.\"opcache.validate_timestamps\" = 0\nopcache_cache = \"LINK-cache\"\n"
        ),
    ),
    compiling(
        "zygote",
        concat!(
            "version = \"",
            env!("FORKYARD_PHP"),
            "\"\npreloader = \"zygote\"\nphp_admin_value.\"opcache.validate_timestamps\" = 0\n"
        ),
    ),
    compiling(
        "zygote, kept",
        concat!(
            "version = \"",
            env!("FORKYARD_PHP"),
            "\"\npreloader = \"zygote\"\nphp_admin_value.\"opcache.validate_timestamps\" = 0\nopcache_cache = \"LINK-cache\"\n"
        ),
    ),
];

/// Writes a release with files that are old enough for OPcache.
fn write_old(shop: &Shop, release: &str, text: &str) {
    let directory = shop.daemon.dir.join("releases").join(release);
    let old = std::time::SystemTime::now() - Duration::from_secs(60);
    for (name, file) in PHP {
        let path = directory.join(name);
        write_file(&path, file.replace("RELEASE", text));
        let file = fs::File::options().write(true).open(path);
        file.and_then(|file| file.set_modified(old)).expect("utimensat");
    }
}

#[test]
fn a_release_directory_with_other_files_is_compiled_anew() {
    for kind in &COMPILING {
        let shop = Shop::start(kind, MANAGERS[0], false);
        for release in ["1", "2"] {
            write_old(&shop, release, release);
        }
        let deploy = |release: &str| {
            let (code, text) = shop.deploy(&[&shop.release(release), "--wait"]);
            assert_eq!(code, 0, "{}: {text}", kind.name);
        };
        let asked = || (0..4).map(|_| shop.answer_at("current")).collect::<BTreeSet<_>>();
        let only = |text: &str| BTreeSet::from([text.to_owned()]);
        deploy("2");
        assert_eq!(asked(), only("2 2 2"), "{}", kind.name);
        if kind.more.contains("LINK-cache") {
            let kept = fs::read_dir(shop.daemon.dir.join("current-cache")).expect("the cache");
            assert_eq!(kept.count(), 1, "{}", kind.name);
        }
        for (text, between) in [("new", Some("1")), ("newer", None)] {
            if let Some(between) = between {
                deploy(between);
                asked();
            }
            write_old(&shop, "2", text);
            deploy("2");
            assert_eq!(asked(), only(&format!("{text} {text} 2")), "{}", kind.name);
        }
    }
}
