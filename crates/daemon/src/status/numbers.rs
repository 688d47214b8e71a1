//! The numbers for the web process.

use crate::context::pools::Pools;
use crate::status::StatusSource;
use forkyard_core::master::event::PoolId;
use forkyard_protocol::control::{DaemonMode, Status};
use forkyard_sys::diag::ListenQueue;
use forkyard_web::{Numbers, PoolPage};
use forkyard_worker::snapshot;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

impl StatusSource<'_> {
    /// Returns the numbers of all pools, without requests.
    pub(crate) fn numbers(
        &self,
        mode: DaemonMode,
        orphans: &HashMap<String, u32>,
        views: &[(PoolId, Value)],
    ) -> Numbers {
        let status = self.status(orphans, views);
        let pages = self.context.pools.pages(&status);
        Numbers::new(mode, status, pages)
    }
}

impl Pools {
    /// Returns the numbers of php-fpm's status page of each pool with a serving generation, as its reporter shows them.
    fn pages(&self, status: &Status) -> BTreeMap<String, PoolPage> {
        let queues = status.pools.iter();
        let queues: HashMap<&str, ListenQueue> = queues
            .map(|pool| {
                let queue = ListenQueue {
                    current: pool.queue.unwrap_or(0),
                    limit: pool.queue_limit.unwrap_or(0),
                };
                (pool.name.as_str(), queue)
            })
            .collect();
        let mut pages = BTreeMap::new();
        for (_, pool) in self.by_id.iter() {
            let serving = pool.serving.and_then(|id| self.generations.get(&id));
            let Some(generation) = serving.filter(|it| !it.has_applications()) else {
                continue;
            };
            let settings = &generation.settings;
            let (name, manager, started) = (&pool.name, settings.pool.pm.name(), settings.started);
            let queue = queues.get(name.as_str()).copied().unwrap_or_default();
            let has_peak = settings.pool.application.has_memory_peak();
            let snapshot = match &generation.resources {
                Some(resources) => {
                    snapshot::summary(name, manager, started, &resources.board, queue, has_peak)
                }
                None => snapshot::unused(name, manager, started, queue, has_peak),
            };
            pages.insert(pool.name.clone(), PoolPage::from(&snapshot));
        }
        pages
    }
}
