//! The keeper: clients do not notice that a master is killed.

use crate::support::prelude::*;
use forkyard_protocol::handover::document::Document;

const STATIC: &str = "pm = \"static\"\nmax_children = 3\nreload = \"always\"\n";

struct Kept {
    daemon: Daemon,
}

impl Kept {
    fn start(settings: &str) -> Kept {
        let daemon = Daemon::start_kept(|dir| php_pool(dir, settings, ""));
        daemon.write("pid.php", "<?php echo getmypid();");
        daemon.write(
            "hold.php",
            "<?php while (!file_exists($_GET['until'])) { usleep(2000); clearstatcache(); } echo 'held';",
        );
        Kept { daemon }
    }

    fn keeper(&self) -> u32 {
        self.daemon.pid()
    }

    fn master(&self) -> u32 {
        self.daemon.kept_master()
    }

    fn workers(&self) -> Vec<u32> {
        let own = process::children(self.keeper());
        let others = own.iter().flat_map(|pid| process::children(*pid));
        let all = own.iter().copied().chain(others);
        all.filter(|pid| process::title(*pid) == "forkyard: pool www" && process::runs(*pid))
            .collect()
    }

    fn wait_for_workers(&self, count: usize) -> Vec<u32> {
        until("workers", || Some(self.workers()).filter(|it| it.len() == count))
    }

    fn wait_until_known(&self, count: usize) -> Vec<u32> {
        until_known(self.keeper(), count);
        self.wait_for_workers(count)
    }

    fn hold(&self) -> Client {
        let query = format!("until={}", self.daemon.dir.join("go").display());
        let params = Params::get(&self.daemon.dir, "hold.php", &query);
        self.daemon.send("www", &params)
    }

    fn release(&self, mut held: Client) {
        fs::write(self.daemon.dir.join("go"), "").expect("go");
        assert_eq!(held.answer().expect("answer").body(), "held");
    }

    /// Waits until only new workers are left, all children of the master.
    fn wait_for_new_workers(&self, before: &[u32]) {
        wait_until("new workers only", || {
            let now = process::children(self.master());
            let now: Vec<u32> = now
                .into_iter()
                .filter(|pid| process::title(*pid) == "forkyard: pool www")
                .collect();
            let all = self.workers();
            now.len() == 3 && all.len() == 3 && all.iter().all(|pid| !before.contains(pid))
        });
    }
}

/// Waits until the master's current handover document lists this many workers.
pub(super) fn until_known(keeper: u32, count: usize) {
    until("the document", || {
        let copies = ["handover-a", "handover-b"].map(|name| descriptor(keeper, name));
        let [first, second] = copies.map(|paths| fs::read(paths.first()?).ok());
        let document = Document::newest([&first?, &second?]).ok()?;
        let workers = document.generations.iter().map(|it| it.workers.len());
        (workers.sum::<usize>() >= count).then_some(())
    });
}

fn open_descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

fn descriptor(pid: u32, text: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors");
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths
        .filter(|path| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains(text)))
        .collect()
}

#[test]
fn a_killed_master_is_followed_by_another_that_knows_the_workers() {
    let kept = Kept::start(STATIC);
    let before = kept.wait_until_known(3);
    let held = kept.hold();
    let params = Params::get(&kept.daemon.dir, "pid.php", "");
    let mut client = kept.daemon.client("www").kept();
    assert!(client.request(&params, b"").expect("answer").ended);
    let master = kept.master();
    process::signal(master, Signal::SIGKILL);
    assert!(client.request(&params, b"").expect("answer").ended);
    kept.daemon.wait_for("1 pools and 3 workers go on");
    kept.daemon.wait_for("the new workers serve");
    assert!(client.request(&params, b"").expect("answer").ended);
    assert_ne!(kept.master(), master);
    kept.release(held);
    kept.wait_for_new_workers(&before);
    assert!(client.request(&params, b"").expect("answer").ended);
}

