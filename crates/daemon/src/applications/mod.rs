//! Application pools: a router and an inspector for each, and a pool for each application with a process.
//!
//! * [`router`]: router and inspector, and their messages.
//! * [`instances`]: the router's orders, from the inspection of a directory to the end of the worker.
//! * [`admin_requests`]: operators' requests.
//! * [`deployed`]: releases of applications, and their deployments.
//! * [`status`]: the status.
//!
//! A router is not trusted. It can order and stop applications below the pool's directories, as often as the registry
//! allows, and nothing else.

mod admin_requests;
mod denied;
mod deployed;
mod instances;
mod router;
mod status;

use crate::context::Context;
use crate::context::effect::StatusAsker;
use crate::context::helper_id::HelperId;
use crate::context::helper_process::HelperProcess;
use crate::context::sites::SiteId;
use deployed::Deployed;
pub(crate) use deployed::{Looked, SiteRequest};
use forkyard_base::tick::Tick;
use forkyard_config::Pool;
use forkyard_core::life::{Happened, Rules};
use forkyard_core::master::event::{Event, GenerationId, PoolId, SpawnRequestId, WorkerId};
use forkyard_core::master::instances::InstanceRegistry;
use forkyard_core::master::reload_diff::ReloadScope;
use forkyard_core::release::steps::DeploymentId;
use forkyard_protocol::reason::Reason;
use forkyard_protocol::router::{AdminRequest, Unstarted};
use forkyard_router::inspector::protocol::FoundApplication;
use forkyard_spawn::report::ErrorId;
use instances::LastErrors;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Applications {
    routers: BTreeMap<PoolId, AppPool>,
    /// The orders that workers are made for.
    instances: HashMap<WorkerId, SpawnRequestId>,
    /// The highest number of an instance in pools that have ended.
    last_instance: u64,
    /// Clients that wait for a status.
    statuses: Vec<PendingStatus>,
    /// Clients that wait for restarts in several routers.
    restarts: Vec<PendingRestart>,
    pub(crate) deployed: Deployed,
}

/// Who gets a router's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asker {
    NoClient,
    Session(u64),
    /// `None`: the client has gone.
    Lease(Option<u64>),
    View(StatusAsker),
    /// A restart in several pools, for this conversation.
    Restart(u64),
    /// The start of a release that is deployed.
    Trial(SiteId, DeploymentId),
}

#[derive(Debug)]
struct PendingRestart {
    asker: u64,
    waiting: usize,
    done: Option<Value>,
    refused: Option<String>,
    is_strict: bool,
}

#[derive(Debug)]
struct PendingStatus {
    asker: StatusAsker,
    until: Tick,
    waiting: usize,
    views: Vec<(PoolId, Value)>,
}

#[derive(Debug)]
struct AppPool {
    id: PoolId,
    template: Pool,
    /// The most instances; an operator may have changed it.
    max: u32,
    /// The user of router and inspector; `None`: the daemon's.
    runs_as: Option<u32>,
    sockets: Sockets,
    /// The access log that was opened last, for when it can't be opened.
    access: Option<OwnedFd>,
    /// Messages that wait for room in the router's channel.
    unsent: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    registry: InstanceRegistry,
    applications: HashMap<PathBuf, RunningApplication>,
    asked: BTreeMap<u64, Asker>,
    last_asked: u64,
    last_errors: LastErrors,
    /// The conversations that hold leases, by lease.
    leases: BTreeMap<u64, u64>,
}

/// The connections to the inspector, which outlive it: both its ends, the router's, and the master's.
#[derive(Debug)]
struct Sockets {
    inspector: (OwnedFd, OwnedFd),
    router: OwnedFd,
    master: OwnedFd,
}

#[derive(Debug)]
struct RunningApplication {
    pool: PoolId,
    generation: GenerationId,
    /// The router's number of the restart that the generation was made for.
    restarts: u32,
    settings: Arc<Pool>,
    found: FoundApplication,
    failure: Option<PreloaderFailure>,
}

#[derive(Debug, Clone)]
struct PreloaderFailure {
    error: ErrorId,
    why: String,
    /// The report's page, if visitors may see it.
    page: Option<String>,
}

impl RunningApplication {
    fn is_owned_by(&self, uid: u32) -> bool {
        let user = self.settings.account.user.as_deref();
        let runs_as = user.and_then(|user| user.parse::<u32>().ok());
        uid != 0 && (self.found.owner.0 == uid || runs_as == Some(uid))
    }
}

