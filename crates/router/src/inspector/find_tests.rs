use super::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

const ALICE: u32 = 4001;
const BOB: u32 = 4002;

struct Site {
    _place: tempfile::TempDir,
    base: PathBuf,
    root: PathBuf,
}

#[path = "framework_tests.rs"]
mod frameworks;

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn inspect(root: &Path, terms: &Terms) -> Result<FoundApplication, String> {
    super::inspect(root, None, terms).map_err(|refused| refused.why.to_string())
}

impl Site {
    fn new() -> Site {
        let place = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(place.path()).unwrap().join("sites");
        let root = base.join("shop");
        fs::create_dir_all(&root).unwrap();
        fs::set_permissions(&root, Permissions::from_mode(0o755)).unwrap();
        Site {
            _place: place,
            base,
            root,
        }
    }

    fn of_alice() -> Site {
        let site = Site::new();
        if is_root() {
            chown(&site.root, Some(ALICE), Some(ALICE)).unwrap();
        }
        site
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        path
    }

    fn file_of(&self, user: u32, name: &str, content: &str) -> PathBuf {
        let path = self.file(name, content);
        chown(&path, Some(user), Some(user)).unwrap();
        path
    }

    fn terms(&self) -> Terms {
        Terms {
            directories: vec![self.base.clone()],
            restart_dir: None,
            switching: true,
            user_mounts: false,
            releases: None,
        }
    }

    fn inspect(&self) -> Result<FoundApplication, String> {
        inspect(&self.root, &self.terms())
    }

    fn kind(&self) -> (Kind, Option<PathBuf>) {
        let found = self.inspect().unwrap();
        let below = |path: PathBuf| path.strip_prefix(&self.root).unwrap().to_owned();
        (found.kind, found.startup_file.map(below))
    }

    fn refusal(&self) -> String {
        self.inspect().unwrap_err()
    }
}

fn seen(kind: Kind, file: &str) -> (Kind, Option<PathBuf>) {
    (kind, Some(PathBuf::from(file)))
}

#[test]
fn the_first_sign_counts() {
    let site = Site::new();
    // In reverse order: each file takes precedence over the earlier ones.
    for (file, kind) in [
        ("public/index.php", Kind::Php),
        ("index.php", Kind::Php),
        ("app.js", Kind::Node),
        ("config.ru", Kind::Rack),
        ("asgi.py", Kind::Asgi),
        ("wsgi.py", Kind::Wsgi),
        ("passenger_wsgi.py", Kind::Wsgi),
    ] {
        site.file(file, "");
        assert_eq!(site.kind(), seen(kind, file));
    }
    site.file(
        "Passengerfile.json",
        r#"{"app_type": "rack", "startup_file": "config.ru"}"#,
    );
    assert_eq!(site.kind(), seen(Kind::Rack, "config.ru"));
    site.file("forkyard.toml", "runtime = \"php\"\n");
    assert_eq!(site.kind(), seen(Kind::Php, "index.php"));
}

