//! Instances: from the inspection of a directory to the end of the worker.

use super::denied::{Denied, Matter};
use super::{AppPool, Applications, PreloaderFailure, RunningApplication};
use crate::context::Context;
use crate::context::apply_error::ApplyError;
use crate::context::generation::with_map;
use crate::context::pools;
use crate::context::services::Services;
use crate::context::sites::Sites;
use crate::workers::slow;
use forkyard_config::release::Map;
use forkyard_config::{Pool, ProcessManager};
use forkyard_core::master::event::{Event, GenerationId, PoolId, SpawnRequest, SpawnRequestId, WorkerId};
use forkyard_core::master::failed_starts::Kept;
use forkyard_core::master::instances::{At, Instance as RegisteredInstance};
use forkyard_host::confine::{self, ConfineError};
use forkyard_protocol::control::StartError;
use forkyard_protocol::past_event::{EventKind, Happening};
use forkyard_protocol::reason::Reason;
use forkyard_protocol::router::{Instance, ToMaster, ToRouter};
use forkyard_router::inspector::Refused;
use forkyard_router::inspector::protocol::{FoundApplication, InspectReply};
use forkyard_scoreboard::minutes::minute_of;
use forkyard_spawn::report::{ErrorId, Report};
use forkyard_sys::{clock, identity};
use forkyard_worker::Settings;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The longest page in a router's message, bytes; the rest of the message fits next to it.
const LONGEST_PAGE: usize = forkyard_protocol::router::MOST_BYTES - 4096;

/// The reason for an order without a worker; the log has the details.
const NOT_MADE: &str = "its process could not be made, or ended before it was ready";

/// Why an application can't have instances.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unfit {
    #[error(transparent)]
    Confine(#[from] ConfineError),
    #[error(transparent)]
    Settings(#[from] ApplyError),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(
        "it would run as user {0}, which the router also runs as; let it run as another user, or give the router its \
         own user: adduser --system --group --no-create-home forkyard, or applications.router_user"
    )]
    RoutersUser(u32),
}

impl Applications {
    pub(super) fn router_said(&mut self, context: &mut Context, id: PoolId, message: ToMaster) {
        match message {
            ToMaster::Spawn {
                instance,
                application,
                restarts,
            } => self.spawn_instance(context, id, instance, application, restarts),
            ToMaster::Stop { instance, kill } => {
                self.stop_instance(context, SpawnRequestId(id, instance), kill)
            }
            ToMaster::Done {
                admin_request,
                result,
            } => {
                let app_pool = self.routers.get_mut(&id);
                let asked = app_pool.and_then(|app_pool| app_pool.asked.remove(&admin_request));
                if let Some(asked) = asked {
                    self.answered(context, id, asked, result);
                }
            }
            ToMaster::Refused(refused) => {
                let now = minute_of(clock::now());
                context
                    .pools
                    .count_pool(id, |counters| counters.numbers.add_refusals(&refused, now));
            }
            ToMaster::Serves { link, release } => context.router_serves(id, &link, &release),
            ToMaster::Finished => {}
        }
    }

    /// The inspector has answered: the instance can be ordered.
    pub(super) fn seen(&mut self, context: &mut Context, id: PoolId, seen: InspectReply) {
        let Some(app_pool) = self.routers.get_mut(&id) else {
            return;
        };
        let InspectReply {
            number,
            found,
            refusal,
            ..
        } = seen;
        if self.deployed.answered(number, &found, id) {
            return;
        }
        if app_pool.registry.get(number).map(|it| it.at) != Some(At::Looking) {
            // The router has told its visitors.
            if let (Err(why), Some(refusal)) = (&found, &refusal) {
                app_pool.keep_refusal(ErrorId(refusal.id), &refusal.root, refusal.owner, &why.0);
            }
            return;
        }
        let ordered = match found {
            Ok(found) => self.order_instance(context, id, number, found),
            Err(Reason(why)) => Err(Denied::by_inspector(why, refusal)),
        };
        if let Err(denied) = ordered {
            self.end_instance(context, SpawnRequestId(id, number), &denied);
        }
    }

