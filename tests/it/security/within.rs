//! A request can't have a script run that is not the application's.

use crate::support::prelude::*;

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("mkdir");
    fs::write(path, text).expect("write");
}

fn site(dir: &Path, root: &str) {
    let root = dir.join(root);
    put(&root.join("index.php"), "<?php echo 'inside';");
    put(&dir.join("outside.php"), "<?php echo 'outside';");
    symlink(dir.join("outside.php"), root.join("link.php")).expect("a link");
    if is_root() {
        for path in [root.clone(), root.join("index.php")] {
            chown(path, Some(33), Some(33)).expect("chown");
        }
    }
}

fn ask(daemon: &Daemon, pool: &str, root: Option<&Path>, script: &Path) -> String {
    let script = script.display().to_string();
    let mut params = Params::get(&daemon.dir, "x.php", "").with("SCRIPT_FILENAME", &script);
    if let Some(root) = root {
        params = params.with("FORKYARD_APP_ROOT", &root.display().to_string());
    }
    let answer = daemon.ask(pool, &params);
    match answer.text().contains("403 Forbidden") {
        true => {
            assert_contains(&answer.error_text(), "outside application.script_root");
            "403".to_owned()
        }
        false => answer.body(),
    }
}

#[test]
fn a_pool_s_scripts_are_below_its_script_root_if_it_has_one() {
    let daemon = Daemon::start(|dir| {
        site(dir, "site");
        let bound = format!("script_root = \"{}/site\"", dir.display());
        let open = php_pool(dir, "", "").replace("www", "open");
        format!(
            "{}\n{}",
            php_pool(dir, "", &bound),
            open.replace("user = \"open-data\"", "user = \"www-data\"")
        )
    });
    let dir = &daemon.dir;
    assert_eq!(ask(&daemon, "www", None, &dir.join("site/index.php")), "inside");
    for other in ["outside.php", "site/link.php", "outside.php/rest"] {
        assert_eq!(ask(&daemon, "www", None, &dir.join(other)), "403", "{other}");
        assert_eq!(ask(&daemon, "open", None, &dir.join(other)), "outside", "{other}");
    }
}

#[test]
fn an_application_s_scripts_are_below_its_root() {
    let daemon = Daemon::start(|dir| {
        let path = dir.display();
        site(dir, "apps/php");
        site(dir, "apps/two");
        symlink("php", dir.join("apps/current")).expect("a link");
        let own = concat!(
            "runtime = \"fastcgi\"\nstart_command = \"php-cgi",
            env!("FORKYARD_PHP"),
            "\"\nentry = \"index.php\"\n"
        );
        site(dir, "apps/cgi");
        put(&dir.join("apps/cgi/forkyard.toml"), own);
        format!(
            "[pool.sites]\nlisten = {{ address = \"{path}/sites.sock\", mode = \"0666\" }}\nrouting = \"application\"\n\
             [pool.sites.applications]\ndirectories = [\"{path}/apps\"]\nmin_uid = 1\nstat_throttle_rate = \"1h\"\n"
        )
    });
    let dir = &daemon.dir;
    let apps = dir.join("apps");
    for name in ["php", "cgi"] {
        let root = apps.join(name);
        wait_until("the application", || {
            ask(&daemon, "sites", Some(&root), &root.join("index.php")) == "inside"
        });
        for other in [
            dir.join("outside.php"),
            root.join("link.php"),
            apps.join("two/index.php"),
        ] {
            assert_eq!(
                ask(&daemon, "sites", Some(&root), &other),
                "403",
                "{}",
                other.display()
            );
        }
        // File names have no zero bytes; a program that reads C strings would run the part before it.
        let cut = Path::new(&format!("{}\0x", dir.join("outside.php").display())).to_owned();
        assert_ne!(ask(&daemon, "sites", Some(&root), &cut), "outside", "{name}");
    }
    // A new version behind the web server's link is served before an inspection has seen the change.
    let current = apps.join("current");
    assert_eq!(
        ask(&daemon, "sites", Some(&current), &apps.join("php/index.php")),
        "inside"
    );
    fs::remove_file(&current).expect("rm");
    symlink("two", &current).expect("a link");
    put(&apps.join("two/next.php"), "<?php echo 'next';");
    assert_eq!(
        ask(&daemon, "sites", Some(&current), &current.join("next.php")),
        "next"
    );
}
