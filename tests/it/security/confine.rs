//! Control groups, paths, system calls and /tmp: each limit holds for a real script, or a message reports its absence.

use super::needs_root;
use crate::support::cgroup2;
use crate::support::prelude::*;
use nix::libc;

const STATIC: &str = "pm = \"static\"\nmax_children = 1\n";

fn fails(settings: &str) -> String {
    let dir = directory();
    let file = dir.path().join("forkyard.toml");
    write_file(
        &file,
        pool(dir.path(), "www", &format!("{STATIC}{settings}"), PHP),
    );
    let output = forkyard(&["run"], dir.path())
        .stdin(Stdio::null())
        .output()
        .expect("forkyard");
    assert!(!output.status.success());
    assert!(!dir.path().join("www.sock").exists(), "nothing is left behind");
    text_of(&output.stderr)
}

fn run(settings: impl FnOnce(&Path) -> String, script: &str) -> (Daemon, String) {
    let daemon = Daemon::start(|dir| pool(dir, "www", &format!("{STATIC}{}", settings(dir)), PHP));
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
    !crate::skip::skip_unless(!missing, "this kernel has no Landlock")
}

#[test]
fn paths_close_everything_else() {
    if !has_landlock() {
        let said = fails("confine.read = [\"/usr\"]\n");
        assert_contains(
            &said,
            "[pool www] confine.read, confine.write: this kernel has no Landlock",
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
        make_folder(&dir.join("open"));
        fs::write(dir.join("script.php"), "").expect("write");
        let dir = dir.display();
        format!("confine = {{ read = [\"{dir}/script.php\"], write = [\"{dir}/open\"] }}\n")
    };
    let (daemon, body) = run(settings, script);
    let did: Value = parsed(&body);
    let wanted = json!({
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
    write_file(
        &file,
        pool(
            dir.path(),
            "www",
            &format!("{STATIC}confine.write = [\"/no/such\"]\n"),
            PHP,
        ),
    );
    let output = forkyard(&["check"], dir.path()).output();
    let said = text_of(&output.expect("forkyard").stdout);
    assert_contains(
        &said,
        "confine.write: \"/no/such\" does not exist; make it, or leave it out",
    );
}

macro_rules! calls {
    ($($name:ident)*) => { vec![$((stringify!($name), libc::$name)),*] };
}

#[rustfmt::skip]
fn refused_calls() -> Vec<(&'static str, i64)> {
    let mut all = calls![
        SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_process_madvise SYS_kcmp SYS_pidfd_getfd
        SYS_process_mrelease SYS_bpf SYS_perf_event_open SYS_userfaultfd SYS_kexec_load SYS_kexec_file_load
        SYS_init_module SYS_finit_module SYS_delete_module SYS_syslog SYS_reboot SYS_acct SYS_swapon SYS_swapoff
        SYS_quotactl SYS_quotactl_fd SYS_personality SYS_lookup_dcookie SYS_nfsservctl SYS_vhangup
        SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register SYS_add_key SYS_request_key SYS_keyctl
        SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_move_mount SYS_open_tree SYS_fsopen SYS_fsconfig
        SYS_fsmount SYS_fspick SYS_mount_setattr SYS_unshare SYS_setns SYS_open_by_handle_at SYS_fanotify_init
        SYS_clock_settime SYS_settimeofday SYS_clock_adjtime SYS_adjtimex SYS_sethostname SYS_setdomainname
    ];
    all.extend([("statmount", 457), ("listmount", 458), ("lsm_set_self_attr", 460), ("open_tree_attr", 467)]);
    #[cfg(target_arch = "x86_64")]
    all.extend(calls![SYS_iopl SYS_ioperm SYS_modify_ldt SYS_uselib SYS__sysctl]);
    all
}

const CALLS: &str = "
import ctypes, errno, json, os, platform, signal, socket, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
x = platform.machine() == 'x86_64'
try: os.setsid()  # vhangup(2) hangs up the terminal of a session that has one.
except OSError: pass
result = {}
def attempt(name, call, *arguments):
    ctypes.set_errno(0)
    value = call(*arguments)
    result[name] = errno.errorcode.get(ctypes.get_errno(), 'none') if value == -1 else 'none'
    return value
def number(n): return ctypes.c_long(n)
for name, call in json.load(open(sys.argv[1])):
    wrong = [number(-1)] * 6
    attempt(name, libc.syscall, number(call), *wrong)
    if x: attempt(f'{name} (x32)', libc.syscall, number(0x40000000 | call), *wrong)
attempt('clone3', libc.syscall, number(435), *[number(-1)] * 6)
clone = 56 if x else 220
flags = dict(NEWNS=0x20000, NEWCGROUP=0x2000000, NEWUTS=0x4000000, NEWIPC=0x8000000, NEWUSER=0x10000000,
    NEWPID=0x20000000, NEWNET=0x40000000)
for name, flag in flags.items():
    pid = attempt(f'clone {name}', libc.syscall, number(clone), number(flag | signal.SIGCHLD), *[number(0)] * 4)
    if pid == 0: os._exit(0)
    if pid > 0: os.waitpid(pid, 0)
for family in range(3, 50):
    if family in (socket.AF_INET6, socket.AF_NETLINK): continue
    pair = (ctypes.c_int * 2)()
    attempt(f'socket {family}', libc.socket, family, 1, 0)
    attempt(f'socketpair {family}', libc.socketpair, family, 1, 0, pair)
for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
    try: socket.socket(family, socket.SOCK_STREAM).close(); result[f'family {family}'] = 'made'
    except OSError as error: result[f'family {family}'] = errno.errorcode[error.errno]
done = []
thread = threading.Thread(target=lambda: done.append(1)); thread.start(); thread.join()
result['thread'] = 'made' if done else 'none'
print(json.dumps(result))
";

#[test]
fn dangerous_system_calls_are_refused_and_everything_else_works() {
    if !Path::new("/proc/sys/kernel/seccomp/actions_avail").exists() {
        crate::skip::skip("this kernel has no system call filters");
        let said = fails("confine.deny_system_calls = true\n");
        assert_contains(
            &said,
            "confine.deny_system_calls: this kernel has no system call filters",
        );
        return;
    }
    skip_if!(needs_root());
    let daemon = Daemon::start(|dir| {
        let denied = format!("{STATIC}confine.deny_system_calls = true\n");
        "[global]\nallow_root = true\n".to_owned()
            + &pool(dir, "open", &format!("user = \"root\"\n{STATIC}"), PHP)
            + &pool(dir, "denied", &format!("user = \"root\"\n{denied}"), PHP)
            + &pool(dir, "www", &denied, PHP)
    });
    daemon.write("calls.py", CALLS);
    let numbers = serde_json::to_string(&refused_calls()).expect("JSON");
    daemon.write("calls.json", &numbers);
    daemon.write(
        "script.php",
        "<?php echo shell_exec('python3 ' . __DIR__ . '/calls.py ' . __DIR__ . '/calls.json 2>&1');",
    );
    let [open, denied, www] = ["open", "denied", "www"].map(|pool| -> BTreeMap<String, String> {
        let body = daemon.get(pool, "script.php").body();
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
    });
    let mut counted = 0;
    for (name, without) in &open {
        for with in [&denied[name], &www[name]] {
            let wanted = match name.as_str() {
                "clone3" => "ENOSYS",
                // The kernel may lack IPv6.
                name if name == "thread" || name.starts_with("family ") => without,
                _ => "EPERM",
            };
            assert_eq!(with, wanted, "{name}; without the filter {without}");
        }
        counted += usize::from(*without != denied[name]);
        assert_ne!(without, "EPERM", "{name} fails here in any case");
    }
    assert!(counted > 170, "{counted} calls were tried: {open:?}");
    let worker = daemon.workers("www")[0];
    assert_eq!(
        process::status_line(worker, "PPid"),
        Some(daemon.pid().to_string())
    );
    assert_eq!(process::status_line(worker, "Seccomp").as_deref(), Some("2"));
    assert_eq!(process::status_line(worker, "NoNewPrivs").as_deref(), Some("1"));
    daemon.write("kill.php", "<?php posix_kill(getmypid(), 9); sleep(5);");
    let _ = daemon.get("www", "kill.php");
    daemon.wait_for("exited on signal 9");
    assert!(daemon.get("www", "script.php").body().contains("EPERM"));
}

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
    skip_if!(needs_root());
    for place in ["/tmp/mine", "/var/tmp/mine"] {
        let _ = fs::remove_file(place);
    }
    let elsewhere = Elsewhere::new();
    let script = elsewhere.0.join("script.php");
    write_file(
        &script,
        "<?php file_put_contents('/tmp/mine', 'x'); file_put_contents('/var/tmp/mine', 'x');
            echo json_encode([scandir('/tmp'), scandir('/var/tmp'), decoct(fileperms('/tmp'))]);",
    );
    let daemon = Daemon::start(|dir| {
        let private = format!("{STATIC}confine.private_tmp = true\n");
        pool(dir, "private", &private, PHP) + &pool(dir, "plain", STATIC, PHP)
    });
    let ask = |pool: &str| {
        let params = Params::get(&elsewhere.0, "script.php", "");
        daemon.ask(pool, &params).body()
    };
    let nothing_else = r#"[[".","..","mine"],[".","..","mine"],"41777"]"#;
    assert_eq!(ask("private"), nothing_else);
    assert!(!Path::new("/tmp/mine").exists() && !Path::new("/var/tmp/mine").exists());
    assert_ne!(ask("plain"), nothing_else);
    assert!(Path::new("/tmp/mine").exists());
    for place in ["/tmp/mine", "/var/tmp/mine"] {
        fs::remove_file(place).expect("unlink");
    }
    assert_eq!(ask("private"), nothing_else);
}

#[test]
fn a_control_group_limits_the_pool_or_says_which_controller_is_missing() {
    skip_if!(needs_root());
    let said = fails("cgroup = { parent = \"/proc\", pids_max = 50 }\n");
    assert_contains(
        &said,
        "[pool www] cgroup.parent: /proc: this is no group of cgroup v2",
    );
    let Some((place, has_all)) = cgroup2(&["memory", "cpu", "pids"]) else {
        crate::skip::skip("cgroup v2 is not mounted");
        return;
    };
    let parent = place.join(format!("forkyard-test-{}", std::process::id()));
    fs::create_dir(&parent).expect("a control group");
    let settings = |limits: &str| format!("cgroup = {{ parent = \"{}\"{limits} }}\n", parent.display());
    if !has_all {
        let said = fails(&settings(", pids_max = 50"));
        assert_contains(&said, "[pool www] cgroup.pids_max: ");
        assert_contains(&said, "passes no controller pids on");
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
    let group = read_file(parent.join("www/cgroup.procs"));
    let members: Vec<u32> = group.lines().filter_map(|pid| pid.parse().ok()).collect();
    for pid in &daemon.workers("www") {
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
        assert_eq!(read_file(parent.join("www/cpu.max")), "50000 100000\n");
    }
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success());
    assert!(!parent.join("www").exists(), "it is removed at the end");
    fs::remove_dir(&parent).expect("rmdir");
}

#[test]
fn a_hat_without_apparmor_is_an_error_that_says_so() {
    let enabled = fs::read_to_string("/sys/module/apparmor/parameters/enabled").unwrap_or_default();
    let said = fails("apparmor_hat = \"no-such-hat\"\n");
    let wanted: &[&str] = match enabled.trim() {
        // The test has loaded no profile, so there is no hat to change to: workers can't start.
        "Y" => &["failed to change to new confinement"],
        _ => &[
            "[pool www] apparmor_hat: failed to query apparmor confinement",
            "AppArmor is not enabled in this kernel",
        ],
    };
    for text in wanted {
        assert!(said.contains(text), "{said}");
    }
}

/// A chroot has neither /usr nor /proc: PHP is loaded first, and later steps still work.
#[test]
fn all_of_it_goes_with_a_chroot() {
    skip_if!(needs_root() || !has_landlock());
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
            "{STATIC}chroot = \"DIR/jail\"\nconfine = {{ read = [\"/site\"], write = [\"/tmp\"], private_tmp = true, \
             deny_system_calls = true }}\n"
        );
        pool(dir, "www", &settings, PHP)
    });
    let params = Params::get(Path::new("/site"), "script.php", "");
    assert_eq!(daemon.ask("www", &params).body(), r#"[false,[".",".."],1,false]"#);
}
