//! No site that `forkyard init` writes gives away what must be secret.

use super::first::init;
use super::served::settle_nginx;
use crate::support::prelude::*;

const SECRETS: [&str; 26] = [
    ".env",
    ".env.local",
    ".git/config",
    ".git/HEAD",
    ".svn/entries",
    ".htpasswd",
    ".htaccess",
    ".user.ini",
    ".ssh/id_rsa",
    ".DS_Store",
    "a/.env",
    ".index.php.swp",
    "vendor/autoload.php",
    "vendor/x.md",
    "node_modules/x/x.js",
    "vendor/composer/installed.json",
    "composer.json",
    "composer.lock",
    "package.json",
    "forkyard.toml",
    "backup.sql",
    "dump.sql.gz",
    "wp-config.php.bak",
    "index.php~",
    "debug.log",
    "php.ini",
];
const PUBLIC: [&str; 3] = [".well-known/acme-challenge/x", "css/vendor/x.css", "x.css"];

#[test]
fn a_site_that_was_written_gives_no_secret_away() {
    for (kind, documents) in [
        ("php", ""),
        ("php", "public"),
        ("php", "web"),
        ("php", "htdocs"),
        ("python", ""),
        ("asgi", ""),
        ("ruby", ""),
        ("node", ""),
        ("sites", ""),
        ("sites", "public"),
        ("sites", "web"),
    ] {
        let case = format!("{kind} {documents}");
        let dir = directory();
        let own = dir.path().canonicalize().expect("path");
        let app = own.join(if kind == "sites" { "sites/app" } else { "app" });
        let front = app.join(documents);
        let put = |path: PathBuf| {
            fs::create_dir_all(path.parent().expect("a directory")).expect("mkdir");
            fs::write(path, "hunter2").expect("write");
        };
        SECRETS.iter().for_each(|name| put(app.join(name)));
        let dots = SECRETS
            .iter()
            .filter(|name| name.contains("/.") || name.starts_with('.'));
        dots.for_each(|name| put(front.join(name)));
        PUBLIC.iter().for_each(|name| put(front.join(name)));
        for name in ["artisan", "manage.py", "config.ru", "app.js"] {
            put(app.join(name));
        }
        put(front.join("index.php"));
        if documents == "public" {
            put(front.join("vendor/x.css"));
        }
        let root = if kind == "sites" {
            own.join("sites")
        } else {
            app.clone()
        };
        let (pool, site) = init(kind, "app", &root);
        let port = free_port();
        let _nginx = Nginx::start("return 404;", &settle_nginx(&site, dir.path(), port));
        let prefix = if kind == "sites" { "app/" } else { "" };
        let ask = |name: &str| {
            let url = format!("http://127.0.0.1:{port}/{prefix}{name}");
            curl(&["-w", " %{http_code}", "--path-as-is", &url])
        };
        for name in SECRETS {
            let said = ask(name);
            assert!(!said.contains("hunter2"), "{case}: {name}: {said}");
            if name.starts_with('.') {
                assert!(said.ends_with(" 404"), "{case}: {name}: {said}");
            }
        }
        let is_php = kind == "php" || kind == "sites";
        for name in PUBLIC {
            let said = ask(name);
            let wanted = if is_php { "hunter2 200" } else { " 502" };
            assert!(said.ends_with(wanted), "{case}: {name}: {said}");
        }
        if documents == "public" {
            assert_eq!(ask("vendor/x.css"), "hunter2 200", "{case}");
        }
        if kind == "php" {
            let root = format!("script_root = \"{}\"", front.display());
            assert!(pool.contains(root.trim_end_matches("/\"")), "{case}: {pool}");
        }
        assert!(ask("index.php").ends_with(" 502"), "{case}: {}", ask("index.php"));
    }
}
