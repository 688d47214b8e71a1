//! Settings that rule out a shared start of PHP: pools fall back to their own preloaders, and the log gives the reason.

use super::{PHP, STATIC, member, user};
use crate::support::prelude::*;

pub(super) fn extension(dir: &Path, leaves: &str) -> PathBuf {
    let includes = Command::new(format!("php-config{PHP}"))
        .arg("--includes")
        .output()
        .expect("php-config");
    let includes = String::from_utf8(includes.stdout).expect("text");
    let path = dir.join("unfit.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/zygote/unfit.c");
    let done = Command::new("cc")
        .args([
            "-shared",
            "-fPIC",
            "-w",
            "-DCOMPILE_DL_UNFIT",
            &format!("-D{leaves}"),
        ])
        .args(includes.split_ascii_whitespace())
        .arg("-o")
        .arg(&path)
        .arg(source)
        .status();
    assert!(done.expect("cc").success(), "the extension can't be compiled");
    path
}

fn falls_back(values: &str, application: &str, why: &str) -> Daemon {
    let daemon = Daemon::start(|dir| {
        member(dir, "a", STATIC, values, application) + &member(dir, "b", STATIC, values, application)
    });
    daemon.write(
        "user.php",
        "<?php echo posix_getuid(), function_exists('told') ? told() : '';",
    );
    daemon.wait_for(&format!("PHP can't be started once for all pools: {why}"));
    each(["a", "b"], |name| {
        assert_starts(&daemon.get(name, "user.php").body(), &user(name).to_string());
        wait_until("its own preloader", || daemon.preloaders(name).len() == 1);
    });
    wait_until("the zygote to end", || daemon.preloaders("zygote").is_empty());
    daemon
}

#[test]
fn a_thread_is_none_that_could_be_forked() {
    let dir = directory();
    let extension = extension(dir.path(), "THREAD");
    let values = format!(", extension = \"{}\"", extension.display());
    falls_back(&values, "", "the extension unfit has started 1 threads");
}

#[test]
fn a_socket_would_be_everybodys() {
    let dir = directory();
    let extension = extension(dir.path(), "SOCKET");
    let values = format!(", extension = \"{}\"", extension.display());
    falls_back(&values, "", "the extension unfit has opened socket:");
}

#[test]
fn a_file_in_memory_would_be_everybodys() {
    let dir = directory();
    let file = dir.path().join("file");
    let extension = extension(dir.path(), &format!("MAPPED=\"{}\"", file.display()));
    fs::write(&file, "").expect("a file");
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o666)).expect("chmod");
    let values = format!(", extension = \"{}\"", extension.display());
    falls_back(
        &values,
        "",
        &format!("copy the shared mapping {}", file.display()),
    );
}

#[test]
fn a_zygote_that_ends_while_it_starts_costs_no_request() {
    let dir = directory();
    let values = format!(
        ", opcache.file_cache = \"{}\", opcache.file_cache_only = 1",
        dir.path().display()
    );
    falls_back(&values, "", "");
}

#[test]
fn a_preloaded_script_runs_as_its_pools_user_or_not_at_all() {
    let dir = directory();
    let (ini, script) = (dir.path().join("php.ini"), dir.path().join("preload.php"));
    fs::write(&script, "<?php function told() { return ' preloaded'; }").expect("a script");
    fs::write(&ini, format!("opcache.preload = {}\n", script.display())).expect("php.ini");
    let own = format!("php_ini = \"{}\"\n", ini.display());
    let daemon = falls_back("", &own, "php.ini has opcache.preload");
    let expected = format!("{} preloaded", user("a"));
    assert_eq!(daemon.get("a", "user.php").body(), expected);
}

#[test]
fn a_php_ini_that_only_the_pools_user_may_read_is_read_by_it_and_the_next_reload_tries_again() {
    skip_if!(needs_root());
    let dir = directory();
    let ini = dir.path().join("php.ini");
    fs::write(&ini, "memory_limit = 201M\n").expect("php.ini");
    fs::set_permissions(&ini, std::os::unix::fs::PermissionsExt::from_mode(0o640)).expect("chmod");
    chown(&ini, Some(user("a")), Some(user("b"))).expect("chown");
    let own = format!("php_ini = \"{}\"\n", ini.display());
    let why = format!("read {}: Permission denied", ini.display());
    let daemon = falls_back("", &own, &why);
    daemon.write("limit.php", "<?php echo ini_get('memory_limit');");
    assert_eq!(daemon.get("a", "limit.php").body(), "201M");
    fs::set_permissions(&ini, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("chmod");
    fs::write(&ini, "memory_limit = 202M\n").expect("php.ini");
    daemon.reload_until("reload done");
    wait_until("a zygote", || daemon.preloaders("zygote").len() == 1);
    assert_eq!(daemon.get("a", "limit.php").body(), "202M");
}

#[test]
fn the_status_says_which_pools_have_workers_of_a_zygote_and_why_others_have_none() {
    let daemon = Daemon::start(|dir| {
        let script = dir.join("preload.php");
        fs::write(&script, "<?php").expect("a script");
        let ini = dir.join("php.ini");
        fs::write(&ini, format!("opcache.preload = {}\n", script.display())).expect("php.ini");
        let preloads = format!("php_ini = \"{}\"\n", ini.display());
        with_control(dir)
            + &member(dir, "a", STATIC, "", "")
            + &member(dir, "b", STATIC, "", &preloads)
            + &member(dir, "c", STATIC, "", "").replace("\"zygote\"", "\"own\"")
    });
    for name in ["a", "b", "c"] {
        daemon.wait_for_workers(name, 2);
    }
    let status = |arguments: &[&str]| {
        let output = forkyard(&[&["status"], arguments].concat(), &daemon.dir).output();
        String::from_utf8(output.expect("forkyard").stdout).expect("text")
    };
    let zygote = super::process::children(daemon.pid())
        .into_iter()
        .find(|pid| super::process::title(*pid) == "forkyard: preloader zygote")
        .expect("a zygote");
    assert_contains(&status(&["a"]), &format!(", 2 workers, zygote {zygote}\n"));
    let of_b = status(&["b"]);
    let reason = "    has its own preloader and no zygote: php.ini has opcache.preload\n";
    assert_contains(&of_b, ", 2 workers, preloader ");
    assert_contains(&of_b, reason);
    let of_c = status(&["c"]);
    assert_contains(&of_c, ", 2 workers, preloader ");
    assert_lacks(&of_c, "zygote");
    let all: Value = serde_json::from_str(&status(&["--json"])).expect("JSON");
    let kinds = all["pools"].as_array().expect("pools").iter().map(|pool| {
        let generation = &pool["generations"][0];
        (generation["preloading"].as_str(), generation["unfit"].as_str())
    });
    let expected = [
        (Some("zygote"), None),
        (Some("own"), Some("php.ini has opcache.preload")),
        (Some("own"), None),
    ];
    assert_eq!(kinds.collect::<Vec<_>>(), expected, "{all:#}");
    let metrics = status(&["--metrics"]);
    for (name, kind) in [("a", "zygote"), ("b", "own"), ("c", "own")] {
        let line = metrics
            .lines()
            .find(|line| line.starts_with(&format!("forkyard_pool_info{{pool=\"{name}\",")));
        assert!(
            line.is_some_and(|line| line.contains(&format!(",preloader=\"{kind}\""))),
            "{name}: {metrics}"
        );
    }
}