    fn order_instance(
        &mut self,
        context: &mut Context,
        id: PoolId,
        number: u64,
        found: FoundApplication,
    ) -> Result<(), Denied> {
        let closed = || Denied::for_now("the pool is closed");
        let owner = found.owner;
        let for_owner = |why| Denied {
            why,
            report: Some(Matter {
                id: None,
                owner: Some(owner),
            }),
        };
        let app_pool = self.routers.get_mut(&id).ok_or_else(closed)?;
        let instance = app_pool.registry.get(number).ok_or_else(closed)?;
        if instance.application != found.root {
            return Err(for_owner(format!("it is at {} now", found.root.display())));
        }
        let settings = resolve(&app_pool.template, app_pool.max, &found)
            .map_err(|error| for_owner(error.to_string()))?;
        may_run_beside(app_pool, &settings).map_err(|error| for_owner(error.to_string()))?;
        let restarts = instance.restarts;
        let origin = settings.setup.origin.clone();
        let known = app_pool.applications.get(&found.root);
        let known = known.filter(|it| context.pools.by_id.contains_key(&it.pool));
        let present = known.filter(|it| {
            let has_room = it.settings.pm.max_children() >= settings.pm.max_children();
            let is_present =
                it.restarts >= restarts && context.pools.generations.contains_key(&it.generation);
            is_present && has_room && it.settings.has_instances_for(&settings)
        });
        let policy = pools::policy(&settings);
        // Instances forked from one load share its revision.
        let revision = present.map_or(&found, |it| &it.found).revision.clone();
        let (pool, generation) = match present {
            Some(present) => (present.pool, present.generation),
            None => {
                let pool = known.map(|it| it.pool);
                let begun = app_pool.begin_application(context, pool, settings, found, restarts);
                begun.map_err(|error| Denied::for_root(error.to_string()))?
            }
        };
        if let Some(instance) = app_pool.registry.get_mut(number) {
            instance.come_to(At::Ordered, clock::now());
            (instance.revision, instance.origin) = (revision, origin);
        }
        let order = SpawnRequest {
            order: SpawnRequestId(id, number),
            pool,
            generation,
            policy,
        };
        context.services.tell(Event::SpawnRequest(order));
        Ok(())
    }

    /// The router has ended.
    pub(super) fn router_gone(&mut self, context: &mut Context, id: PoolId) {
        let Some(app_pool) = self.routers.get_mut(&id) else {
            return;
        };
        app_pool.unsent.clear();
        for number in app_pool.registry.orphan() {
            match app_pool.registry.get(number).map(|instance| instance.at) {
                Some(At::Looking) => _ = app_pool.registry.remove(number),
                Some(At::Ordered | At::Made(_) | At::Up(_)) => {
                    context
                        .services
                        .tell(Event::Cancel(SpawnRequestId(id, number), false));
                }
                None => {}
            }
        }
        for asked in std::mem::take(&mut app_pool.asked).into_values() {
            self.answered(
                context,
                id,
                asked,
                Err(Reason("the router is gone; ask again".to_owned())),
            );
        }
    }

    fn spawn_instance(
        &mut self,
        context: &mut Context,
        id: PoolId,
        number: u64,
        application: PathBuf,
        restarts: u32,
    ) {
        let Some(app_pool) = self.routers.get_mut(&id) else {
            return;
        };
        let registry = &mut app_pool.registry;
        let admitted = registry.admit(number, application.clone(), restarts, app_pool.max, clock::now());
        match admitted {
            Ok(()) => app_pool.look_for_instance(context, number, &application),
            Err(denial) => {
                let denied = Denied::for_now(&denial.to_string());
                let failed =
                    app_pool.start_failed(&mut context.services, number, &application, None, &denied);
                app_pool.say(&context.helpers, &failed, Vec::new());
            }
        }
    }

