//! Pools of two users: neither can get at anything of the other.

use super::needs_root;
use crate::support::daemon::{Daemon, make_writable, pool};
use crate::support::until;
use std::collections::BTreeSet;
use std::fs;

const PHP: &str = "runtime = \"php\"\nversion = \"8.2\"\n";
const STATIC: &str = "pm = \"static\"\nmax_children = 1\nstatus_path = \"/status\"\n";

fn two_pools(more: &str) -> Daemon {
    let daemon = Daemon::start_logged(
        |dir| {
            let one = format!("user = \"www-data\"\n{STATIC}{more}");
            let two = format!("user = \"nobody\"\n{STATIC}{more}env = {{ SECRET = \"of-the-second\" }}\n");
            pool(dir, "one", &one, PHP) + &pool(dir, "two", &two, PHP)
        },
        "daemon.log",
    );
    daemon.write("pid.php", "<?php echo getmypid();");
    daemon
}

fn pid(daemon: &Daemon, pool: &str) -> u32 {
    daemon.get(pool, "pid.php").body().parse().expect("a pid")
}

/// What a script of `one` gets at, of the processes given.
const SPY: &str = r#"<?php
$got = [];
foreach (explode(',', $_GET['pids']) as $pid) {
    foreach (['environ', 'mem', 'maps', 'smaps', 'stack', 'syscall', 'auxv', 'pagemap', 'io'] as $name) {
        $file = @fopen("/proc/$pid/$name", 'r');
        if ($file && @fread($file, 16) !== false && $name !== 'mem') { $got[] = "$pid/$name"; }
        if ($file && $name === 'mem') { $got[] = "$pid/mem"; }
        if (@fopen("/proc/$pid/$name", 'r+')) { $got[] = "$pid/$name for writing"; }
    }
    foreach (['fd', 'map_files', 'task/' . $pid . '/fd'] as $name) {
        foreach (@scandir("/proc/$pid/$name") ?: [] as $entry) {
            if ($entry[0] !== '.') { $got[] = "$pid/$name/$entry"; }
        }
    }
    foreach (['exe', 'cwd', 'root'] as $name) {
        if (@readlink("/proc/$pid/$name")) { $got[] = "$pid/$name"; }
    }
    if (posix_kill((int) $pid, 0)) { $got[] = "$pid may be killed"; }
}
// What it was given it has; but not the other ends of it, which opening it anew would be.
foreach (glob('/proc/self/fd/*') as $own) {
    $leads = @readlink($own);
    if (preg_match('/^(pipe|socket|.memfd)/', $leads)) {
        foreach (['r', 'w', 'r+'] as $way) { if (@fopen($own, $way)) { $got[] = "$own $leads $way"; } }
    }
}
foreach ([$_GET['log'], $_GET['config']] as $file) {
    if (@file_put_contents($file, 'x', FILE_APPEND)) { $got[] = "$file for writing"; }
}
if (@file_get_contents($_GET['log'])) { $got[] = $_GET['log']; }
$cached = array_keys(opcache_get_status()['scripts'] ?? []);
foreach ($cached as $script) { if (str_contains($script, 'secret')) { $got[] = "cached $script"; } }
echo json_encode($got);
"#;

