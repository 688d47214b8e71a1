//! Sites that `forkyard init` writes for an application behind a link to its release.

use super::first::init;
use super::served::{settle_nginx, settle_toml};
use crate::support::prelude::*;

#[derive(Debug)]
struct Kind {
    name: &'static str,
    /// The start file.
    file: &'static str,
    text: &'static str,
    /// Directories of static files, and their URLs.
    files: &'static [(&'static str, &'static str)],
}

const WSGI: &str = "import os
def application(environ, start_response):
    start_response('200 OK', [('Content-Type', 'text/plain')])
    return [f\"app {os.path.basename(os.getcwd())} {environ['PATH_INFO']}\".encode()]
";

const KINDS: [Kind; 5] = [
    Kind {
        name: "php",
        file: "public/index.php",
        text: "<?php echo 'app ', basename(dirname(__DIR__)), ' ', parse_url($_SERVER['REQUEST_URI'])['path'];",
        files: &[("public", "")],
    },
    Kind {
        name: "php",
        file: "index.php",
        text: "<?php echo 'app ', basename(__DIR__), ' ', parse_url($_SERVER['REQUEST_URI'])['path'];",
        files: &[(".", "")],
    },
    Kind {
        name: "python",
        file: "wsgi.py",
        text: WSGI,
        files: &[("public", ""), ("static", "/static")],
    },
    Kind {
        name: "ruby",
        file: "config.ru",
        text: "run ->(env) { [200, {}, [\"app #{File.basename(Dir.pwd)} #{env['PATH_INFO']}\"]] }\n",
        files: &[("public", "")],
    },
    Kind {
        name: "node",
        file: "app.js",
        text: "require('http').createServer((request, answer) => answer.end(`app ${require('path').basename(process.cwd())} ${request.url}`)).listen(process.env.PORT);\n",
        files: &[("public", "")],
    },
];

/// Writes three releases. Each has its own assets, an asset of a common name, and secrets.
fn write_releases(shop: &Path, kind: &Kind) {
    for release in ["1", "2", "3"] {
        let root = shop.join("releases").join(release);
        let put = |name: &str, text: &str| {
            let path = root.join(name);
            fs::create_dir_all(path.parent().expect("a directory")).expect("mkdir");
            fs::write(path, text).expect("write");
        };
        put(kind.file, kind.text);
        for (directory, _) in kind.files {
            put(
                &format!("{directory}/only-{release}.css"),
                &format!("asset {release}"),
            );
            put(&format!("{directory}/all.css"), &format!("asset {release}"));
            put(&format!("{directory}/.env"), "hunter2");
            put(&format!("{directory}/.git/config"), "hunter2");
            if kind.name == "php" {
                put(&format!("{directory}/new-{release}.php"), "<?php echo 'script';");
            }
        }
        if kind.files.iter().any(|(directory, _)| *directory == "static") {
            put("manage.py", "");
        }
    }
}

#[test]
fn a_site_has_the_assets_of_three_releases_and_reaches_the_application() {
    each(&KINDS, |kind| {
        let place = directory();
        let shop = place.path().canonicalize().expect("path").join("shop");
        write_releases(&shop, kind);
        for (name, release) in [("current", "2"), ("current.next", "3"), ("current.last", "1")] {
            symlink(format!("releases/{release}"), shop.join(name)).expect("a link");
        }
        let link = shop.join("current");
        let (pool, site) = init(kind.name, "shop", &link);
        assert_contains(&pool, &format!("\nrelease = \"{}\"\n", link.display()));
        let daemon = Daemon::start(|dir| with_control(dir) + &settle_toml(&pool, dir));
        let port = free_port();
        let nginx = Nginx::start("return 404;", &settle_nginx(&site, &daemon.dir, port));
        let get = |path: &str| {
            let url = format!("http://127.0.0.1:{port}{path}");
            curl(&["-w", " %{http_code}", "--path-as-is", &url])
        };
        let case = kind.name;
        for (_, url) in kind.files {
            for release in ["1", "2", "3"] {
                let path = format!("{url}/only-{release}.css");
                assert_eq!(get(&path), format!("asset {release} 200"), "{case} {path}");
            }
            assert_eq!(get(&format!("{url}/all.css")), "asset 2 200", "{case}");
            let missing = format!("{url}/missing.css?a=b");
            let said = get(&missing);
            assert_starts(&said, &format!("app 2 {url}/missing.css"));
            assert_ends(&said, " 200");
            for secret in [".env", ".git/config"] {
                let said = get(&format!("{url}/{secret}"));
                assert!(
                    said.ends_with(" 404") && !said.contains("hunter2"),
                    "{case} {said}"
                );
            }
        }
        if kind.name == "php" {
            assert_eq!(get("/new-2.php"), "script 200");
            for script in ["/new-1.php", "/new-3.php"] {
                let said = get(script);
                assert!(
                    said.ends_with(" 404") && !said.contains("script"),
                    "{script}: {said}"
                );
            }
        }
        let release = shop.join("releases/3");
        let release = release.to_str().expect("UTF-8");
        let (code, said) = daemon.said(&["deploy", "shop", release, "--at-once"]);
        assert_eq!(code, Some(0), "{case}: {said}\n{}", daemon.log());
        let url = kind.files[0].1;
        for (path, expected) in [
            ("/only-3.css", "asset 3 200"),
            ("/only-2.css", "asset 2 200"),
            ("/all.css", "asset 3 200"),
            ("/only-1.css", "app 3 /only-1.css 200"),
        ] {
            assert_eq!(get(&format!("{url}{path}")), expected, "{case}");
        }
        // The links move after nginx has found a file and before it opens that.
        for (_, url) in kind.files {
            point(&shop, ["3", "3", "2"]);
            let hold = |pid: u32| strace::Failing::hold(pid, &shop, "openat", 3000);
            let held: Vec<_> = nginx.workers().into_iter().map(hold).collect();
            let said = std::thread::scope(|scope| {
                let asked = scope.spawn(|| get(&format!("{url}/only-3.css")));
                wait_until("a file that is opened", || {
                    held.iter().any(|each| each.holds(nix::libc::SYS_openat))
                });
                point(&shop, ["1", "1", "3"]);
                asked.join().expect("an answer")
            });
            assert_eq!(said, "asset 3 200", "{case} {url}");
            held.into_iter().for_each(strace::Failing::end);
        }
    });
}

/// Points the links to the release in service, the next one, and the one before.
fn point(shop: &Path, releases: [&str; 3]) {
    for (name, release) in ["current", "current.next", "current.last"].iter().zip(releases) {
        let new = shop.join("new");
        symlink(format!("releases/{release}"), &new).expect("a link");
        fs::rename(new, shop.join(name)).expect("rename");
    }
}
