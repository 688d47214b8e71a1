//! PHP applications of an application pool have workers of one zygote, as their owners.

use super::{Sites, USERS};
use crate::support::prelude::*;

const SHOP: &str = "<?php
switch ($_GET['what'] ?? '') {
    case 'error': throw new Exception('the database is not there');
    case 'log': error_log('a line of it'); break;
    case 'cached': echo implode(' ', array_map(fn($path) => basename(dirname($path)), array_keys(opcache_get_status()['scripts'])));
        return;
    case 'limit': echo ini_get('memory_limit'); return;
}
echo posix_geteuid(), ' ', posix_getegid(), ' ', getmypid(), ' ', getcwd();";

fn start(applications: &str, php: &str) -> Sites {
    Sites::start_with(
        applications,
        &format!(
            "[pool.sites.application]\nphp_admin_value = {{ opcache.file_update_protection = 0, memory_limit = \"300M\" }}\n{php}"
        ),
    )
}

fn preloaders(sites: &Sites) -> Vec<(u32, String)> {
    let children = process::children(sites.daemon.pid()).into_iter();
    let titles = children.map(|pid| (pid, process::title(pid)));
    titles
        .filter_map(|(pid, title)| Some((pid, title.strip_prefix("forkyard: preloader ")?.to_owned())))
        .collect()
}

fn only_zygote(sites: &Sites) -> u32 {
    until("one zygote and no other preloader", || {
        match preloaders(sites).as_slice() {
            [(pid, name)] if name == "zygote" => Some(*pid),
            _ => None,
        }
    })
}

fn who(sites: &Sites, name: &str) -> (String, u32) {
    let body = sites.body(&format!("/{name}/"));
    let words: Vec<&str> = body.split(' ').collect();
    let directory = Path::new(words[3])
        .file_name()
        .map(|it| it.to_string_lossy().into_owned());
    assert_eq!(directory.as_deref(), Some(name), "{body}");
    (
        format!("{} {}", words[0], words[1]),
        words[2].parse().expect("a pid"),
    )
}

#[test]
fn php_applications_have_workers_of_one_zygote_as_their_owners_and_an_opcache_each() {
    skip_if!(needs_root());
    let sites = start("max = 6", "");
    let zygote = only_zygote(&sites);
    for (user, name) in ["shop", "blog"].into_iter().enumerate() {
        sites.add(name, user, &[("index.php", SHOP)]);
        let (_, uid) = USERS[user];
        assert_eq!(who(&sites, name).0, format!("{uid} {uid}"));
    }
    assert_eq!(
        only_zygote(&sites),
        zygote,
        "it was there before the first request"
    );
    for name in ["shop", "blog"] {
        assert_eq!(
            sites.body(&format!("/{name}/?what=cached")),
            name,
            "its own scripts"
        );
        assert_eq!(sites.body(&format!("/{name}/?what=limit")), "300M");
    }

    let (status, _) = sites.get("/shop/?what=error");
    assert_eq!(status, 500);
    sites.body("/blog/?what=log");
    for (name, line) in [("shop", "the database is not there"), ("blog", "a line of it")] {
        wait_until(line, || {
            let log = sites.daemon.log();
            let own = format!("[pool sites:{name}]");
            let mut lines = log.lines();
            lines.any(|it| it.contains(&own) && it.contains(line))
        });
    }

    let shop = sites.apps.join("shop");
    let (before, other) = (who(&sites, "shop").1, who(&sites, "blog").1);
    write_file(
        shop.join("index.php"),
        SHOP.replace("getcwd()", "getcwd(), ' new'"),
    );
    let done = sites.forkyard(&["restart", &shop.display().to_string(), "--rolling", "--wait"]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert!(sites.body("/shop/").ends_with(" new"));
    assert_ne!(who(&sites, "shop").1, before);
    assert_eq!(who(&sites, "blog").1, other);
    assert_eq!(only_zygote(&sites), zygote);

    process::signal(zygote, Signal::SIGKILL);
    wait_until("its end", || !process::runs(zygote));
    assert_eq!(who(&sites, "blog").1, other);
    until("an instance of another zygote", || {
        let (status, body) = sites.get("/blog/");
        let pid = body.split(' ').nth(2)?.parse().ok().filter(|_| status == 200)?;
        if preloaders(&sites).is_empty() {
            process::signal(pid, Signal::SIGKILL);
            return None;
        }
        Some(())
    });
    assert_ne!(only_zygote(&sites), zygote);
}

#[test]
fn php_applications_have_preloaders_of_their_own_where_no_zygote_can_be_had() {
    skip_if!(needs_root());
    let dir = directory();
    let ini = dir.path().join("php.ini");
    write_file(
        &ini,
        format!("opcache.preload = {}/preload.php\n", dir.path().display()),
    );
    fs::write(dir.path().join("preload.php"), "<?php class Greeting {}").expect("script");
    let sites = start("max = 4", &format!("php_ini = \"{}\"\n", ini.display()));
    sites
        .daemon
        .wait_for("PHP can't be started once for all pools: php.ini has opcache.preload");
    for (user, name) in ["shop", "blog"].into_iter().enumerate() {
        sites.add(name, user, &[("index.php", SHOP)]);
        let (_, uid) = USERS[user];
        assert_eq!(who(&sites, name).0, format!("{uid} {uid}"));
    }
    wait_until("a preloader of each", || {
        let mut names: Vec<String> = preloaders(&sites).into_iter().map(|(_, name)| name).collect();
        names.sort_unstable();
        names == ["sites:blog", "sites:shop"]
    });
}

#[test]
fn php_applications_have_preloaders_of_their_own_if_the_pool_says_so() {
    let sites = start("max = 4", "preloader = \"own\"\n");
    sites.add("shop", 0, &[("index.php", SHOP)]);
    who(&sites, "shop");
    assert_eq!(
        preloaders(&sites)
            .into_iter()
            .map(|(_, name)| name)
            .collect::<Vec<_>>(),
        ["sites:shop"]
    );
}
