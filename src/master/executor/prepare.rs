//! Gets ready for a configuration: opens what its pools need that is not open yet, and says what the core is to be told.
//! What becomes of each pool is decided in [`crate::master::reload_plan`].

use super::apply_error::ApplyError;
use super::pools::policy;
use super::sockets::Sockets;
use super::{Executor, Pools};
use crate::config::{Config, OnError, Pool, ReloadWhen};
use crate::confine::{self, Group};
use crate::logs::open_file;
use crate::master::event::{GenerationId, PoolId, Wanted, WantedPool};
use crate::master::reload_diff::Extent;
use crate::master::reload_plan::{self, Changes, Found, Next};
use crate::runtime::php::files::Looker;
use crate::sys::identity::Identity;
use crate::worker::Settings;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;

/// Users and groups that were looked up, by their names.
pub(super) type Identities<'p> = HashMap<Option<(&'p str, Option<&'p str>)>, Identity>;

/// What becomes of a pool.
enum Prospect {
    /// It has what its settings ask for.
    Open(Box<Opened>),
    /// It goes on with the generation that it has.
    Unchanged(PoolId, GenerationId, Box<Pool>),
}

/// What a pool needs, open.
struct Opened {
    sockets: Sockets,
    settings: Settings,
    access: Option<OwnedFd>,
    slow_log: Option<File>,
    group: Option<Group>,
}

impl Executor {
    /// Gets ready for a configuration: binds what is not bound yet, looks up users, and says what the core is to be
    /// told. On an error nothing has changed.
    pub(in crate::master) fn prepare(
        &mut self,
        mut config: Config,
        extent: Extent,
    ) -> Result<(Wanted, Changes), ApplyError> {
        self.reload.count += 1;
        config.go_on_with(&self.reload.config);
        let prospects = self.prospects(&mut config, extent)?;
        let mut changes = Changes::default();
        let mut looker = Looker::default();
        let mut groups = Vec::new();
        let mut wanted = Vec::new();
        let configured = self
            .pools
            .by_id
            .iter()
            .filter(|(_, pool)| pool.listener.is_some());
        let before: Vec<PoolId> = configured.map(|(id, _)| *id).collect();
        let mut lost = Vec::new();
        for prospect in prospects {
            let next = match prospect {
                Prospect::Open(opened) => {
                    groups.extend(opened.group.clone());
                    lost.extend(opened.sockets.lost);
                    self.begin(*opened, extent, &mut looker, &mut changes)
                }
                Prospect::Unchanged(pool, generation, settings) => {
                    groups.extend(confine::group(&settings));
                    Some(WantedPool {
                        pool,
                        generation,
                        policy: policy(&settings),
                    })
                }
            };
            let Some(next) = next else { continue };
            if let Some(running) = self.pools.by_id.get_mut(&next.pool) {
                running.latest = Some(next.generation);
            }
            wanted.push(next);
        }
        let goes_on: Vec<PoolId> = wanted.iter().map(|pool: &WantedPool| pool.pool).collect();
        let removed = reload_plan::removed(&before, &goes_on, &lost).into_iter();
        changes.removed = removed.map(|id| self.pools.pool_name(id).to_owned()).collect();
        changes.skipped.clone_from(&config.skipped);
        self.pools.take_groups(groups);
        let global = &config.global;
        let wanted = Wanted {
            process_max: global.process_max,
            control_timeout: global.process_control_timeout,
            emergency: global.emergency_restart,
            gives_up: self.context.speaks_as_fpm,
            pools: wanted,
        };
        self.reload.config = config;
        self.handover.keep_config(&self.reload);
        Ok((wanted, changes))
    }

    /// Opens what each pool needs. `config` becomes what can be had of it.
    fn prospects(&mut self, config: &mut Config, extent: Extent) -> Result<Vec<Prospect>, ApplyError> {
        let written = std::mem::take(&mut config.pools);
        let skips = config.global.on_error == OnError::Skip;
        let mut identities = Identities::new();
        let mut prospects = Vec::new();
        let mut trouble = None;
        for pool in &written {
            let unchanged = self.pools.unchanged(pool);
            let found = Found {
                goes_on: config.goes_on(&pool.name),
                runs: unchanged.is_some(),
                has_lost_socket: self.pools.has_lost_socket(pool),
            };
            if found.stays(extent) {
                prospects.extend(unchanged);
                continue;
            }
            let error = match self.open_pool(pool, config.global.log_limit, &mut identities) {
                Ok(opened) => {
                    prospects.push(Prospect::Open(Box::new(opened)));
                    continue;
                }
                Err(error) => error,
            };
            if skips {
                let mut before = self.reload.config.pools.iter();
                let before = before.find(|before| before.name == pool.name);
                let unchanged = before.and_then(|before| self.pools.unchanged(before));
                config.skip(&pool.name, error.matter(), unchanged.is_some());
                prospects.extend(unchanged);
            }
            trouble = trouble.or(Some(error));
            if !skips {
                break;
            }
        }
        let is_applied = reload_plan::is_applied(trouble.is_some(), skips, prospects.len());
        match trouble.filter(|_| !is_applied) {
            Some(error) => {
                prospects.iter().for_each(Prospect::undo);
                Err(error)
            }
            None => {
                config.pools = prospects.iter().map(Prospect::pool).cloned().collect();
                Ok(prospects)
            }
        }
    }