    fn stop_instance(&mut self, context: &mut Context, id: SpawnRequestId, kill: bool) {
        let Some(instance) = self.instance(id) else {
            return;
        };
        instance.is_stopping = true;
        match instance.at {
            At::Looking => self.end_instance(context, id, &Denied::for_now(NOT_MADE)),
            At::Ordered | At::Made(_) | At::Up(_) => {
                context.services.tell(Event::Cancel(id, kill));
            }
        }
    }

    /// Records the worker that is about to be started for an order.
    pub(crate) fn fill_order(&mut self, order: SpawnRequestId, worker: WorkerId) {
        self.instances.insert(worker, order);
        if let Some(instance) = self.instance(order) {
            instance.come_to(At::Made(worker), clock::now());
        }
    }

    /// The core gave up an order.
    pub(crate) fn fail_order(&mut self, context: &mut Context, order: SpawnRequestId) {
        self.end_instance(context, order, &Denied::for_now(NOT_MADE));
    }

    /// A worker could not be forked; its order may get another.
    pub(crate) fn instance_not_made(&mut self, worker: WorkerId) {
        let order = self.instances.remove(&worker);
        if let Some(instance) = order.and_then(|order| self.instance(order)) {
            instance.come_to(At::Ordered, clock::now());
        }
    }

    pub(crate) fn instance_up(&mut self, context: &Context, worker: WorkerId) {
        let Some(SpawnRequestId(id, number)) = self.instances.get(&worker).copied() else {
            return;
        };
        let (Some(app_pool), Some(process)) = (self.routers.get_mut(&id), context.pools.workers.get(&worker))
        else {
            return;
        };
        let Some(instance) = app_pool.registry.get_mut(number) else {
            return;
        };
        let channel = process.channel.as_ref();
        let channel = channel.and_then(|channel| channel.try_clone().ok());
        // A worker may be up before its preloader announces the fork; it is reported after the announcement.
        let (At::Made(_), Some(pid), Some(channel)) = (instance.at, process.pid, channel) else {
            return;
        };
        instance.come_to(At::Up(worker), clock::now());
        if let Some(application) = app_pool.applications.get_mut(&instance.application) {
            application.failure = None;
        }
        if instance.is_known {
            let up = told(number, instance, pid);
            app_pool.say(&context.helpers, &ToRouter::Up(up), vec![channel]);
        }
    }

    /// An ordered worker was reaped.
    pub(crate) fn instance_gone(&mut self, context: &mut Context, worker: WorkerId) {
        if let Some(order) = self.instances.remove(&worker) {
            self.end_instance(context, order, &Denied::for_now(NOT_MADE));
        }
    }

    fn end_instance(&mut self, context: &mut Context, id: SpawnRequestId, denied: &Denied) {
        let SpawnRequestId(id, number) = id;
        let Some(app_pool) = self.routers.get_mut(&id) else {
            return;
        };
        let Some(instance) = app_pool.registry.remove(number) else {
            return;
        };
        let was_up = matches!(instance.at, At::Up(_));
        let message = if was_up || instance.is_stopping {
            ToRouter::Gone { instance: number }
        } else {
            // A refusal before the order is unrelated to the last failed start.
            let known = app_pool.applications.get(&instance.application);
            let known = known.filter(|_| instance.at != At::Looking);
            let failure = known.and_then(|application| application.failure.clone());
            let services = &mut context.services;
            app_pool.start_failed(services, number, &instance.application, failure, denied)
        };
        if instance.is_known {
            app_pool.say(&context.helpers, &message, Vec::new());
        }
    }

