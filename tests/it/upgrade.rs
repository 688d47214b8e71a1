//! Upgrade in place: another program takes over, and clients do not notice.

use crate::support::prelude::*;

const STATIC: &str = "pm = \"static\"\nmax_children = 3\nreload = \"always\"\n";

struct Installed {
    daemon: Daemon,
}

impl Installed {
    fn start(settings: &str) -> Installed {
        Installed::start_with(|_| settings.to_owned())
    }

    fn start_with(settings: impl FnOnce(&Path) -> String) -> Installed {
        let configure = |dir: &Path| with_control(dir) + &php_pool(dir, &settings(dir), "");
        let daemon = Daemon::start_by(configure, installed);
        daemon.write("pid.php", "<?php echo getmypid();");
        daemon.write(
            "hold.php",
            "<?php touch(__DIR__ . '/begun'); while (!file_exists($_GET['until'])) { usleep(2000); clearstatcache(); } echo 'held';",
        );
        Installed { daemon }
    }

    fn hold(&self) -> Client {
        let daemon = &self.daemon;
        let query = format!("until={}", daemon.dir.join("go").display());
        daemon.send("www", &Params::get(&daemon.dir, "hold.php", &query))
    }

    fn assert_refused(&self, text: &str) {
        let before = self.daemon.wait_for_workers("www", 3);
        let mut held = self.hold();
        self.daemon.signal(Signal::SIGUSR2);
        let line = self
            .daemon
            .wait_for("the new program can't take over, this one goes on");
        assert!(line.contains(text), "{line}");
        self.daemon.wait_for("the new workers serve");
        assert_eq!(process::title(self.daemon.pid()), self.title());
        fs::write(self.daemon.dir.join("go"), "").expect("go");
        assert_eq!(held.answer().expect("answer").body(), "held");
        assert!(self.daemon.get("www", "pid.php").ended);
        wait_until("the old workers to leave", || {
            let now = self.daemon.workers("www");
            now.iter().all(|pid| !before.contains(pid))
        });
    }

    fn title(&self) -> String {
        let path = self.daemon.dir.join("forkyard.toml");
        format!("forkyard: master process ({})", path.display())
    }
}

pub(super) fn program(dir: &Path) -> PathBuf {
    dir.join("bin/forkyard")
}

/// Installs the program in a directory; returns the command that runs it there.
pub(super) fn installed(dir: &Path) -> Command {
    install(dir);
    let mut command = Command::new(program(dir));
    command.args(["run", "-c"]).arg(dir.join("forkyard.toml"));
    command
}

pub(super) fn install(dir: &Path) {
    fs::create_dir_all(dir.join("bin")).expect("mkdir");
    for path in [env!("CARGO_BIN_EXE_forkyard"), env!("CARGO_BIN_EXE_forkyard-php")] {
        let name = Path::new(path).file_name().expect("a name");
        let bytes = fs::read(path).expect("read");
        replace(&dir.join("bin").join(name), &bytes);
    }
}

fn replace(path: &Path, bytes: &[u8]) {
    let new = path.with_extension("new");
    write_program(&new, bytes);
    fs::rename(&new, path).expect("rename");
}

#[test]
fn another_program_takes_over_with_workers_and_requests() {
    let installed = Installed::start("pm = \"static\"\nmax_children = 3\n");
    let daemon = &installed.daemon;
    let before = daemon.wait_for_workers("www", 3);
    let mut held = installed.hold();
    let mut kept = daemon.client("www").kept();
    let params = Params::get(&daemon.dir, "pid.php", "");
    assert!(kept.request(&params, b"").expect("answer").ended);
    let inode = |pid: u32| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(format!("/proc/{pid}/exe"))
            .expect("executable")
            .ino()
    };
    let old_inode = inode(daemon.pid());
    install(&daemon.dir);
    daemon.reload_until("1 pools and 3 workers go on");
    daemon.wait_for("the new workers serve");
    assert_ne!(
        inode(daemon.pid()),
        old_inode,
        "the same process runs another program"
    );
    assert_eq!(process::title(daemon.pid()), installed.title());
    assert!(kept.request(&params, b"").expect("answer").ended);
    wait_until("the idle old workers to leave", || {
        let left = daemon
            .workers("www")
            .iter()
            .filter(|pid| before.contains(pid))
            .count();
        left == 1
    });
    fs::write(daemon.dir.join("go"), "").expect("go");
    assert_eq!(held.answer().expect("answer").body(), "held");
    daemon.wait_for_other_workers("www", 3, &before);
    install(&daemon.dir);
    daemon.signal(Signal::SIGUSR2);
    daemon.wait_for_count("the new workers serve", 2);
    assert!(kept.request(&params, b"").expect("answer").ended);
}

#[test]
fn a_pool_without_a_worker_serves_after_an_upgrade() {
    let installed = Installed::start("pm = \"ondemand\"\nmax_children = 3\n");
    let daemon = &installed.daemon;
    let ready = || {
        let mut command = Command::new(program(&daemon.dir));
        command.args(["health", "--ready", "-c"]);
        let output = command.arg(daemon.dir.join("forkyard.toml")).output();
        output.expect("forkyard").status.success()
    };
    wait_until("readiness", &ready);
    install(&daemon.dir);
    daemon.reload_until("taking over from process");
    daemon.wait_for_count("ready to handle connections", 2);
    wait_until("readiness after the upgrade", ready);
    assert!(daemon.get("www", "pid.php").ended);
}