    /// What a pool needs.
    fn open_pool<'p>(
        &mut self,
        pool: &'p Pool,
        log_limit: usize,
        identities: &mut Identities<'p>,
    ) -> Result<Opened, ApplyError> {
        let failed = |e| ApplyError::Confine(pool.name.clone(), e);
        let group = confine::check(pool).map_err(failed)?;
        let access = pool.access.as_ref().map(|access| open_file(&access.path));
        let access = access
            .transpose()
            .map_err(|e| ApplyError::AccessLog(pool.name.clone(), e))?;
        let slow_log = super::slow::open(pool).map_err(|error| {
            let path = pool.slow_log.as_ref().map(|slow| slow.path.clone());
            ApplyError::SlowLog(pool.name.clone(), path.unwrap_or_default(), error)
        })?;
        let settings = self.context.settings(pool, log_limit, identities)?;
        // Opened when the pool begins; here, whether it can be.
        super::app_log::open(&settings).map_err(|error| ApplyError::AppLog(pool.name.clone(), error))?;
        let sockets = self
            .open_sockets(pool)
            .map_err(|e| ApplyError::Listen(pool.name.clone(), e))?;
        Ok(Opened {
            sockets,
            settings,
            access,
            slow_log,
            group,
        })
    }

    /// Takes up a pool that has what it needs.
    fn begin(
        &mut self,
        opened: Opened,
        extent: Extent,
        looker: &mut Looker,
        changes: &mut Changes,
    ) -> Option<WantedPool> {
        let Opened {
            sockets,
            settings,
            access,
            slow_log,
            ..
        } = opened;
        let name = settings.pool.name.clone();
        let policy = policy(&settings.pool);
        if let Some(reason) = sockets.problem {
            log::error!("[pool {name}] {reason}");
            changes.failed.push((name.clone(), reason));
        }
        let (pool, kept) = match (sockets.known, sockets.own) {
            (Some(pool), _) => {
                self.pools.adjust_listener(&self.reload, pool, &settings.pool);
                (
                    pool,
                    Some(self.pools.kept(&self.context, pool, &settings, extent, looker)),
                )
            }
            (None, Some(listener)) => (
                self.pools.add_pool(&mut self.handover, &name, Some(listener)),
                None,
            ),
            (None, None) => return None,
        };
        if let Some(from) = sockets.lost {
            self.empty_socket(from, pool, settings.pool.applications.is_some());
        }
        if sockets.status_lost {
            log::warn!("[pool {name}] the file of its status' socket was gone: it is bound again");
        }
        let status_listen = settings.pool.status_listen.as_ref();
        self.set_reporter(pool, &name, status_listen, sockets.status);
        self.set_router(pool, &settings.pool, extent);
        let reloads_always = settings.pool.reload == ReloadWhen::Always;
        let generation = match Next::of(kept, extent, reloads_always) {
            Next::Keep(kept) => {
                self.pools.go_on(kept, access, slow_log);
                changes.kept.push(name);
                kept
            }
            Next::Replace {
                reason,
                may_join_older,
            } => {
                let generation = self
                    .pools
                    .add_generation(&self.reload, pool, settings, access, slow_log);
                self.pools.let_join_older(generation, may_join_older);
                changes.replaced.push((pool, generation, name, reason));
                generation
            }
            Next::Add { may_join_older } => {
                match sockets.lost {
                    Some(_) => changes.bound_again.push(name),
                    None => changes.added.push(name),
                }
                let generation = self
                    .pools
                    .add_generation(&self.reload, pool, settings, access, slow_log);
                self.pools.let_join_older(generation, may_join_older);
                self.pools.serves(pool, generation);
                generation
            }
        };
        Some(WantedPool {
            pool,
            generation,
            policy,
        })
    }
}

impl Pools {
    /// A pool that runs, as it is; `None`: it does not.
    fn unchanged(&self, pool: &Pool) -> Option<Prospect> {
        let id = self.pool_listening_as(pool)?;
        let running = self.by_id.get(&id)?;
        let mut generations = [running.latest, running.serving].into_iter().flatten();
        let generation = generations.find(|id| self.generations.contains_key(id))?;
        Some(Prospect::Unchanged(id, generation, Box::new(pool.clone())))
    }
}

impl Prospect {
    fn pool(&self) -> &Pool {
        match self {
            Prospect::Open(opened) => &opened.settings.pool,
            Prospect::Unchanged(_, _, pool) => pool,
        }
    }

    /// Removes the files of sockets that were opened for nothing.
    fn undo(&self) {
        if let Prospect::Open(opened) = self {
            opened.sockets.remove_files();
        }
    }
}
