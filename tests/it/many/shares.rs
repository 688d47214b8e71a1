//! `cpu_weight` and `memory_max`: by control groups if available, otherwise by limits of each process.

use super::member;
use crate::support::cgroup2;
use crate::support::prelude::*;

const SHARES: &str = "cpu_weight = 50\nmemory_max = \"256M\"\n";
const LOOK: &str = "<?php echo getmypid(), \"\\n\", file_get_contents('/proc/self/cgroup');";

struct Group(PathBuf);

impl Group {
    fn make(place: &Path, name: &str) -> Group {
        let group = place.join(format!("forkyard-{name}-{}", std::process::id()));
        fs::create_dir(&group).expect("a control group");
        Group(group)
    }

    fn members(&self, below: &str) -> Vec<u32> {
        let text = fs::read_to_string(self.0.join(below).join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|pid| pid.parse().ok()).collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for below in ["pools/p0", "pools", "p0", "daemon", ""] {
            let _ = fs::remove_dir(self.0.join(below));
        }
    }
}

fn status(dir: &Path) -> Value {
    let output = forkyard(&["status", "--json"], dir).output().expect("status");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn write(dir: &Path, more: &str) {
    let global = with_control(dir);
    fs::write(dir.join("forkyard.toml"), global + &member(dir, 0, more)).expect("configuration");
    fs::write(dir.join("look.php"), LOOK).expect("a script");
}

fn pid_and_group(daemon: &Daemon) -> (u32, String) {
    let body = daemon.get("p0", "look.php").body();
    let (pid, groups) = body.split_once('\n').expect("two lines");
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"));
    (pid.parse().expect("a pid"), own.unwrap_or_default().to_owned())
}

#[test]
fn without_groups_shares_are_nice_and_a_limit_and_the_status_says_why() {
    let dir = directory();
    write(dir.path(), SHARES);
    let daemon = Daemon::start_in(dir.path());
    let (pid, _) = pid_and_group(&daemon);
    let said = status(dir.path())["pools"][0]["shares"]
        .as_str()
        .expect("shares")
        .to_owned();
    let warned = daemon.log().contains("without control groups");
    if said.starts_with("control group") {
        assert!(!warned, "{}", daemon.log());
        return crate::skip::skip("this machine has groups for the daemon");
    }
    assert!(warned, "{}", daemon.log());
    let wanted = if is_root() { "nice 3, " } else { "nice 3" };
    assert_starts(&said, wanted);
    assert_contains(&said, "RLIMIT_DATA 268435456");
    assert_contains(&said, "without control groups: ");
    let limits = read_file(format!("/proc/{pid}/limits"));
    let data = limits
        .lines()
        .find(|line| line.starts_with("Max data size"))
        .expect("a limit");
    assert_contains(data, "268435456");
    if is_root() {
        let stat = read_file(format!("/proc/{pid}/stat"));
        let nice = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(16));
        assert_eq!(nice, Some("3"), "{stat}");
    }
    let text = forkyard(&["status", "p0"], dir.path()).output().expect("status");
    assert!(
        String::from_utf8_lossy(&text.stdout).contains("  shares: nice 3"),
        "{text:?}"
    );
}

#[test]
fn a_worker_of_a_zygote_is_in_its_pool_s_group() {
    if !is_root() {
        return crate::skip::skip("only root has control groups here");
    }
    let Some((place, _)) = cgroup2(&[]) else {
        return crate::skip::skip("cgroup v2 is not mounted");
    };
    let group = Group::make(&place, "zygote");
    let dir = directory();
    write(
        dir.path(),
        &format!("cgroup = {{ parent = \"{}\" }}\n", group.0.display()),
    );
    let mut daemon = Daemon::start_in(dir.path());
    let (pid, own) = pid_and_group(&daemon);
    assert!(own.ends_with("/p0"), "{own}");
    assert_eq!(group.members("p0"), [pid]);
    assert_lacks(&daemon.log(), "ERROR");
    let said = status(dir.path())["pools"][0]["shares"]
        .as_str()
        .expect("shares")
        .to_owned();
    assert_eq!(said, format!("control group {}", group.0.join("p0").display()));
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    wait_until("the workers leave", || group.members("p0").is_empty());
    let mut daemon = Daemon::start_in(dir.path());
    assert!(pid_and_group(&daemon).1.ends_with("/p0"));
    daemon.end(Signal::SIGTERM);
    assert!(!group.0.join("p0").exists(), "it is removed at the end");
}

/// With `Delegate=yes`, as systemd sets it: the daemon alone in its group.
#[test]
fn in_a_delegated_group_each_pool_has_one_of_its_own() {
    if !is_root() {
        return crate::skip::skip("only root has control groups here");
    }
    let Some((place, has_all)) = cgroup2(&["cpu", "memory"]) else {
        return crate::skip::skip("cgroup v2 is not mounted");
    };
    let group = Group::make(&place, "delegated");
    let dir = directory();
    write(dir.path(), SHARES);
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!(
        "echo $$ > {}/cgroup.procs && exec {} run -c {}/forkyard.toml",
        group.0.display(),
        env!("CARGO_BIN_EXE_forkyard"),
        dir.path().display()
    ));
    let mut daemon = Daemon::launch(dir.path(), command).ready();
    let (pid, own) = pid_and_group(&daemon);
    let said = status(dir.path())["pools"][0]["shares"]
        .as_str()
        .expect("shares")
        .to_owned();
    if !has_all {
        let wanted = format!("without control groups: {} has no controller", group.0.display());
        assert!(said.contains(&wanted), "{said}");
        assert!(group.members("").contains(&daemon.pid()), "it stays where it is");
        daemon.end(Signal::SIGTERM);
        return crate::skip::skip(
            "cgroup v2 has no controllers cpu and memory here: weights and limits were not tried",
        );
    }
    assert!(own.ends_with("/pools/p0"), "{own}");
    assert_eq!(group.members("pools/p0"), [pid]);
    assert!(group.members("daemon").contains(&daemon.pid()));
    assert!(process::runs(daemon.pid()));
    let value = |file: &str| read_file(group.0.join("pools/p0").join(file));
    assert_eq!(
        (value("cpu.weight").trim(), value("memory.max").trim()),
        ("50", "268435456")
    );
    assert_eq!(
        said,
        format!("control group {}", group.0.join("pools/p0").display())
    );
    daemon.end(Signal::SIGTERM);
    assert!(!group.0.join("pools").exists(), "it is removed at the end");
}
