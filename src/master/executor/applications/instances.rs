//! Instances: from the inspection of a directory to the end of the worker.

use super::super::pools::policy;
use super::super::{Applications, Context, Executor, Pools, WorkerProcess};
use super::denied::{Denied, Matter};
use super::{AppPool, PreloaderFailure, RunningApplication};
use crate::config::{Pool, ProcessManager};
use crate::confine;
use crate::control::protocol::StartError;
use crate::inspector::protocol::{FoundApplication, InspectReply};
use crate::logs::open_file;
use crate::master::event::{Event, GenerationId, PoolId, SpawnRequest, SpawnRequestId, WorkerId};
use crate::master::failed_starts::Kept;
use crate::master::instances::{At, Instance as RegisteredInstance};
use crate::spawn::report::{ErrorId, Report};
use crate::sys::{clock, identity};
use forkyard_protocol::router::{Instance, ToMaster, ToRouter};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The longest page in a router's message, bytes; the rest of the message fits next to it.
const LONGEST_PAGE: usize = forkyard_protocol::router::MOST_BYTES - 4096;

/// The reason for an order without a worker; the log has the details.
const NOT_MADE: &str = "its process could not be made, or ended before it was ready";

impl Executor {
    pub(super) fn router_said(&mut self, id: PoolId, message: ToMaster) {
        match message {
            ToMaster::Spawn {
                instance,
                application,
                restarts,
            } => self
                .applications
                .spawn_instance(id, instance, application, restarts),
            ToMaster::Stop { instance, kill } => {
                self.applications
                    .stop_instance(&mut self.context, id, instance, kill)
            }
            ToMaster::Done {
                admin_request,
                result,
            } => {
                let app_pool = self.applications.routers.get_mut(&id);
                let asked = app_pool.and_then(|app_pool| app_pool.asked.remove(&admin_request));
                if let Some(asked) = asked {
                    self.answered(asked, result);
                }
            }
            ToMaster::Finished => {}
        }
    }

    /// The inspector has answered: the instance can be ordered.
    pub(super) fn seen(&mut self, id: PoolId, seen: InspectReply) {
        let Some(app_pool) = self.applications.routers.get_mut(&id) else {
            return;
        };
        let InspectReply { found, refusal, .. } = seen;
        let number = seen.number;
        let instance = app_pool.registry.get(number);
        if instance.is_none_or(|instance| instance.at != At::Looking) {
            // The router has told its visitors.
            if let (Err(why), Some(refusal)) = (&found, &refusal) {
                app_pool.keep_refusal(ErrorId(refusal.id), &refusal.root, refusal.owner, why);
            }
            return;
        }
        let ordered = match found {
            Ok(found) => self.order_instance(id, number, found),
            Err(why) => Err(Denied::by_inspector(why, refusal)),
        };
        if let Err(denied) = ordered {
            self.applications.end_instance(id, number, &denied);
        }
    }

    fn order_instance(&mut self, id: PoolId, number: u64, found: FoundApplication) -> Result<(), Denied> {
        let closed = || Denied::for_now("the pool is closed");
        let owner = found.owner;
        let for_owner = |why| Denied {
            why,
            report: Some(Matter {
                id: None,
                owner: Some(owner),
            }),
        };
        let app_pool = self.applications.routers.get(&id).ok_or_else(closed)?;
        let Some(instance) = app_pool.registry.get(number) else {
            return Ok(());
        };
        if instance.application != found.root {
            return Err(for_owner(format!("it is at {} now", found.root.display())));
        }
        let settings = resolve(&app_pool.template, app_pool.max, &found).map_err(for_owner)?;
        may_run_beside(app_pool, &settings).map_err(for_owner)?;
        let (root, restarts) = (found.root.clone(), instance.restarts);
        let origin = settings.origin.clone();
        let known = app_pool.applications.get(&root);
        let known = known.filter(|it| self.pools.by_id.contains_key(&it.pool));
        let present = known.filter(|it| {
            let has_room = it.settings.pm.max_children() >= settings.pm.max_children();
            let is_present = it.restarts >= restarts && self.pools.generations.contains_key(&it.generation);
            is_present && has_room && it.settings.has_instances_for(&settings)
        });
        let policy = policy(&settings);
        // Instances forked from one load share its revision.
        let revision = present.map_or(&found, |it| &it.found).revision.clone();
        let (pool, generation) = match present.map(|it| (it.pool, it.generation)) {
            Some(present) => present,
            None => {
                let pool = known.map(|it| it.pool);
                let begun = self.begin_application(id, pool, settings, found, restarts);
                begun.map_err(Denied::for_root)?
            }
        };
        let order = request(id, number);
        if let Some(instance) = self.applications.instance(order) {
            instance.come_to(At::Ordered, clock::now());
            (instance.revision, instance.origin) = (revision, origin);
        }
        self.context.happened.push_back(Event::SpawnRequest(SpawnRequest {
            order,
            pool,
            generation,
            policy,
        }));
        Ok(())
    }