    pub(crate) fn note_failure(&mut self, ids: &[GenerationId], report: &Report) {
        for app_pool in self.routers.values_mut() {
            let applications = app_pool.applications.values_mut();
            for application in applications.filter(|application| ids.contains(&application.generation)) {
                let is_shown = application.settings.pages.friendly_error_pages;
                application.failure = Some(PreloaderFailure {
                    error: report.id,
                    why: report.sentence(),
                    page: is_shown.then(|| report.page_within(LONGEST_PAGE)),
                });
            }
        }
    }

    pub(crate) fn note_death(&mut self, id: GenerationId, report: &Report) {
        for app_pool in self.routers.values_mut() {
            let mut applications = app_pool.applications.iter();
            if let Some((root, _)) = applications.find(|(_, application)| application.generation == id) {
                let errors = &mut app_pool.last_errors;
                errors.note(root, report.id, &report.sentence(), None);
            }
        }
    }

    pub(crate) fn last_error(&self, id: &str) -> Option<&StartError> {
        let mut errors = self.last_errors().map(|(error, _)| error);
        errors.find(|error| error.id == id)
    }

    pub(crate) fn refusals(&self) -> impl Iterator<Item = &Kept> {
        self.last_errors().filter_map(|(_, refusal)| refusal.as_ref())
    }

    fn last_errors(&self) -> impl Iterator<Item = &(StartError, Option<Kept>)> {
        self.routers.values().flat_map(|it| it.last_errors.iter())
    }

    fn instance(&mut self, id: SpawnRequestId) -> Option<&mut RegisteredInstance> {
        let SpawnRequestId(pool, number) = id;
        self.routers.get_mut(&pool)?.registry.get_mut(number)
    }

    pub(crate) fn forget_application(&mut self, pool: PoolId) {
        for app_pool in self.routers.values_mut() {
            let applications = &mut app_pool.applications;
            applications.retain(|_, application| application.pool != pool);
        }
    }
}

/// Returns the message about an instance for its router.
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

impl AppPool {
    fn begin_application(
        &mut self,
        context: &mut Context,
        pool: Option<PoolId>,
        settings: Pool,
        found: FoundApplication,
        restarts: u32,
    ) -> Result<(PoolId, GenerationId), Unfit> {
        let Context {
            services,
            in_force,
            pools,
            handover,
            ..
        } = context;
        let group = confine::check(&settings)?;
        let (access, _) = self.open_access_log();
        let slow = slow::open(&settings).unwrap_or_else(|error| {
            log::error!(
                "[pool {}] slowlog: {error}; slow requests of this application are not logged",
                settings.name
            );
            None
        });
        let settings = Arc::new(settings);
        let own = services.settings(&settings, &in_force.config.global, &mut HashMap::new());
        let own = own.map_err(|fault| ApplyError::Pool(settings.name.clone(), fault))?;
        let own = in_release_of(own, &pools.sites, self.id, &found);
        let group = group.filter(|group| !pools.groups.contains(group));
        pools.groups.extend(group);
        let pool = pool.unwrap_or_else(|| pools.add_pool(handover, &settings.name, None));
        let generation = pools.add_generation(handover, pool, own, access, slow);
        pools.serves(pool, generation);
        if let Some(pool) = pools.by_id.get_mut(&pool) {
            pool.latest = Some(generation);
        }
        let application = RunningApplication {
            pool,
            generation,
            restarts,
            settings,
            found: found.clone(),
            failure: None,
        };
        self.applications.insert(found.root, application);
        Ok((pool, generation))
    }

