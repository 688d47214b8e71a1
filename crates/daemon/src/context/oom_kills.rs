//! The kernel's kills for want of memory.

use forkyard_base::tick::Tick;
use forkyard_host::confine::Group;
use forkyard_spawn::effects::oom_kills;
use forkyard_sys::clock;
use std::collections::HashMap;
use std::time::Duration;

/// How long after the kernel's count a process may be reaped that it has killed.
const REAPED_WITHIN: Duration = Duration::from_secs(1);

/// The kernel's counts of processes that it killed for want of memory, by control group; `None`: the daemon's own.
#[derive(Debug, Default)]
pub(crate) struct OomKills(HashMap<Option<Group>, Seen>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    count: u64,
    /// Kills that no death was attributed to yet, and when they were counted.
    open: u64,
    at: Tick,
}

impl OomKills {
    /// Reads the counts of new groups, and forgets groups that are no longer named.
    pub(crate) fn watch(&mut self, groups: &[Group]) {
        self.0
            .retain(|group, _| group.as_ref().is_none_or(|group| groups.contains(group)));
        for group in groups.iter().cloned().map(Some).chain([None]) {
            let seen = |group: &Option<Group>| Seen {
                count: oom_kills(group.as_deref()),
                open: 0,
                at: clock::now(),
            };
            self.0.entry(group).or_insert_with_key(seen);
        }
    }

    /// Whether the kernel has killed a process of the group since the last look; each kill counts once.
    pub(crate) fn has_new(&mut self, group: Option<&Group>, now: Tick) -> bool {
        let group = group
            .cloned()
            .filter(|group| self.0.contains_key(&Some(group.clone())));
        let count = oom_kills(group.as_deref());
        self.0.get_mut(&group).is_some_and(|seen| seen.take(count, now))
    }
}

impl Seen {
    fn take(&mut self, count: u64, now: Tick) -> bool {
        if count > self.count {
            *self = Seen {
                count,
                open: count - self.count,
                at: now,
            };
        }
        let is_one = self.open > 0 && now.since(self.at) < REAPED_WITHIN;
        self.open = if is_one { self.open - 1 } else { 0 };
        is_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kill_of_the_kernel_explains_one_death_that_follows_at_once() {
        let at = |millis: u64| Tick::from_nanos(millis * 1_000_000);
        let mut seen = Seen {
            count: 3,
            open: 0,
            at: at(0),
        };
        assert!(!seen.take(3, at(5)), "another killed it");
        assert!(seen.take(5, at(10)) && seen.take(5, at(20)));
        assert!(!seen.take(5, at(30)), "both were seen");
        assert!(seen.take(7, at(40)));
        assert!(!seen.take(7, at(5_000)), "the other was no worker");
    }
}