impl Applications {
    pub(crate) fn has_routers(&self) -> bool {
        !self.routers.is_empty()
    }

    /// The most instances of an application pool.
    pub(crate) fn max(&self, id: PoolId) -> Option<u32> {
        self.routers.get(&id).map(|app_pool| app_pool.max)
    }

    /// Removes a pool at once. Returns the pools that the core closes.
    pub(crate) fn expel(&self, context: &mut Context, id: PoolId) -> Vec<PoolId> {
        let app_pool = self.routers.get(&id).into_iter();
        let of_applications = app_pool.flat_map(|it| it.applications.values().map(|it| it.pool));
        context.helpers.kill(HelperId::Router(id));
        self.dismiss(context, id, Duration::ZERO);
        of_applications.chain([id]).collect()
    }

    /// Applies a configuration to a pool that may be an application pool.
    pub(crate) fn set(&mut self, context: &mut Context, id: PoolId, wanted: &Pool, extent: ReloadScope) {
        let Some(applications) = &wanted.applications else {
            return self.dismiss(context, id, Duration::ZERO);
        };
        let Some(app_pool) = self.routers.get_mut(&id) else {
            match AppPool::new(id, wanted, self.last_instance) {
                Ok(app_pool) => {
                    for helper in [HelperId::Inspector(id), HelperId::Router(id)] {
                        context.helpers.want(helper, Some(&wanted.name), Rules::ROUTER);
                    }
                    self.routers.insert(id, app_pool);
                }
                Err(error) => log::error!("[pool {}] can't have a router: {error}", wanted.name),
            }
            return;
        };
        if app_pool.template == *wanted && extent == ReloadScope::Changed {
            return;
        }
        let before = app_pool.template.applications.as_ref();
        let is_other_inspector = before.is_none_or(|before| !before.has_inspector_for(applications));
        if before.map(|it| it.max) != Some(applications.max) {
            app_pool.max = applications.max.get();
        }
        app_pool.template = wanted.clone();
        app_pool.say_settings(&context.helpers, Vec::new());
        app_pool.say_access_log(context);
        if is_other_inspector {
            // The next inspector has the new settings.
            context.helpers.replace(HelperId::Inspector(id));
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
            app_pool.ask(&context.helpers, what, Asker::NoClient);
        }
    }

    /// The pool is no longer an application pool; waiting requests are still served.
    pub(crate) fn dismiss(&self, context: &mut Context, id: PoolId, limit: Duration) {
        let (router, leave) = (HelperId::Router(id), Happened::Leave(limit));
        context.helpers.tell(&mut context.services, router, leave);
    }

    /// Lets every router finish.
    pub(crate) fn finish(&self, context: &mut Context) {
        let limit = context.in_force.config.global.process_control_timeout;
        for id in self.routers.keys() {
            self.dismiss(context, *id, limit);
        }
    }

    pub(crate) fn kill(&self, context: &mut Context) {
        for id in self.routers.keys() {
            context.helpers.kill(HelperId::Router(*id));
            context.helpers.kill(HelperId::Inspector(*id));
            self.dismiss(context, *id, Duration::ZERO);
        }
    }

    /// Starts routers for pools without one, after an upgrade failed that was to end them.
    pub(crate) fn raise(&mut self, context: &mut Context) {
        let pools = context.in_force.config.pools.iter();
        let pools: Vec<Arc<Pool>> = pools.filter(|it| it.applications.is_some()).cloned().collect();
        for pool in pools {
            if let Some(id) = context.pools.pools_named(&pool.name).first() {
                self.set(context, *id, &pool, ReloadScope::Changed);
            }
        }
    }

    fn router_ended(&mut self, context: &mut Context, id: PoolId) {
        let Some(app_pool) = self.routers.remove(&id) else {
            return;
        };
        self.last_instance = self.last_instance.max(app_pool.registry.last());
        context.remove_helper(HelperId::Router(id));
        let inspector = context.remove_helper(HelperId::Inspector(id));
        inspector.iter().for_each(HelperProcess::kill);
        let pools = app_pool.applications.values().map(|it| it.pool);
        context.services.happened.extend(pools.map(Event::Disband));
        for asked in app_pool.asked.into_values() {
            self.answered(context, id, asked, Err(Reason("the pool ends".to_owned())));
        }
    }
}
