//! Application pools: a router and an inspector for each, and a pool for each application with a process.
//!
//! * [`router`]: router and inspector, and their messages.
//! * [`instances`]: the router's orders, from the inspection of a directory to the end of the worker.
//! * [`admin_requests`]: operators' requests.
//!
//! A router is not trusted. It can order and stop applications below the pool's directories, as often as the registry
//! allows, and nothing else.

mod admin_requests;
mod denied;
mod instances;
mod router;

use super::helper_process::{HelperId, HelperProcess};
use super::{Executor, Pools, Reload, Who};
use crate::config::Pool;
use crate::inspector::protocol::FoundApplication;
use crate::life::Happened;
use crate::master::event::{Event, GenerationId, PoolId, SpawnRequestId, WorkerId};
use crate::master::instances::InstanceRegistry;
use crate::master::reload_diff::ReloadScope;
use forkyard_protocol::router::{AdminRequest, ToRouter, Unstarted};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(super) use admin_requests::{Asker, PendingRestart, PendingStatus};

#[derive(Debug, Default)]
pub(in crate::master) struct Applications {
    pub(super) routers: BTreeMap<PoolId, AppPool>,
    /// The instance of each ordered worker.
    pub(super) instances: HashMap<WorkerId, SpawnRequestId>,
    /// Clients that wait for a status.
    pub(super) statuses: Vec<PendingStatus>,
    /// Clients that wait for restarts in several routers.
    pub(super) restarts: Vec<PendingRestart>,
}

#[derive(Debug)]
pub(super) struct AppPool {
    pub(super) template: Pool,
    /// The most instances; an operator may have changed it.
    pub(super) max: u32,
    /// The user of router and inspector; `None`: the daemon's.
    runs_as: Option<u32>,
    pub(super) router: HelperProcess,
    pub(super) inspector: HelperProcess,
    sockets: Sockets,
    pub(super) registry: InstanceRegistry,
    pub(super) applications: HashMap<PathBuf, RunningApplication>,
    pub(super) asked: BTreeMap<u64, Asker>,
    last_asked: u64,
    last_errors: instances::LastErrors,
    leases: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct Sockets {
    inspector: (OwnedFd, OwnedFd),
    router: OwnedFd,
    master: OwnedFd,
}

#[derive(Debug)]
pub(super) struct RunningApplication {
    pub(super) pool: PoolId,
    pub(super) generation: GenerationId,
    /// The router's number of the restart that the generation was made for.
    restarts: u32,
    settings: Pool,
    found: FoundApplication,
    failure: Option<PreloaderFailure>,
}

#[derive(Debug, Clone)]
struct PreloaderFailure {
    error: String,
    why: String,
    /// The report's page, if visitors may see it.
    page: Option<String>,
}

impl RunningApplication {
    pub(super) fn is_owned_by(&self, uid: u32) -> bool {
        let runs_as = self
            .settings
            .user
            .as_deref()
            .and_then(|user| user.parse::<u32>().ok());
        uid != 0 && (self.found.owner.0 == uid || runs_as == Some(uid))
    }
}

impl Executor {
    pub(in crate::master) fn expel(&mut self, id: PoolId) -> Vec<PoolId> {
        let Some(app_pool) = self.applications.routers.get(&id) else {
            return vec![id];
        };
        let of_applications = app_pool.applications.values().map(|application| application.pool);
        let pools = of_applications.chain([id]).collect();
        app_pool.router.kill();
        self.dismiss_router(id, Duration::ZERO);
        pools
    }

    /// Applies a configuration to a pool that may be an application pool.
    pub(super) fn set_router(&mut self, id: PoolId, wanted: &Pool, extent: ReloadScope) {
        let Some(applications) = &wanted.applications else {
            return self.dismiss_router(id, Duration::ZERO);
        };
        let Some(app_pool) = self.applications.routers.get_mut(&id) else {
            match AppPool::new(wanted) {
                Ok(app_pool) => _ = self.applications.routers.insert(id, app_pool),
                Err(error) => log::error!("[pool {}] can't have a router: {error}", wanted.name),
            }
            return;
        };
        if app_pool.template == *wanted && extent == ReloadScope::Changed {
            return;
        }
        let before = app_pool.template.applications.as_ref();
        let is_other_inspector = before.is_none_or(|before| !before.has_inspector_for(applications));
        if app_pool.template.applications.as_ref().map(|it| it.max) != Some(applications.max) {
            app_pool.max = applications.max.get();
        }
        app_pool.template = wanted.clone();
        app_pool.say(&ToRouter::Settings(Box::new(wanted.clone())), Vec::new());
        if is_other_inspector {
            // The next inspector has the new settings.
            app_pool.inspector.is_outdated = true;
            app_pool.inspector.kill();
        }
        let changed = app_pool.applications.iter().filter(|(_, application)| {
            extent == ReloadScope::All
                || instances::resolve(&app_pool.template, app_pool.max, &application.found)
                    .is_ok_and(|now| !application.settings.has_instances_for(&now))
        });
        let changed: Vec<PathBuf> = changed.map(|(root, _)| root.clone()).collect();
        for application in changed {
            let what = AdminRequest::Restart {
                application,
                rolling: None,
                unstarted: Unstarted::Stays,
            };
            app_pool.ask(what, Asker::NoClient);
        }
    }

