//! Scripts that are not run: the client's words are php-fpm's, and the log and the status say why.

use crate::support::prelude::*;

const STATIC: &str = "pm = \"static\"\nmax_children = 2\n";

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

fn refusals(daemon: &Daemon, pool: &str) -> Vec<(String, u64, String, Option<String>)> {
    let status = daemon.status(&[pool]);
    let all = status["pools"][0]["counts"]["refusals"].as_array().cloned();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let one = |it: Value| {
        (
            text(&it["cause"]).expect("a cause"),
            it["count"].as_u64().expect("a count"),
            text(&it["path"]).expect("a path"),
            text(&it["at"]),
        )
    };
    all.unwrap_or_default().into_iter().map(one).collect()
}

#[test]
fn why_a_script_is_not_run_is_in_the_log_and_in_the_status() {
    let daemon = Daemon::start(|dir| {
        let mut text = with_control(dir);
        for (name, application) in [("zygote", ""), ("own", "preloader = \"own\"\n")] {
            let application = format!("{application}php_admin_value = {{ open_basedir = \"DIR/www\" }}\n");
            let version = PHP.to_owned();
            text += &pool(dir, name, STATIC, &(version + &application));
        }
        text
    });
    let dir = &daemon.dir;
    let www = dir.join("www");
    fs::create_dir_all(www.join("closed/a/b/c")).expect("mkdir");
    fs::create_dir_all(www.join("dir.php")).expect("mkdir");
    for name in ["ok.php", "secret.php", "text.txt", "closed/a/b/c/x.php"] {
        fs::write(www.join(name), "<?php echo 'fine';").expect("write");
    }
    daemon.write("out.php", "<?php echo 'out';");
    set_mode(&www.join("secret.php"), 0);
    symlink(www.join("closed/a"), www.join("link")).expect("a link");
    set_mode(&www.join("closed"), 0);
    let at = |name: &str| www.join(name).display().to_string();
    let named = |name: &str| Params::get(&www, name, "");
    let lost = dir.join("lost");
    let lost_root = lost.display().to_string();
    let mut unnamed = named("index.php");
    unnamed.0.retain(|(name, _)| name != "SCRIPT_FILENAME");
    let empty = named("index.php").with("SCRIPT_FILENAME", "");
    let (missing, denied, unopened) = (
        "File not found.\n",
        "Access denied.\n",
        "No input file specified.\n",
    );
    let cases = [
        (
            named("no.php"),
            missing,
            "missing",
            at("no.php"),
            None,
            "does not exist",
        ),
        (
            named("no/no.php"),
            missing,
            "missing",
            at("no/no.php"),
            None,
            "does not exist",
        ),
        (
            named("dir.php"),
            unopened,
            "missing",
            at("dir.php"),
            None,
            "does not exist",
        ),
        (
            Params::get(dir, "out.php", ""),
            unopened,
            "outside",
            dir.join("out.php").display().to_string(),
            None,
            "lies outside application.root, application.script_root or open_basedir",
        ),
        (
            Params::get(&lost, "x.php", ""),
            missing,
            "outside",
            format!("{lost_root}/x.php"),
            Some(lost_root.clone()),
            "does not exist for this pool; in a container or with chroot",
        ),
        (
            named("link/b/c/x.php"),
            missing,
            "closed",
            at("link/b/c/x.php"),
            Some(at("link")),
            "the pool's user can't search the directory",
        ),
        (
            named("closed/a/b/c/x.php"),
            missing,
            "closed",
            at("closed/a/b/c/x.php"),
            Some(at("closed")),
            "the pool's user can't search the directory",
        ),
        (
            named("secret.php"),
            denied,
            "closed",
            at("secret.php"),
            Some(at("secret.php")),
            "can't be read by the pool's user",
        ),
        (
            unnamed,
            missing,
            "unnamed",
            "/index.php".to_owned(),
            None,
            "let it send SCRIPT_FILENAME",
        ),
        (
            empty,
            denied,
            "unnamed",
            "/index.php".to_owned(),
            None,
            "let it send SCRIPT_FILENAME",
        ),
        (
            named("text.txt"),
            denied,
            "ending",
            at("text.txt"),
            None,
            "see limit_extensions",
        ),
    ];
    for pool in ["zygote", "own"] {
        let mut counts = BTreeMap::new();
        assert_eq!(daemon.ask(pool, &named("ok.php")).body(), "fine");
        assert_eq!(refusals(&daemon, pool), []);
        for (params, answer, cause, path, part, words) in &cases {
            let case = format!("{pool} {cause} {path}");
            let count: &mut u64 = counts.entry(*cause).or_default();
            *count += 1;
            assert_eq!(daemon.ask(pool, params).body(), *answer, "{case}");
            let found = until(&case, || {
                let all = refusals(&daemon, pool);
                all.into_iter().find(|it| it.0 == *cause && it.1 == *count)
            });
            assert_eq!((&found.2, &found.3), (path, part), "{case}");
            let output = forkyard(&["status", pool], dir).output().expect("forkyard");
            let text = text_of(&output.stdout);
            let line = text
                .lines()
                .find(|line| line.contains("scripts not run: ") && line.contains(words));
            assert!(
                line.is_some_and(|line| line.contains(path.as_str())),
                "{case}: {text}"
            );
        }
        let mut client = daemon.client(pool).kept();
        for number in 0..2_000 {
            let params = named(&format!("flood{number}.php"));
            assert_eq!(client.request(&params, b"").expect("an answer").body(), missing);
        }
        let sum = counts["missing"] + 2_000;
        let found = refusals(&daemon, pool);
        let found = found
            .iter()
            .find(|it| it.0 == "missing")
            .expect("the missing ones");
        assert_eq!((found.1, &found.2), (sum, &at("flood1999.php")), "{pool}");
        for (words, most) in [
            ("does not exist", 1),
            ("lies outside application.root", 1),
            ("does not exist for this pool", 0),
            ("can't search the directory", 1),
            ("can't be read by the pool's user", 0),
            ("let it send SCRIPT_FILENAME", 1),
            ("see limit_extensions (security", 1),
        ] {
            let log = daemon.log();
            let own = format!("[pool {pool}] ");
            let lines = log
                .lines()
                .filter(|line| line.contains(&own) && line.contains(words));
            let lines: Vec<&str> = lines.filter(|line| line.contains("refused: ")).collect();
            assert_eq!(lines.len(), most, "{pool} {words}: {log}");
        }
    }
    let before = refusals(&daemon, "own");
    assert_success(&forkyard(&["reload", "--all"], dir).output().expect("forkyard"));
    wait_until("the old workers to leave", || refusals(&daemon, "own") == before);
    set_mode(&www.join("closed"), 0o755);
}

