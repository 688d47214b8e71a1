//! Counts out-of-memory kills in the cgroups of this process and of new processes.

use std::fs;
use std::path::Path;

/// The number of out-of-memory kills in this process's cgroup and the cgroup v2 directory `other` (cgroups(7)), or 0 if
/// the kernel has no counter.
pub fn oom_kills(other: Option<&Path>) -> u64 {
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let files = membership.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        match controllers {
            "" => Some(format!("/sys/fs/cgroup{path}/memory.events")),
            "memory" => Some(format!("/sys/fs/cgroup/memory{path}/memory.oom_control")),
            _ => None,
        }
    });
    files
        .chain(other.map(|group| format!("{}/memory.events", group.display())))
        .filter_map(|file| count(&fs::read_to_string(file).ok()?))
        .sum()
}

fn count(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_of_either_version() {
        assert_eq!(count("low 0\noom 3\noom_kill 2\noom_group_kill 0\n"), Some(2));
        assert_eq!(count("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"), Some(7));
        assert_eq!(count(""), None);
    }

    #[test]
    fn another_group_counts_too() {
        let group = tempfile::tempdir().unwrap();
        let before = oom_kills(Some(group.path()));
        fs::write(group.path().join("memory.events"), "oom_kill 3\n").unwrap();
        assert!(oom_kills(Some(group.path())) >= before + 3);
    }
}