#[test]
fn a_directory_without_a_sign_is_told_what_is_missing() {
    let site = Site::new();
    let error = site.refusal();
    let shown = site.root.display();
    assert!(
        error.starts_with(&format!("{shown} is no application: it has none of ")),
        "{error}"
    );
    assert!(error.contains("passenger_wsgi.py") && error.contains("forkyard.toml"));
    fs::create_dir(site.root.join("index.php")).unwrap();
    nix::unistd::mkfifo(&site.root.join("config.ru"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(site.refusal().contains("is no application"));
}

#[test]
fn an_entry_alone_shows_what_it_is_where_its_name_does() {
    for (entry, file, kind) in [
        ("shop.wsgi:application", None, Kind::Wsgi),
        ("shop/asgi.py", Some("asgi.py"), Kind::Asgi),
        ("main.js", Some("main.js"), Kind::Node),
        ("api.ru", Some("api.ru"), Kind::Rack),
    ] {
        let site = Site::new();
        if let Some(file) = file {
            site.file(file, "");
        }
        site.file("forkyard.toml", &format!("entry = {entry:?}\n"));
        assert_eq!(site.inspect().map(|found| found.kind), Ok(kind), "{entry}");
    }
    let site = Site::new();
    site.file("app.py", "from shop import app");
    let error = site.refusal();
    assert!(
        error.contains("app.py alone does not show")
            && error.contains("\"asgi\" (FastAPI")
            && error.contains("\"wsgi\" (Fl"),
        "{error}"
    );
    site.file("forkyard.toml", "entry = \"app:api\"\n");
    let error = site.refusal();
    assert!(
        error.contains("entry = \"app:api\" does not show") && error.contains("add one"),
        "{error}"
    );
    site.file("forkyard.toml", "runtime = \"asgi\"\n");
    assert_eq!(site.kind(), seen(Kind::Asgi, "app.py"));
}

#[test]
fn package_json_needs_a_start_script() {
    let site = Site::new();
    for without in [
        "{}",
        "no json",
        r#"{"scripts": {"start": 1}}"#,
        r#"{"scripts": {"start": ""}}"#,
    ] {
        site.file("package.json", without);
        assert!(site.refusal().contains("is no application"), "{without}");
    }
    site.file(
        "package.json",
        r#"{"scripts": {"start": "node server.js", "x": 1}}"#,
    );
    assert_eq!(site.kind(), seen(Kind::Node, "package.json"));
    let settings = site.inspect().unwrap().settings.unwrap();
    assert_eq!(settings.start_command.as_deref(), Some("node server.js"));
    site.file("app.js", "");
    site.file("forkyard.toml", "start_command = \"node other.js\"\n");
    let found = site.inspect().unwrap();
    assert_eq!(found.startup_file, Some(site.root.join("app.js")));
    assert_eq!(
        found.settings.unwrap().start_command.as_deref(),
        Some("node other.js")
    );
}

#[test]
fn its_own_file_says_what_it_is_and_what_is_loaded() {
    let site = Site::new();
    site.file("shop/main.py", "");
    site.file("forkyard.toml", "runtime = \"asgi\"\nentry = \"shop/main.py\"\n");
    assert_eq!(site.kind(), seen(Kind::Asgi, "shop/main.py"));
    site.file("forkyard.toml", "runtime = \"asgi\"\nentry = \"shop.main:app\"\n");
    assert_eq!(site.kind(), (Kind::Asgi, None));
    site.file("forkyard.toml", "runtime = \"wsgi\"\nentry = \"../other.py\"\n");
    assert_eq!(site.kind(), (Kind::Wsgi, None));
}

#[test]
fn a_mistake_in_its_own_file_has_a_line() {
    let site = Site::new();
    let path = site.file("forkyard.toml", "runtime = \"php\"\nmax_per_ap = 3\n");
    let shown = path.display();
    assert_eq!(
        site.refusal(),
        format!("{shown}:2:1: error: max_per_ap: unknown key; did you mean max_per_app?")
    );
    site.file("forkyard.toml", "user = \"root\"\n");
    assert_eq!(site.refusal(), format!("{shown}:1:1: error: user: unknown key"));
    fs::write(&path, b"runtime = \"php\"\n\xff").unwrap();
    assert_eq!(
        site.refusal(),
        format!("{shown}: error: can't be read: byte 17 is not UTF-8")
    );
    let comments = |bytes: usize| format!("runtime = \"php\"{}", "#".repeat(bytes - 15));
    fs::write(&path, comments(65_536)).unwrap();
    site.file("index.php", "");
    assert_eq!(site.kind().0, Kind::Php);
    fs::write(&path, comments(65_537)).unwrap();
    assert_eq!(
        site.refusal(),
        format!("{shown} is longer than 65536 bytes; shorten it")
    );
}

#[test]
fn restart_files_are_seen() {
    let site = Site::new();
    site.file("index.php", "");
    let found = site.inspect().unwrap();
    assert_eq!((found.restart, found.always_restart), (None, false));
    site.file("tmp/restart.txt", "");
    let first = site.inspect().unwrap().restart.expect("it is there");
    fs::remove_file(site.root.join("tmp/restart.txt")).unwrap();
    site.file("tmp/other", "");
    site.file("tmp/restart.txt", "");
    assert_ne!(site.inspect().unwrap().restart, Some(first));
    site.file("tmp/always_restart.txt", "");
    assert!(site.inspect().unwrap().always_restart);
    let elsewhere = |directory: PathBuf| {
        let terms = Terms {
            restart_dir: Some(directory),
            ..site.terms()
        };
        inspect(&site.root, &terms).unwrap()
    };
    assert_eq!(elsewhere("shared/tmp".into()).restart, None);
    site.file("shared/tmp/restart.txt", "");
    assert!(elsewhere("shared/tmp".into()).restart.is_some());
    assert!(elsewhere(site.root.join("shared/tmp")).restart.is_some());
    // A link within the site, as deployments create it, and a link that leads out.
    symlink("shared/tmp", site.root.join("linked")).unwrap();
    assert!(elsewhere("linked".into()).restart.is_some());
    let away = tempfile::tempdir().unwrap();
    fs::write(away.path().join("restart.txt"), "").unwrap();
    symlink(away.path(), site.root.join("away")).unwrap();
    assert!(elsewhere("away".into()).restart.is_none());
}

#[test]
fn the_version_that_is_deployed_is_seen() {
    let site = Site::new();
    site.file("index.php", "");
    let revision = || site.inspect().expect("an application").revision;
    assert_eq!(revision(), None);
    site.file("REVISION", "  abc\u{1b}123 \nmore\n");
    assert_eq!(revision().as_deref(), Some("abc123"));
    site.file("REVISION", &"x".repeat(1000));
    assert_eq!(revision().map(|text| text.len()), Some(REVISION_CHARS));
    site.file("REVISION", "\n");
    assert_eq!(revision(), None);
    std::fs::remove_file(site.root.join("REVISION")).expect("rm");
    std::os::unix::fs::symlink("/etc/hostname", site.root.join("REVISION")).expect("a link");
    assert_eq!(revision(), None);
}

#[test]
fn a_virtual_environment_is_seen() {
    let site = Site::new();
    site.file("wsgi.py", "");
    assert_eq!(site.inspect().unwrap().python, None);
    fs::create_dir_all(site.root.join("venv/bin")).unwrap();
    symlink("/usr/bin/python3", site.root.join("venv/bin/python")).unwrap();
    assert_eq!(
        site.inspect().unwrap().python,
        Some(site.root.join("venv/bin/python"))
    );
    symlink("/nowhere", site.root.join(".venv")).unwrap();
    assert_eq!(
        site.inspect().unwrap().python,
        Some(site.root.join(".venv/bin/python"))
    );
}

#[test]
fn roots_are_directories_below_the_pool_s_and_nothing_else_is_told() {
    let site = Site::new();
    site.file("index.php", "");
    let base = &site.base;
    symlink("/etc", base.join("out")).unwrap();
    symlink("/nowhere", base.join("dangling")).unwrap();
    symlink("loop", base.join("loop")).unwrap();
    symlink("shop", base.join("current")).unwrap();
    fs::write(base.join("file"), "").unwrap();
    let look_at = |path: &Path| inspect(path, &site.terms());
    let wrong = [
        base.clone(),
        base.join("out"),
        base.join("out/ssl"),
        base.join("dangling"),
        base.join("loop"),
        base.join("loop/shop"),
        base.join("file"),
        base.join("missing"),
        base.join("shop/../.."),
        base.join(format!("shop/{}", "x/".repeat(3000))),
        "/proc/self/root".into(),
        "/proc".into(),
        "/".into(),
    ];
    for path in wrong {
        let text = format!(
            "{} is no directory below {}, links followed; applications are directories there",
            path.display(),
            base.display()
        );
        assert_eq!(look_at(&path), Err(text));
    }
    assert!(look_at(Path::new("shop")).unwrap_err().contains("absolute path"));
    let nul = base.join("shop\0");
    assert!(look_at(&nul).unwrap_err().contains("is no directory below"));
    assert_eq!(look_at(&base.join("current")).unwrap().root, site.root);
    assert_eq!(look_at(&base.join("shop/.//")).unwrap().root, site.root);
}

#[test]
fn the_pool_s_directory_may_be_a_link_itself() {
    let site = Site::new();
    site.file("index.php", "");
    let link = site.base.parent().unwrap().join("link");
    symlink(&site.base, &link).unwrap();
    let terms = Terms {
        directories: vec!["/nowhere".into(), link.clone()],
        ..site.terms()
    };
    for root in [&site.root, &link.join("shop")] {
        assert_eq!(inspect(root, &terms).unwrap().root, site.root);
    }
}

#[test]
fn names_that_are_not_text_are_refused_and_nothing_breaks() {
    use std::os::unix::ffi::OsStrExt;
    let site = Site::new();
    let odd = site.base.join(OsStr::from_bytes(b"sh\xffop"));
    fs::create_dir(&odd).unwrap();
    fs::write(odd.join("index.php"), "").unwrap();
    assert!(
        inspect(&odd, &site.terms())
            .unwrap_err()
            .ends_with("is not UTF-8; rename it")
    );
    symlink(&odd, site.base.join("plain")).unwrap();
    let error = inspect(&site.base.join("plain"), &site.terms()).unwrap_err();
    assert!(error.ends_with("is not UTF-8; rename it"), "{error}");
    site.file("index.php", "");
    fs::write(site.root.join(OsStr::from_bytes(b"\xfe.py")), "").unwrap();
    assert_eq!(site.kind(), seen(Kind::Php, "index.php"));
}

#[test]
fn what_is_not_the_site_s_is_not_read_for_it() {
    let site = Site::new();
    site.file("index.php", "");
    let own = site.root.join("forkyard.toml");
    symlink("/etc/shadow", &own).unwrap();
    let shown = own.display().to_string();
    let no_file = format!("{shown} is no regular file; a link is not followed: copy the file here");
    assert_eq!(site.refusal(), no_file);
    fs::remove_file(&own).unwrap();
    nix::unistd::mkfifo(&own, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(site.refusal(), no_file);
    fs::remove_file(&own).unwrap();
    fs::create_dir(&own).unwrap();
    assert_eq!(site.refusal(), no_file);
    fs::remove_dir(&own).unwrap();
    let secret = site.base.join("secret");
    fs::write(&secret, "password = \"x\"\n").unwrap();
    fs::hard_link(&secret, &own).unwrap();
    let error = site.refusal();
    assert!(
        error.contains("has 2 names") && !error.contains("password"),
        "{error}"
    );
}

#[test]
fn its_own_file_is_its_owner_s_or_root_s() {
    if crate::skip::needs_root() {
        return;
    }
    let site = Site::of_alice();
    site.file_of(ALICE, "index.php", "");
    let own = site.file_of(ALICE, "forkyard.toml", "max_requests = 10\n");
    let found = site.inspect().unwrap();
    assert_eq!(found.owner, (ALICE, ALICE));
    assert_eq!(found.settings.unwrap().max_requests, Some(10));
    fs::set_permissions(&own, Permissions::from_mode(0o646)).unwrap();
    assert!(
        site.refusal()
            .ends_with("everybody may write to it; chmod o-w it")
    );
    fs::set_permissions(&own, Permissions::from_mode(0o600)).unwrap();
    assert!(site.inspect().is_ok());
    chown(&own, Some(BOB), Some(BOB)).unwrap();
    assert!(site.refusal().contains("not everybody may read it"));
    fs::set_permissions(&own, Permissions::from_mode(0o644)).unwrap();
    assert!(
        site.refusal()
            .contains(&format!("belongs to user {BOB}, the application to user {ALICE}"))
    );
    chown(&own, Some(0), Some(0)).unwrap();
    assert!(site.inspect().is_ok());
    // Root's secrets under another name must not leak.
    fs::write(&own, "password = \"x\"\n").unwrap();
    fs::set_permissions(&own, Permissions::from_mode(0o600)).unwrap();
    let error = site.refusal();
    assert!(
        error.contains("not everybody may read it") && !error.contains("password"),
        "{error}"
    );
}

#[test]
fn no_application_is_made_another_user_s() {
    if crate::skip::needs_root() {
        return;
    }
    let site = Site::of_alice();
    let file = site.file_of(BOB, "index.php", "");
    let refusal = format!(
        "{} belongs to user {BOB} and {} to user {ALICE}; both must belong to the user that the application runs as",
        file.display(),
        site.root.display()
    );
    assert_eq!(site.refusal(), refusal);
    let same = Terms {
        switching: false,
        user_mounts: false,
        ..site.terms()
    };
    assert_eq!(inspect(&site.root, &same).unwrap().owner, (BOB, BOB));
    let site = Site::of_alice();
    let elsewhere = site.base.join("elsewhere");
    fs::write(&elsewhere, "").unwrap();
    chown(&elsewhere, Some(ALICE), Some(ALICE)).unwrap();
    fs::hard_link(&elsewhere, site.root.join("index.php")).unwrap();
    assert!(site.refusal().contains("has 2 names"));
    let site = Site::of_alice();
    let link = site.root.join("config.ru");
    symlink("/etc/shadow", &link).unwrap();
    lchown(&link, Some(ALICE), Some(ALICE)).unwrap();
    assert_eq!(site.inspect().unwrap().owner, (ALICE, ALICE));
    lchown(&link, Some(BOB), Some(BOB)).unwrap();
    assert!(site.refusal().contains("both must belong"));
    let site = Site::new();
    site.file_of(BOB, "index.php", "");
    assert_eq!(site.inspect().unwrap().owner, (BOB, BOB));
    let site = Site::of_alice();
    site.file_of(ALICE, "forkyard.toml", "runtime = \"cgi\"\n");
    assert_eq!(site.inspect().unwrap().owner, (ALICE, ALICE));
}

#[test]
fn a_directory_that_all_users_write_to_has_no_owner() {
    let site = Site::new();
    site.file("index.php", "");
    fs::set_permissions(&site.root, Permissions::from_mode(0o1777)).unwrap();
    assert!(site.refusal().contains("everybody may write to this directory"));
}

#[test]
fn a_directory_that_changes_during_the_look_is_never_mixed_up() {
    let site = Site::new();
    site.file("index.php", "");
    let other = site.base.join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("config.ru"), "").unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("wsgi.py"), "").unwrap();
    let current = site.base.join("current");
    let switch = |target: &Path| {
        let fresh = site.base.join("fresh");
        let _ = fs::remove_file(&fresh);
        symlink(target, &fresh).unwrap();
        fs::rename(&fresh, &current).unwrap();
    };
    switch(&site.root);
    struct End<'o>(&'o std::sync::atomic::AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _end = End(&over);
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                for target in [other.as_path(), outside.path(), site.root.as_path()] {
                    switch(target);
                }
            }
        });
        let mut kinds = std::collections::BTreeSet::new();
        let mut looks = 0;
        // Until all three outcomes occur: earlier, nothing may have been switched.
        while looks < 2000 || kinds.len() < 3 {
            looks += 1;
            assert!(looks < 1_000_000, "nothing was switched: {kinds:?}");
            kinds.insert(match inspect(&current, &site.terms()) {
                Ok(found) if found.kind == Kind::Php => {
                    assert_eq!(found.root, site.root);
                    "one"
                }
                Ok(found) => {
                    assert_eq!((found.kind, &found.root), (Kind::Rack, &other));
                    "other"
                }
                Err(error) => {
                    assert!(error.contains("is no directory below"), "{error}");
                    "refused"
                }
            });
        }
    });
}

