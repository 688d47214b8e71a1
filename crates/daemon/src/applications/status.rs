//! The status of application pools, with the views of their routers.

use super::{AppPool, Applications, Asker, PendingStatus};
use crate::context::Context;
use crate::context::effect::{Effect, StatusAsker};
use crate::context::helper_id::HelperId;
use crate::context::pools::Pools;
use crate::context::services::Services;
use crate::programs::Programs;
use forkyard_base::tick::Tick;
use forkyard_core::master::event::PoolId;
use forkyard_core::master::instances::At;
use forkyard_protocol::control::{self as protocol, Starting, Status};
use forkyard_protocol::counters::PoolCounters;
use forkyard_protocol::router::AdminRequest;
use forkyard_sys::clock;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

const STATUS_TIMEOUT: Duration = Duration::from_secs(2);
/// For numbers, whose reader takes a master that is silent for [`STATUS_TIMEOUT`] for dead.
const NUMBERS_TIMEOUT: Duration = Duration::from_millis(200);
/// A status reads the step reports of at most this many starting processes: each costs some file reads.
const MOST_READ: usize = 32;

impl AppPool {
    fn status(&self, context: &Context, programs: &Programs, view: Option<&Value>) -> protocol::Applications {
        let now = clock::now();
        let mut looks = 0;
        let starting = self.registry.iter().filter_map(|(number, instance)| {
            let known = self.applications.get(&instance.application);
            let mut since = instance.since;
            let mut pid = None;
            let step = match instance.at {
                At::Looking => "looked at",
                At::Ordered => {
                    looks += 1;
                    let is_read = looks <= MOST_READ;
                    let start = known.and_then(|it| context.spawner.progress(it.generation, is_read));
                    match start {
                        Some((start, process)) => {
                            (since, pid) = (start.since.max(since), process);
                            start.step.name()
                        }
                        None => "ordered",
                    }
                }
                At::Made(worker) => {
                    pid = context.pools.workers.get(&worker).and_then(|it| it.pid);
                    "made"
                }
                At::Up(_) => return None,
            };
            Some(Starting {
                instance: number,
                application: instance.application.display().to_string(),
                step: step.to_owned(),
                step_for_ms: millis(now.since(since)),
                for_ms: millis(now.since(instance.asked)),
                pid,
            })
        });
        protocol::Applications {
            router: context.helpers.pid(HelperId::Router(self.id)),
            inspector: context.helpers.pid(HelperId::Inspector(self.id)),
            max: self.max,
            starting: starting.collect(),
            errors: self.last_errors.iter().map(|(error, _)| error.clone()).collect(),
            view: view.map(|view| self.with_facts(context, programs, view.clone())),
        }
    }

    /// Adds the program processes of instances, and the reason why an instance loads its application.
    fn with_facts(&self, context: &Context, programs: &Programs, mut view: Value) -> Value {
        let applications = view.get_mut("applications").and_then(Value::as_array_mut);
        let applications = applications.into_iter().flatten();
        for application in applications.filter_map(Value::as_object_mut) {
            let name = application.get("name").and_then(Value::as_str);
            let Some(known) = name.and_then(|name| self.applications.get(Path::new(name))) else {
                continue;
            };
            let programs = programs.of(&context.pools, known.pool);
            if let (false, Ok(programs)) = (programs.is_empty(), serde_json::to_value(programs)) {
                application.insert("programs".to_owned(), programs);
            }
            let generation = context.pools.generations.get(&known.generation);
            if let Some(servers) = generation.and_then(|generation| generation.make.connected_to.as_ref()) {
                application.insert("connected_to".to_owned(), servers.as_str().into());
            }
        }
        view
    }
}

