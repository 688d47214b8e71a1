//! Each way to fail: the step, the summary, a refusal with the id, and afterwards nothing is left.

use super::{Broken, WELL_RACK, WELL_WSGI, id_of};

use crate::support::prelude::*;

const LOAD: &str = "SUBPROCESS_APP_LOAD_OR_EXEC";

#[test]
fn a_daemon_whose_only_pool_can_not_be_started_stays_and_tries_again() {
    for pm in [
        "pm = \"static\"\nmax_children = 1\n",
        "pm = \"dynamic\"\nmax_children = 2\nstart_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 1\n",
    ] {
        let broken = Broken::start("wsgi", "wsgi.py", "raise OSError('no database yet')\n", pm, "");
        let report = broken.report(&broken.refused());
        assert!(report.to_string().contains("no database yet"), "{report:#}");
        broken.heals("wsgi.py", WELL_WSGI);
    }
}

struct Case {
    source: &'static str,
    application: &'static str,
    step: &'static str,
    summary: &'static str,
    more: &'static str,
}

impl Case {
    const fn new(source: &'static str, summary: &'static str, more: &'static str) -> Case {
        Case {
            source,
            application: "",
            step: LOAD,
            summary,
            more,
        }
    }

    fn run(&self) {
        let broken = Broken::start("wsgi", "wsgi.py", self.source, "", self.application);
        let id = broken.refused();
        let line = broken.daemon.wait_for("the preloader can't start");
        for part in [self.step, self.summary, &format!("error {id}")] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        let report = broken.report(&id);
        let error = &report["error"];
        assert_eq!(error["step"], self.step);
        let summary = error["summary"].as_str().unwrap_or_default();
        assert!(summary.contains(self.summary), "{report:#}");
        let output = &report["diagnostics"]["subprocess"]["stdout_and_err"];
        let more = format!("{}{output}", error["aux_details"]);
        assert!(more.contains(self.more), "{report:#}");
        assert!(!error["solution_description"].is_null(), "{report:#}");
        broken.heals("wsgi.py", WELL_WSGI);
    }
}

#[test]
fn a_module_that_is_missing() {
    let summary = "ModuleNotFoundError: No module named 'a_module_that_is_missing'";
    Case::new(
        "import a_module_that_is_missing\n",
        summary,
        "line 1, in <module>",
    )
    .run();
}

#[test]
fn a_process_that_is_killed_while_it_loads() {
    let source = "import os\nprint('about to', flush=True)\nos.kill(os.getpid(), 9)\n";
    Case::new(source, "was killed by signal 9 (SIGKILL)", "about to").run();
}

#[test]
fn a_process_that_hangs_while_it_loads() {
    Case {
        application: "start_timeout = \"3s\"\n",
        step: "SPAWNING_KIT_HANDSHAKE_PERFORM",
        ..Case::new(
            "import time\nprint('waiting', flush=True)\nwhile True: time.sleep(1)\n",
            "took longer than 3 s to start",
            "waiting",
        )
    }
    .run();
}

#[test]
fn a_process_that_has_no_memory_left() {
    let source = "import resource\nresource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))\nx = b'x' * (1 << 30)\n";
    Case::new(source, "MemoryError", "line 3, in <module>").run();
}

#[test]
fn a_process_that_writes_ten_megabytes() {
    let source = "import sys\nfor n in range(100000): print('x' * 100)\nsys.exit('the last line')\n";
    Case::new(source, "SystemExit: the last line", "bytes left out").run();
}

#[test]
fn a_process_that_closes_its_standard_streams() {
    let source = "import os\nfor fd in 0, 1, 2: os.close(fd)\nos._exit(3)\n";
    Case::new(source, "exited with code 3", "").run();
}

#[test]
fn a_process_that_removes_its_work_directory() {
    let source = "import os, shutil\nshutil.rmtree(os.environ['FORKYARD_SPAWN_WORK_DIR'], ignore_errors=True)\n\
                  raise RuntimeError('on purpose')\n";
    Case {
        step: "SUBPROCESS_",
        ..Case::new(source, "RuntimeError: on purpose", "")
    }
    .run_without_directory();
}

impl Case {
    fn run_without_directory(&self) {
        let broken = Broken::start("wsgi", "wsgi.py", self.source, "", "");
        let id = broken.refused();
        let line = broken.daemon.wait_for("the preloader can't start");
        assert!(line.contains(self.summary) && line.contains(&id), "{line}");
        broken.heals("wsgi.py", WELL_WSGI);
    }
}

#[test]
fn an_interpreter_that_is_missing() {
    let broken = Broken::start("wsgi", "python", "", "", "interpreter = \"ROOT/python\"\n");
    let place = broken.root.path().join("python");
    fs::remove_file(&place).expect("remove");
    let id = broken.refused();
    let line = broken.daemon.wait_for("the preloader can't start");
    for part in ["SUBPROCESS_EXEC_WRAPPER", "No such file or directory", &id] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    let report = broken.report(&id);
    assert_eq!(report["error"]["category"], "FILE_SYSTEM_ERROR", "{report:#}");
    let solution = report["error"]["solution_description"].to_string();
    assert!(solution.contains("interpreter = "), "{report:#}");
    assert_contains(
        &report["diagnostics"]["subprocess"]["ulimits"].to_string(),
        "Max open files",
    );
    fs::write(broken.root.path().join("app.py"), WELL_WSGI).expect("write");
    symlink("/usr/bin/python3", &place).expect("symlink");
    broken.heals("app.py", WELL_WSGI);
}