#[test]
fn a_root_that_a_chroot_does_not_have_is_told() {
    skip_if!(needs_root());
    let daemon = Daemon::start(|dir| {
        fs::create_dir_all(dir.join("jail/site")).expect("mkdir");
        let settings = format!("{STATIC}chroot = \"{}/jail\"\n", dir.display());
        with_control(dir) + &php_pool(dir, &settings, "")
    });
    let site = daemon.dir.join("jail/site");
    fs::write(site.join("a.php"), "<?php echo 'inside';").expect("write");
    assert_eq!(
        daemon
            .ask("www", &Params::get(Path::new("/site"), "a.php", ""))
            .body(),
        "inside"
    );
    assert_eq!(
        daemon.ask("www", &Params::get(&site, "a.php", "")).body(),
        "File not found.\n"
    );
    let found = refusals(&daemon, "www");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].0.as_str(), found[0].3.as_deref()),
        ("outside", site.to_str())
    );
    daemon.wait_for("with chroot, set root to the path inside it");
}

#[test]
fn why_a_program_is_not_run_is_counted() {
    let daemon = Daemon::start(|dir| {
        let application = application_in("cgi", dir, "");
        let global = with_control(dir);
        global + &pool(dir, "www", STATIC, &application)
    });
    let dir = &daemon.dir;
    daemon.write("plain.txt", "text");
    fs::create_dir_all(dir.join("closed")).expect("mkdir");
    set_mode(&dir.join("closed"), 0);
    let path = |name: &str| dir.join(name).display().to_string();
    let named = |name: &str| Params::get(dir, name, "");
    let mut unnamed = named("x.cgi");
    unnamed
        .0
        .retain(|(name, _)| !matches!(name.as_str(), "SCRIPT_FILENAME" | "DOCUMENT_ROOT"));
    let rows = [
        (named("none.cgi"), "missing", path("none.cgi"), None),
        (named("plain.txt"), "not_executable", path("plain.txt"), None),
        (
            named("closed/x.cgi"),
            "closed",
            path("closed/x.cgi"),
            Some(path("closed")),
        ),
        (
            named("x").with("SCRIPT_FILENAME", "/bin/ls"),
            "outside",
            "/bin/ls".to_owned(),
            None,
        ),
        (unnamed, "unnamed", "/x.cgi".to_owned(), None),
    ];
    each(rows, |(params, cause, asked, part)| {
        assert_starts(&daemon.ask("www", &params).text(), "Status: 40");
        let found = until(cause, || {
            refusals(&daemon, "www").into_iter().find(|it| it.0 == cause)
        });
        assert_eq!(found, (cause.to_owned(), 1, asked, part));
    });
    for _ in 0..100 {
        daemon.ask("www", &named("none.cgi"));
    }
    assert_eq!(daemon.log().matches("none.cgi does not exist").count(), 1);
    set_mode(&dir.join("closed"), 0o755);
}
