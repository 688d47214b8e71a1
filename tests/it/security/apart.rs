//! Pools of two users: neither can get at anything of the other.

use super::{needs_root, python_as};
use crate::support::prelude::*;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use std::os::unix::fs::OpenOptionsExt;

const PHP: &str = concat!(
    "runtime = \"php\"\nversion = \"",
    env!("FORKYARD_PHP"),
    "\"\npreloader = \"own\"\n"
);
const WWW_DATA: u32 = 33;
const STATIC: &str = "pm = \"static\"\nstatus_path = \"/status\"\n";

fn two_pools(children: u32, more: &str, global: impl Fn(&Path) -> String) -> Daemon {
    let daemon = Daemon::start_logged(
        |dir| {
            let settings = format!("{STATIC}max_children = {children}\n{more}");
            let one = format!("user = \"www-data\"\n{settings}");
            let two = format!("user = \"nobody\"\n{settings}env = {{ SECRET = \"of-the-second\" }}\n");
            global(dir) + &pool(dir, "one", &one, PHP) + &pool(dir, "two", &two, PHP)
        },
        "daemon.log",
    );
    daemon.write("pid.php", "<?php echo getmypid();");
    daemon
}

fn pid(daemon: &Daemon, pool: &str) -> u32 {
    daemon.get(pool, "pid.php").body().parse().expect("a pid")
}

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
foreach ([$_GET['log'], $_GET['config']] as $file) {
    if (@file_put_contents($file, 'x', FILE_APPEND)) { $got[] = "$file for writing"; }
}
if (@file_get_contents($_GET['log'])) { $got[] = $_GET['log']; }
$cached = array_keys(opcache_get_status()['scripts'] ?? []);
foreach ($cached as $script) { if (str_contains($script, 'secret')) { $got[] = "cached $script"; } }
echo json_encode($got);
"#;

/// Reopens the descriptors it was started with. PHP's fopen would open the file named by the link in /proc.
const REOPEN: &str = "
import sys
for number in sys.argv[1:]:
    for way in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
        try:
            os.open(f'/proc/self/fd/{number}', way | os.O_NONBLOCK)
            print(number, way)
        except PermissionError:
            pass
";

/// Pipes of a worker that a pool's user can reopen: this would give it their other ends.
fn reopened(worker: u32, uid: u32) -> String {
    let entries = fs::read_dir(format!("/proc/{worker}/fd")).expect("descriptors");
    let pipes: Vec<File> = entries
        .map_while(Result::ok)
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("pipe:")))
        .map(|entry| {
            let mut options = File::options();
            options.read(true).custom_flags(libc::O_PATH);
            options.open(entry.path()).expect("a pipe")
        })
        .collect();
    assert!(!pipes.is_empty(), "the stop pipe");
    for pipe in &pipes {
        fcntl(pipe, FcntlArg::F_SETFD(FdFlag::empty())).expect("fcntl");
    }
    let numbers: Vec<String> = pipes.iter().map(|pipe| pipe.as_raw_fd().to_string()).collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    let output = python_as(uid, REOPEN, &numbers);
    assert_success(&output);
    text_of(&output.stdout)
}

#[test]
fn a_script_gets_at_nothing_of_another_pool_or_the_master() {
    skip_if!(needs_root());
    let daemon = two_pools(1, "", |_| String::new());
    for pool in ["one", "two"] {
        daemon.wait_for_workers(pool, 1);
    }
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
    // The pool's own preloader has the same user: signals are allowed, nothing more.
    let own = format!("{} may be killed", daemon.preloaders("one")[0]);
    let wrong: Vec<&String> = got.iter().filter(|what| **what != own).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(secret.exists());
    assert_eq!(reopened(pid(&daemon, "one"), WWW_DATA), "");
    let page = daemon.get("one", "status?json&full").body();
    assert_contains(&page, "\"pool\":\"one\"");
    assert_lacks(&page, "secret.php");
}

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
    let maps = read_file(format!("/proc/{pid}/maps"));
    for line in maps.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if fields[1].contains('w') && fields[1].ends_with('s') {
            all.insert(format!("mapped {} {}", fields[3], fields[4]));
        }
    }
    all
}

#[test]
fn two_pools_share_no_pipe_no_socket_and_no_memory() {
    skip_if!(needs_root());
    let daemon = two_pools(1, "catch_workers_output = true\n", |_| String::new());
    let of = |pool: &str| {
        let worker = shareable(pid(&daemon, pool));
        let preloader = shareable(daemon.preloaders(pool)[0]);
        worker.union(&preloader).cloned().collect::<BTreeSet<_>>()
    };
    let (one, two) = (of("one"), of("two"));
    assert!(
        one.iter().filter(|name| name.starts_with("mapped")).count() >= 2,
        "{one:?}"
    );
    assert!(one.len() >= 8, "{one:?}");
    let common: Vec<&String> = one.intersection(&two).collect();
    assert!(common.is_empty(), "{common:?}");
}

/// The writable pages of scoreboards, each with its file.
fn own_pages(pid: u32) -> BTreeSet<(String, u64)> {
    let maps = read_file(format!("/proc/{pid}/maps"));
    let lines = maps.lines().filter(|line| line.contains("memfd:forkyard"));
    let fields = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
    let writable = fields.filter(|fields| fields[1].contains('w') && fields[1].ends_with('s'));
    writable
        .flat_map(|fields| {
            let number = |text: &str| u64::from_str_radix(text, 16).expect("a number");
            let (start, end) = fields[0].split_once('-').expect("a range");
            let file = format!("{} {}", fields[3], fields[4]);
            let first = number(fields[2]) / 4096;
            let pages = (number(end) - number(start)) / 4096;
            (first..first + pages).map(move |page| (file.clone(), page))
        })
        .collect()
}

