//! Chooses the number of workers by memory, for `max_children = "auto"`.

use super::control_groups;

/// The least memory of a worker, in bytes.
const OF_A_WORKER: u64 = 8 << 20;
/// A single slow request would block a pool with one worker. No machine benefits from more than the maximum.
const LEAST: u64 = 2;
const MOST: u64 = 1024;

/// Returns the most workers that the autopilot may choose. `memory`: the machine's or container's, in bytes.
pub(super) fn most_workers(memory: u64) -> u32 {
    let count = (memory / OF_A_WORKER).clamp(LEAST, MOST);
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns the number of workers that `max_children = "auto"` was before the autopilot: by three quarters of the pool's
/// part of the memory, and the limit of a worker's memory or 64 MiB. `pools`: how many pools have such a number.
pub(super) fn workers_before_the_autopilot(memory: u64, pools: u64, of_a_worker: Option<u64>) -> u32 {
    let of_a_worker = of_a_worker.filter(|bytes| *bytes > 0).unwrap_or(64 << 20);
    let count = (memory / pools.max(1) / 100 * 75 / of_a_worker).clamp(LEAST, MOST);
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The smallest memory limit of a cgroup and its ancestors. `read`: reads a file below the cgroup root; `own`: the text
/// of /proc/self/cgroup.
pub(super) fn limit(own: &str, read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let files = control_groups::files(own, "memory", ["memory.max", "memory.limit_in_bytes"]);
    let limits = files
        .iter()
        .filter_map(|file| read(file)?.trim().parse::<u64>().ok());
    limits.min()
}

/// `MemTotal` of /proc/meminfo, in bytes.
pub(super) fn total(text: &str) -> Option<u64> {
    entry(text, "MemTotal:")
}

/// Memory of the machine that can't be given to others, in bytes.
pub(super) fn used(text: &str) -> Option<u64> {
    Some(total(text)?.saturating_sub(entry(text, "MemAvailable:")?))
}

fn entry(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace()
        .next()?
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_autopilot_has_a_bound() {
        assert_eq!(most_workers(1 << 30), 128);
        assert_eq!(most_workers(1 << 20), 2, "never fewer than two");
        assert_eq!(most_workers(u64::MAX), 1024);
    }

    #[test]
    fn the_rule_before_the_autopilot_had_three_quarters_of_the_memory() {
        assert_eq!(workers_before_the_autopilot(1 << 30, 1, None), 11);
        assert_eq!(workers_before_the_autopilot(1 << 30, 2, None), 5);
        assert_eq!(workers_before_the_autopilot(1 << 30, 1, Some(256 << 20)), 2);
    }

    #[test]
    fn the_smallest_limit_counts() {
        let read = |file: &str| match file {
            "a/b/memory.max" => Some("max\n".to_owned()),
            "a/memory.max" => Some("1000\n".to_owned()),
            "memory/x/memory.limit_in_bytes" => Some("5000".to_owned()),
            "memory/memory.limit_in_bytes" => Some("9223372036854771712".to_owned()),
            _ => None,
        };
        assert_eq!(limit("0::/a/b\n", &read), Some(1000));
        assert_eq!(limit("4:cpu,memory:/x\n1:name=systemd:/a\n", &read), Some(5000));
        assert_eq!(limit("0::/elsewhere\n", &read), None);
        assert_eq!(total("MemTotal:       2 kB\nMemFree: 1 kB\n"), Some(2048));
    }
}