#[test]
fn a_master_s_death_is_in_the_error_log_in_its_format() {
    let dir = directory();
    let path = dir.path().to_owned();
    let configure = |log: &str| {
        let log = path.join(log);
        let global = format!(
            "[global]\nerror_log = \"{}\"\nlog_format = \"json\"\n",
            log.display()
        );
        let text = global + &php_pool(&path, STATIC, "");
        fs::write(path.join("forkyard.toml"), text).expect("configuration");
        log
    };
    let log = configure("error.log");
    let lines = |log: &Path, text: &str| -> Vec<Value> {
        let all = fs::read_to_string(log).unwrap_or_default();
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        all.lines()
            .filter(|line| line.contains(text))
            .map(parse)
            .collect()
    };
    let wait_for = |log: &Path, text: &str, count: usize| {
        until(&format!("{text} in {}", log.display()), || {
            let found = lines(log, text);
            (found.len() >= count).then(|| found[count - 1].clone())
        })
    };
    let kept = Kept {
        daemon: Daemon::launch(&path, forkyard(&["run", "--keeper"], &path)),
    };
    wait_for(&log, "ready to handle connections", 1);
    let kill = |log: &Path, ready: usize| {
        let master = kept.master();
        process::signal(master, Signal::SIGKILL);
        let line = wait_for(
            log,
            &format!("the master (pid {master}) ended on signal 9 (SIGKILL)"),
            1,
        );
        assert_has(&line, json!({"level": "error", "pid": kept.keeper()}));
        wait_for(log, "another master is started in", 1);
        wait_for(log, "ready to handle connections", ready);
    };
    kill(&log, 2);

    fs::rename(&log, path.join("error.log.1")).expect("rotate");
    kept.daemon.signal(Signal::SIGUSR1);
    wait_until("another file", || log.exists());
    kill(&log, 1);

    let other = configure("other.log");
    kept.daemon.signal(Signal::SIGUSR2);
    wait_for(&other, "the new workers serve", 1);
    kill(&other, 1);
    assert_lacks(&kept.daemon.log(), "ended on signal");
}

#[test]
fn workers_serve_while_there_is_no_master_at_all() {
    let kept = Kept::start(STATIC);
    kept.wait_until_known(3);
    process::signal(kept.keeper(), Signal::SIGSTOP);
    process::signal(kept.master(), Signal::SIGKILL);
    for _ in 0..20 {
        assert!(kept.daemon.get("www", "pid.php").ended);
    }
    let dead = kept.workers()[0];
    process::signal(dead, Signal::SIGKILL);
    // The kernel may wake a dying worker for a connection, and no other.
    wait_until("its end", || !process::runs(dead));
    for _ in 0..20 {
        assert!(kept.daemon.get("www", "pid.php").ended);
    }
    process::signal(kept.keeper(), Signal::SIGCONT);
    kept.daemon.wait_for("ended while there was no master");
    kept.daemon.wait_for("1 pools and 2 workers go on");
    kept.wait_for_workers(3);
    assert!(kept.daemon.get("www", "pid.php").ended);
}

#[test]
fn the_end_is_the_end() {
    for signal in [Signal::SIGTERM, Signal::SIGQUIT] {
        let mut kept = Kept::start(STATIC);
        let workers = kept.wait_for_workers(3);
        kept.daemon.signal(signal);
        assert!(kept.daemon.wait().success());
        assert!(!kept.daemon.socket("www").exists());
        assert!(!workers.iter().any(|pid| process::runs(*pid)));
    }
}

#[test]
fn a_wrong_configuration_at_the_start_is_an_error() {
    let dir = directory();
    fs::write(dir.path().join("forkyard.toml"), "[pool.www]\n").expect("configuration");
    let mut daemon = Daemon::launch(dir.path(), forkyard(&["run", "--keeper"], dir.path()));
    assert_eq!(daemon.wait().code(), Some(78));
}

#[test]
fn a_configuration_that_was_spoilt_meanwhile_does_not_end_the_service() {
    let kept = Kept::start(STATIC);
    kept.wait_until_known(3);
    write_file(
        kept.daemon.dir.join("forkyard.toml"),
        "[pool.www]\nmax_childern = 1\n",
    );
    process::signal(kept.master(), Signal::SIGKILL);
    kept.daemon.wait_for("the one before it stays in force");
    kept.daemon.wait_for("the new workers serve");
    assert!(kept.daemon.get("www", "pid.php").ended);
}

#[test]
fn a_reload_after_a_kill_and_a_kill_during_a_reload() {
    let kept = Kept::start(STATIC);
    kept.wait_until_known(3);
    let before = kept.wait_until_known(3);
    let held = kept.hold();
    let master = kept.master();
    process::signal(master, Signal::SIGUSR2);
    kept.daemon.wait_for("Reloading in progress");
    process::signal(master, Signal::SIGKILL);
    kept.daemon.wait_for_count("the new workers serve", 1);
    kept.daemon.signal(Signal::SIGUSR2);
    kept.daemon.wait_for_count("the new workers serve", 2);
    assert!(kept.daemon.get("www", "pid.php").ended);
    kept.release(held);
    kept.wait_for_new_workers(&before);
}

