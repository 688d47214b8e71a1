//! Preloaders and workers in the hands of an attacker: `hostile.py` in the place of forkyard-php.

use super::needs_root;
use crate::support::prelude::*;

const PHP: &str = "runtime = \"php\"\nversion = \"8.2\"\npreloader = \"own\"\n";
/// For silent preloaders. On a loaded machine the others may need longer.
const HASTY: &str = "runtime = \"php\"\nversion = \"8.2\"\npreloader = \"own\"\nstart_timeout = \"2s\"\n";
const QUIET: &str = "pm = \"static\"\nmax_children = 2\nstatus_path = \"/status\"\n";

fn hostile(dir: &Path, kind: &str, settings: &str) -> String {
    hostile_named(dir, kind, kind, settings)
}

fn hostile_named(dir: &Path, name: &str, kind: &str, settings: &str) -> String {
    // Routers of other tests are `nobody`, and the kernel counts descriptors in flight by user (unix(7), ETOOMANYREFS).
    let settings = format!(
        "user = \"games\"\n{settings}env = {{ HOSTILE = \"{kind}\", DIRECTORY = \"DIR\", PATH = \"/usr/bin:/bin\" }}\n"
    );
    let application = if matches!(kind, "nothing" | "deaf") {
        HASTY
    } else {
        PHP
    };
    pool(dir, name, &settings, application)
}

fn start(dir: &Path, configuration: &str) -> Daemon {
    let ours = Path::new(env!("CARGO_BIN_EXE_forkyard"));
    let program = dir.join("forkyard");
    if fs::hard_link(ours, &program).is_err() {
        crate::support::copy_program(ours, &program);
    }
    fs::write(dir.join("hostile.py"), include_str!("hostile.py")).expect("write");
    let wrapper = format!(
        "#!/bin/sh\n[ -z \"$HOSTILE\" ] || exec python3 '{}/hostile.py'\nexec '{}' \"$@\"\n",
        dir.display(),
        env!("CARGO_BIN_EXE_forkyard-php")
    );
    write_program(&dir.join("forkyard-php"), wrapper);
    fs::write(dir.join("forkyard.toml"), configuration).expect("write");
    fs::write(dir.join("ok.php"), "<?php echo 'fine';").expect("write");
    let mut command = Command::new(program);
    command.args(["run", "-c"]).arg(dir.join("forkyard.toml"));
    Daemon::launch(dir, command).ready()
}

fn assert_fine(daemon: &Daemon) {
    for _ in 0..5 {
        assert_eq!(daemon.get("quiet", "ok.php").body(), "fine");
    }
}

/// A script's leftover process of the quiet pool's user, adopted by the master.
fn orphan(daemon: &Daemon) -> u32 {
    daemon.write(
        "orphan.php",
        "<?php echo shell_exec('setsid sleep 120 >/dev/null 2>&1 & echo $!');",
    );
    let pid = daemon.get("quiet", "orphan.php").body();
    let pid: u32 = pid.trim().parse().expect("a pid");
    until("the orphan to be the master's", || {
        let parent = process::status_line(pid, "PPid")?;
        (parent == daemon.pid().to_string()).then_some(())
    });
    pid
}

struct Leftovers<'d>(&'d Path);

impl Leftovers<'_> {
    fn pids(&self) -> Vec<u32> {
        let names = fs::read_dir(self.0).expect("files").map_while(Result::ok);
        let pid = |name: &str| name.strip_prefix("leftover-")?.parse().ok();
        names
            .filter_map(|entry| pid(entry.file_name().to_str()?))
            .collect()
    }
}

impl Drop for Leftovers<'_> {
    fn drop(&mut self) {
        for pid in self.pids() {
            if process::title(pid).contains("hostile.py") {
                let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), Signal::SIGKILL);
            }
        }
    }
}

/// Waits until each worker's attack succeeded and the non-connections are in the queues.
fn wait_until_attacked(dir: &Path) {
    until("workers that had room in their queue", || {
        let names = fs::read_dir(dir).expect("files").map_while(Result::ok);
        let names: Vec<String> = names
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        if let Some(failed) = names.iter().find(|name| name.starts_with("failed-")) {
            panic!("{}", read_file(dir.join(failed)));
        }
        let sent = names.iter().filter_map(|name| {
            let (_, count) = name.strip_prefix("junk-")?.split_once('-')?;
            count.parse::<usize>().ok()
        });
        (sent.sum::<usize>() >= 21).then_some(())
    });
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("descriptors")
        .count()
}

fn reload_without(daemon: &Daemon, configuration: &str, gone: &[&str]) {
    fs::write(daemon.dir.join("forkyard.toml"), configuration).expect("write");
    daemon.signal(Signal::SIGUSR2);
    wait_until("the hostile pools to be closed", || {
        gone.iter().all(|pool| !daemon.socket(pool).exists())
    });
}