    fn begin_application(
        &mut self,
        id: PoolId,
        pool: Option<PoolId>,
        settings: Pool,
        found: FoundApplication,
        restarts: u32,
    ) -> Result<(PoolId, GenerationId), String> {
        let group = confine::check(&settings).map_err(|error| error.to_string())?;
        let access = settings.access.as_ref().map(|access| open_file(&access.path));
        let access = access
            .transpose()
            .map_err(|error| format!("access log: {error}"))?;
        let slow = super::super::slow::open(&settings).map_err(|error| format!("slow log: {error}"))?;
        let settings = Arc::new(settings);
        let global = &self.reload.config.global;
        let own = self.context.settings(&settings, global, &mut HashMap::new());
        let own = own.map_err(|error| error.to_string())?;
        self.pools
            .groups
            .extend(group.filter(|group| !self.pools.groups.contains(group)));
        let pool = match pool {
            Some(pool) => pool,
            None => self
                .pools
                .add_pool_of_application(&mut self.handover, &settings.name),
        };
        let generation = self
            .pools
            .add_generation(&mut self.handover, pool, own, access, slow);
        self.pools.serves(pool, generation);
        if let Some(app_pool) = self.pools.by_id.get_mut(&pool) {
            app_pool.latest = Some(generation);
        }
        if let Some(app_pool) = self.applications.routers.get_mut(&id) {
            let application = RunningApplication {
                pool,
                generation,
                restarts,
                settings: settings.as_ref().clone(),
                found: found.clone(),
                failure: None,
            };
            app_pool.applications.insert(found.root, application);
        }
        Ok((pool, generation))
    }

    pub(in crate::master::executor) fn orphan_instances(&mut self, id: PoolId) {
        let Some(app_pool) = self.applications.routers.get_mut(&id) else {
            return;
        };
        for number in app_pool.registry.orphan() {
            match app_pool.registry.get(number).map(|instance| instance.at) {
                Some(At::Looking) => _ = app_pool.registry.remove(number),
                Some(At::Ordered | At::Made(_) | At::Up(_)) => {
                    let cancel = Event::Cancel(request(id, number), false);
                    self.context.happened.push_back(cancel);
                }
                None => {}
            }
        }
        for (_, asked) in std::mem::take(&mut app_pool.asked) {
            self.answered(asked, Err("the router is gone; ask again".to_owned()));
        }
    }
}

fn request(router: PoolId, instance: u64) -> SpawnRequestId {
    SpawnRequestId { router, instance }
}

/// An instance as its router is told of it.
pub(super) fn told(number: u64, instance: &RegisteredInstance, pid: i32) -> Instance {
    Instance {
        instance: number,
        application: instance.application.clone(),
        restarts: instance.restarts,
        pid,
        revision: instance.revision.clone(),
        origin: instance.origin.clone(),
    }
}

impl Applications {
    fn spawn_instance(&mut self, id: PoolId, number: u64, application: PathBuf, restarts: u32) {
        let Some(app_pool) = self.routers.get_mut(&id) else {
            return;
        };
        if let Err(denial) =
            app_pool
                .registry
                .admit(number, application.clone(), restarts, app_pool.max, clock::now())
        {
            let denied = Denied::for_now(&denial.to_string());
            let failed = app_pool.start_failed(number, &application, None, &denied);
            return app_pool.say(&failed, Vec::new());
        }
        app_pool.look_at(number, &application);
    }

    fn stop_instance(&mut self, context: &mut Context, id: PoolId, number: u64, kill: bool) {
        let order = request(id, number);
        let Some(instance) = self.instance(order) else {
            return;
        };
        instance.is_stopping = true;
        match instance.at {
            At::Looking => self.end_instance(id, number, &Denied::for_now(NOT_MADE)),
            At::Ordered | At::Made(_) | At::Up(_) => {
                context.happened.push_back(Event::Cancel(order, kill));
            }
        }
    }

    /// Records the worker that is about to be started for an order.
    pub(in crate::master::executor) fn fill_order(&mut self, order: SpawnRequestId, worker: WorkerId) {
        self.instances.insert(worker, order);
        if let Some(instance) = self.instance(order) {
            instance.come_to(At::Made(worker), clock::now());
        }
    }