impl Applications {
    /// Answers with the status once the routers have answered.
    pub(crate) fn begin_status(&mut self, context: &mut Context, asker: StatusAsker) {
        let mut waiting = 0;
        for app_pool in self.routers.values_mut() {
            let asked = app_pool.ask(&context.helpers, AdminRequest::View, Asker::View(asker));
            waiting += usize::from(asked);
        }
        self.statuses.retain(|status| status.asker != asker);
        self.statuses.push(PendingStatus {
            asker,
            until: clock::now()
                + match asker {
                    StatusAsker::Session(_) => STATUS_TIMEOUT,
                    StatusAsker::Web => NUMBERS_TIMEOUT,
                },
            waiting,
            views: Vec::new(),
        });
        if waiting == 0 {
            self.finish_status(&mut context.services, self.statuses.len() - 1);
        }
    }

    /// Takes a router's view for a client's status.
    pub(super) fn take_view(
        &mut self,
        services: &mut Services,
        asker: StatusAsker,
        id: PoolId,
        view: Option<Value>,
    ) {
        let Some(at) = self.statuses.iter().position(|it| it.asker == asker) else {
            return;
        };
        let status = &mut self.statuses[at];
        status.waiting = status.waiting.saturating_sub(1);
        status.views.extend(view.map(|view| (id, view)));
        if status.waiting == 0 {
            self.finish_status(services, at);
        }
    }

    fn finish_status(&mut self, services: &mut Services, at: usize) {
        let PendingStatus { asker, views, .. } = self.statuses.remove(at);
        services.cause(Effect::StatusDue(asker, views));
    }

    pub(crate) fn status(
        &self,
        context: &Context,
        programs: &Programs,
        id: PoolId,
        views: &[(PoolId, Value)],
    ) -> Option<protocol::Applications> {
        let view = views.iter().find(|(of, _)| *of == id).map(|(_, view)| view);
        let app_pool = self.routers.get(&id)?;
        Some(app_pool.status(context, programs, view))
    }

    pub(crate) fn deadline(&self) -> Option<Tick> {
        self.statuses.iter().map(|status| status.until).min()
    }

    pub(crate) fn poll(&mut self, services: &mut Services, now: Tick) {
        while let Some(at) = self.statuses.iter().position(|status| status.until <= now) {
            self.finish_status(services, at);
        }
    }

    /// Reduces a status to a user's own pools and applications.
    pub(crate) fn leave_own(&self, pools: &Pools, status: &mut Status, uid: u32) {
        status.config.clear();
        status.skipped.clear();
        (status.last_reload, status.daemon) = (None, None);
        (status.log, status.replaced) = (None, false);
        let is_own = |name: &str| pools.is_run_by(name, uid);
        status
            .pools
            .retain(|pool| pool.applications.is_some() || is_own(&pool.name));
        let shared = status.pools.iter_mut().filter(|pool| pool.applications.is_some());
        for pool in shared {
            pool.generations.clear();
            pool.logs.clear();
            // Totals of all owners are not shown to one.
            (pool.busy, pool.idle, pool.starting) = (0, 0, 0);
            pool.counts = PoolCounters::default();
            (pool.numbers, pool.caches) = (None, None);
            (pool.cpu_ms, pool.orphans) = (0, 0);
            let mut routers = self.routers.values();
            let app_pool = routers.find(|app_pool| app_pool.template.name == pool.name);
            let owns = |root: &str| {
                let application = app_pool.and_then(|app_pool| app_pool.applications.get(Path::new(root)));
                application.is_some_and(|application| application.is_owned_by(uid))
            };
            let Some(applications) = &mut pool.applications else {
                continue;
            };
            applications.starting.retain(|it| owns(&it.application));
            let refused = |id: &str| {
                let mut errors = app_pool.into_iter().flat_map(|it| it.last_errors.iter());
                let refusal = errors.find_map(|(error, kept)| kept.as_ref().filter(|_| error.id == id));
                refusal.is_some_and(|kept| kept.report.plan.account.uid == uid)
            };
            let errors = &mut applications.errors;
            errors.retain(|it| owns(&it.application) || refused(&it.id));
            let view = applications.view.as_mut();
            let listed = view.and_then(|view| view.get_mut("applications")?.as_array_mut());
            if let Some(listed) = listed {
                listed.retain(|it| it.get("name").and_then(Value::as_str).is_some_and(owns));
            }
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
