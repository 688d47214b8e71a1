//! The pools' shares of the machine: by control groups if available, otherwise by each process's limits.

use super::services::Services;
use forkyard_config::{Cgroup, Pool};
use forkyard_host::confine::{self, GroupParent};
use std::sync::Arc;

impl Services {
    /// A pool with the shares in force: its control group, or nice(2) and a limit.
    pub(crate) fn in_force(&self, pool: &Arc<Pool>) -> Arc<Pool> {
        let shares = pool.load.shares;
        if shares.cpu_weight.is_none() && shares.memory_max.is_none() {
            return pool.clone();
        }
        let mut own = pool.as_ref().clone();
        match self.group_parent() {
            GroupParent::Group(parent) => {
                own.confine.cgroup = Some(Cgroup {
                    parent: parent.clone(),
                    memory_max: shares.memory_max,
                    cpu_percent: None,
                    pids_max: None,
                    cpu_weight: shares.cpu_weight,
                });
            }
            GroupParent::Nowhere(_) => {
                // No pool may have a higher priority than the daemon.
                let nice = shares.nice().map(|nice| nice.max(0));
                own.setup.process_priority = own.setup.process_priority.or(nice);
                own.setup.rlimit_data = shares.memory_max;
            }
        }
        Arc::new(own)
    }

    /// The shares in force, in words; `None`: none. `own`: the pool as it is in force.
    pub(crate) fn shares_in_words(&self, own: &Pool) -> Option<String> {
        let group = confine::group(own).map(|group| format!("control group {}", group.display()));
        if own.load.shares.cpu_weight.is_none() && own.load.shares.memory_max.is_none() {
            return group;
        }
        let GroupParent::Nowhere(why) = self.group_parent() else {
            return group;
        };
        let nice = own.load.shares.nice().zip(own.setup.process_priority);
        let nice = nice.map(|(_, nice)| format!("nice {nice}"));
        let data = own.setup.rlimit_data;
        let data = data.map(|bytes| format!("RLIMIT_DATA {bytes} in each process"));
        let both: Vec<String> = nice.into_iter().chain(data).collect();
        Some(format!("{}, without control groups: {why}", both.join(", ")))
    }

    fn group_parent(&self) -> &GroupParent {
        self.group_parent.get_or_init(|| {
            let group_parent = confine::find_group_parent(self.is_followed);
            match &group_parent {
                GroupParent::Group(group) => log::info!("shares of pools are control groups in {}", group.display()),
                GroupParent::Nowhere(why) => {
                    log::warn!("shares of pools are nice values and limits of each process, without control groups: {why}");
                }
            }
            group_parent
        })
    }

    pub(crate) fn leave_group_parent(&self) {
        if let Some(parent) = self.group_parent.get() {
            confine::leave_group_parent(parent);
        }
    }
}
