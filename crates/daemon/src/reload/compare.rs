//! Compares the file with the configuration in force, without opening or starting anything.

use crate::context::Context;
use crate::context::apply_error::ApplyError;
use crate::pools::settings::Identities;
use crate::releases::release::Releases;
use forkyard_config::{Config, Pool, difference};
use forkyard_core::master::reload_diff::{Reason, ReloadScope};
use forkyard_protocol::changes::{Changes, Outcome, PoolChange};
use forkyard_runtimes::php::files::FingerprintCache;
use forkyard_sys::accounts;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// Compares a configuration with the one in force.
pub(crate) struct Comparer<'c> {
    pub(crate) context: &'c Context,
    pub(crate) releases: &'c Releases,
    pub(crate) scope: ReloadScope,
}

impl Comparer<'_> {
    pub(crate) fn what_a_reload_changes(&self, mut config: Config) -> Changes {
        config.go_on_with(&self.context.in_force.config);
        let _accounts = accounts::hold();
        let mut identities = Identities::new();
        let mut fingerprints = FingerprintCache::default();
        let mut pools = Vec::new();
        for pool in &config.pools {
            let Some(before) = self.context.in_force.pool(&pool.name) else {
                pools.push(change(&pool.name, Outcome::Added, None));
                continue;
            };
            let found = self.pool(before, pool, &config, &mut identities, &mut fingerprints);
            pools.extend(found.filter(|it| it.outcome != Outcome::Kept || !it.keys.is_empty()));
        }
        let names: HashSet<&str> = config.pools.iter().map(|pool| pool.name.as_str()).collect();
        let gone = self.context.in_force.config.pools.iter();
        let gone = gone.filter(|pool| !names.contains(pool.name.as_str()));
        pools.extend(gone.map(|pool| change(&pool.name, Outcome::Removed, None)));
        Changes {
            global: difference::global(&self.context.in_force.config, &config),
            jobs: difference::jobs(&self.context.in_force.config, &config),
            pools,
            skipped: config.skipped,
        }
    }

    /// The change of a running pool; `None` if its settings are unusable and it continues.
    fn pool<'p>(
        &self,
        before: &Pool,
        pool: &'p Arc<Pool>,
        config: &Config,
        identities: &mut Identities<'p>,
        fingerprints: &mut FingerprintCache,
    ) -> Option<PoolChange> {
        if config.goes_on(&pool.name) {
            return None;
        }
        let replaced = |reason: Reason| change(&pool.name, Outcome::Replaced, Some(reason.to_string()));
        // Resolving the settings would create the cache directory, and nothing may be created here.
        if cache(before) != cache(pool) {
            let keys = difference::pool(before, pool);
            return Some(PoolChange {
                keys,
                ..replaced(Reason::Settings)
            });
        }
        let settings = self.context.services.settings(pool, &config.global, identities);
        let settings = match settings
            .and_then(|settings| self.releases.in_release(self.context, settings, self.scope))
        {
            Ok(settings) => settings,
            Err(fault) => {
                let error = ApplyError::Pool(pool.name.clone(), fault);
                return Some(change(&pool.name, Outcome::Failed, Some(error.to_string())));
            }
        };
        let keys = difference::pool(before, pool);
        let known = self.context.pools.pool_listening_as(pool);
        let kept = known.map(|id| {
            self.context
                .pools
                .kept(&self.context.services, id, &settings, self.scope, fingerprints)
        });
        let change = match kept {
            Some(Ok(_)) => change(&pool.name, Outcome::Kept, None),
            Some(Err(reason)) => replaced(reason),
            None => replaced(Reason::Settings),
        };
        Some(PoolChange { keys, ..change })
    }
}

fn change(pool: &str, outcome: Outcome, reason: Option<String>) -> PoolChange {
    PoolChange {
        pool: pool.to_owned(),
        outcome,
        reason,
        keys: Vec::new(),
    }
}

fn cache(pool: &Pool) -> Option<&Path> {
    pool.application.php()?.opcache_cache.as_deref()
}
