//! Debian's packaged frameworks: equal requests to an ordinary pool and to two with a worker script.

use super::{ask, mode_pool, ordinary_pool, post, status_of, worker_pool};
use crate::it::documents::blocks;
use crate::support::prelude::*;

pub(super) const APPLICATIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/php_worker");
const ONE: &str = "pm = \"static\"\nmax_children = 1\n";

pub(super) const POOLS: [&str; 3] = ["www", "loop", "snap"];

pub(super) struct Application<'a> {
    name: &'a str,
    package: (&'a str, &'a str),
    worker: &'a str,
    settings: &'a str,
    boot: &'a str,
    writable: &'a [&'a str],
}

/// The front controller of Symfony's skeleton, which its Runtime component runs: the same file in all pools.
pub(super) const SYMFONY: Application<'static> = Application {
    name: "symfony",
    package: (
        "/usr/share/php/Symfony/Bundle/FrameworkBundle/autoload.php",
        "php-symfony-framework-bundle, php-symfony-runtime",
    ),
    worker: "public/index.php",
    settings: "env = { APP_ENV = \"prod\", APP_DEBUG = \"0\" }\n",
    boot: "warm_up_server = { APP_RUNTIME = \"App\\\\Runtime\" }\n",
    writable: &["var"],
};

pub(super) const LARAVEL: Application<'static> = Application {
    name: "laravel",
    package: ("/usr/share/php/Illuminate/autoload.php", "php-laravel-framework"),
    worker: "public/worker.php",
    settings: "",
    boot: "",
    writable: &[
        "storage/framework/sessions",
        "storage/framework/views",
        "storage/logs",
        "bootstrap/cache",
    ],
};

fn octane_environment(dir: &Path) -> String {
    let recipe = blocks::find("docs/howto/boot-once.md", "toml", "LARAVEL_OCTANE");
    let line = recipe
        .lines()
        .find(|line| line.starts_with("env = "))
        .expect("a line with env");
    format!("{line}\n").replace("/srv/app", &format!("{}/app", dir.display()))
}

impl Application<'_> {
    pub(super) fn start(&self) -> Daemon {
        let (file, packages) = self.package;
        assert!(
            Path::new(file).exists(),
            "{file} is missing (Debian packages {packages})"
        );
        let daemon = Daemon::start(|dir| {
            let from = format!("{APPLICATIONS}/{}", self.name);
            let copied = Command::new("cp")
                .args(["-r", &from])
                .arg(dir.join("app"))
                .status();
            assert!(copied.is_ok_and(|status| status.success()));
            for path in self.writable {
                let path = dir.join("app").join(path);
                make_folder(&path);
            }
            let own = match self.name {
                "laravel" => octane_environment(dir),
                _ => self.settings.to_owned(),
            };
            let settings = format!("{ONE}{own}");
            let sessions = format!(
                "php_admin_value = {{ \"session.save_path\" = \"DIR/app/{}\", memory_limit = \"64M\" }}\n",
                self.writable[0]
            );
            let boot = format!(
                "{sessions}warm_up_requests = [\"/hello/you\"]\nboot_timeout = \"120s\"\n{}",
                self.boot
            );
            let worker = format!("app/{}", self.worker);
            let ondemand =
                format!("pm = \"ondemand\"\nmax_children = 1\nprocess_idle_timeout = \"1h\"\n{own}");
            let snapshot = format!("worker_mode = \"snapshot\"\nisolation = \"rewind\"\n{boot}");
            with_control(dir)
                + &ordinary_pool(dir, "www", &settings, &sessions)
                + &worker_pool(dir, "loop", &worker, &settings, &boot)
                + &mode_pool(dir, "snap", &worker, &ondemand, &snapshot)
        });
        daemon.wait_for_workers("loop", 1);
        daemon
    }
}

pub(super) fn request(daemon: &Daemon, path: &str, query: &str) -> Params {
    let public = daemon.dir.join("app/public");
    Params::get(&public, "index.php", query)
        .with("REQUEST_URI", &format!("{path}?{query}"))
        .with("DOCUMENT_ROOT", &public.display().to_string())
        .with("SERVER_NAME", "localhost")
}

