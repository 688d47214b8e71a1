//! A pool's user calls any function of the C library, and still can't reach other pools.

use super::{STATIC, member, only_zygote, pid, shared_memory, user};
use crate::support::prelude::*;

/// Can call the C library, and has executable memory for machine code.
const ALMIGHTY: &str =
    ", ffi.enable = \"true\", opcache.jit_buffer_size = \"16M\", opcache.jit = \"tracing\"";

fn start() -> Daemon {
    let daemon =
        Daemon::start(|dir| member(dir, "a", STATIC, ALMIGHTY, "") + &member(dir, "b", STATIC, ALMIGHTY, ""));
    daemon.write("attack.php", include_str!("attack.php"));
    daemon.write("write.php", include_str!("write.php"));
    daemon.write("lock.php", include_str!("lock.php"));
    daemon.write("code.php", "<?php echo 'code';");
    daemon.write("pid.php", "<?php echo getmypid();");
    for name in ["a", "b"] {
        daemon.wait_for_workers(name, 2);
    }
    daemon
}

fn told<T: serde::de::DeserializeOwned>(daemon: &Daemon, pool: &str, script: &str) -> T {
    let answer = daemon.get(pool, script);
    serde_json::from_str(&answer.body()).unwrap_or_else(|_| {
        panic!(
            "{script}: {} {}",
            answer.text(),
            String::from_utf8_lossy(&answer.stderr)
        )
    })
}

#[test]
fn no_call_gets_at_a_process_of_another_pool_or_the_zygote() {
    skip_if!(needs_root());
    let daemon = start();
    daemon.write("secret.php", "<?php echo 'secret';");
    assert_eq!(daemon.get("b", "secret.php").body(), "secret");
    let mut pids = daemon.wait_for_workers("b", 2);
    pids.extend([daemon.pid(), only_zygote(&daemon)]);
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let query = format!("attack.php?pids={}&other={}", pids.join(","), user("b"));
    let said: Value = told(&daemon, "a", &query);
    assert_eq!(said["got"], json!([]));
    let control: Vec<&str> = said["control"]
        .as_array()
        .map(|all| all.iter().filter_map(|it| it.as_str()).collect())
        .unwrap_or_default();
    for what in [
        "ptrace 16902",
        "kill",
        "tgkill",
        "prlimit",
        "setpriority",
        "sched_setaffinity",
    ] {
        assert!(control.contains(&what), "{what}: {control:?}");
    }
    for what in [
        "pidfd_getfd 0",
        "fd/0",
        "pidfd_send_signal",
        "environ",
        "maps",
        "mem",
        "comm for writing",
        "exe",
    ] {
        assert!(control.contains(&what), "{what}: {control:?}");
    }
}

fn has_at(pid: u32, address: u64, text: &str) -> bool {
    let memory = File::open(format!("/proc/{pid}/mem")).expect("memory");
    let mut buffer = vec![0; text.len()];
    memory
        .read_exact_at(&mut buffer, address)
        .expect("the same layout");
    buffer == text.as_bytes()
}

#[test]
fn what_is_written_to_shared_memory_and_to_machine_code_is_seen_in_that_pool_alone() {
    skip_if!(needs_root());
    let daemon = start();
    let zygote = only_zygote(&daemon);
    let places: Vec<u64> = told(&daemon, "a", "write.php?text=written-by-a");
    assert!(places.len() >= 2, "OPcache's memory and the JIT's: {places:?}");
    for address in places {
        for worker in daemon.wait_for_workers("a", 2) {
            assert!(has_at(worker, address, "written-by-a"), "it is its pool's");
        }
        let mut others = daemon.wait_for_workers("b", 2);
        others.push(zygote);
        for other in others {
            assert!(!has_at(other, address, "written-by-a"), "{other}");
        }
        let before = daemon.wait_for_workers("b", 2);
        process::signal(before[0], Signal::SIGKILL);
        let later = until("another worker", || {
            let now = daemon.workers("b");
            let mut new = now.into_iter().filter(|pid| !before.contains(pid));
            new.next()
        });
        assert!(!has_at(later, address, "written-by-a"));
    }
    assert_eq!(daemon.get("b", "code.php").body(), "code");
}

#[test]
fn a_worker_that_holds_opcaches_lock_and_is_killed_holds_nobody_up() {
    skip_if!(needs_root());
    let daemon = start();
    let held = daemon.dir.join("held");
    let _client = daemon.send("a", &Params::get(&daemon.dir, "lock.php", ""));
    let holder: u32 = until("the lock", || fs::read_to_string(&held).ok()?.parse().ok());
    let compiled = |pool: &str, name: &str| {
        daemon.write(
            name,
            "<?php echo opcache_is_script_cached(__FILE__) ? 'cached' : 'not';",
        );
        daemon.get(pool, name);
        daemon.get(pool, name).body()
    };
    assert_eq!(compiled("b", "of_b.php"), "cached");
    process::signal(holder, Signal::SIGKILL);
    wait_until("its end", || !process::runs(holder));
    assert_eq!(compiled("a", "of_a.php"), "cached");
}