#[test]
fn a_hostile_preloader_gets_hold_of_nobody_and_stops_nobody() {
    skip_if!(needs_root());
    let dir = directory();
    let path = dir.path();
    let quiet = pool(path, "quiet", QUIET, PHP);
    let mut daemon = start(path, &quiet);
    let victims = daemon.wait_for_workers("quiet", 2);
    let orphan = orphan(&daemon);
    fs::write(path.join("victim"), victims[0].to_string()).expect("write");
    fs::write(path.join("orphan"), orphan.to_string()).expect("write");
    let before = descriptors(daemon.pid());

    let kinds = [
        "lies",
        "unasked",
        "descriptors",
        "endless",
        "noise",
        "nothing",
        "deaf",
        "chatter",
    ];
    let eight = "pm = \"static\"\nmax_children = 8\n";
    let all: String = kinds.iter().map(|kind| hostile(path, kind, eight)).collect();
    fs::write(path.join("forkyard.toml"), format!("{quiet}{all}")).expect("write");
    daemon.signal(Signal::SIGUSR2);

    let named = |pid: u32| format!("[pool lies] the preloader names process {pid}, which is no new child");
    for pid in [victims[0], orphan, daemon.pid(), 1] {
        daemon.wait_for(&named(pid));
    }
    let child = read_file(path.join("child"));
    daemon.wait_for(&named(child.parse().expect("a pid")));
    daemon.wait_for("[pool unasked] the preloader names a worker that it was not asked for");
    for kind in ["endless", "noise"] {
        daemon.wait_for(&format!("[pool {kind}] the preloader (pid "));
    }
    wait_until("descriptors to be sent", || path.join("sent").exists());
    daemon.wait_for("[pool chatter] preloader ");
    for kind in ["nothing", "deaf"] {
        wait_until("its preloader to be replaced or given up", || {
            daemon.log().contains(&format!("[pool {kind}] the preloader "))
        });
    }
    assert_fine(&daemon);
    assert!(process::runs(orphan), "another user's process was ended");

    reload_without(&daemon, &quiet, &kinds);
    for kind in kinds {
        wait_until("its preloader to be gone", || {
            daemon.own_preloaders(kind).is_empty()
        });
    }
    assert_fine(&daemon);
    assert!(process::runs(orphan), "another user's process was ended");
    wait_until("the master to have closed what it was sent", || {
        descriptors(daemon.pid()) <= before
    });
    process::signal(orphan, Signal::SIGKILL);
    daemon.end(Signal::SIGTERM);
}

#[test]
fn hostile_workers_and_what_they_leave_behind_stop_nobody() {
    skip_if!(needs_root());
    let dir = directory();
    let path = dir.path();
    let quiet = pool(path, "quiet", QUIET, PHP);
    // Fields of a slot that the master reads: idle, since when, how long a request has run.
    let all = hostile(
        path,
        "workers",
        "pm = \"static\"\nmax_children = 3\nrequest_terminate_timeout = \"1s\"\n",
    ) + &hostile_named(
        path,
        "dynamic",
        "workers",
        "pm = \"dynamic\"\nmax_children = 4\nmin_spare_servers = 1\nmax_spare_servers = 2\n\
             start_servers = 2\nrequest_terminate_timeout = \"1s\"\nprocess_idle_timeout = \"50ms\"\n",
    ) + &hostile_named(
        path,
        "ondemand",
        "workers",
        "pm = \"ondemand\"\nmax_children = 3\nprocess_idle_timeout = \"50ms\"\n",
    );
    let pools = ["workers", "dynamic", "ondemand"];
    let mut daemon = start(path, &format!("{quiet}{all}"));
    let waiting: Vec<_> = (0..3).map(|_| daemon.client("ondemand")).collect();
    daemon.wait_for_workers("quiet", 2);
    let leftovers = Leftovers(path);
    wait_until("processes that were left behind", || leftovers.pids().len() >= 9);
    assert_fine(&daemon);
    wait_until_attacked(path);
    // A leaving pool's output is read to the end, which has to have a limit.
    reload_without(&daemon, &quiet, &pools);
    drop(waiting);
    wait_until("the hostile workers to be gone", || {
        pools.iter().all(|pool| daemon.own_preloaders(pool).is_empty())
    });
    assert_fine(&daemon);
    daemon.wait_for_workers("quiet", 2);
    assert!(
        leftovers.pids().iter().any(|pid| process::runs(*pid)),
        "the flood was still on"
    );
    daemon.end(Signal::SIGTERM);
}
