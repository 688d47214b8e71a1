//! Workers of one zygote and of different users: nothing of the one is within reach of the other.

use super::{STATIC, member, only_zygote, pid, shared_memory, start, user};
use crate::support::prelude::*;

const JIT: &str = ", opcache.jit_buffer_size = \"16M\", opcache.jit = \"tracing\"";

#[test]
fn what_a_worker_shares_and_may_write_to_is_of_its_own_pool() {
    let daemon = start(STATIC, JIT);
    let zygote = shared_memory(only_zygote(&daemon));
    assert!(
        zygote.iter().any(|(_, permissions)| permissions == "r-xs"),
        "the JIT's buffer is not writable now, and is found: {zygote:?}"
    );
    let of = |pool: &str| daemon.wait_for_workers(pool, 2).into_iter().map(shared_memory);
    let inodes = |pool: &str| {
        let all = of(pool).flatten().map(|(inode, _)| inode);
        all.collect::<BTreeSet<String>>()
    };
    let (a, b) = (inodes("a"), inodes("b"));
    assert!(a.len() >= 2, "scoreboard and PHP's memory: {a:?}");
    assert_eq!(a.intersection(&b).count(), 0, "{a:?} {b:?}");
    for (inode, _) in &zygote {
        assert!(
            !a.contains(inode) && !b.contains(inode),
            "{inode} is the zygote's"
        );
    }
}

#[test]
fn workers_have_no_rights_and_the_zygote_has_none_in_effect() {
    skip_if!(needs_root());
    let daemon = start(STATIC, "");
    let zygote = only_zygote(&daemon);
    let line = |pid: u32, name: &str| process::status_line(pid, name).expect("a line").trim().to_owned();
    assert_eq!(line(zygote, "CapEff"), "0000000000000000");
    assert_eq!(line(zygote, "CapInh"), "0000000000000000");
    let kept = u64::from_str_radix(&line(zygote, "CapPrm"), 16).expect("a set");
    let wanted = 1 << 1 | 1 << 2 | 1 << 6 | 1 << 7 | 1 << 18 | 1 << 23 | 1 << 24;
    assert_eq!(kept & !wanted, 0, "{kept:x}");
    assert_eq!(line(zygote, "Uid"), "65533\t65533\t65533\t65533");
    assert_eq!(line(zygote, "Groups"), "");
    for name in ["a", "b"] {
        for worker in daemon.wait_for_workers(name, 2) {
            daemon.get(name, "code.php");
            for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
                assert_eq!(line(worker, set), "0000000000000000", "{set}");
            }
            let id = user(name);
            for kind in ["Uid", "Gid"] {
                assert_eq!(line(worker, kind), format!("{id}\t{id}\t{id}\t{id}"));
            }
            assert_eq!(line(worker, "Groups"), id.to_string());
            assert_eq!(line(worker, "TracerPid"), "0");
        }
    }
}

pub(super) fn descriptors(pid: u32, text: &str) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors");
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let fitting =
        paths.filter(|path| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains(text)));
    fitting.map(|path| path.display().to_string()).collect()
}

/// Holds OPcache's locks, if the file has them, until its input ends.
const HOLD: &str = "
import fcntl, os, sys
files = [os.open(path, os.O_RDWR) for path in sys.argv[1:]]
for file in files:
    fcntl.lockf(file, fcntl.LOCK_EX)
print('held', flush=True)
sys.stdin.read()
";

#[test]
fn opcaches_lock_is_a_pools_own() {
    skip_if!(needs_root());
    let daemon = start(STATIC, "");
    let a = daemon.wait_for_workers("a", 2)[0];
    let locks = descriptors(a, "/memfd:forkyard php");
    assert_eq!(locks.len(), 1, "in place of OPcache's own");
    for name in ["ZendSem", "opcache_lock"] {
        assert_eq!(descriptors(a, name), Vec::<String>::new());
    }
    let mut holder = Command::new("/usr/bin/python3")
        .args(["-c", HOLD])
        .args(&locks)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(holder.stdout.take().expect("output")),
        &mut line,
    )
    .expect("a line");
    assert_eq!(line, "held\n");
    daemon.write(
        "other.php",
        "<?php echo opcache_is_script_cached(__FILE__) ? 'cached' : 'not';",
    );
    daemon.get("b", "other.php");
    assert_eq!(daemon.get("b", "other.php").body(), "cached");
    drop(holder.stdin.take());
    holder.wait().expect("the end");
}

fn has(pid: u32, text: &[u8]) -> bool {
    let memory = File::open(format!("/proc/{pid}/mem")).expect("memory");
    let maps = read_file(format!("/proc/{pid}/maps"));
    let mut places = maps.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let bytes = number(end)? - number(start)?;
        (rest.starts_with("rw") && bytes < 64 << 20).then_some((number(start)?, bytes as usize))
    });
    places.any(|(start, bytes)| {
        let mut buffer = vec![0; bytes];
        let read = memory.read_at(&mut buffer, start).unwrap_or(0);
        let mut rest = &buffer[..read];
        while rest.skip_until(text[0]).expect("memory") > 0 {
            if rest.starts_with(&text[1..]) {
                return true;
            }
        }
        false
    })
}