    /// The core gave up an order.
    pub(in crate::master::executor) fn fail_order(&mut self, order: SpawnRequestId) {
        self.end_instance(order.router, order.instance, &Denied::for_now(NOT_MADE));
    }

    /// A worker could not be forked; its order may get another.
    pub(in crate::master::executor) fn instance_not_made(&mut self, worker: WorkerId) {
        let order = self.instances.remove(&worker);
        if let Some(instance) = order.and_then(|order| self.instance(order)) {
            instance.come_to(At::Ordered, clock::now());
        }
    }

    pub(in crate::master::executor) fn instance_up(&mut self, pools: &Pools, worker: WorkerId) {
        let Some(order) = self.instances.get(&worker).copied() else {
            return;
        };
        let Some(WorkerProcess { pid, channel, .. }) = pools.workers.get(&worker) else {
            return;
        };
        let pid = *pid;
        let channel = channel.as_ref().and_then(|channel| channel.try_clone().ok());
        let Some(app_pool) = self.routers.get_mut(&order.router) else {
            return;
        };
        let Some(instance) = app_pool.registry.get_mut(order.instance) else {
            return;
        };
        // A worker may be up before its preloader announces the fork; it is reported after the announcement.
        let (At::Made(_), Some(pid), Some(channel)) = (instance.at, pid, channel) else {
            return;
        };
        instance.come_to(At::Up(worker), clock::now());
        if let Some(application) = app_pool.applications.get_mut(&instance.application) {
            application.failure = None;
        }
        if instance.is_known {
            let up = told(order.instance, instance, pid);
            app_pool.say(&ToRouter::Up(up), vec![channel]);
        }
    }

    /// An ordered worker was reaped.
    pub(in crate::master::executor) fn instance_gone(&mut self, worker: WorkerId) {
        if let Some(order) = self.instances.remove(&worker) {
            self.fail_order(order);
        }
    }

    fn end_instance(&mut self, id: PoolId, number: u64, denied: &Denied) {
        let Some(app_pool) = self.routers.get_mut(&id) else {
            return;
        };
        let Some(instance) = app_pool.registry.remove(number) else {
            return;
        };
        let was_up = matches!(instance.at, At::Up(..));
        let message = if was_up || instance.is_stopping {
            ToRouter::Gone { instance: number }
        } else {
            // A refusal before the order is unrelated to the last failed start.
            let known = app_pool.applications.get(&instance.application);
            let known = known.filter(|_| instance.at != At::Looking);
            let failure = known.and_then(|application| application.failure.clone());
            app_pool.start_failed(number, &instance.application, failure, denied)
        };
        if instance.is_known {
            app_pool.say(&message, Vec::new());
        }
    }

    pub(in crate::master::executor) fn note_failure(&mut self, ids: &[GenerationId], report: &Report) {
        for app_pool in self.routers.values_mut() {
            let applications = app_pool.applications.values_mut();
            for application in applications.filter(|application| ids.contains(&application.generation)) {
                let is_shown = application.settings.friendly_error_pages;
                application.failure = Some(PreloaderFailure {
                    error: report.id.to_string(),
                    why: report.sentence(),
                    page: is_shown.then(|| report.page_within(LONGEST_PAGE)),
                });
            }
        }
    }

    pub(in crate::master::executor) fn note_death(&mut self, id: GenerationId, report: &Report) {
        for app_pool in self.routers.values_mut() {
            let mut applications = app_pool.applications.iter();
            if let Some((root, _)) = applications.find(|(_, application)| application.generation == id) {
                let error = report.id.to_string();
                app_pool.last_errors.note(root, &error, &report.sentence(), None);
            }
        }
    }

    pub(in crate::master::executor) fn last_error(&self, id: &str) -> Option<(&Path, &str)> {
        let mut errors = self.routers.values().flat_map(|it| it.last_errors.iter());
        let error = errors.find(|error| error.id == id)?;
        Some((&error.application, &error.why))
    }

    pub(in crate::master::executor) fn refusals(&self) -> impl Iterator<Item = &Kept> {
        let errors = self.routers.values().flat_map(|it| it.last_errors.iter());
        errors.filter_map(|error| error.refusal.as_ref())
    }

    fn instance(&mut self, id: SpawnRequestId) -> Option<&mut RegisteredInstance> {
        self.routers.get_mut(&id.router)?.registry.get_mut(id.instance)
    }

    pub(in crate::master::executor) fn forget_application(&mut self, pool: PoolId) {
        for app_pool in self.routers.values_mut() {
            app_pool
                .applications
                .retain(|_, application| application.pool != pool);
        }
    }
}

