//! Control groups, paths, system calls and /tmp: each closes what it says to a real script, or says what is missing.

use super::needs_root;
use crate::support::daemon::{Daemon, directory, forkyard, make_writable, pool};
use crate::support::process;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

const PHP: &str = "runtime = \"php\"\nversion = \"8.2\"\n";
const STATIC: &str = "pm = \"static\"\nmax_children = 1\n";

/// What `forkyard run` says when it does not start.
fn fails(settings: &str) -> String {
    let dir = directory();
    let file = dir.path().join("forkyard.toml");
    fs::write(
        &file,
        pool(dir.path(), "www", &format!("{STATIC}{settings}"), PHP),
    )
    .expect("write");
    let output = forkyard(&["run"], dir.path())
        .stdin(Stdio::null())
        .output()
        .expect("forkyard");
    assert!(!output.status.success());
    assert!(!dir.path().join("www.sock").exists(), "nothing is left behind");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a script in the only pool of a daemon with these settings.
fn run(settings: impl FnOnce(&Path) -> String, script: &str) -> (Daemon, String) {
    let daemon = Daemon::start(|dir| {
        make_writable(dir);
        pool(dir, "www", &format!("{STATIC}{}", settings(dir)), PHP)
    });
    daemon.write("script.php", script);
    let body = daemon.get("www", "script.php").body();
    (daemon, body)
}

fn has_landlock() -> bool {
    let missing = fs::read_to_string("/proc/sys/kernel/osrelease").is_err() || {
        use landlock::{ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr};
        let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        rules
            .handle_access(AccessFs::from_all(ABI::V1))
            .and_then(Ruleset::create)
            .is_err()
    };
    !missing
}

#[test]
fn paths_close_everything_else() {
    if !has_landlock() {
        let said = fails("confine.read = [\"/usr\"]\n");
        assert!(
            said.contains("[pool www] confine.read, confine.write: this kernel has no Landlock"),
            "{said}"
        );
        return;
    }
    let script = "<?php
        $own = __DIR__ . '/open/new';
        $did = ['write' => @file_put_contents($own, 'x'), 'read' => @file_get_contents($own),
            'config' => @file_get_contents(__DIR__ . '/closed/file'), 'list' => @scandir('/'),
            'beside' => @file_put_contents(__DIR__ . '/beside', 'x'),
            'passwd' => is_string(@file_get_contents('/etc/passwd')),
            'shadow-ish' => @file_get_contents('/etc/fstab'),
            'shell' => trim(shell_exec('cat ' . __DIR__ . '/closed/file 2>/dev/null || echo no')),
            'random' => strlen(random_bytes(4)), 'null' => @file_put_contents('/dev/null', 'x')];
        echo json_encode($did);";
    let settings = |dir: &Path| {
        fs::create_dir(dir.join("closed")).expect("mkdir");
        fs::write(dir.join("closed/file"), "secret").expect("write");
        fs::create_dir(dir.join("open")).expect("mkdir");
        make_writable(&dir.join("open"));
        fs::write(dir.join("script.php"), "").expect("write");
        let dir = dir.display();
        format!("confine = {{ read = [\"{dir}/script.php\"], write = [\"{dir}/open\"] }}\n")
    };
    let (daemon, body) = run(settings, script);
    let did: serde_json::Value =
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
    let wanted = serde_json::json!({
        "write": 1, "read": "x", "config": false, "list": false, "beside": false, "passwd": true,
        "shadow-ish": false, "shell": "no", "random": 4, "null": 1
    });
    assert_eq!(did, wanted);
    let worker = daemon.workers("www")[0];
    assert_eq!(process::status_line(worker, "NoNewPrivs").as_deref(), Some("1"));
}

#[test]
fn a_path_that_is_not_there_is_an_error() {
    let dir = directory();
    let file = dir.path().join("forkyard.toml");
    fs::write(
        &file,
        pool(
            dir.path(),
            "www",
            &format!("{STATIC}confine.write = [\"/no/such\"]\n"),
            PHP,
        ),
    )
    .expect("write");
    let output = forkyard(&["check"], dir.path()).output();
    let said = String::from_utf8_lossy(&output.expect("forkyard").stdout).into_owned();
    assert!(
        said.contains("confine.write: \"/no/such\" does not exist; make it, or leave it out"),
        "{said}"
    );
}

/// Each call by its number, from a program that the script starts: name, number, arguments.
const CALLS: &str = "
import ctypes, errno, json, os, platform
libc = ctypes.CDLL(None, use_errno=True)
x = platform.machine() == 'x86_64'
numbers = dict(ptrace=101 if x else 117, process_vm_readv=310 if x else 270, bpf=321 if x else 280,
    keyctl=250 if x else 219, userfaultfd=323 if x else 282, perf_event_open=298 if x else 241,
    unshare=272 if x else 97, mount=165 if x else 40, kexec_load=246 if x else 104, io_uring_setup=425,
    clone3=435, open_tree_attr=467, statmount=457, listmount=458, lsm_set_self_attr=460, quotactl_fd=443,
    process_mrelease=448)
result = {}
for name, number in numbers.items():
    argument = 0x10000000 if name == 'unshare' else 0
    ctypes.set_errno(0)
    libc.syscall(number, argument, 0, 0, 0, 0)
    result[name] = errno.errorcode.get(ctypes.get_errno(), 'none')
ctypes.set_errno(0)
pid = libc.syscall(56 if x else 220, 0x10000000 | 17, 0, 0, 0, 0)
if pid == 0: os._exit(0)
result['clone'] = errno.errorcode.get(ctypes.get_errno(), 'none')
if x:
    ctypes.set_errno(0)
    libc.syscall(0x40000000 | 101, 0, 0, 0, 0)
    result['x32'] = errno.errorcode.get(ctypes.get_errno(), 'none')
import socket, threading
for family in range(3, 50):
    if family in (socket.AF_INET6, socket.AF_NETLINK): continue
    for name, call in (('socket', libc.socket), ('socketpair', libc.socketpair)):
        ctypes.set_errno(0)
        pair = (ctypes.c_int * 2)()
        call(family, 1, 0, pair)
        result[f'{name} {family}'] = errno.errorcode.get(ctypes.get_errno(), 'none')
for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
    try: socket.socket(family, socket.SOCK_STREAM).close(); result[f'family {family}'] = 1
    except OSError as error: result[f'family {family}'] = errno.errorcode[error.errno]
done = []
thread = threading.Thread(target=lambda: done.append(1)); thread.start(); thread.join()
result['thread'] = len(done)
print(json.dumps(result))
";

#[test]
fn dangerous_system_calls_are_refused_and_everything_else_works() {
    if !Path::new("/proc/sys/kernel/seccomp/actions_avail").exists() {
        let said = fails("confine.deny_system_calls = true\n");
        assert!(
            said.contains("confine.deny_system_calls: this kernel has no system call filters"),
            "{said}"
        );
        return;
    }
    let script = "<?php echo shell_exec('python3 ' . __DIR__ . '/calls.py 2>&1');";
    let settings = |dir: &Path| {
        fs::write(dir.join("calls.py"), CALLS).expect("write");
        "confine.deny_system_calls = true\n".to_owned()
    };
    let (daemon, body) = run(settings, script);
    let got: std::collections::BTreeMap<String, serde_json::Value> =
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
    for (name, value) in &got {
        let wanted = match name.as_str() {
            "clone3" => serde_json::json!("ENOSYS"),
            "thread" => serde_json::json!(1),
            // The kernel here may be without IPv6.
            "family 10" if value != "EPERM" => value.clone(),
            family if family.starts_with("family ") => serde_json::json!(1),
            _ => serde_json::json!("EPERM"),
        };
        assert_eq!(*value, wanted, "{name} in {body}");
    }
    let worker = daemon.workers("www")[0];
    // Its workers are still the master's own children.
    assert_eq!(
        process::status_line(worker, "PPid"),
        Some(daemon.pid().to_string())
    );
    assert_eq!(process::status_line(worker, "Seccomp").as_deref(), Some("2"));
    assert_eq!(process::status_line(worker, "NoNewPrivs").as_deref(), Some("1"));
    // A worker that dies is replaced by the confined preloader.
    daemon.write("kill.php", "<?php posix_kill(getmypid(), 9); sleep(5);");
    let _ = daemon.get("www", "kill.php");
    daemon.wait_for("exited on signal 9");
    assert!(daemon.get("www", "script.php").body().contains("EPERM"));
}

/// A directory outside of /tmp.
struct Elsewhere(PathBuf);

impl Elsewhere {
    fn new() -> Elsewhere {
        let path = PathBuf::from(format!("/run/forkyard-test-{}", std::process::id()));
        fs::create_dir_all(&path).expect("mkdir");
        Elsewhere(path)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_private_tmp_is_seen_by_the_pool_alone() {
    if needs_root() {
        return;
    }
    let elsewhere = Elsewhere::new();
    let script = elsewhere.0.join("script.php");
    fs::write(
        &script,
        "<?php file_put_contents('/tmp/mine', 'x'); file_put_contents('/var/tmp/mine', 'x');
            echo json_encode([scandir('/tmp'), scandir('/var/tmp'), decoct(fileperms('/tmp'))]);",
    )
    .expect("write");
    let daemon = Daemon::start(|dir| {
        let private = format!("{STATIC}confine.private_tmp = true\n");
        pool(dir, "private", &private, PHP) + &pool(dir, "plain", STATIC, PHP)
    });
    let ask = |pool: &str| {
        let params = crate::support::fcgi::Params::get(&elsewhere.0, "script.php", "");
        daemon.client(pool).request(&params, b"").expect("answer").body()
    };
    let nothing_else = r#"[[".","..","mine"],[".","..","mine"],"41777"]"#;
    assert_eq!(ask("private"), nothing_else);
    assert!(!Path::new("/tmp/mine").exists() && !Path::new("/var/tmp/mine").exists());
    // The other pool, and the machine, have theirs.
    let plain = ask("plain");
    assert_ne!(plain, nothing_else);
    assert!(Path::new("/tmp/mine").exists());
    for place in ["/tmp/mine", "/var/tmp/mine"] {
        fs::remove_file(place).expect("unlink");
    }
    assert_eq!(ask("private"), nothing_else);
}

/// The place where cgroup2 is mounted, and whether all controllers can be had there.
fn cgroup2() -> Option<(PathBuf, bool)> {
    let mounts = fs::read_to_string("/proc/mounts").expect("mounts");
    let place = mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        (fields[2] == "cgroup2").then(|| PathBuf::from(fields[1]))
    })?;
    let all = fs::read_to_string(place.join("cgroup.controllers")).unwrap_or_default();
    let has = ["memory", "cpu", "pids"]
        .iter()
        .all(|name| all.split_whitespace().any(|one| one == *name));
    Some((place, has))
}

#[test]
fn a_control_group_limits_the_pool_or_says_which_controller_is_missing() {
    if needs_root() {
        return;
    }
    let said = fails("cgroup = { parent = \"/proc\", pids_max = 50 }\n");
    assert!(
        said.contains("[pool www] cgroup.parent: /proc: this is no group of cgroup v2"),
        "{said}"
    );
    let Some((place, has_all)) = cgroup2() else {
        crate::skip::skip("cgroup v2 is not mounted");
        return;
    };
    let parent = place.join(format!("forkyard-test-{}", std::process::id()));
    fs::create_dir(&parent).expect("a control group");
    let settings = |limits: &str| format!("cgroup = {{ parent = \"{}\"{limits} }}\n", parent.display());
    if !has_all {
        let said = fails(&settings(", pids_max = 50"));
        assert!(
            said.contains("[pool www] cgroup.pids_max: ") && said.contains("passes no controller pids on"),
            "{said}"
        );
    }
    let limits = if has_all {
        ", pids_max = 20, memory_max = \"512M\", cpu_percent = 50"
    } else {
        ""
    };
    let script = "<?php $made = 0; for ($i = 0; $i < 40; $i++) {
            $p = @proc_open(['sleep', '60'], [], $pipes); if (!$p) break; $all[] = $p; $made++; }
        foreach ($all as $p) { proc_terminate($p, 9); }
        echo $made, ' ', file_get_contents('/proc/self/cgroup');";
    let (mut daemon, body) = run(|_| settings(limits), script);
    let name = format!("0::/{}/www", parent.file_name().expect("a name").display());
    assert!(body.contains(&name), "{body}");
    // All of the pool is in it, and nobody else.
    let group = fs::read_to_string(parent.join("www/cgroup.procs")).expect("the group");
    let members: Vec<u32> = group.lines().filter_map(|pid| pid.parse().ok()).collect();
    for pid in daemon.workers("www").iter().chain(&daemon.preloaders("www")) {
        assert!(members.contains(pid), "{pid} in {members:?}");
    }
    assert!(!members.contains(&daemon.pid()));
    if has_all {
        let made: usize = body
            .split(' ')
            .next()
            .and_then(|n| n.parse().ok())
            .expect("a number");
        assert!(made < 20, "{body}");
        assert_eq!(
            fs::read_to_string(parent.join("www/cpu.max")).expect("cpu.max"),
            "50000 100000\n"
        );
    }
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(daemon.wait().success());
    assert!(!parent.join("www").exists(), "it is removed at the end");
    fs::remove_dir(&parent).expect("rmdir");
}

