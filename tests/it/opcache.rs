//! `forkyard opcache`: the state of OPcache and APCu of each pool, without a request.

use crate::support::prelude::*;

const STATIC: &str = "pm = \"static\"\nmax_children = 1\n";
const DYNAMIC: &str =
    "pm = \"dynamic\"\nmax_children = 2\nstart_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 1\n";
const ONDEMAND: &str = "pm = \"ondemand\"\nmax_children = 1\nprocess_idle_timeout = \"100ms\"\n";
const WORKER: &str = "<?php require __DIR__ . '/part.php';\nwhile (forkyard_handle_request(function () { echo 'fine'; })) {}\n";
const MEMORY: u64 = 128 << 20;

/// Writes a script that OPcache keeps: opcache.file_update_protection leaves new ones out.
fn write_old(path: impl AsRef<Path>, text: &str) {
    write_file(&path, text);
    let file = File::options().write(true).open(path).expect("a script");
    file.set_modified(SystemTime::now() - Duration::from_secs(60))
        .expect("utimes");
}

fn caches(daemon: &Daemon, pools: &[&str]) -> Vec<Value> {
    let arguments = [&["opcache", "--json"], pools].concat();
    let text = exited(Some(0), daemon.said(&arguments));
    parsed(&text).as_array().expect("caches").clone()
}