#[test]
fn a_pool_that_was_used_lately_is_tried_after_an_upgrade() {
    let installed = Installed::start_with(|dir| {
        fs::create_dir(dir.join("conf.d")).expect("mkdir");
        format!(
            "pm = \"ondemand\"\nmax_children = 1\nprocess_idle_timeout = \"1s\"\n\
             env = {{ PHP_INI_SCAN_DIR = \":{}/conf.d\" }}\n",
            dir.display()
        )
    });
    let daemon = &installed.daemon;
    let reload = || {
        let mut command = Command::new(program(&daemon.dir));
        command
            .args(["reload", "-c"])
            .arg(daemon.dir.join("forkyard.toml"));
        let output = command.output().expect("forkyard");
        let text = text_of(&output.stdout);
        (
            output.status.code(),
            text + &String::from_utf8_lossy(&output.stderr),
        )
    };
    assert!(daemon.get("www", "pid.php").body().parse::<u32>().is_ok());
    wait_until("no worker", || daemon.workers("www").is_empty());
    for round in 1..=2 {
        assert_eq!(ordered(&installed).2, Some(0));
        daemon.wait_for_count("taking over from process", round);
    }
    let text = exited(Some(0), reload());
    assert!(text.contains("kept www"), "nothing has changed: {text}");
    let preload = daemon.write("preload.php", "<?php throw new Exception('no');");
    let ini = daemon.dir.join("conf.d/new.ini");
    fs::write(&ini, format!("opcache.preload = {}\n", preload.display())).expect("write");
    let text = exited(Some(70), reload());
    assert_contains(&text, "failed www: no new worker came up (error ");
    fs::remove_file(&ini).expect("remove");
    exited(Some(0), reload());
    assert!(daemon.get("www", "pid.php").body().parse::<u32>().is_ok());
}

#[test]
fn logs_are_opened_anew_for_workers_that_were_taken_over() {
    let dir = directory();
    let log = dir.path().join("access");
    let installed = Installed::start(&format!("{STATIC}access.log = \"{}\"\n", log.display()));
    let daemon = &installed.daemon;
    daemon.wait_for_workers("www", 3);
    let mut held = installed.hold();
    wait_until("the request to begin", || {
        fs::metadata(daemon.dir.join("begun")).is_ok()
    });
    install(&daemon.dir);
    daemon.reload_until("the new workers serve");
    let moved = dir.path().join("access.1");
    fs::rename(&log, &moved).expect("rename");
    daemon.signal(Signal::SIGUSR1);
    daemon.wait_for("access log file re-opened");
    fs::write(daemon.dir.join("go"), "").expect("go");
    assert_eq!(held.answer().expect("answer").body(), "held");
    until("the line in the new log", || {
        fs::read_to_string(&log).ok()?.contains("hold.php").then_some(())
    });
    assert!(!read_file(&moved).contains("hold.php"));
}

#[test]
fn signals_reach_the_program_that_took_over() {
    let mut installed = Installed::start(STATIC);
    installed.daemon.wait_for_workers("www", 3);
    install(&installed.daemon.dir);
    installed.daemon.signal(Signal::SIGUSR2);
    installed.daemon.wait_for("the new workers serve");
    installed.daemon.end(Signal::SIGQUIT);
    assert!(
        !installed.daemon.socket("www").exists(),
        "it knows which socket it is to remove"
    );
}

#[test]
fn a_program_that_fails_changes_nothing() {
    let installed = Installed::start(STATIC);
    replace(
        &program(&installed.daemon.dir),
        b"#!/bin/sh\necho broken >&2\nexit 1\n",
    );
    installed.assert_refused("ended with code 1, having said \"broken\"");
}

#[test]
fn a_program_that_says_nothing_changes_nothing() {
    let installed = Installed::start(STATIC);
    replace(&program(&installed.daemon.dir), b"#!/bin/sh\nexit 0\n");
    installed.assert_refused("did not say that it can take over");
}

#[test]
fn a_program_that_hangs_changes_nothing() {
    let installed = Installed::start(STATIC);
    replace(&program(&installed.daemon.dir), b"#!/bin/sh\nexec sleep 1000\n");
    installed.assert_refused("did not answer within");
}

#[test]
fn a_program_that_cannot_be_executed_changes_nothing() {
    let installed = Installed::start(STATIC);
    replace(&program(&installed.daemon.dir), b"no program");
    installed.assert_refused("execve");
}

fn surviving(pid: u32) -> BTreeSet<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("descriptors");
    let numbers = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        let text = fs::read_to_string(&path).ok()?;
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = u32::from_str_radix(flags.trim(), 8).ok()?;
        let number = path.file_name()?.to_str()?.parse().ok()?;
        (flags & nix::libc::O_CLOEXEC as u32 == 0).then_some(number)
    });
    numbers.collect()
}