impl AppPool {
    /// The router's answer about a failed start. Its id is the report's, or one that the log and `forkyard error`
    /// explain.
    fn start_failed(
        &mut self,
        instance: u64,
        application: &Path,
        failure: Option<PreloaderFailure>,
        denied: &Denied,
    ) -> ToRouter<Pool> {
        if let (None, Some(Matter { id, owner })) = (&failure, denied.report) {
            let id = id.unwrap_or_else(error_id);
            let page = self.keep_refusal(id, application, owner, &denied.why);
            log::error!(
                "[pool {}] {} is not run (error {id}): {}",
                self.template.name,
                application.display(),
                denied.why
            );
            return ToRouter::Failed {
                instance,
                error: id.to_string(),
                page,
            };
        }
        // The report has already logged the cause.
        let level = match failure {
            Some(_) => log::Level::Debug,
            None => log::Level::Error,
        };
        let PreloaderFailure { error, why, page } = failure.unwrap_or_else(|| PreloaderFailure {
            error: error_id().to_string(),
            why: denied.why.clone(),
            page: None,
        });
        log::log!(
            level,
            "[pool {}] an instance of {} can't be started (error {error}): {why}",
            self.template.name,
            application.display()
        );
        self.last_errors.note(application, &error, &why, None);
        ToRouter::Failed {
            instance,
            error,
            page,
        }
    }

    /// Stores the report of a refused application; returns its page if visitors may see it.
    fn keep_refusal(
        &mut self,
        id: ErrorId,
        root: &Path,
        owner: Option<(u32, u32)>,
        why: &str,
    ) -> Option<String> {
        let pool = &self.template.name;
        let report = Report::refused(id, pool, root, owner, why, clock::now());
        let page = (self.template.friendly_error_pages).then(|| report.page_within(LONGEST_PAGE));
        let kept = Kept {
            report: Arc::new(report),
            epoch_s: clock::epoch_seconds(),
            pools: vec![pool.clone()],
        };
        self.last_errors.note(root, &id.to_string(), why, Some(kept));
        page
    }
}

pub(super) fn resolve(template: &Pool, max: u32, found: &FoundApplication) -> Result<Pool, String> {
    let database = crate::inspector::users::SystemDatabase;
    let pool = crate::inspector::pool_of(template, found, &database, identity::is_root());
    let mut pool = pool.map_err(|refused| refused.to_string())?;
    pool.pm = ProcessManager::Ordered {
        max_children: max.saturating_add(1),
    };
    // Its group does not matter to its processes.
    if let Some(applications) = &mut pool.applications {
        applications.groups.clear();
    }
    Ok(pool)
}

#[derive(Debug, Default)]
pub(super) struct LastErrors(std::collections::VecDeque<LastError>);

#[derive(Debug)]
pub(super) struct LastError {
    pub(super) application: PathBuf,
    pub(super) id: String,
    pub(super) why: String,
    pub(super) epoch_s: u64,
    pub(super) refusal: Option<Kept>,
}

const LAST_ERRORS: usize = 64;

impl LastErrors {
    fn note(&mut self, application: &Path, id: &str, why: &str, refusal: Option<Kept>) {
        self.0.retain(|known| known.application != application);
        if self.0.len() >= LAST_ERRORS {
            self.0.pop_front();
        }
        self.0.push_back(LastError {
            application: application.to_owned(),
            id: id.to_owned(),
            why: why.to_owned(),
            epoch_s: clock::epoch_seconds(),
            refusal,
        });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &LastError> {
        self.0.iter()
    }
}

impl From<&LastError> for StartError {
    fn from(error: &LastError) -> StartError {
        StartError {
            application: error.application.display().to_string(),
            id: error.id.clone(),
            message: error.why.clone(),
            time: error.epoch_s,
        }
    }
}

/// An id from which the next one can't be guessed.
fn error_id() -> ErrorId {
    let random = std::collections::hash_map::RandomState::new();
    ErrorId((random.build_hasher().finish() & u64::from(u32::MAX)) as u32)
}

/// An application with the user of router and inspector could stop or inspect them for all others.
fn may_run_beside(app_pool: &AppPool, settings: &Pool) -> Result<(), String> {
    let is_switching = (app_pool.template.applications.as_ref()).is_some_and(|it| it.user_switching);
    let user = settings.user.as_deref();
    match (app_pool.runs_as, user.and_then(|user| user.parse::<u32>().ok())) {
        (Some(runs_as), Some(uid)) if runs_as == uid && is_switching => Err(format!(
            "it would run as user {uid}, which the router also runs as; let it run as another user, or give \
             the router its own user: adduser --system --group --no-create-home forkyard, or \
             applications.router_user"
        )),
        _ => Ok(()),
    }
}
