//! The priority of low requests on the processors (nice(2)).
//!
//! The kernel compares nice values only within one control group for processors, or within one session if it groups
//! sessions (autogroup, sched(7)).

use forkyard_sys::identity;
use std::fs;

/// Low requests get a nice value that is higher by this.
const LOWER: i32 = 10;

/// A worker's priorities.
#[derive(Debug)]
pub(super) struct Priority {
    usual: i32,
    /// Whether it may return to its usual priority.
    may_change: bool,
    is_low: bool,
}

impl Priority {
    pub(super) fn new() -> Priority {
        let usual = identity::priority();
        Priority {
            usual,
            may_change: identity::may_set_priority(usual),
            is_low: false,
        }
    }

    /// Whether a lower priority makes low requests yield to other workers' requests.
    pub(super) fn works(&self) -> bool {
        self.may_change && !is_alone_in_its_group()
    }

    /// Changes the priority of this process, if it may.
    pub(super) fn set(&mut self, is_low: bool) {
        if !self.may_change || self.is_low == is_low {
            return;
        }
        let nice = if is_low { self.usual + LOWER } else { self.usual };
        match identity::set_priority(nice) {
            Ok(()) => self.is_low = is_low,
            Err(error) => {
                log::warn!("{error}: requests of all lanes have the same priority");
                self.may_change = false;
            }
        }
    }
}

/// Whether the kernel compares this process only with its own session, which contains no other worker.
fn is_alone_in_its_group() -> bool {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let is_session_leader = identity::leads_session();
    let is_grouped = text("/proc/sys/kernel/sched_autogroup_enabled").trim() == "1";
    is_session_leader && is_grouped && !has_group(&text("/proc/self/cgroup"), &text)
}

/// Whether a process is in a control group for processors. `own`: the text of /proc/self/cgroup.
fn has_group(own: &str, text: &dyn Fn(&str) -> String) -> bool {
    own.lines().any(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        match controllers {
            "" => {
                let list = text(&format!("/sys/fs/cgroup{path}/cgroup.controllers"));
                path != "/" && list.split_whitespace().any(|controller| controller == "cpu")
            }
            listed => path != "/" && listed.split(',').any(|controller| controller == "cpu"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_for_processors_are_found() {
        let text = |path: &str| match path {
            "/sys/fs/cgroup/system.slice/a.service/cgroup.controllers" => "cpuset cpu memory\n".to_owned(),
            _ => String::new(),
        };
        for (own, expected) in [
            ("0::/system.slice/a.service\n", true),
            ("0::/system.slice/b.service\n", false),
            ("0::/\n", false),
            ("4:cpu,cpuacct:/x\n1:name=systemd:/x\n", true),
            ("4:cpu,cpuacct:/\n1:cpuset:/x\n", false),
            ("", false),
            ("nonsense", false),
        ] {
            assert_eq!(has_group(own, &text), expected, "{own:?}");
        }
    }
}
