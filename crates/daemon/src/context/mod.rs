//! The state that several parts of the executor read and change.

pub(crate) mod app_log;
pub(crate) mod apply_error;
pub(crate) mod counters;
pub(crate) mod effect;
pub(crate) mod entries;
pub(crate) mod failure;
pub(crate) mod fd_store;
pub(crate) mod generation;
pub(crate) mod handover;
pub(crate) mod held_socket;
pub(crate) mod helper;
pub(crate) mod helper_id;
pub(crate) mod helper_process;
pub(crate) mod helpers;
pub(crate) mod lines;
pub(crate) mod make;
pub(crate) mod named_socket;
pub(crate) mod oom_kills;
pub(crate) mod opcache_cache;
pub(crate) mod pools;
pub(crate) mod processes;
pub(crate) mod queues;
pub(crate) mod refused;
pub(crate) mod reports;
pub(crate) mod required_programs;
pub(crate) mod rights;
pub(crate) mod services;
pub(crate) mod shares;
pub(crate) mod sites;
pub(crate) mod sources;
pub(crate) mod spawner;
pub(crate) mod start_source;
pub(crate) mod worker;
pub(crate) mod zygote;

use crate::context::handover::Handover;
use crate::context::helper_id::HelperId;
use crate::context::helper_process::HelperProcess;
use crate::context::helpers::Helpers;
use crate::context::pools::Pools;
use crate::context::processes::Processes;
use crate::context::services::Services;
use crate::context::spawner::Spawner;
use crate::context::start_source::Starts;
use forkyard_config::{Config, Pool};
use forkyard_sys::Error;
use std::collections::HashMap;
use std::sync::Arc;

pub(crate) struct Context {
    pub(crate) services: Services,
    pub(crate) in_force: InForce,
    pub(crate) processes: Processes,
    pub(crate) pools: Pools,
    pub(crate) helpers: Helpers,
    pub(crate) handover: Handover,
    pub(crate) spawner: Spawner,
}

/// The configuration in force.
#[derive(Debug)]
pub(crate) struct InForce {
    pub(crate) config: Config,
    positions: HashMap<String, usize>,
    pub(crate) starts: Starts,
    /// The number of configurations that were prepared, this one included.
    pub(crate) count: u64,
}

impl Context {
    /// Forgets a helper. Its process, which is returned, loses its channel when it is dropped.
    pub(crate) fn remove_helper(&mut self, id: HelperId) -> Option<HelperProcess> {
        self.helpers.remove(&mut self.services.sources, id)
    }

    /// # Errors
    /// The helper's channel can't be watched.
    pub(crate) fn helper_started(&mut self, id: HelperId, process: HelperProcess) -> Result<(), Error> {
        self.helpers
            .started(&mut self.services, &mut self.processes, id, process)
    }
}

impl InForce {
    pub(crate) fn new(config: Config) -> InForce {
        InForce {
            positions: positions(&config),
            config,
            starts: Starts::default(),
            count: 0,
        }
    }

    pub(crate) fn take(&mut self, config: Config) {
        self.positions = positions(&config);
        self.config = config;
    }

    pub(crate) fn hold(&mut self, starts: Starts) {
        self.starts.hold(starts, &self.config);
    }

    pub(crate) fn pool(&self, name: &str) -> Option<&Arc<Pool>> {
        self.config.pools.get(*self.positions.get(name)?)
    }
}

fn positions(config: &Config) -> HashMap<String, usize> {
    let named = config.pools.iter().enumerate();
    named
        .map(|(position, pool)| (pool.name.clone(), position))
        .collect()
}
