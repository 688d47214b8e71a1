//! The state that a zygote's workers inherit, and how they exit.

use super::unfit::extension;
use super::{FRESH, ONDEMAND, PHP, STATIC, member, only_zygote, start};
use crate::support::prelude::*;

fn maps(pid: u32) -> String {
    read_file(format!("/proc/{pid}/maps"))
}

fn mappings(maps: &str) -> Vec<(&str, &str)> {
    let lines = maps.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        Some((words.nth(1)?, words.nth(3).unwrap_or_default()))
    });
    lines.collect()
}

#[test]
fn the_data_of_libraries_is_in_sealed_files_and_nothing_is_both_written_to_and_executed() {
    let daemon = start(STATIC, "");
    daemon.get("a", "code.php");
    for pid in [only_zygote(&daemon), daemon.wait_for_workers("a", 2)[0]] {
        let maps = maps(pid);
        let all = mappings(&maps);
        let is_library = |name: &str| name.contains(".so");
        assert!(all.iter().any(|(how, name)| *how == "r-xp" && is_library(name)));
        let written: Vec<_> = all
            .iter()
            .filter(|(how, name)| how.starts_with("rw") && is_library(name))
            .collect();
        assert!(written.is_empty(), "{written:?}");
        let data = |how: &str| {
            all.iter()
                .filter(|(it, name)| *it == how && name.starts_with("/memfd:forkyard"))
                .count()
        };
        assert!(data("r--p") > 10, "what was relocated is read-only: {maps}");
        assert!(data("rw-p") > 10, "{maps}");
        let both: Vec<_> = all.iter().filter(|(how, _)| how.starts_with("rwx")).collect();
        assert!(both.is_empty(), "{both:?}");
    }
}

#[test]
fn a_zygote_of_one_pool_prepares_for_many_workers_when_it_has_made_some() {
    let has_files = |daemon: &Daemon| maps(only_zygote(daemon)).contains("/memfd:forkyard php data");
    let one = |workers: usize| {
        let settings = format!("pm = \"static\"\nmax_children = {workers}\n");
        let daemon = Daemon::start(|dir| member(dir, "a", &settings, "", ""));
        daemon.write("code.php", "<?php echo 'code';");
        daemon.wait_for_workers("a", workers);
        assert_eq!(daemon.get("a", "code.php").body(), "code");
        daemon
    };
    assert!(!has_files(&one(2)));
    let many = one(10);
    wait_until("the zygote to be prepared", || has_files(&many));
    let zygote = only_zygote(&many);
    let before = many.wait_for_workers("a", 10);
    process::signal(before[0], Signal::SIGKILL);
    wait_until("a worker in its place", || {
        let now = many.workers("a");
        now.len() == 10 && !now.contains(&before[0])
    });
    assert_eq!(many.get("a", "code.php").body(), "code");
    assert_eq!(only_zygote(&many), zygote);
}

const FOUND: &str = "<?php
    $_GET['x'] = 1;
    echo json_encode([
        stream_get_wrappers(), stream_get_filters(), stream_get_transports(), array_keys($GLOBALS),
        count(get_defined_functions()['internal']), count(get_declared_classes()), count(get_defined_constants()),
        count(ini_get_all()), count(get_loaded_extensions()), $_GET, file_get_contents('data://text/plain,text'),
        chdir('/') && getcwd() === '/' && is_file('/etc/passwd') && is_readable('/etc') && file_exists('/etc'),
    ]), opcache_is_script_cached(__FILE__) ? ' cached' : ' not cached';";

#[test]
fn what_is_hidden_from_opcache_at_its_start_is_there_for_scripts() {
    let daemon = Daemon::start(|dir| {
        let own = format!("runtime = \"php\"\nversion = \"{PHP}\"\nphp_admin_value = {{ {FRESH} }}\n");
        member(dir, "a", STATIC, "", "") + &pool(dir, "own", STATIC, &own)
    });
    daemon.write("found.php", FOUND);
    for _ in 0..2 {
        let (a, own) = (
            daemon.get("a", "found.php").body(),
            daemon.get("own", "found.php").body(),
        );
        assert!(a.contains("php:") || a.contains("\"php\""), "{a}");
        assert_eq!(a, own);
    }
}

fn ends(dir: &Path, name: &str, extension: &Path, preloader: &str) -> String {
    let values = format!(", extension = \"{}\"", extension.display());
    let settings = format!("{ONDEMAND}max_requests = 1\n");
    member(dir, name, &settings, &values, "").replace("preloader = \"zygote\"", preloader)
}

#[test]
fn what_ends_with_a_worker_is_said_to_it() {
    for preloader in ["preloader = \"zygote\"", "preloader = \"own\""] {
        let dir = directory();
        let said = dir.path().join("said");
        fs::write(&said, "").expect("a file");
        fs::set_permissions(&said, fs::Permissions::from_mode(0o666)).expect("chmod");
        let extension = extension(dir.path(), &format!("GOODBYE=\"{}\"", said.display()));
        let daemon = Daemon::start(|dir| ends(dir, "a", &extension, preloader));
        daemon.write("keep.php", "<?php unfit_keep(); echo 'kept';");
        assert_eq!(daemon.get("a", "keep.php").body(), "kept");
        wait_until("the end of the worker", || {
            let text = read_file(&said);
            text == "connection\nmodule\n"
        });
    }
}