#[test]
fn a_program_that_is_removed_meanwhile_changes_nothing() {
    let installed = Installed::start(STATIC);
    let real = installed.daemon.dir.join("bin/real");
    fs::rename(program(&installed.daemon.dir), &real).expect("rename");
    let script = format!("#!/bin/sh\nrm \"$0\"\nexec {} \"$@\"\n", real.display());
    replace(&program(&installed.daemon.dir), script.as_bytes());
    let before = surviving(installed.daemon.pid());
    installed.assert_refused("execve");
    installed.daemon.wait_for("the new program takes over");
    assert_eq!(
        surviving(installed.daemon.pid()),
        before,
        "nothing is passed on by accident"
    );
}

#[test]
fn a_wrong_configuration_is_found_before_the_old_program_is_gone() {
    let installed = Installed::start(STATIC);
    let daemon = &installed.daemon;
    let before = daemon.wait_for_workers("www", 3);
    install(&daemon.dir);
    fs::write(daemon.dir.join("forkyard.toml"), "[pool.www]\nmax_childern = 1\n").expect("configuration");
    daemon.signal(Signal::SIGUSR2);
    let line = daemon.wait_for("the new program can't take over, this one goes on");
    assert_contains(&line, "max_childern");
    daemon.wait_for("the old one stays in force");
    assert_eq!(daemon.workers("www"), before);
}

#[test]
fn without_the_document_the_sockets_are_taken_over() {
    let installed = Installed::start(STATIC);
    let daemon = &installed.daemon;
    let mut held = installed.hold();
    let real = daemon.dir.join("bin/real");
    fs::rename(program(&daemon.dir), &real).expect("rename");
    let script = format!(
        "#!/bin/bash\ncase \"$1\" in --can-take-over*) ;; *) eval \"exec $FORKYARD_HANDOVER</dev/null\"; unset FORKYARD_HANDOVER;; esac\nexec {} \"$@\"\n",
        real.display()
    );
    replace(&program(&daemon.dir), script.as_bytes());
    daemon.reload_until("unusable except for its sockets");
    daemon.wait_for_count("ready to handle connections", 2);
    assert!(daemon.get("www", "pid.php").ended);
    fs::write(daemon.dir.join("go"), "").expect("go");
    assert_eq!(held.answer().expect("answer").body(), "held");
    daemon.wait_for_workers("www", 3);
}

fn ordered(installed: &Installed) -> (String, String, Option<i32>) {
    let socket = installed.daemon.dir.join("control.sock");
    let output = Command::new(env!("CARGO_BIN_EXE_forkyard"))
        .args(["upgrade", "--socket"])
        .arg(socket)
        .output()
        .expect("forkyard");
    let text = |bytes: Vec<u8>| text_of(&bytes);
    (text(output.stdout), text(output.stderr), output.status.code())
}

#[test]
fn an_order_upgrades_and_is_answered_by_the_new_program() {
    let installed = Installed::start(STATIC);
    let daemon = &installed.daemon;
    daemon.wait_for_workers("www", 3);
    let mut held = installed.hold();
    let said = format!(
        "forkyard {} has taken over, pid {}\n",
        env!("CARGO_PKG_VERSION"),
        daemon.pid()
    );
    for round in 1..=2 {
        assert_eq!(ordered(&installed), (said.clone(), String::new(), Some(0)));
        daemon.wait_for_count("the new workers serve", round);
        install(&daemon.dir);
    }
    fs::write(daemon.dir.join("go"), "").expect("go");
    assert_eq!(held.answer().expect("answer").body(), "held");
}

#[test]
fn an_order_to_upgrade_to_a_program_that_fails_is_answered_so() {
    let installed = Installed::start(STATIC);
    let daemon = &installed.daemon;
    replace(&program(&daemon.dir), b"#!/bin/sh\nexit 1\n");
    let (output, errors, code) = ordered(&installed);
    assert_eq!((output.as_str(), code), ("", Some(70)), "{errors}");
    assert_contains(&errors, "the new program can't take over, the old one goes on");
    assert!(daemon.get("www", "pid.php").ended);
}

#[test]
fn the_new_program_has_the_reports_of_crashes() {
    let installed = Installed::start(STATIC);
    let daemon = &installed.daemon;
    daemon.write("dies.php", "<?php posix_kill(getmypid(), 11); sleep(60);");
    let dies = |count: usize| {
        let _answer = daemon
            .send("www", &Params::get(&daemon.dir, "dies.php", "a=1"))
            .answer();
        daemon.wait_for_count(", report ", count);
        let list = parsed(&daemon.shown(&["crashes", "--json"]));
        assert_eq!(list[0]["deaths"], count, "{list}");
        list
    };
    let before = dies(1);
    let id = before[0]["id"].as_str().expect("an id").to_owned();
    let report = daemon.shown(&["error", &id]);
    assert_eq!(ordered(&installed).2, Some(0));
    daemon.wait_for("the new workers serve");
    assert_eq!(parsed(&daemon.shown(&["crashes", "--json"])), before);
    assert_eq!(daemon.shown(&["error", &id]), report);
    dies(2);
}
