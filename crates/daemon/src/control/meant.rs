//! Finds the pool that an operator means.

use crate::context::pools::Pools;
use crate::context::refused::Refused;
use crate::context::rights::Rights;
use forkyard_config::{Config, Pool};
use forkyard_core::master::event::PoolId;
use std::path::Path;

impl Pools {
    /// Finds a pool of one application by its name or root, if these rights may restart it.
    pub(crate) fn pool_meant_by(
        &self,
        config: &Config,
        rights: Rights,
        name: &str,
    ) -> Result<PoolId, Refused> {
        let has_root = |pool: &Pool| {
            let link = pool.release.as_ref().map(|release| release.link.as_path());
            pool.application.root() == Some(Path::new(name)) || link == Some(Path::new(name))
        };
        let named = config.pools.iter().find(|pool| pool.name == name);
        let mut there = config.pools.iter().filter(|pool| has_root(pool));
        let pool = match (named, there.next(), there.next()) {
            (Some(pool), ..) | (None, Some(pool), None) => pool,
            (None, Some(one), Some(other)) => {
                return Err(Refused::TwoPools {
                    path: name.to_owned(),
                    one: one.name.clone(),
                    other: other.name.clone(),
                });
            }
            (None, None, _) => return Err(Refused::NoPool(name.to_owned())),
        };
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