fn cache(daemon: &Daemon, pool: &str) -> Value {
    let mut all = caches(daemon, &[pool]);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

fn has_used(opcache: &Value) -> bool {
    let number = |key: &str| opcache[key].as_u64().expect(key);
    assert_eq!(opcache["state"], "enabled");
    assert_eq!(
        number("used") + number("free") + number("wasted"),
        MEMORY,
        "{opcache}"
    );
    number("scripts") >= 1 && number("misses") >= 1
}

fn requests(daemon: &Daemon) -> Value {
    let status = daemon.status(&[]);
    let pools = status["pools"].as_array().expect("pools").iter();
    pools
        .map(|pool| json!([pool["name"], pool["counts"]["requests"], pool["counts"]["starts"]]))
        .collect()
}

#[test]
fn the_caches_of_every_kind_of_pool_are_read() {
    let daemon = Daemon::start(|dir| {
        let apps = dir.join("apps");
        fs::create_dir_all(apps.join("site")).expect("mkdir");
        write_old(apps.join("site/index.php"), "<?php echo 'fine';");
        if is_root() {
            chown(apps.join("site"), Some(33), Some(33)).expect("chown");
            chown(apps.join("site/index.php"), Some(33), Some(33)).expect("chown");
        }
        write_old(dir.join("part.php"), "<?php const PART = 1;");
        write_old(dir.join("worker.php"), WORKER);
        let worker = |mode: &str| {
            let script = dir.join("worker.php");
            format!("{PHP}worker = {script:?}\nworker_mode = \"{mode}\"\n")
        };
        let path = dir.display();
        with_control(dir)
            + &pool(dir, "own", STATIC, &format!("{PHP}preloader = \"own\"\n"))
            + &pool(dir, "static", STATIC, PHP)
            + &pool(dir, "dynamic", DYNAMIC, PHP)
            + &pool(dir, "ondemand", ONDEMAND, PHP)
            + &pool(dir, "loop", STATIC, &worker("loop"))
            + &pool(dir, "snapshot", STATIC, &worker("snapshot"))
            + &pool(
                dir,
                "restricted",
                STATIC,
                &format!("{PHP}php_admin_value = {{ opcache.restrict_api = \"/nowhere\" }}\n"),
            )
            + &pool(dir, "unused", ONDEMAND, PHP)
            + &format!(
                "[pool.sites]\nlisten = {{ address = \"{path}/sites.sock\", mode = \"0666\" }}\nrouting = \"application\"\n\
                 [pool.sites.applications]\ndirectories = [\"{path}/apps\"]\nmin_uid = 1\n"
            )
    });
    write_old(daemon.dir.join("fine.php"), "<?php echo 'fine';");
    for pool in ["own", "static", "dynamic", "ondemand", "restricted"] {
        assert_eq!(daemon.get(pool, "fine.php").body(), "fine");
    }
    for pool in ["loop", "snapshot"] {
        assert_eq!(daemon.get(pool, "worker.php").body(), "fine");
    }
    let site = daemon.dir.join("apps/site");
    let params = Params::get(&site, "index.php", "").with("FORKYARD_APP_ROOT", &site.display().to_string());
    assert_eq!(daemon.ask("sites", &params).body(), "fine");
    wait_until("no worker of the ondemand pool", || {
        daemon.workers("ondemand").is_empty()
    });

    let before = requests(&daemon);
    let pools = [
        "own",
        "static",
        "dynamic",
        "ondemand",
        "loop",
        "snapshot",
        "restricted",
        "sites",
    ];
    each(pools, |pool| {
        let cache = cache(&daemon, pool);
        assert!(has_used(&cache["opcache"]), "{cache}");
        assert_eq!(cache["opcache"]["full"], false);
        assert!(cache["apcu"]["state"].is_string(), "{cache}");
        assert!(cache["unknown"].is_null(), "{cache}");
    });
    let unused = cache(&daemon, "unused");
    assert_contains(
        unused["unknown"].as_str().unwrap_or_default(),
        "PHP is not running for this pool",
    );
    assert!(unused["opcache"].is_null());
    let all = caches(&daemon, &[]);
    assert_eq!(all.len(), pools.len() + 1, "{all:#?}");
    assert_eq!(cache(&daemon, "sites:site")["pool"], "sites:site");
    assert!(daemon.workers("ondemand").is_empty());
    assert_eq!(
        requests(&daemon),
        before,
        "reading takes no request and no worker"
    );

    // A pool that was at rest works as before.
    assert_eq!(daemon.get("ondemand", "fine.php").body(), "fine");
    let hits = |cache: &Value| cache["opcache"]["hits"].as_u64().expect("hits");
    let first = hits(&cache(&daemon, "static"));
    assert_eq!(daemon.get("static", "fine.php").body(), "fine");
    until("another hit", || {
        Some(hits(&cache(&daemon, "static"))).filter(|now| *now > first)
    });
    let text = daemon.shown(&["opcache", "static"]);
    assert_starts(&text, "pool static\n  OPcache: well; ");
}

#[test]
fn what_is_disabled_full_or_no_php_is_said() {
    let daemon = Daemon::start(|dir| {
        fs::create_dir_all(dir.join("app")).expect("mkdir");
        let application = "def application(environ, start):\n    start('200 OK', [])\n    return [b'']\n";
        write_file(dir.join("app/wsgi.py"), application);
        let with = |values: &str| format!("{PHP}php_admin_value = {{ {values} }}\n");
        with_control(dir)
            + &pool(dir, "off", STATIC, &with("opcache.enable = \"0\""))
            + &pool(
                dir,
                "full",
                STATIC,
                &with("opcache.max_accelerated_files = \"200\""),
            )
            + &pool(dir, "wsgi", STATIC, &application_in("wsgi", dir.join("app"), ""))
    });
    write_old(daemon.dir.join("fine.php"), "<?php echo 'fine';");
    assert_eq!(daemon.get("off", "fine.php").body(), "fine");
    assert_eq!(cache(&daemon, "off")["opcache"], json!({"state": "disabled"}));
    assert_contains(&daemon.shown(&["opcache", "off"]), "  OPcache: disabled\n");

    for number in 0..300 {
        write_old(daemon.dir.join(format!("part{number}.php")), "<?php return 1;");
    }
    daemon.write(
        "all.php",
        "<?php foreach (glob(__DIR__ . '/part*.php') as $part) { require $part; } echo 'fine';",
    );
    assert_eq!(daemon.get("full", "all.php").body(), "fine");
    let full = cache(&daemon, "full");
    let opcache = &full["opcache"];
    let is_full = opcache["full"] == true || opcache["restart_pending"] == true;
    assert!(
        is_full || opcache["restarts"]["keys"].as_u64() > Some(0),
        "{opcache}"
    );
    assert_eq!(opcache["max_keys"], 223);

    let (code, text) = daemon.said(&["opcache", "wsgi"]);
    assert!(code == Some(70) && text.contains("not with PHP"), "{text}");
    let text = exited(Some(70), daemon.said(&["opcache", "nowhere"]));
    assert_contains(&text, "there is no pool nowhere");
}

#[test]
fn a_preloader_that_hangs_delays_nobody_else() {
    let daemon = Daemon::start(|dir| {
        with_control(dir)
            + &pool(dir, "hangs", STATIC, &format!("{PHP}preloader = \"own\"\n"))
            + &pool(dir, "well", STATIC, PHP)
    });
    write_old(daemon.dir.join("fine.php"), "<?php echo 'fine';");
    for pool in ["hangs", "well"] {
        assert_eq!(daemon.get(pool, "fine.php").body(), "fine");
    }
    let preloader = daemon.own_preloaders("hangs")[0];
    process::signal(preloader, Signal::SIGSTOP);
    let mut asked = forkyard(&["opcache", "hangs", "--json"], &daemon.dir);
    let asked = asked.stdout(Stdio::piped()).spawn().expect("forkyard");
    assert!(has_used(&cache(&daemon, "well")["opcache"]));
    assert_eq!(daemon.get("hangs", "fine.php").body(), "fine");
    let output = asked.wait_with_output().expect("forkyard");
    let late = parsed(&text_of(&output.stdout))[0].clone();
    assert_contains(
        late["unknown"].as_str().unwrap_or_default(),
        "reported within 2 s",
    );
    process::signal(preloader, Signal::SIGCONT);
    let cache = until("the state", || {
        Some(cache(&daemon, "hangs")).filter(|cache| cache["unknown"].is_null())
    });
    assert!(has_used(&cache["opcache"]), "{cache}");
}

#[test]
fn an_owner_reads_the_caches_of_own_pools() {
    skip_if!(needs_root());
    let daemon = Daemon::start(|dir| {
        fs::create_dir_all(dir.join("apps")).expect("apps");
        let path = dir.display();
        let other = pool(dir, "other", STATIC, PHP).replace("user = \"www-data\"", "user = \"backup\"");
        // An application pool opens the owners' socket.
        with_control(dir)
            + &pool(dir, "mine", STATIC, PHP)
            + &other
            + &format!(
                "[pool.sites]\nlisten = \"{path}/sites.sock\"\nrouting = \"application\"\n[pool.sites.applications]\n\
                 directories = [\"{path}/apps\"]\n"
            )
    });
    fs::set_permissions(&daemon.dir, Permissions::from_mode(0o755)).expect("chmod");
    let read = |pool: &[&str]| {
        let mut command = forkyard(&[&["opcache", "--json"], pool].concat(), &daemon.dir);
        command.uid(33).gid(33);
        said_by(&mut command)
    };
    let text = exited(Some(0), read(&[]));
    let all = parsed(&text);
    assert_eq!(all.as_array().map(Vec::len), Some(1), "{all}");
    assert_eq!(all[0]["pool"], "mine");
    let (code, text) = read(&["other"]);
    assert!(code == Some(70) && text.contains("permission denied"), "{text}");
}

fn scrape(daemon: &Daemon) -> String {
    let mut stream = UnixStream::connect(daemon.dir.join("web.sock")).expect("the web process");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .expect("write");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

fn last_caches(daemon: &Daemon, pool: &str) -> Value {
    daemon.status(&[pool])["pools"][0]["caches"].clone()
}

#[test]
fn a_status_has_the_last_state_and_waits_for_none() {
    let daemon = Daemon::start(|dir| {
        fs::create_dir_all(dir.join("app")).expect("mkdir");
        let application = "def application(environ, start):\n    start('200 OK', [])\n    return [b'']\n";
        write_file(dir.join("app/wsgi.py"), application);
        with_control(dir).replace(
            "[global]\n",
            &format!("[global]\nweb = \"{}\"\n", dir.join("web.sock").display()),
        ) + &pool(dir, "own", STATIC, &format!("{PHP}preloader = \"own\"\n"))
            + &pool(dir, "static", STATIC, PHP)
            + &pool(dir, "dynamic", DYNAMIC, PHP)
            + &pool(dir, "ondemand", ONDEMAND, PHP)
            + &pool(
                dir,
                "off",
                STATIC,
                &format!("{PHP}php_admin_value = {{ opcache.enable = \"0\" }}\n"),
            )
            + &pool(dir, "wsgi", STATIC, &application_in("wsgi", dir.join("app"), ""))
    });
    write_old(daemon.dir.join("fine.php"), "<?php echo 'fine';");
    assert!(last_caches(&daemon, "own").is_null(), "nobody has asked before");
    let php = ["own", "static", "dynamic", "off"];
    for pool in php.into_iter().chain(["ondemand"]) {
        assert_eq!(daemon.get(pool, "fine.php").body(), "fine");
    }
    wait_until("no worker of the ondemand pool", || {
        daemon.workers("ondemand").is_empty()
    });
    let before = requests(&daemon);
    let labelled = |name: &str, pool: &str| format!("\nforkyard_pool_{name}{{pool=\"{pool}\"}} ");
    for pool in php {
        let caches = until("the caches", || {
            let caches = last_caches(&daemon, pool);
            let is_on = pool == "off" || caches["opcache"]["misses"].as_u64() > Some(0);
            (is_on && caches.is_object()).then_some(caches)
        });
        assert!(caches["age_ms"].as_u64() < Some(300_000), "{caches}");
        match pool {
            "off" => assert_eq!(caches["opcache"]["state"], "disabled"),
            _ => assert!(has_used(&caches["opcache"]), "{caches}"),
        }
        let has_apcu = caches["apcu"]["state"] == "enabled";
        for text in [daemon.shown(&["status", "--metrics"]), scrape(&daemon)] {
            for name in [
                "used_bytes",
                "free_bytes",
                "wasted_bytes",
                "full",
                "hits_total",
                "misses_total",
            ] {
                let name = format!("opcache_{name}");
                assert_eq!(
                    text.contains(&labelled(&name, pool)),
                    pool != "off",
                    "{name} {pool}: {text}"
                );
            }
            assert_eq!(
                text.contains(&labelled("apcu_used_bytes", pool)),
                has_apcu,
                "{text}"
            );
            assert_contains(&text, &labelled("caches_age_seconds", pool));
        }
    }
    let metrics = daemon.shown(&["status", "--metrics"]);
    let text = read_file(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/status.md"));
    let documented = text
        .split('`')
        .filter(|word| word.starts_with("forkyard_pool_opcache_"));
    for name in documented {
        assert_contains(&metrics, &format!("\n{name}{{pool=\"static\""));
    }
    assert_contains(
        &metrics,
        "\nforkyard_pool_opcache_restarts_total{pool=\"static\",cause=\"memory\"} 0\n",
    );
    for pool in ["ondemand", "wsgi"] {
        assert!(last_caches(&daemon, pool).is_null(), "{pool}");
        assert!(!metrics.contains(&format!("forkyard_pool_opcache_hits_total{{pool=\"{pool}\"")));
    }
    assert!(daemon.workers("ondemand").is_empty());
    assert_eq!(
        requests(&daemon),
        before,
        "reading takes no request and no worker"
    );

    let preloader = daemon.own_preloaders("own")[0];
    process::signal(preloader, Signal::SIGSTOP);
    let begin = Instant::now();
    let last = last_caches(&daemon, "own");
    assert!(has_used(&last["opcache"]), "{last}");
    assert_contains(&scrape(&daemon), &labelled("opcache_used_bytes", "own"));
    assert!(
        begin.elapsed() < Duration::from_millis(1500),
        "{:?}",
        begin.elapsed()
    );
    process::signal(preloader, Signal::SIGCONT);
}