    /// The pool is no longer an application pool; waiting requests are still served.
    pub(super) fn dismiss_router(&mut self, id: PoolId, limit: Duration) {
        self.tell_helper(HelperId::Router(id), Happened::Leave(limit));
    }

    /// Lets every router finish. Returns `false` if there is none.
    pub(in crate::master) fn finish_routers(&mut self) -> bool {
        let limit = self.reload.config.global.process_control_timeout;
        let ids: Vec<PoolId> = self.applications.routers.keys().copied().collect();
        for id in ids {
            self.dismiss_router(id, limit);
        }
        self.applications.has_routers()
    }

    pub(in crate::master) fn kill_routers(&mut self) {
        for app_pool in self.applications.routers.values() {
            app_pool.router.kill();
            app_pool.inspector.kill();
        }
        let ids: Vec<PoolId> = self.applications.routers.keys().copied().collect();
        for id in ids {
            self.dismiss_router(id, Duration::ZERO);
        }
    }

    pub(in crate::master) fn end_routers(&mut self) {
        let helper_processes = self
            .applications
            .routers
            .values()
            .flat_map(|app_pool| [&app_pool.router, &app_pool.inspector]);
        let mut pids: Vec<i32> = helper_processes.filter_map(HelperProcess::pid).collect();
        self.kill_routers();
        let is_old = |(_, who): &(&i32, &Who)| {
            matches!(who, Who::Helper(HelperId::Router(_) | HelperId::Inspector(_)))
        };
        let old = self.processes.by_pid.iter().filter(is_old);
        pids.extend(old.map(|(pid, _)| *pid));
        pids.sort_unstable();
        pids.dedup();
        for pid in pids {
            crate::sys::process::kill_and_reap(pid);
        }
        self.applications.routers.clear();
    }

    /// Starts routers for pools without one, after an upgrade failed that was to end them.
    pub(in crate::master) fn raise_routers(&mut self) {
        let pools: Vec<Arc<Pool>> = self
            .reload
            .config
            .pools
            .iter()
            .filter(|it| it.applications.is_some())
            .cloned()
            .collect();
        for pool in pools {
            if let Some(id) = self.pools.pools_named(&pool.name).first() {
                self.set_router(*id, &pool, ReloadScope::Changed);
            }
        }
    }

    pub(super) fn finish_router(&mut self, id: PoolId, happened: Happened) {
        let app_pool = self.applications.routers.get_mut(&id);
        if let (Some(app_pool), Happened::Leave(limit)) = (app_pool, happened) {
            app_pool.say(&ToRouter::Finish(Some(limit)), Vec::new());
        }
    }

    pub(super) fn router_ended(&mut self, id: PoolId) {
        let Some(app_pool) = self.applications.routers.remove(&id) else {
            return;
        };
        app_pool.inspector.kill();
        self.context.forget_helper_processes(&app_pool);
        for application in app_pool.applications.values() {
            self.context.happened.push_back(Event::Disband(application.pool));
        }
        for (_, asked) in app_pool.asked {
            self.answered(asked, Err("the pool ends".to_owned()));
        }
    }
}

impl Reload {
    pub(in crate::master) fn config(&self) -> &crate::config::Config {
        &self.config
    }
}

impl Pools {
    pub(in crate::master) fn pools_named(&self, name: &str) -> Vec<PoolId> {
        let name = name.to_owned();
        let named = self.by_id.of(&name).filter(|(_, pool)| pool.listener.is_some());
        named.map(|(id, _)| id).collect()
    }
}

impl Applications {
    pub(in crate::master) fn has_routers(&self) -> bool {
        !self.routers.is_empty()
    }
}