fn common_files(a: u32, b: u32) -> Vec<String> {
    const KCMP_FILE: i32 = 0;
    let numbers = |pid: u32| -> Vec<i32> {
        let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors");
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter_map(|name| name.parse().ok()).collect()
    };
    let mut found = Vec::new();
    for one in numbers(a) {
        for other in numbers(b) {
            // SAFETY: kcmp(2) takes numbers.
            #[expect(unsafe_code, reason = "no crate has kcmp(2)")]
            let order = unsafe { libc::syscall(libc::SYS_kcmp, a, b, KCMP_FILE, one, other) };
            let name = fs::read_link(format!("/proc/{a}/fd/{one}")).unwrap_or_default();
            if order == 0 && name.as_os_str() != "/dev/null" {
                found.push(format!("{one} = {other}: {}", name.display()));
            }
        }
    }
    found
}

#[test]
fn workers_of_two_pools_have_no_open_file_in_common_and_none_with_the_zygote() {
    skip_if!(needs_root());
    let daemon = start();
    for name in ["a", "b"] {
        pid(&daemon, name);
    }
    let (of_a, of_b) = (daemon.wait_for_workers("a", 2), daemon.wait_for_workers("b", 2));
    let zygote = only_zygote(&daemon);
    assert!(
        !common_files(of_a[0], of_a[1]).is_empty(),
        "a pool's workers have"
    );
    for one in &of_a {
        for other in &of_b {
            assert_eq!(common_files(*one, *other), Vec::<String>::new());
        }
    }
    for worker in of_a.iter().chain(&of_b) {
        wait_until("the zygote to let go of what it passed on", || {
            common_files(*worker, zygote).is_empty()
        });
        each(["forkyard settings", "ZendSem", "opcache_lock"], |name| {
            assert_eq!(super::apart::descriptors(*worker, name), Vec::<String>::new());
        });
    }
    let inodes = |pid: u32| shared_memory(pid).into_iter().map(|(inode, _)| inode);
    let of_zygote: Vec<String> = inodes(zygote).collect();
    assert!(
        of_a.iter()
            .chain(&of_b)
            .all(|pid| inodes(*pid).all(|inode| !of_zygote.contains(&inode)))
    );
}

