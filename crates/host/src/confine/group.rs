//! A control group (cgroup v2) for each pool, below a configured parent.

use super::ConfineError;
use forkyard_config::Cgroup;
use forkyard_sys::clock;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use std::fs::{self, File};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Period of `cpu.max` in microseconds; the kernel's default.
const CPU_PERIOD_US: u64 = 100_000;

/// The kernel's default.
const DEFAULT_WEIGHT: &str = "100";

const LOOK_INTERVAL_MS: u8 = 10;

/// Path of a pool's control group.
pub type Group = PathBuf;

pub(super) fn path(cgroup: &Cgroup, pool: &str) -> Group {
    cgroup.parent.join(pool)
}

/// (setting, controller, file, content).
type Limit = (&'static str, &'static str, &'static str, String);

fn limits(cgroup: &Cgroup) -> [Limit; 4] {
    let cpu = cgroup
        .cpu_percent
        .map(|percent| format!("{} {CPU_PERIOD_US}", u64::from(percent) * CPU_PERIOD_US / 100));
    let (memory, cpu) = (text(cgroup.memory_max, "max"), text(cpu, "max"));
    let pids = text(cgroup.pids_max, "max");
    let weight = text(cgroup.cpu_weight, DEFAULT_WEIGHT);
    // Writes removed limits, too: a reload keeps the group.
    [
        ("cgroup.memory_max", "memory", "memory.max", memory),
        ("cgroup.cpu_percent", "cpu", "cpu.max", cpu),
        ("cgroup.pids_max", "pids", "pids.max", pids),
        ("cpu_weight", "cpu", "cpu.weight", weight),
    ]
}

fn text(limit: Option<impl ToString>, otherwise: &str) -> String {
    limit.map_or_else(|| otherwise.to_owned(), |limit| limit.to_string())
}

pub(super) fn make(cgroup: &Cgroup, pool: &str) -> Result<Group, ConfineError> {
    let parent = &cgroup.parent;
    let wrong =
        |reason: String| ConfineError::new("cgroup.parent", format!("{}: {reason}", parent.display()));
    let kind = statfs(parent).map_err(|errno| wrong(errno.desc().to_owned()))?;
    if kind.filesystem_type() != CGROUP2_SUPER_MAGIC {
        return Err(wrong(
            "this is no group of cgroup v2; name one below the place where cgroup2 is mounted".to_owned(),
        ));
    }
    let group = path(cgroup, pool);
    if let Err(error) = fs::create_dir(&group) {
        if error.kind() != std::io::ErrorKind::AlreadyExists {
            return Err(wrong(format!("a group in it can't be made: {error}")));
        }
    }
    for limit in limits(cgroup) {
        set(parent, &group, &limit)?;
    }
    Ok(group)
}

fn set(parent: &Path, group: &Path, (key, controller, file, value): &Limit) -> Result<(), ConfineError> {
    let target = group.join(file);
    if !target.exists() {
        if value == "max" || value == DEFAULT_WEIGHT && *file == "cpu.weight" {
            return Ok(());
        }
        let _ = fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}"));
        if !target.exists() {
            let reason = format!(
                "{} passes no controller {controller} on to the groups in it: it has to be in its \
                 cgroup.controllers, which come from the group above (on a machine with cgroup v1 the controllers \
                 are there), and it may hold no processes itself",
                parent.display()
            );
            return Err(ConfineError::new(key, reason));
        }
    }
    fs::write(&target, value)
        .map_err(|error| ConfineError::new(key, format!("write {value} to {}: {error}", target.display())))
}

pub(super) fn join(cgroup: &Cgroup, pool: &str) -> Result<(), ConfineError> {
    let file = path(cgroup, pool).join("cgroup.procs");
    fs::write(&file, "0").map_err(|error| {
        ConfineError::new("cgroup.parent", format!("write 0 to {}: {error}", file.display()))
    })
}

/// Opens a group for a process that may not open it itself. The opener's permissions count (Linux 5.16).
///
/// # Errors
/// open(2).
pub fn entrance(group: &Group) -> Result<File, ConfineError> {
    let file = group.join("cgroup.procs");
    let opened = File::options().write(true).open(&file);
    opened.map_err(|error| ConfineError::new("cgroup.parent", format!("open {}: {error}", file.display())))
}

/// Moves this process into the group.
///
/// # Errors
/// write(2).
pub fn enter(entrance: BorrowedFd<'_>) -> Result<(), ConfineError> {
    nix::unistd::write(entrance, b"0")
        .map(drop)
        .map_err(|errno| ConfineError::new("cgroup.parent", format!("write 0 to cgroup.procs: {errno}")))
}

/// Removes a group if it has no processes. A reaped process may remain for a moment; waits for that up to `timeout`.
pub fn remove(group: &Group, timeout: Duration) -> bool {
    let end = clock::now() + timeout;
    loop {
        match fs::remove_dir(group) {
            Ok(()) => return true,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return true,
            Err(_) if clock::now() >= end => return false,
            Err(_) => {
                let mut nothing = [];
                let _ = nix::poll::poll(&mut nothing, LOOK_INTERVAL_MS);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cgroup() -> Cgroup {
        Cgroup {
            parent: "/nowhere".into(),
            memory_max: Some(64 << 20),
            cpu_percent: Some(150),
            pids_max: None,
            cpu_weight: Some(50),
        }
    }

    #[test]
    fn limits_are_in_the_kernels_units() {
        let written: Vec<(&str, String)> = limits(&cgroup()).into_iter().map(|l| (l.2, l.3)).collect();
        let wanted = [
            ("memory.max", "67108864".to_owned()),
            ("cpu.max", "150000 100000".to_owned()),
            ("pids.max", "max".to_owned()),
            ("cpu.weight", "50".to_owned()),
        ];
        assert_eq!(written, wanted);
    }

    #[test]
    fn what_is_no_group_is_said() {
        let error = make(&cgroup(), "www").unwrap_err();
        assert_eq!(
            error.to_string(),
            "cgroup.parent: /nowhere: No such file or directory"
        );
        let elsewhere = Cgroup {
            parent: "/proc".into(),
            ..cgroup()
        };
        assert!(
            make(&elsewhere, "www")
                .unwrap_err()
                .reason
                .contains("no group of cgroup v2")
        );
    }
}
