//! The present resources of the machine or the container, for the autopilot. Pure.

use super::model::Pool;
use super::{control_groups, memory};
use forkyard_core::autopilot::{Autopilot, Machine};

/// Processors and memory of the machine or the container.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Resources {
    /// Processors; parts of one are possible.
    pub cores: f64,
    /// The limit of memory, in bytes; 0: unknown.
    pub memory: u64,
    /// Memory in use, without memory that the kernel can reclaim at once, in bytes.
    pub used: u64,
    /// The total wait of processes for memory, in microseconds; `None` if the kernel doesn't count it.
    pub memory_stall: Option<u64>,
}

impl Resources {
    /// Returns a pool's part of the resources, and whether the limit of memory is the pool's alone.
    pub fn of_pool(&self, pool: &Pool) -> (Machine, bool) {
        let group = pool.confine.cgroup.as_ref();
        let percent = group.and_then(|group| group.cpu_percent);
        let quota = percent.map_or(f64::INFINITY, |percent| f64::from(percent) / 100.0);
        let limits = [
            pool.load.shares.memory_max,
            group.and_then(|group| group.memory_max),
        ];
        let own_limit = limits.into_iter().flatten().min();
        let own_limit = own_limit.filter(|own| *own < self.memory);
        let machine = Machine {
            cores: self.cores.min(quota),
            memory: own_limit.unwrap_or(self.memory),
            requests_a_worker: pool.application.concurrency(),
        };
        (machine, own_limit.is_some())
    }

    /// Returns the number of workers that the autopilot begins a pool with.
    pub fn first_number(&self, pool: &Pool) -> u32 {
        let most = Autopilot::start(&self.of_pool(pool).0, 0).decision().most;
        most.clamp(1, pool.pm.max_children())
    }
}

/// `own`, `meminfo`, `pressure`: the texts of /proc/self/cgroup, /proc/meminfo and /proc/pressure/memory; `parallel`: the
/// processors that this process may use; `read`: reads a file below the cgroup root.
pub(super) fn resources(
    [own, meminfo, pressure]: [&str; 3],
    parallel: usize,
    read: &dyn Fn(&str) -> Option<String>,
) -> Resources {
    let total = memory::total(meminfo).unwrap_or(0);
    let limit = memory::limit(own, read).filter(|limit| *limit < total || total == 0);
    let used = limit.and_then(|_| used_by_group(own, read));
    let group_pressure = control_groups::files(own, "", ["memory.pressure", "memory.pressure"]);
    let group_pressure = group_pressure.iter().find_map(|file| read(file));
    Resources {
        cores: quota(own, read).map_or(parallel as f64, |quota| quota.min(parallel as f64)),
        memory: limit.unwrap_or(total),
        used: used.or_else(|| memory::used(meminfo)).unwrap_or(0),
        memory_stall: stall(group_pressure.as_deref().unwrap_or(pressure)),
    }
}

/// Returns the smallest quota of a cgroup and its ancestors, in processors.
fn quota(own: &str, read: &dyn Fn(&str) -> Option<String>) -> Option<f64> {
    let files = control_groups::files(own, "cpu", ["cpu.max", "cpu.cfs_quota_us"]);
    let quotas = files.iter().filter_map(|file| {
        let text = read(file)?;
        let mut words = text.split_ascii_whitespace();
        let quota: f64 = words.next()?.parse().ok()?;
        let period: f64 = match words.next() {
            Some(period) => period.parse().ok()?,
            None => {
                let file = file.strip_suffix("cpu.cfs_quota_us")?;
                read(&format!("{file}cpu.cfs_period_us"))?.trim().parse().ok()?
            }
        };
        (quota > 0.0 && period > 0.0).then_some(quota / period)
    });
    quotas.min_by(f64::total_cmp)
}

/// Returns the memory of the nearest cgroup with a count, without files that were not used lately.
fn used_by_group(own: &str, read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let files = control_groups::files(own, "memory", ["memory.current", "memory.usage_in_bytes"]);
    files.iter().find_map(|file| {
        let used: u64 = read(file)?.trim().parse().ok()?;
        let directory = file.rsplit_once('/').map_or("", |(directory, _)| directory);
        let slash = if directory.is_empty() { "" } else { "/" };
        let stat = read(&format!("{directory}{slash}memory.stat")).unwrap_or_default();
        let old = ["total_inactive_file ", "inactive_file "]
            .into_iter()
            .find_map(|name| {
                let line = stat.lines().find_map(|line| line.strip_prefix(name))?;
                line.trim().parse::<u64>().ok()
            });
        Some(used.saturating_sub(old.unwrap_or(0)))
    })
}

/// Returns the total time that some process has waited for memory (Documentation/accounting/psi.rst of Linux).
fn stall(text: &str) -> Option<u64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = some
        .split_ascii_whitespace()
        .find_map(|word| word.strip_prefix("total="))?;
    total.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\n";

    fn of(own: &str, files: &[(&str, &str)]) -> Resources {
        let read = |path: &str| {
            let found = files.iter().find(|(name, _)| *name == path);
            found.map(|(_, text)| (*text).to_owned())
        };
        let pressure = "some avg10=0.00 total=7\nfull avg10=0.00 total=5\n";
        resources([own, MEMINFO, pressure], 4, &read)
    }

    #[test]
    fn a_container_has_what_its_groups_leave() {
        let machine = of("", &[]);
        assert_eq!(
            (machine.cores, machine.memory, machine.used),
            (4.0, 1_024_000, 614_400)
        );
        assert_eq!(machine.memory_stall, Some(7));
        let container = of(
            "0::/a/b\n",
            &[
                ("a/b/memory.max", "max\n"),
                ("a/memory.max", "5000\n"),
                ("a/b/memory.current", "3000\n"),
                ("a/b/memory.stat", "anon 5\ninactive_file 1000\n"),
                ("a/cpu.max", "50000 100000\n"),
                ("a/b/cpu.max", "max 100000\n"),
                ("a/b/memory.pressure", "some avg10=0.00 total=99\n"),
            ],
        );
        assert_eq!(
            (container.cores, container.memory, container.used),
            (0.5, 5000, 2000)
        );
        assert_eq!(container.memory_stall, Some(99));
        let older = of(
            "4:memory:/x\n2:cpu,cpuacct:/x\n",
            &[
                ("memory/x/memory.limit_in_bytes", "9000\n"),
                ("memory/x/memory.usage_in_bytes", "8000\n"),
                (
                    "memory/x/memory.stat",
                    "inactive_file 1\ntotal_inactive_file 500\n",
                ),
                ("cpu/x/cpu.cfs_quota_us", "150000\n"),
                ("cpu/x/cpu.cfs_period_us", "100000\n"),
                ("cpu/cpu.cfs_quota_us", "-1\n"),
            ],
        );
        assert_eq!((older.cores, older.memory, older.used), (1.5, 9000, 7500));
    }
}