#[test]
fn a_pools_memory_keeps_its_length_and_no_pool_uses_up_what_others_need() {
    skip_if!(needs_root());
    let daemon = Daemon::start(|dir| {
        let ondemand = "pm = \"ondemand\"\nmax_children = 3\nprocess_idle_timeout = \"1s\"\n";
        let values = ", ffi.enable = \"true\", opcache.memory_consumption = 16";
        let all = member(dir, "a", STATIC, values, "") + &member(dir, "b", ondemand, values, "");
        all.replace(&user("a").to_string(), "70901")
    });
    daemon.wait_for_workers("a", 2);
    let zygote = only_zygote(&daemon);
    daemon.write("pid.php", "<?php echo getmypid();");
    daemon.write(
        "grow.php",
        "<?php $c = FFI::cdef('int ftruncate(int fd, long length); int fcntl(int fd, int command, ...);
            int fallocate(int fd, int mode, long from, long bytes); long lseek(int fd, long to, int whence);');
        $said = [];
        foreach (scandir('/proc/self/fd') as $fd) {
            if (str_contains((string) @readlink(\"/proc/self/fd/$fd\"), 'memfd:forkyard php')) {
                $bytes = $c->lseek((int) $fd, 0, 2);
                // F_GET_SEALS; F_ADD_SEALS with F_SEAL_WRITE would keep the other workers from being made.
                $said[] = [$c->ftruncate((int) $fd, $bytes + 4096), $c->ftruncate((int) $fd, 4096),
                    $c->fallocate((int) $fd, 0, $bytes, 4096), $c->fcntl((int) $fd, 1034), $c->fcntl((int) $fd, 1033, 8)];
            }
        }
        echo json_encode($said);",
    );
    let grown: Vec<Vec<i32>> = told(&daemon, "a", "grow.php");
    assert_eq!(grown, [[-1, -1, -1, 7, -1]]);
    daemon.write(
        "bomb.php",
        "<?php $c = FFI::cdef('typedef struct { uint64_t soft, hard; } limit; int setrlimit(int resource, limit *to); int fork(); int pause(); int dup(int fd);');
        $limit = $c->new('limit'); $limit->soft = $limit->hard = 40;
        // RLIMIT_NPROC: the machine is to survive.
        if ($c->setrlimit(6, FFI::addr($limit)) !== 0) { exit('no limit'); }
        $pids = [];
        while (($pid = $c->fork()) > 0) { $pids[] = $pid; }
        if ($pid === 0) { while (true) { $c->pause(); } }
        for ($files = 0; $c->dup(0) >= 0; $files++) {}
        echo json_encode($pids);",
    );
    let bombs: Vec<u32> = told(&daemon, "a", "bomb.php");
    assert!(bombs.len() > 10, "{bombs:?}");
    for _ in 0..2 {
        let worker = pid(&daemon, "b");
        process::signal(worker, Signal::SIGKILL);
        wait_until("its end", || !process::runs(worker));
    }
    let before = daemon.workers("a");
    for worker in &before {
        process::signal(*worker, Signal::SIGKILL);
    }
    for bomb in &bombs {
        process::signal(*bomb, Signal::SIGKILL);
    }
    daemon.wait_for_other_workers("a", 2, &before);
    assert_eq!(only_zygote(&daemon), zygote);
}

#[test]
fn memory_of_the_systems_that_one_pool_has_made_is_not_opened_by_another() {
    skip_if!(needs_root());
    let daemon = start();
    let key = 0x0f0f_0000_u32 + std::process::id() % 0xffff;
    daemon.write(
        "make.php",
        "<?php $key = (int) $_GET['key'];
        $made = [shmop_open($key, 'c', 0600, 64), sem_get($key, 1, 0600), msg_get_queue($key, 0600)];
        echo json_encode(array_map(fn($it) => $it !== false, $made));",
    );
    daemon.write(
        "open.php",
        "<?php $key = (int) $_GET['key'];
        $open = [@shmop_open($key, 'a', 0, 0), @shmop_open($key, 'w', 0, 0), @sem_get($key, 1, 0600), @msg_send(msg_get_queue($key), 1, 'x')];
        echo json_encode(array_map(fn($it) => $it !== false, $open));",
    );
    daemon.write(
        "remove.php",
        "<?php $key = (int) $_GET['key'];
        shmop_delete(shmop_open($key, 'w', 0, 0)); sem_remove(sem_get($key)); msg_remove_queue(msg_get_queue($key));",
    );
    assert_eq!(
        daemon.get("a", &format!("make.php?key={key}")).body(),
        "[true,true,true]"
    );
    let of_b = daemon.get("b", &format!("open.php?key={key}")).body();
    let of_a = daemon.get("a", &format!("open.php?key={key}")).body();
    daemon.get("a", &format!("remove.php?key={key}"));
    assert_eq!(
        (of_a.as_str(), of_b.as_str()),
        ("[true,true,true,true]", "[false,false,false,false]")
    );
}

#[test]
fn copies_of_one_process_draw_different_random_numbers() {
    let daemon = start();
    daemon.write(
        "random.php",
        "<?php echo json_encode([mt_rand(), rand(), lcg_value(), bin2hex(random_bytes(8)), uniqid('', true), array_rand(range(0, 99999)),
            bin2hex(openssl_random_pseudo_bytes(8)), session_create_id()]);",
    );
    let mut seen: Vec<Vec<Value>> = Vec::new();
    for name in ["a", "b"].repeat(3) {
        seen.push(told(&daemon, name, "random.php"));
        let worker = pid(&daemon, name);
        process::signal(worker, Signal::SIGKILL);
        wait_until("its end", || !daemon.workers(name).contains(&worker));
    }
    for kind in 0..seen[0].len() {
        let mut all: Vec<String> = seen.iter().map(|drawn| drawn[kind].to_string()).collect();
        all.sort();
        let count = all.len();
        all.dedup();
        assert!(all.len() == count || kind == 5, "{kind}: {seen:?}");
    }
}

#[test]
fn the_user_of_zygotes_is_no_pools() {
    skip_if!(needs_root());
    let dir = directory();
    let text = member(dir.path(), "a", STATIC, "", "").replace(&user("a").to_string(), "65533");
    fs::write(dir.path().join("forkyard.toml"), text).expect("configuration");
    let output = forkyard(&["run"], dir.path()).output();
    let said = text_of(&output.expect("forkyard").stderr);
    let problem = "PHP is started for pools of all users as that one; choose another";
    assert_contains(&said, "[pool a] user: setuid 65533: ");
    assert_contains(&said, problem);
}