#[test]
fn what_a_failed_start_has_left_running_is_ended() {
    let source = "import subprocess\n\
                  a = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n\
                  b = subprocess.Popen(['sleep', '1000'])\n\
                  open('ROOT/pids', 'w').write(f'{a.pid} {b.pid}')\n\
                  raise RuntimeError('and they stay')\n";
    let broken = Broken::start("wsgi", "wsgi.py", "", "", "");
    let source = source.replace("ROOT", &broken.root.path().display().to_string());
    fs::write(broken.root.path().join("wsgi.py"), source).expect("write");
    let id = until("a refusal for that", || {
        let id = id_of(&broken.ask());
        broken.daemon.log().contains("and they stay").then_some(id)
    });
    assert!(!id.is_empty());
    let pids = until("their pids", || {
        let text = fs::read_to_string(broken.root.path().join("pids")).ok()?;
        let pids: Vec<u32> = text.split(' ').filter_map(|pid| pid.parse().ok()).collect();
        (pids.len() == 2).then_some(pids)
    });
    wait_until("them to be ended", || pids.iter().all(|pid| !process::runs(*pid)));
    broken.heals("wsgi.py", WELL_WSGI);
}

#[test]
fn a_rack_application_that_raises() {
    let source = "def deep = raise(ArgumentError, 'no such thing')\ndeep\n";
    let broken = Broken::start("rack", "config.ru", source, "", "");
    let id = broken.refused();
    let line = broken.daemon.wait_for("the preloader can't start");
    for part in [LOAD, "no such thing (ArgumentError)", &id] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    let report = broken.report(&id);
    let details = report["error"]["aux_details"].as_str().unwrap_or_default();
    assert!(details.contains("config.ru:1:in `deep'"), "{report:#}");
    broken.heals("config.ru", WELL_RACK);
}

#[test]
fn a_gem_that_is_missing() {
    let broken = Broken::start("rack", "config.ru", WELL_RACK, "", "");
    let gemfile = broken.root.path().join("Gemfile");
    write_file(
        &gemfile,
        "source 'https://rubygems.org'\ngem 'nowhere-to-be-found'\n",
    );
    let id = broken.refused();
    let line = broken.daemon.wait_for("the preloader can't start");
    assert_contains(&line, "nowhere-to-be-found");
    assert_contains(&line, LOAD);
    let report = broken.report(&id);
    let solution = report["error"]["solution_description"].to_string();
    assert!(solution.contains("bundle install"), "{report:#}");
    fs::remove_file(&gemfile).expect("remove");
    fs::remove_file(broken.root.path().join("Gemfile.lock")).ok();
    broken.heals("config.ru", WELL_RACK);
}

#[test]
fn each_further_failure_has_an_id_of_its_own() {
    let broken = Broken::start("wsgi", "wsgi.py", "import one\n", "", "");
    let first = broken.refused();
    fs::write(broken.root.path().join("wsgi.py"), "import two\n").expect("write");
    let second = until("another failure", || {
        let id = broken.refused();
        (id != first).then_some(id)
    });
    let told = broken.report(&second)["error"]["summary"].to_string();
    assert!(told.contains("'two'") || told.contains("'one'"), "{told}");
    let tries = broken.daemon.log().matches("can't start").count();
    for _ in 0..50 {
        pause();
    }
    assert_eq!(broken.daemon.log().matches("can't start").count(), tries);
    broken.heals("wsgi.py", WELL_WSGI);
}

#[test]
fn failures_are_counted_as_long_as_there_is_a_pool_of_the_name() {
    let broken = Broken::start("wsgi", "wsgi.py", "import nothing_of_that_name\n", "", "");
    broken.refused();
    let said = |command: &[&str]| {
        let output = broken.daemon.run(command);
        String::from_utf8(output.stdout).expect("text")
    };
    let count = |pool: &str| -> Option<u64> {
        let status: Value = serde_json::from_str(&said(&["status", "--json"])).expect("JSON");
        let pools = status["pools"].as_array().expect("pools").clone();
        let pool = pools.into_iter().find(|it| it["name"] == pool)?;
        pool["failed_starts"].as_u64()
    };
    let before = count("www").expect("a count");
    assert!(before > 0);
    let config = broken.daemon.dir.join("forkyard.toml");
    let text = read_file(&config);
    let reload = |text: &str| {
        fs::write(&config, text).expect("write");
        said(&["reload"])
    };
    reload(&text.replace("www.sock", "moved.sock"));
    assert!(count("www") >= Some(before), "{:?} after {before}", count("www"));
    let other = text.replace("pool.www", "pool.other");
    reload(&other.replace("www.sock", "other.sock"));
    assert_eq!((count("www"), count("other")), (None, Some(0)));
    wait_until("the pool to be gone", || {
        broken.daemon.preloaders("www").is_empty()
    });
    reload(&text);
    assert_eq!(count("www"), Some(0));
}
