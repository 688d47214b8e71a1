//! Prepares a configuration: opens what its pools need, and returns the core's event. [`forkyard_core::master::reload_plan`]
//! decides about each pool.

use super::sockets::Sockets;
use crate::autopilot::Autopilots;
use crate::context::Context;
use crate::context::apply_error::{ApplyError, PoolFault};
use crate::context::effect::{Effect, PoolConfigured};
use crate::context::generation::open_access_log;
use crate::context::pools::{Pools, policy};
use crate::helpers::jobs::Jobs;
use crate::helpers::reporter::Reporters;
use crate::helpers::web::Web;
use crate::pools::settings::Identities;
use crate::releases::release::Releases;
use forkyard_config::{Config, Global, Logs, OnError, Pool, ReloadWhen};
use forkyard_core::master::event::{CoreConfig, GenerationId, Policy, PoolId, WantedPool};
use forkyard_core::master::reload_diff::ReloadScope;
use forkyard_core::master::reload_plan::{self, Changes, Next, PoolFacts};
use forkyard_core::zygotes::{self, Renewal};
use forkyard_host::confine::{self, Group};
use forkyard_runtimes::php::files::FingerprintCache;
use forkyard_sys::{accounts, clock};
use forkyard_worker::Settings;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// A pool that had a worker within this time is tried before another generation takes over.
const LATELY: Duration = Duration::from_secs(3600);

/// The parts that a configuration concerns.
pub(crate) struct ReloadedParts<'p> {
    pub(crate) reporters: &'p Reporters,
    pub(crate) jobs: &'p mut Jobs,
    pub(crate) web: &'p mut Web,
    pub(crate) autopilots: &'p mut Autopilots,
    pub(crate) releases: &'p Releases,
}

/// A configuration that can be applied.
pub(crate) struct Prepared {
    pub(crate) renewal: Renewal,
    pub(crate) wanted: CoreConfig,
    pub(crate) changes: Changes,
    pub(crate) config: Config,
}

enum Prospect {
    Open(Box<Opened>),
    Unchanged(PoolId, GenerationId, Arc<Pool>),
}

/// The resources that a pool needs, opened before anything starts, so that an error changes nothing.
struct Opened {
    /// The pool as the configuration has it; the settings have the paths of its release.
    written: Arc<Pool>,
    sockets: Sockets,
    settings: Settings,
    access: Option<OwnedFd>,
    slow_log: Option<File>,
    group: Option<Group>,
}

