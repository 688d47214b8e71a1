//! Finds the pool that an operator means.

use crate::context::pools::Pools;
use crate::context::refused::Refused;
use crate::context::rights::Rights;
use forkyard_config::{Config, Pool};
use forkyard_core::master::event::PoolId;
use std::path::Path;

impl Pools {
    /// Finds a configured pool by its name, its application's root, or the link, its directory or its release in service.
    pub(crate) fn pool_named_by<'c>(&self, config: &'c Config, name: &str) -> Result<&'c Pool, Refused> {
        let path = Path::new(name);
        let link = |pool: &'c Pool| pool.release.as_ref().map(|release| release.link.as_path());
        let has_root = |pool: &'c Pool| pool.application.root() == Some(path) || link(pool) == Some(path);
        let has_release = |pool: &'c Pool| {
            let Some(link) = link(pool) else { return false };
            let mut present = self.by_id.of(&pool.name);
            link.parent() == Some(path)
                || present.any(|(id, _)| self.serving_release(id).as_deref() == Some(path))
        };
        let pools = || config.pools.iter().map(|pool| &**pool);
        if let Some(pool) = pools().find(|pool| pool.name == name) {
            return Ok(pool);
        }
        let by_root = pools().any(has_root);
        let mut there = pools().filter(|pool| {
            if by_root {
                has_root(pool)
            } else {
                has_release(pool)
            }
        });
        match (there.next(), there.next()) {
            (Some(pool), None) => Ok(pool),
            (Some(one), Some(other)) => Err(Refused::TwoPools {
                path: name.to_owned(),
                one: one.name.clone(),
                other: other.name.clone(),
            }),
            (None, _) => Err(Refused::NoPool(name.to_owned())),
        }
    }

    /// Finds a pool of one application by its name or directory, if these rights may restart it.
    pub(crate) fn pool_meant_by(
        &self,
        config: &Config,
        rights: Rights,
        name: &str,
    ) -> Result<PoolId, Refused> {
        let pool = self.pool_named_by(config, name)?;
        if pool.applications.is_some() {
            return Err(Refused::ManyApplications(name.to_owned()));
        }
        let mut present = self.by_id.of(&pool.name);
        let found = present.find(|(_, running)| running.listener.is_some());
        let Some((id, running)) = found else {
            return Err(Refused::PoolDoesNotRun(name.to_owned()));
        };
        let generation = running.serving.and_then(|id| self.generations.get(&id));
        let identity = generation.and_then(|generation| generation.settings.identity.as_ref());
        match rights {
            Rights::Own(uid) if identity.is_none_or(|identity| identity.uid != uid) => {
                Err(Refused::NotYours("pool"))
            }
            Rights::Own(_) | Rights::All => Ok(id),
        }
    }
}