#[test]
fn many_applications_are_told_apart() {
    let site = Site::new();
    for number in 0..200 {
        let root = site.base.join(format!("app{number}"));
        fs::create_dir(&root).unwrap();
        let sign = STARTUP_FILES[number % 3];
        fs::write(root.join(sign.file), "").unwrap();
    }
    for number in 0..200 {
        let root = site.base.join(format!("app{number}"));
        let found = inspect(&root, &site.terms()).unwrap();
        assert_eq!((found.kind, found.root), (STARTUP_FILES[number % 3].kind, root));
    }
}

#[test]
fn the_document_s_example_is_right_and_every_key_and_file_is_told_of() {
    let text = include_str!("../../../../docs/reference/application-pool.md");
    let examples: Vec<&str> = text
        .split("```toml site\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(!examples.is_empty());
    for example in examples {
        let site = Site::new();
        site.file("forkyard.toml", example);
        let found = site.inspect().unwrap();
        assert_eq!(found.kind, Kind::Wsgi);
        let settings = found.settings.unwrap();
        assert_eq!((settings.max_per_app, settings.env.len()), (Some(3), 1));
    }
    for key in site::keys() {
        assert!(text.contains(&format!("\n| `{key}` | ")), "{key}");
    }
    for sign in STARTUP_FILES {
        assert!(text.contains(&format!("`{}`", sign.file)), "{}", sign.file);
    }
}