impl Context {
    /// Prepares a configuration: binds sockets, looks up users, and returns the core's event. After an error nothing
    /// has changed.
    pub(crate) fn prepare(
        &mut self,
        parts: &mut ReloadedParts<'_>,
        mut config: Config,
        extent: ReloadScope,
    ) -> Result<Prepared, ApplyError> {
        self.in_force.count += 1;
        self.services.make_room(&config);
        self.handover.measure_store(&config);
        config.go_on_with(&self.in_force.config);
        let _accounts = accounts::hold();
        parts.jobs.tcp.prepare(&mut self.handover, &config)?;
        parts.web.prepare(&mut self.handover, &config)?;
        let prospects = match self.prospects(parts, &mut config, extent) {
            Ok(prospects) => prospects,
            Err(error) => {
                if reload_plan::gives_up_sockets(self.in_force.count == 1) {
                    parts.jobs.tcp.give_up();
                    parts.web.give_up();
                }
                return Err(error);
            }
        };
        let mut changes = Changes::default();
        let mut fingerprints = FingerprintCache::default();
        let mut groups = Vec::new();
        let mut wanted = Vec::new();
        let running = self.pools.by_id.iter();
        let configured = running.filter(|(_, pool)| pool.listener.is_some());
        let before: Vec<PoolId> = configured.map(|(id, _)| *id).collect();
        let mut lost = Vec::new();
        for prospect in prospects {
            let next = match prospect {
                Prospect::Open(opened) => {
                    groups.extend(opened.group.clone());
                    lost.extend(opened.sockets.lost);
                    self.begin(parts, *opened, extent, &mut fingerprints, &mut changes)
                }
                Prospect::Unchanged(pool, generation, settings) => {
                    groups.extend(confine::group(&self.services.in_force(&settings)));
                    Some(WantedPool {
                        pool,
                        generation,
                        policy: policy(&settings),
                        trial: false,
                        share: None,
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
        self.processes.oom_kills.watch(&self.pools.groups);
        let global = &config.global;
        let wanted = CoreConfig {
            process_max: global.process_max,
            control_timeout: global.process_control_timeout,
            emergency: global.emergency_restart,
            gives_up: self.services.speaks_as_fpm,
            pools: wanted,
        };
        let is_always_replaced = |pool: &Arc<Pool>| pool.replacement.reload == ReloadWhen::Always;
        let replaces_always = config.pools.iter().any(is_always_replaced);
        Ok(Prepared {
            renewal: zygotes::renewal(extent, self.in_force.count == 1, replaces_always),
            wanted,
            changes,
            config,
        })
    }

    /// Opens what each pool needs. Removes from `config` what can't be applied.
    fn prospects(
        &mut self,
        parts: &ReloadedParts<'_>,
        config: &mut Config,
        extent: ReloadScope,
    ) -> Result<Vec<Prospect>, ApplyError> {
        let mut written = std::mem::take(&mut config.pools);
        // Unchanged pools share the memory of the previous configuration, which makes a reload of many cheap.
        for pool in &mut written {
            if let Some(before) = self.in_force.pool(&pool.name).filter(|before| *before == pool) {
                *pool = before.clone();
            }
        }
        let skips = config.global.on_error == OnError::Skip;
        let mut identities = Identities::new();
        let mut prospects = Vec::new();
        let mut trouble = None;
        for pool in &written {
            let unchanged = self.pools.unchanged(pool);
            let found = PoolFacts {
                goes_on: config.goes_on(&pool.name),
                runs: unchanged.is_some(),
                has_lost_socket: self.pools.has_lost_socket(pool),
            };
            if found.stays(extent) {
                prospects.extend(unchanged);
                continue;
            }
            let fault = match self.open_pool(parts, pool, &config.global, extent, &mut identities) {
                Ok(opened) => {
                    prospects.push(Prospect::Open(Box::new(opened)));
                    continue;
                }
                Err(fault) => fault,
            };
            if skips {
                let before = self.in_force.pool(&pool.name);
                let unchanged = before.and_then(|before| self.pools.unchanged(before));
                config.skip(&pool.name, fault.to_string(), unchanged.is_some());
                prospects.extend(unchanged);
            }
            trouble = trouble.or(Some(ApplyError::Pool(pool.name.clone(), fault)));
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

    /// Logs that a running pool goes on without opening its log, or returns the fault of another pool or another log. A log
    /// must not stop a site, at an upgrade or with a killed master.
    fn go_on_without<L: PartialEq>(
        &self,
        pool: &Pool,
        fault: PoolFault,
        log: impl Fn(&Logs) -> &L,
    ) -> Result<(), PoolFault> {
        let running = self.pools.pool_listening_as(pool);
        let before = running.and_then(|_| self.in_force.pool(&pool.name));
        if before.is_none_or(|before| log(&before.logs) != log(&pool.logs)) {
            return Err(fault);
        }
        log::error!("[pool {}] {fault}; the pool goes on", pool.name);
        Ok(())
    }

    fn open_pool<'p>(
        &mut self,
        parts: &ReloadedParts<'_>,
        pool: &'p Arc<Pool>,
        global: &Global,
        extent: ReloadScope,
        identities: &mut Identities<'p>,
    ) -> Result<Opened, PoolFault> {
        let access = open_access_log(pool).or_else(|error| {
            let fault = PoolFault::AccessLog(error);
            self.go_on_without(pool, fault, |logs| &logs.access)
                .map(|()| self.pools.open_access_log_of(pool))
        })?;
        let slow_log = crate::workers::slow::open(pool).or_else(|error| {
            let path = pool.logs.slow_log.as_ref().map(|slow| slow.path.clone());
            let fault = PoolFault::SlowLog(path.unwrap_or_default(), error);
            self.go_on_without(pool, fault, |logs| &logs.slow_log)
                .map(|()| None)
        })?;
        let settings = self.services.settings(pool, global, identities)?;
        let settings = parts.releases.in_release(self, settings, extent)?;
        let group = confine::check(&settings.pool)?;
        // Only checked here; the pool opens it later.
        crate::context::app_log::check(&settings)
            .or_else(|error| self.go_on_without(pool, PoolFault::AppLog(error), |logs| &logs.app_log))?;
        let sockets = self
            .open_sockets(parts.reporters, pool)
            .map_err(PoolFault::Listen)?;
        Ok(Opened {
            written: Arc::clone(pool),
            sockets,
            settings,
            access,
            slow_log,
            group,
        })
    }

    fn begin(
        &mut self,
        parts: &mut ReloadedParts<'_>,
        opened: Opened,
        extent: ReloadScope,
        fingerprints: &mut FingerprintCache,
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
        let choice = parts.autopilots.first_choice(&settings.pool);
        let policy = Policy {
            choice,
            ..policy(&settings.pool)
        };
        if let Some(reason) = sockets.problem {
            log::error!("[pool {name}] {reason}");
            changes.failed.push((name.clone(), reason));
        }
        let (pool, kept) = match (sockets.known, sockets.own) {
            (Some(id), _) => {
                self.pools.adjust_listener(&self.in_force, id, &settings.pool);
                let services = &self.services;
                let kept = self.pools.kept(services, id, &settings, extent, fingerprints);
                (id, Some(kept))
            }
            (None, Some(listener)) => {
                let id = self.pools.add_pool(&mut self.handover, &name, Some(listener));
                (id, None)
            }
            (None, None) => return None,
        };
        if let Some(from) = sockets.lost {
            self.empty_socket(from, pool, settings.pool.applications.is_some());
        }
        if sockets.status_lost {
            log::warn!("[pool {name}] the file of its status' socket was gone: it is bound again");
        }
        let http_listen = settings.pool.http_listen.as_deref();
        let before = self.in_force.pool(&name).and_then(|it| it.http_listen.as_deref());
        self.pools.set_http(
            &mut self.services,
            &mut self.handover,
            pool,
            (before, http_listen),
            sockets.http,
        );
        self.services
            .cause(Effect::PoolConfigured(Box::new(PoolConfigured {
                pool,
                settings: settings.pool.clone(),
                status: sockets.status,
                extent,
            })));
        let is_routed = settings.pool.applications.is_some();
        let next = Next::of(kept);
        let trial = !is_routed && next.is_tried(extent, pool, self.pools.was_used_lately(pool));
        let handover = &mut self.handover;
        let generation = match next {
            Next::Keep(kept) => {
                self.pools.keep(kept, access, slow_log);
                changes.kept.push(name);
                kept
            }
            Next::Replace(reason) => {
                let generation = self
                    .pools
                    .add_generation(handover, pool, settings, access, slow_log);
                changes.replaced.push((pool, generation, name, reason));
                // A pool without a worker at an upgrade has no adopted generation that could serve.
                if self.pools.by_id.get(&pool).is_some_and(|it| it.serving.is_none()) {
                    self.pools.serves(pool, generation);
                }
                generation
            }
            Next::Add => {
                let generation = self
                    .pools
                    .add_generation(handover, pool, settings, access, slow_log);
                let begins = match sockets.lost {
                    Some(_) => &mut changes.bound_again,
                    None => &mut changes.added,
                };
                begins.push((pool, generation, name));
                self.pools.serves(pool, generation);
                generation
            }
        };
        if let Some(new) = self.pools.generations.get_mut(&generation) {
            new.choice = new.choice.or(choice);
        }
        Some(WantedPool {
            pool,
            generation,
            policy,
            trial,
            share: parts.releases.share(pool),
        })
    }
}

impl Pools {
    /// Whether the pool has or recently had a worker, so requests are likely.
    fn was_used_lately(&self, id: PoolId) -> bool {
        let Some(pool) = self.by_id.get(&id) else {
            return false;
        };
        let has_worker = pool.serving.is_some_and(|serving| self.has_workers(serving));
        has_worker || pool.left_at.is_some_and(|left| clock::now().since(left) < LATELY)
    }

    /// A running pool without changes; `None`: it does not run.
    fn unchanged(&self, pool: &Arc<Pool>) -> Option<Prospect> {
        let id = self.pool_listening_as(pool)?;
        let running = self.by_id.get(&id)?;
        let mut generations = [running.latest, running.serving].into_iter().flatten();
        let generation = generations.find(|id| self.generations.contains_key(id))?;
        Some(Prospect::Unchanged(id, generation, pool.clone()))
    }
}

impl Prospect {
    fn pool(&self) -> &Arc<Pool> {
        match self {
            Prospect::Open(opened) => &opened.written,
            Prospect::Unchanged(_, _, pool) => pool,
        }
    }

    fn undo(&self) {
        if let Prospect::Open(opened) = self {
            opened.sockets.remove_files();
        }
    }
}
