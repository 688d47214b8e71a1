//! System calls, counted by strace.

use super::{process, until};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Attaches strace with these options to a process, and returns once it is attached. Its report goes to a file.
pub fn attach(pid: u32, report: &Path, options: &[&str]) -> Child {
    let strace = Command::new("strace")
        .args(options)
        .arg("-o")
        .arg(report)
        .args(["-p", &pid.to_string()])
        .stderr(Stdio::null())
        .spawn()
        .expect("strace (Debian package strace)");
    until("strace to attach", || {
        let tracer = process::status_line(pid, "TracerPid");
        tracer.filter(|tracer| tracer != "0").map(|_| ())
    });
    strace
}

/// Runs a command under strace, which delays each of these calls.
pub fn held(command: &Command, report: &Path, calls: &str, millis: u32) -> Command {
    let mut strace = Command::new("strace");
    // -D: strace is the child, so the program keeps the pid that its parent knows.
    strace
        .args(["-D", "-e", &format!("trace={calls}")])
        .args(["-e", &format!("inject={calls}:delay_enter={}", millis * 1000)])
        .arg("-o")
        .arg(report)
        .arg(command.get_program())
        .args(command.get_args());
    strace
}

pub fn count(pid: u32, directory: &Path, act: impl FnOnce()) -> BTreeMap<String, u64> {
    let report = directory.join("strace");
    let mut strace = attach(pid, &report, &["-f", "-c", "-U", "calls,name"]);
    act();
    process::signal(strace.id(), Signal::SIGINT);
    process::wait(&mut strace, "strace's end");
    let text = std::fs::read_to_string(&report).expect("strace's report");
    let lines = text.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let calls = fields.next()?.parse().ok()?;
        Some((fields.next()?.to_owned(), calls))
    });
    lines.filter(|(name, _)| name != "total").collect()
}

pub struct Failing {
    strace: Child,
    report: PathBuf,
}

impl Failing {
    pub fn start(pid: u32, directory: &Path, call: &str, error: &str) -> Failing {
        let report = directory.join(format!("strace-{pid}-{error}"));
        let _ = std::fs::remove_file(&report);
        let (trace, inject) = (format!("trace={call}"), format!("inject={call}:error={error}"));
        let strace = attach(pid, &report, &["-e", &trace, "-e", &inject]);
        Failing { strace, report }
    }

    pub fn in_threads(pid: u32, directory: &Path, call: &str, error: &str) -> Failing {
        let report = directory.join(format!("strace-{pid}-{call}-{error}"));
        let (trace, inject) = (format!("trace={call}"), format!("inject={call}:error={error}"));
        let strace = attach(pid, &report, &["-f", "-e", &trace, "-e", &inject]);
        until("strace to attach to all threads", || {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
                .ok()?
                .map_while(Result::ok);
            let is_traced = |task: std::fs::DirEntry| {
                let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
                !status.contains("TracerPid:\t0\n")
            };
            tasks.into_iter().all(is_traced).then_some(())
        });
        Failing { strace, report }
    }

    pub fn hold(pid: u32, directory: &Path, call: &str, millis: u32) -> Failing {
        let report = directory.join(format!("strace-{pid}-{call}"));
        let inject = format!("inject={call}:delay_enter={}", millis * 1000);
        let strace = attach(
            pid,
            &report,
            &["-f", "-e", &format!("trace={call}"), "-e", &inject],
        );
        Failing { strace, report }
    }

    pub fn wait_until_held(&self, call: i64) {
        until("a call that is held", || self.holds(call).then_some(()));
    }

    pub fn holds(&self, call: i64) -> bool {
        let tracer = self.strace.id().to_string();
        let is_held = |pid: u32| {
            let words = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
            process::state(pid) == Some('t')
                && words.split(' ').next() == Some(&call.to_string())
                && process::status_line(pid, "TracerPid").as_ref() == Some(&tracer)
        };
        let all = std::fs::read_dir("/proc").expect("/proc").map_while(Result::ok);
        let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.any(is_held)
    }

    pub fn count(&self) -> usize {
        let text = std::fs::read_to_string(&self.report).unwrap_or_default();
        text.matches("(INJECTED)").count()
    }

    pub fn end(mut self) {
        let _ = nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(self.strace.id() as i32),
            Signal::SIGINT,
        );
        process::wait(&mut self.strace, "strace's end");
    }
}