#[test]
fn a_script_gets_at_nothing_of_another_pool_or_the_master() {
    if needs_root() {
        return;
    }
    let daemon = two_pools("");
    daemon.write("spy.php", SPY);
    let secret = daemon.write("secret.php", "<?php echo getenv('SECRET');");
    assert_eq!(daemon.get("two", "secret.php").body(), "of-the-second");
    let mut pids = vec![daemon.pid(), pid(&daemon, "two")];
    pids.extend(daemon.preloaders("one"));
    pids.extend(daemon.preloaders("two"));
    assert_eq!(pids.len(), 4, "the master, the other worker, both preloaders");
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let query = format!(
        "spy.php?pids={}&log={}&config={}",
        pids.join(","),
        daemon.dir.join("daemon.log").display(),
        daemon.dir.join("forkyard.toml").display()
    );
    let got = daemon.get("one", &query).body();
    let got: Vec<String> = serde_json::from_str(&got).unwrap_or_else(|error| panic!("{error}: {got}"));
    // The preloader of one's own pool has the same user; it may be signalled, and nothing else.
    let own = format!("{} may be killed", daemon.preloaders("one")[0]);
    let wrong: Vec<&String> = got.iter().filter(|what| **what != own).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(secret.exists());
    // A scoreboard of another pool is not on one's own status page.
    let page = daemon.get("one", "status?json&full").body();
    assert!(
        page.contains("\"pool\":\"one\"") && !page.contains("secret.php"),
        "{page}"
    );
}

/// What a process has open or mapped and another process could have, too: `KIND:[INODE]` of pipes and sockets, device
/// and inode of memory.
fn shareable(pid: u32) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("descriptors")
        .map_while(Result::ok)
    {
        let target = fs::read_link(entry.path())
            .unwrap_or_default()
            .display()
            .to_string();
        if target.starts_with("pipe:") || target.starts_with("socket:") {
            all.insert(target);
        } else if target.contains("memfd") || target.contains("ZendSem") {
            let data = fs::metadata(entry.path()).expect("stat");
            let identity = (
                std::os::unix::fs::MetadataExt::dev(&data),
                std::os::unix::fs::MetadataExt::ino(&data),
            );
            all.insert(format!("{identity:?}"));
        }
    }
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
    for line in maps.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // What nobody can write to is a file of the system.
        if fields[1].contains('w') && fields[1].ends_with('s') {
            all.insert(format!("mapped {} {}", fields[3], fields[4]));
        }
    }
    all
}

#[test]
fn two_pools_share_no_pipe_no_socket_and_no_memory() {
    if needs_root() {
        return;
    }
    let daemon = two_pools("catch_workers_output = true\n");
    let of = |pool: &str| {
        let worker = shareable(pid(&daemon, pool));
        let preloader = shareable(daemon.preloaders(pool)[0]);
        worker.union(&preloader).cloned().collect::<BTreeSet<_>>()
    };
    let (one, two) = (of("one"), of("two"));
    // OPcache's memory, the scoreboard, and the descriptors of the worker contract.
    assert!(
        one.iter().filter(|name| name.starts_with("mapped")).count() >= 2,
        "{one:?}"
    );
    assert!(one.len() >= 8, "{one:?}");
    let common: Vec<&String> = one.intersection(&two).collect();
    assert!(common.is_empty(), "{common:?}");
}

/// A scoreboard's other pages can't be had by its descriptors: a worker has none any more.
#[test]
fn a_worker_has_no_descriptor_of_its_scoreboard_or_of_another_worker() {
    if needs_root() {
        return;
    }
    let daemon = two_pools("");
    let worker = pid(&daemon, "one");
    let boards = || {
        let entries = fs::read_dir(format!("/proc/{worker}/fd")).expect("descriptors");
        let targets = entries
            .map_while(Result::ok)
            .filter_map(|e| fs::read_link(e.path()).ok());
        targets
            .filter(|target| target.to_string_lossy().contains("memfd:forkyard"))
            .count()
    };
    until("no descriptor of the scoreboard", || {
        (boards() == 0).then_some(())
    });
}

#[test]
fn files_that_pools_must_not_touch_are_closed_to_them() {
    if needs_root() {
        return;
    }
    let daemon = two_pools("");
    // Even where the directory is everybody's.
    make_writable(&daemon.dir);
    let data = fs::metadata(daemon.dir.join("daemon.log")).expect("log");
    let mode = std::os::unix::fs::PermissionsExt::mode(&data.permissions());
    assert_eq!(mode & 0o777, 0o600);
}