#[test]
fn masters_killed_while_they_make_workers_leave_none_behind() {
    let kept = Kept::start("pm = \"static\"\nmax_children = 12\n");
    for round in 2..=10 {
        wait_until("a worker of this master", || {
            let now = process::children(kept.master());
            now.iter().any(|pid| process::title(*pid) == "forkyard: pool www")
        });
        process::signal(kept.master(), Signal::SIGKILL);
        kept.daemon.wait_for_count("ready to handle connections", round);
        assert!(kept.daemon.get("www", "pid.php").ended);
    }
    kept.wait_until_known(12);
    wait_until("twelve workers, all of them the master's own", || {
        let now = process::children(kept.master());
        let own = now
            .iter()
            .filter(|pid| process::title(**pid) == "forkyard: pool www")
            .count();
        own == 12 && kept.workers().len() == 12
    });
    for _ in 0..20 {
        assert!(kept.daemon.get("www", "pid.php").ended);
    }
}

#[test]
fn a_spoilt_document_costs_the_workers_and_no_request() {
    let kept = Kept::start(STATIC);
    let before = kept.wait_until_known(3);
    let held = kept.hold();
    let master = kept.master();
    process::signal(master, Signal::SIGSTOP);
    for copy in descriptor(kept.keeper(), "handover-a")
        .into_iter()
        .chain(descriptor(kept.keeper(), "handover-b"))
    {
        let file = fs::File::options().write(true).open(copy).expect("copy");
        file.write_all_at(b"nonsense", 20).expect("write");
    }
    process::signal(master, Signal::SIGKILL);
    kept.daemon.wait_for("unusable except for its sockets");
    kept.daemon.wait_for_count("ready to handle connections", 2);
    assert!(kept.daemon.get("www", "pid.php").ended);
    kept.release(held);
    kept.wait_for_new_workers(&before);
}

#[test]
fn without_the_keeper_the_master_goes_on() {
    let mut kept = Kept::start(STATIC);
    let workers = kept.wait_for_workers(3);
    let master = kept.master();
    kept.daemon.signal(Signal::SIGKILL);
    let _ = kept.daemon.wait();
    assert!(process::runs(master));
    assert!(kept.daemon.get("www", "pid.php").ended);
    assert!(workers.iter().all(|pid| process::runs(*pid)));
    process::signal(master, Signal::SIGKILL);
    process::wait_for_ends(&workers);
}

#[test]
fn nothing_piles_up_in_keeper_and_master() {
    let kept = Kept::start(&format!("{STATIC}catch_workers_output = true\n"));
    let settle = || {
        kept.wait_until_known(3);
        wait_until("one preloader", || {
            let children = process::children(kept.master());
            let count = |title: &str| {
                children
                    .iter()
                    .filter(|pid| process::title(**pid) == title)
                    .count()
            };
            let preloaders = count("forkyard: preloader www") + count("forkyard: preloader zygote");
            preloaders == 1 && count("forkyard: pool www") == 3
        });
    };
    settle();
    let counts = || (open_descriptors(kept.keeper()), open_descriptors(kept.master()));
    let before = counts();
    for round in 1..=4 {
        process::signal(kept.master(), Signal::SIGKILL);
        kept.daemon.wait_for_count("the new workers serve", 2 * round - 1);
        process::signal(kept.master(), Signal::SIGUSR2);
        kept.daemon.wait_for_count("the new workers serve", 2 * round);
        settle();
    }
    wait_until("as many descriptors as before", || {
        let now = counts();
        now.0 <= before.0 && now.1 <= before.1
    });
    assert!(kept.daemon.get("www", "pid.php").ended);
}

#[test]
fn sockets_keep_their_files_over_an_upgrade_and_a_kill() {
    let settings = format!("{STATIC}status_path = \"/status\"\nstatus_listen = \"DIR/status.sock\"\n");
    let daemon = Daemon::start_kept(|dir| {
        with_control(dir) + "web = \"DIR/web.sock\"\n" + &php_pool(dir, &settings, "")
    });
    let files = ["status.sock", "web.sock", "www.sock", "control.sock"].map(|name| daemon.dir.join(name));
    until_known(daemon.pid(), 3);
    for count in 1..=2 {
        assert!(daemon.run(&["upgrade"]).status.success());
        until_known(daemon.pid(), 3);
        process::signal(daemon.kept_master(), Signal::SIGKILL);
        daemon.wait_for_count("1 pools and 3 workers go on", 2 * count);
        for file in &files {
            assert!(file.exists(), "{count} {}", file.display());
            until("a listener", || {
                std::os::unix::net::UnixStream::connect(file).ok()
            });
        }
    }
}
