//! The state that several parts of the executor read and change.

use super::archive::PastHours;
use super::autopilot::Autopilots;
use super::handover::Handover;
use super::helper_id::HelperId;
use super::helper_process::HelperProcess;
use super::helpers::Helpers;
use super::pools::Pools;
use super::processes::Processes;
use super::release::Releases;
use super::saturation::Saturations;
use super::services::Services;
use super::spawner::Spawner;
use super::start_source::Starts;
use forkyard_config::{Config, Pool};
use forkyard_sys::Error;
use std::collections::HashMap;
use std::sync::Arc;

pub(in crate::master) struct Context {
    pub(in crate::master) services: Services,
    pub(in crate::master) in_force: InForce,
    pub(in crate::master) processes: Processes,
    pub(in crate::master) pools: Pools,
    pub(in crate::master) helpers: Helpers,
    pub(in crate::master) handover: Handover,
    pub(in crate::master) spawner: Spawner,
    pub(super) archive: PastHours,
    pub(super) saturations: Saturations,
    pub(in crate::master) autopilots: Autopilots,
    pub(in crate::master) releases: Releases,
}

/// The configuration in force.
#[derive(Debug)]
pub(in crate::master) struct InForce {
    pub(in crate::master) config: Config,
    positions: HashMap<String, usize>,
    pub(super) starts: Starts,
    /// The number of configurations that were prepared, this one included.
    pub(super) count: u64,
}

impl Context {
    /// Forgets a helper. Its process, which is returned, loses its channel when it is dropped.
    pub(super) fn remove_helper(&mut self, id: HelperId) -> Option<HelperProcess> {
        self.helpers.remove(&mut self.services.sources, id)
    }

    /// # Errors
    /// The helper's channel can't be watched.
    pub(super) fn helper_started(&mut self, id: HelperId, process: HelperProcess) -> Result<(), Error> {
        self.helpers
            .started(&mut self.services, &mut self.processes, id, process)
    }
}

impl InForce {
    pub(super) fn new(config: Config) -> InForce {
        InForce {
            positions: positions(&config),
            config,
            starts: Starts::default(),
            count: 0,
        }
    }

    pub(super) fn take(&mut self, config: Config) {
        self.positions = positions(&config);
        self.config = config;
    }

    pub(in crate::master) fn hold(&mut self, starts: Starts) {
        self.starts.hold(starts, &self.config);
    }

    pub(in crate::master) fn pool(&self, name: &str) -> Option<&Arc<Pool>> {
        self.config.pools.get(*self.positions.get(name)?)
    }
}

fn positions(config: &Config) -> HashMap<String, usize> {
    let named = config.pools.iter().enumerate();
    named
        .map(|(position, pool)| (pool.name.clone(), position))
        .collect()
}