fn all(daemon: &Daemon, params: &Params, body: &[u8]) -> String {
    let lasting = |text: &str| {
        let varies = ["Date: ", "date: ", "Set-Cookie: "];
        let lasts = |line: &&str| !varies.iter().any(|begin| line.starts_with(begin));
        text.lines().filter(lasts).collect::<Vec<_>>().join("\n")
    };
    let [ordinary, others @ ..] = POOLS.map(|pool| ask(daemon, pool, params, body));
    for (other, pool) in others.iter().zip(&POOLS[1..]) {
        assert_eq!(lasting(&ordinary.text()), lasting(&other.text()), "{pool}");
    }
    ordinary.body()
}

fn is_one_worker(daemon: &Daemon) {
    let pool = status_of(daemon, "snap");
    assert_eq!(pool["counts"]["starts"], 1, "{pool:#}");
    assert!(pool["counts"]["requests"].as_u64() > Some(30), "{pool:#}");
}

fn is_alike(daemon: &Daemon, origin: &str, basket: impl Fn(&str) -> String) {
    for round in 0..3 {
        for name in ["alice", "bob"] {
            let said = all(
                daemon,
                &request(daemon, &format!("/hello/{name}"), &format!("q={round}")),
                b"",
            );
            assert_eq!(said, format!("hello {name}, {round} at {origin}/hello/you"));
            let said = all(daemon, &request(daemon, "/basket", &format!("item={name}")), b"");
            assert_eq!(said, basket(name));
        }
        for (path, status) in [("/broken", "Status: 500"), ("/nothing", "Status: 404")] {
            let answer = ask(daemon, "loop", &request(daemon, path, ""), b"").text();
            assert!(answer.starts_with(status), "{answer}");
            all(daemon, &request(daemon, path, ""), b"");
        }
        let body =
            "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\n\r\ntext\r\n--b--\r\n";
        let params = post(
            request(daemon, "/upload", ""),
            "multipart/form-data; boundary=b",
            body,
        );
        assert_eq!(all(daemon, &params, body.as_bytes()), "a.txt text");
    }
    for pool in POOLS {
        let visit = |cookie: &str| {
            let params = request(daemon, "/visits", "").with("HTTP_COOKIE", cookie);
            ask(daemon, pool, &params, b"")
        };
        let users = ["alice", "bob"].map(|_| {
            let answer = visit("").text();
            let cookie = answer
                .split_once("Set-Cookie: ")
                .and_then(|(_, rest)| rest.split_once(';'));
            cookie.expect("a cookie").0.to_owned()
        });
        for visits in 2..5 {
            for cookie in &users {
                assert_eq!(visit(cookie).body(), visits.to_string(), "{pool}");
            }
            assert_eq!(visit("").body(), "1", "{pool}");
        }
    }
}

#[test]
fn plain_php_answers_as_the_recipe_says() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/howto/boot-once.md");
    let blocks = blocks::read(&document);
    let recipe = blocks
        .into_iter()
        .find(|block| block.text.contains("texts.php"))
        .expect("the recipe");
    let daemon = Daemon::start(|dir| {
        fs::write(dir.join("worker.php"), &recipe.text).expect("write");
        write_file(
            dir.join("texts.php"),
            "<?php return ['en' => 'hello', 'fr' => 'bonjour'];",
        );
        worker_pool(dir, "www", "worker.php", ONE, "")
    });
    for (query, expected) in [
        ("name=alice", "hello alice"),
        ("name=bob&language=fr", "bonjour bob"),
        ("", "hello you"),
    ] {
        let answer = daemon.get("www", &format!("any.php?{query}"));
        assert_eq!(answer.body(), format!("{expected}\n"));
        assert_contains(&answer.text(), "text/plain");
    }
}

#[test]
fn symfony_answers_alike_in_all_kinds_of_pools() {
    let daemon = SYMFONY.start();
    is_alike(&daemon, "", |item| format!("[\"{item}\"]"));
    is_one_worker(&daemon);
    for _ in 0..3 {
        assert_eq!(
            all(&daemon, &request(&daemon, "/stream", ""), b""),
            "one two three"
        );
    }
}

#[test]
fn laravel_answers_alike_in_all_kinds_of_pools() {
    let daemon = LARAVEL.start();
    let basket = |item: &str| format!("[[\"{item}\"],\"{item}\"]");
    is_alike(&daemon, "http://localhost", basket);
    is_one_worker(&daemon);
}
