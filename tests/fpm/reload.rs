//! What programs that watch php-fpm rely on: the lines of a reload, and the names of the processes.

use super::both::{STOCK, forkyard_fpm, without_time};
use super::pair::{Fpm, is_possible};
use crate::support::prelude::*;

const READY: &str = "ready to handle connections";

fn masked(line: &str, program: &str, port: &str) -> String {
    let line = without_time(line)
        .replace(program, "PROGRAM")
        .replace(port, "PORT");
    let mut text = String::new();
    for part in line.split_inclusive(' ') {
        let number = part.trim_start_matches("fd=").trim_end_matches([',', ' ']);
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        text.push_str(&if is_number {
            part.replace(number, "N")
        } else {
            part.to_owned()
        });
    }
    text
}

fn wait_for_reload(fpm: &Fpm, reloads: usize) -> String {
    until("the reload to be done", || {
        let log = fpm.read("error");
        (log.matches(READY).count() == reloads + 1).then_some(log)
    })
}

#[test]
fn a_reload_has_php_fpms_lines_and_no_others() {
    skip_if!(!is_possible());
    let logs = [STOCK, forkyard_fpm()].map(|program| {
        let fpm = Fpm::start(program, "", "pm.status_listen = {DIR}/status.sock", &[]);
        let port = fpm.address.rsplit(':').next().unwrap_or_default().to_owned();
        for round in 1..=2 {
            fpm.signal(Signal::SIGUSR2);
            wait_for_reload(&fpm, round);
        }
        fpm.signal(Signal::SIGTERM);
        let log = fpm.wait_for("error", "bye-bye!");
        log.lines()
            .filter(|line| !line.contains("systemd monitor"))
            .map(|line| masked(line, program, &port))
            .collect::<Vec<_>>()
    });
    assert_eq!(logs[0], logs[1]);
    let expected = [
        "NOTICE: Reloading in progress ...",
        "NOTICE: reloading: execvp(\"PROGRAM\", {\"PROGRAM\", \"-F\", \"-n\", \"-y\", \"DIR/fpm.conf\"})",
        "NOTICE: using inherited socket fd=N, \"127.0.0.1:PORT\"",
        "NOTICE: using inherited socket fd=N, \"DIR/status.sock\"",
        "NOTICE: fpm is running, pid N",
        "NOTICE: ready to handle connections",
    ];
    assert_eq!(logs[1][2..8], expected);
}

fn output(program: &str, arguments: &[&str]) -> Output {
    let output = Command::new(program).args(arguments).output();
    output.unwrap_or_else(|error| panic!("{program}: {error}"))
}

fn found(program: &str, arguments: &[&str], master: u32) -> usize {
    let text = text_of(&output(program, arguments).stdout);
    let children = format!("/proc/{master}/task/{master}/children");
    let children = fs::read_to_string(children).unwrap_or_default();
    let is_of =
        |pid: &&str| *pid == master.to_string() || children.split_whitespace().any(|child| child == *pid);
    text.split_whitespace().filter(is_of).count()
}

#[test]
fn every_process_is_found_by_the_name_of_the_program() {
    skip_if!(!is_possible());
    for program in [STOCK, forkyard_fpm()] {
        let name = Path::new(program).file_name().and_then(|name| name.to_str());
        let name = name.expect("it is text");
        let short = &name[..name.len().min(15)];
        let fpm = Fpm::start(program, "", "", &[("a.php", "<?php echo 'a';")]);
        assert_eq!(fpm.get("a.php"), "a");
        let pid_file = fpm.path("pid").display().to_string();
        let master: u32 = fpm.read("pid").trim().parse().expect("a pid");
        let daemon = |more: &[&str]| {
            let arguments = [
                &["--stop", "--quiet", "--pidfile", &pid_file, "--name", name],
                more,
            ]
            .concat();
            output("start-stop-daemon", &arguments)
        };
        for round in 0..2 {
            let looked = output(
                "start-stop-daemon",
                &["--status", "--pidfile", &pid_file, "--name", name],
            );
            assert!(looked.status.success(), "{program}: {looked:?}");
            for (tool, arguments) in [
                ("pgrep", ["-x", short].as_slice()),
                ("ps", &["-o", "pid=", "-C", short]),
                ("pidof", &[name]),
            ] {
                let least = if tool == "pidof" { 1 } else { 2 };
                let count = found(tool, arguments, master);
                assert!(count >= least, "{program}: {tool} finds {count}");
            }
            let reloaded = daemon(&["--signal", "USR2"]);
            assert!(reloaded.status.success(), "{program}: {reloaded:?}");
            wait_for_reload(&fpm, round + 1);
            assert_eq!(fpm.get("a.php"), "a");
        }
        let stopped = daemon(&["--signal", "TERM"]);
        assert!(stopped.status.success(), "{program}: {stopped:?}");
        fpm.wait_for("error", "bye-bye!");
    }
}