#[test]
fn a_hat_without_apparmor_is_an_error_that_says_so() {
    let enabled = fs::read_to_string("/sys/module/apparmor/parameters/enabled").unwrap_or_default();
    if enabled.trim() == "Y" {
        // No profile of the test's is loaded, so there is no hat to change to: its workers can't be made.
        let said = fails("apparmor_hat = \"no-such-hat\"\n");
        assert!(said.contains("failed to change to new confinement"), "{said}");
        return;
    }
    let said = fails("apparmor_hat = \"hat\"\n");
    assert!(
        said.contains("[pool www] apparmor_hat: failed to query apparmor confinement"),
        "{said}"
    );
    assert!(said.contains("AppArmor is not enabled in this kernel"), "{said}");
}

/// A chroot has neither /usr nor /proc: PHP is loaded before, and the steps that follow still work.
#[test]
fn all_of_it_goes_with_a_chroot() {
    if needs_root() || !has_landlock() {
        return;
    }
    let daemon = Daemon::start(|dir| {
        for name in ["jail", "jail/tmp", "jail/site", "jail/other"] {
            fs::create_dir(dir.join(name)).expect("mkdir");
        }
        make_writable(&dir.join("jail/tmp"));
        fs::write(dir.join("jail/tmp/outside"), "x").expect("write");
        fs::write(dir.join("jail/other/file"), "x").expect("write");
        let script = "<?php echo json_encode([@file_get_contents('/other/file'), scandir('/tmp'),
            file_put_contents('/tmp/new', 'x'), is_dir('/proc')]);";
        fs::write(dir.join("jail/site/script.php"), script).expect("write");
        let settings = format!(
            "{STATIC}chroot = \"{}/jail\"\nconfine = {{ read = [\"/site\"], write = [\"/tmp\"], private_tmp = true, \
             deny_system_calls = true }}\n",
            dir.display()
        );
        pool(dir, "www", &settings, PHP)
    });
    let params = crate::support::fcgi::Params::get(Path::new("/site"), "script.php", "");
    let body = daemon.client("www").request(&params, b"").expect("answer").body();
    assert_eq!(body, r#"[false,[".",".."],1,false]"#);
}