/// A worker writes to its own page; its open descriptors give access to no other page and no other worker.
#[test]
fn a_worker_has_no_descriptor_of_its_scoreboard_or_of_another_worker() {
    skip_if!(needs_root());
    let daemon = two_pools(2, "catch_workers_output = true\n", |_| String::new());
    let [one, two] = ["one", "two"].map(|pool| daemon.wait_for_workers(pool, 2));
    let boards = |worker: u32| {
        let entries = fs::read_dir(format!("/proc/{worker}/fd")).expect("descriptors");
        let targets = entries
            .map_while(Result::ok)
            .filter_map(|e| fs::read_link(e.path()).ok());
        targets
            .filter(|target| target.to_string_lossy().contains("memfd:forkyard"))
            .count()
    };
    let all = || one.iter().chain(&two).copied();
    wait_until("no descriptor of the scoreboard", || {
        all().all(|worker| boards(worker) == 0)
    });
    let pages: Vec<BTreeSet<(String, u64)>> = all().map(own_pages).collect();
    // Workers of a pool share the gate page, behind the pages of the header and of two slots.
    let own: Vec<(String, u64)> = pages
        .iter()
        .flatten()
        .filter(|(_, page)| *page != 3)
        .cloned()
        .collect();
    let different: BTreeSet<&(String, u64)> = own.iter().collect();
    assert_eq!(own.len(), different.len(), "each has its own: {pages:?}");
    // The slot's page, the numbers, and the request that a signal ends.
    assert_eq!(own.len(), 4 * (1 + 6 + 4), "{pages:?}");
    let open = |worker: u32| {
        let all = shareable(worker).into_iter();
        all.filter(|name| name.starts_with("pipe:") || name.starts_with("socket:"))
            .collect::<BTreeSet<_>>()
    };
    let kinds = |names: &BTreeSet<String>| {
        ["socket:", "pipe:"].map(|kind| names.iter().filter(|name| name.starts_with(kind)).count())
    };
    for pool in [&one, &two] {
        let [first, second] = [open(pool[0]), open(pool[1])];
        let common: BTreeSet<String> = first.intersection(&second).cloned().collect();
        assert_eq!(kinds(&common), [5, 0], "{common:?}");
        for own in [&first - &common, &second - &common] {
            assert_eq!(kinds(&own), [2, 1], "{own:?}");
        }
    }
}

/// Tries to read, write and connect to the given files. Prints its pid, to show that one process answered.
const TRY: &str = r#"<?php
$did = [];
foreach (explode(',', $_GET['files']) as $file) {
    $did[$file] = '';
    if (@fopen($file, 'r')) { $did[$file] .= 'read '; }
    if (@fopen($file, 'a') || @fopen($file, 'r+')) { $did[$file] .= 'write '; }
    if (@scandir($file)) { $did[$file] .= 'list '; }
    if (@file_put_contents("$file/new", 'x')) { $did[$file] .= 'make '; }
    if (@chmod($file, 0666)) { $did[$file] .= 'chmod '; }
    if (@stream_socket_client("unix://$file")) { $did[$file] .= 'connect '; }
}
echo json_encode($did);
"#;

fn open_files(daemon: &Daemon) -> BTreeSet<String> {
    let entries = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("descriptors");
    let targets = entries
        .map_while(Result::ok)
        .filter_map(|e| fs::read_link(e.path()).ok());
    targets
        .filter(|target| target.is_absolute() && target.exists() && !target.starts_with("/dev"))
        .map(|target| target.display().to_string())
        .collect()
}

#[test]
fn files_that_pools_must_not_touch_are_closed_to_them() {
    skip_if!(needs_root());
    let logs =
        "access.log = \"DIR/$pool.access\"\nslowlog = \"DIR/$pool.slow\"\nrequest_slowlog_timeout = \"1s\"\n";
    let daemon = two_pools(1, logs, |dir| {
        format!(
            "pid = \"{0}/forkyard.pid\"\ncontrol = \"{0}/control.sock\"\n",
            dir.display()
        )
    });
    daemon.write("try.php", TRY);
    daemon.write("slow.php", "<?php sleep(2);");
    let _ = daemon.get("two", "slow.php");
    let slow = daemon.dir.join("two.slow");
    until("the slow request to be written down", || {
        fs::read_to_string(&slow).ok()?.contains("slow.php").then_some(())
    });
    let mut files: BTreeSet<String> = fs::read_dir(&daemon.dir)
        .expect("files")
        .map_while(Result::ok)
        .map(|entry| entry.path().display().to_string())
        .collect();
    files.extend(open_files(&daemon));
    let query = format!("files={}", files.iter().cloned().collect::<Vec<_>>().join(","));
    let params = Params::get(&daemon.dir, "try.php", &query);
    let body = daemon.ask("one", &params).body();
    let did: BTreeMap<String, String> =
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
    for name in [
        "daemon.log",
        "one.access",
        "two.access",
        "two.slow",
        "control.sock",
    ] {
        assert!(
            did.contains_key(&daemon.dir.join(name).display().to_string()),
            "{did:?}"
        );
    }
    for (file, rights) in &did {
        let name = file
            .strip_prefix(&format!("{}/", daemon.dir.display()))
            .unwrap_or(file);
        let wanted = match name {
            "one.sock" | "two.sock" => "connect ",
            "forkyard.pid" => "read ",
            "forkyard.toml" | "pid.php" | "try.php" | "slow.php" => "read ",
            _ => "",
        };
        assert_eq!(rights, wanted, "{file}");
    }
}