    /// The router's answer about a failed start. Its id is the report's, or one that the log and `forkyard error`
    /// explain.
    fn start_failed(
        &mut self,
        services: &mut Services,
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
            let what = self.failed_start(application, owner.map(|(uid, _)| uid), &denied.why);
            services.record(what.with_detail(format!("error {id}")));
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
            error: error_id(),
            why: denied.why.clone(),
            page: None,
        });
        log::log!(
            level,
            "[pool {}] an instance of {} can't be started (error {error}): {why}",
            self.template.name,
            application.display()
        );
        if level == log::Level::Error {
            let known = self.applications.get(application);
            let user = known.map(|application| application.found.owner.0);
            let what = self.failed_start(application, user, &why);
            services.record(what.with_detail(format!("error {error}")));
        }
        self.last_errors.note(application, error, &why, None);
        ToRouter::Failed {
            instance,
            error: error.to_string(),
            page,
        }
    }

    fn failed_start(&self, application: &Path, user: Option<u32>, why: &str) -> Happening {
        let text = format!("{} is not run: {why}", application.display());
        Happening::of_pool(EventKind::StartFailed, &self.template.name, user, text)
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
        let page = (self.template.pages.friendly_error_pages).then(|| report.page_within(LONGEST_PAGE));
        let kept = Kept {
            report: Arc::new(report),
            epoch_s: clock::epoch_seconds(),
            pools: vec![pool.clone()],
        };
        self.last_errors.note(root, id, why, Some(kept));
        page
    }
}

pub(super) fn resolve(template: &Pool, max: u32, found: &FoundApplication) -> Result<Pool, Unfit> {
    let database = forkyard_router::inspector::users::SystemDatabase;
    let pool = forkyard_router::inspector::pool_of(template, found, &database, identity::is_root());
    let mut pool = pool?;
    pool.pm = ProcessManager::Ordered {
        max_children: max.saturating_add(1),
    };
    // Its group does not matter to its processes.
    if let Some(applications) = &mut pool.applications {
        applications.groups.clear();
    }
    Ok(pool)
}

/// Returns the settings with the paths of the application's release.
fn in_release_of(own: Settings, sites: &Sites, router: PoolId, found: &FoundApplication) -> Settings {
    let Some(link) = &found.link else {
        return own;
    };
    let served = sites.link_to(router, &found.root);
    let known = served.into_iter().flat_map(|served| {
        let coming = served.coming.iter().map(|(coming, _)| coming);
        coming.chain([&served.release])
    });
    let bytes = |path: &PathBuf| path.as_os_str().as_bytes().to_vec();
    let known: Vec<Vec<u8>> = known.map(bytes).collect();
    let map = Map::new(
        link.as_os_str().as_bytes(),
        found.root.as_os_str().as_bytes(),
        known.iter().map(Vec::as_slice),
    );
    with_map(own, Some(Box::new(map)))
}

/// The last failed start of each application, and the report of a refused one.
#[derive(Debug, Default)]
pub(super) struct LastErrors(VecDeque<(StartError, Option<Kept>)>);

const LAST_ERRORS: usize = 64;

impl LastErrors {
    fn note(&mut self, application: &Path, id: ErrorId, why: &str, refusal: Option<Kept>) {
        let error = StartError {
            application: application.display().to_string(),
            id: id.to_string(),
            message: why.to_owned(),
            time: clock::epoch_seconds(),
        };
        self.0.retain(|(known, _)| known.application != error.application);
        if self.0.len() >= LAST_ERRORS {
            self.0.pop_front();
        }
        self.0.push_back((error, refusal));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(StartError, Option<Kept>)> {
        self.0.iter()
    }
}

/// Returns an id that doesn't reveal the next one.
fn error_id() -> ErrorId {
    let random = std::collections::hash_map::RandomState::new();
    ErrorId((random.build_hasher().finish() & u64::from(u32::MAX)) as u32)
}

/// An application with the user of router and inspector could stop or inspect them for all others.
fn may_run_beside(app_pool: &AppPool, settings: &Pool) -> Result<(), Unfit> {
    let is_switching = (app_pool.template.applications.as_ref()).is_some_and(|it| it.user_switching);
    let user = settings.account.user.as_deref();
    match (app_pool.runs_as, user.and_then(|user| user.parse::<u32>().ok())) {
        (Some(runs_as), Some(uid)) if runs_as == uid && is_switching => Err(Unfit::RoutersUser(uid)),
        _ => Ok(()),
    }
}