#[test]
fn what_is_a_pools_secret_is_in_no_other_workers_memory_nor_in_the_zygotes() {
    skip_if!(needs_root());
    let marker = |name: &str| format!("marker-of-pool-{name}-{}", std::process::id());
    let daemon = Daemon::start(|dir| {
        let one = |name: &str| {
            let settings = format!("{STATIC}env = {{ PASSWORD = \"{}-env\" }}\n", marker(name));
            let values = format!(", user_agent = \"{}-ini\"", marker(name));
            member(dir, name, &settings, &values, "")
        };
        one("a") + &one("b")
    });
    let (a, b) = (daemon.wait_for_workers("a", 2), daemon.wait_for_workers("b", 2));
    let zygote = only_zygote(&daemon);
    each(["env", "ini"], |kind| {
        let [of_a, of_b] = ["a", "b"].map(|name| format!("{}-{kind}", marker(name)));
        assert!(has(a[0], of_a.as_bytes()), "it is found where it is");
        for worker in &b {
            assert!(!has(*worker, of_a.as_bytes()), "{kind}");
        }
        for worker in &a {
            assert!(!has(*worker, of_b.as_bytes()), "{kind}");
        }
        assert!(!has(zygote, of_a.as_bytes()) && !has(zygote, of_b.as_bytes()));
    });
}

const SPY: &str = r#"<?php
$got = [];
foreach (explode(',', $_GET['pids']) as $pid) {
    foreach (['environ', 'mem', 'maps', 'smaps', 'stack', 'syscall', 'auxv', 'pagemap', 'io'] as $name) {
        $file = @fopen("/proc/$pid/$name", 'r');
        if ($file && ($name === 'mem' || @fread($file, 16) !== false)) { $got[] = "$pid/$name"; }
        if (@fopen("/proc/$pid/$name", 'r+')) { $got[] = "$pid/$name for writing"; }
    }
    foreach (['fd', 'map_files', "task/$pid/fd"] as $name) {
        foreach (@scandir("/proc/$pid/$name") ?: [] as $entry) {
            if ($entry[0] !== '.') { $got[] = "$pid/$name/$entry"; }
        }
    }
    foreach (['exe', 'cwd', 'root'] as $name) {
        if (@readlink("/proc/$pid/$name")) { $got[] = "$pid/$name"; }
    }
    if (posix_kill((int) $pid, 0)) { $got[] = "$pid may be killed"; }
}
foreach ([0, 65533, (int) $_GET['other']] as $uid) {
    if (@posix_setuid($uid) || @posix_seteuid($uid) || @posix_setgid($uid)) { $got[] = "becomes $uid"; }
}
foreach (array_keys(opcache_get_status()['scripts']) as $script) {
    if (str_contains($script, 'secret')) { $got[] = "cached $script"; }
}
echo json_encode($got);
"#;

#[test]
fn a_hostile_script_gets_at_nothing_of_another_pool_or_the_zygote() {
    skip_if!(needs_root());
    let daemon = start(STATIC, "");
    daemon.write("spy.php", SPY);
    daemon.write("secret.php", "<?php echo 'secret';");
    assert_eq!(daemon.get("b", "secret.php").body(), "secret");
    let pids = [daemon.pid(), pid(&daemon, "b"), only_zygote(&daemon)].map(|pid| pid.to_string());
    let query = format!("spy.php?pids={}&other={}", pids.join(","), user("b"));
    assert_eq!(daemon.get("a", &query).body(), "[]");
}

#[test]
fn neither_zygote_nor_worker_has_a_descriptor_of_another_pools() {
    let daemon = start(STATIC, "");
    let sockets = read_file("/proc/net/unix");
    let listening = |pool: &str| {
        let path = daemon.socket(pool).display().to_string();
        let mut own = sockets
            .lines()
            .filter(|line| line.ends_with(&path) && line.contains(" 00010000 "));
        let inode = own.next().and_then(|line| line.split_whitespace().nth(6));
        format!("socket:[{}]", inode.expect("a listening socket"))
    };
    let (a, b) = (listening("a"), listening("b"));
    for worker in daemon.wait_for_workers("a", 2) {
        assert_eq!(
            (descriptors(worker, &a).len(), descriptors(worker, &b).len()),
            (1, 0)
        );
    }
    for worker in daemon.wait_for_workers("b", 2) {
        assert_eq!(
            (descriptors(worker, &a).len(), descriptors(worker, &b).len()),
            (0, 1)
        );
    }
    let zygote = only_zygote(&daemon);
    // The last worker may be there before the zygote has closed the descriptors it passed on.
    wait_until(
        "the zygote to have no socket, no scoreboard and no pool's memory",
        || {
            let names = [a.as_str(), &b, "/memfd:forkyard "];
            names.iter().all(|name| descriptors(zygote, name).is_empty())
        },
    );
}

fn layout(pid: u32) -> Vec<String> {
    let maps = read_file(format!("/proc/{pid}/maps"));
    let names = ["/libc.so", "/libphp", "/memfd:forkyard php code"];
    let libraries = maps
        .lines()
        .filter(|line| names.iter().any(|name| line.contains(name)));
    libraries.map(str::to_owned).collect()
}

#[test]
fn an_own_preloader_has_an_address_layout_of_its_own() {
    let daemon = Daemon::start(|dir| {
        let pools = ["a", "b", "c"].map(|name| member(dir, name, STATIC, "", ""));
        let [a, b, c] = pools;
        a + &b + &c.replace("\"zygote\"", "\"own\"")
    });
    let [a, b, c] = ["a", "b", "c"].map(|name| layout(daemon.wait_for_workers(name, 2)[0]));
    assert!(a.len() >= 2, "{a:?}");
    assert_eq!(a, b, "what all share");
    assert_ne!(a, c);
}
