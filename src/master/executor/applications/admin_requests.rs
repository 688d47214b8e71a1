//! Operators' requests to an application pool, passed on to its router and back.

use super::super::control::Rights;
use super::super::{Applications, Executor};
use super::AppPool;
use crate::control::protocol::{self, Answer, StartError, Starting, Status};
use crate::master::event::PoolId;
use crate::master::instances::At;
use crate::scoreboard::counters::PoolCounters;
use crate::sys::clock;
use crate::tick::Tick;
use forkyard_protocol::router::{AdminRequest, ToRouter};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

const MOST_ASKED: usize = 1000;
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

const NO_ROUTER: &str = "the pool's router does not run right now; ask again";
/// A status reads the step reports of at most this many starting processes: each costs some file reads.
const MOST_READ: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::master::executor) enum Asker {
    NoClient,
    Session(u64),
    Lease(u64, PoolId),
    View(u64, String),
    /// A restart in several pools, for this conversation.
    Restart(u64),
}

#[derive(Debug)]
pub(in crate::master::executor) struct PendingRestart {
    asker: u64,
    waiting: usize,
    done: Option<Value>,
    refused: Option<String>,
    is_strict: bool,
}

impl PendingRestart {
    fn take(&mut self, result: Result<Value, String>) {
        self.waiting = self.waiting.saturating_sub(1);
        match (result, self.done.take()) {
            (Ok(value), None) => self.done = Some(value),
            (Ok(value), Some(before)) => self.done = Some(both(before, value)),
            (Err(message), before) => {
                self.done = before;
                self.refused.get_or_insert(message);
            }
        }
    }

    fn answer(self) -> Answer {
        match (self.done, self.refused) {
            (Some(value), None) => Answer::Done { value },
            (Some(value), Some(_)) if !self.is_strict => Answer::Done { value },
            (_, Some(message)) => Answer::refusal(message),
            (None, None) => Answer::refusal("no router has answered".to_owned()),
        }
    }
}

fn both(one: Value, other: Value) -> Value {
    let is = |value: &Value, key: &str| value.get(key).and_then(Value::as_bool) == Some(true);
    match (is(&one, "started"), is(&other, "started")) {
        (true, _) => other,
        (false, true) => one,
        (false, false) => json!({ "rolling": is(&one, "rolling") && is(&other, "rolling") }),
    }
}

#[derive(Debug)]
pub(in crate::master::executor) struct PendingStatus {
    asker: u64,
    until: Tick,
    waiting: usize,
    views: Vec<(String, Value)>,
}

impl AppPool {
    pub(super) fn ask(&mut self, what: AdminRequest, asked: Asker) -> bool {
        if self.asked.len() >= MOST_ASKED || self.router.pid().is_none() {
            return false;
        }
        self.last_asked += 1;
        let admin_request = self.last_asked;
        self.asked.insert(admin_request, asked);
        self.say(&ToRouter::AdminRequest { admin_request, what }, Vec::new());
        true
    }
}

impl Executor {
    pub(super) fn answered(&mut self, asked: Asker, result: Result<Value, String>) {
        match asked {
            Asker::NoClient => {}
            Asker::Session(asker) => {
                let answer = match result {
                    Ok(value) => Answer::Done { value },
                    Err(message) => Answer::refusal(message),
                };
                self.answer(asker, &answer);
            }
            Asker::Lease(asker, id) => {
                let lease = result
                    .as_ref()
                    .ok()
                    .and_then(|value| value.get("lease")?.as_u64());
                if let (Some(lease), Some(app_pool)) = (lease, self.applications.routers.get_mut(&id)) {
                    if self.control.is_there(asker) {
                        app_pool.leases.insert(lease, asker);
                    } else {
                        app_pool.ask(AdminRequest::Return { lease, ok: false }, Asker::NoClient);
                    }
                }
                self.answered(Asker::Session(asker), result);
            }
            Asker::Restart(asker) => {
                let restarts = &mut self.applications.restarts;
                let Some(at) = restarts.iter().position(|restart| restart.asker == asker) else {
                    return;
                };
                restarts[at].take(result);
                if restarts[at].waiting == 0 {
                    let answer = restarts.remove(at).answer();
                    self.answer(asker, &answer);
                }
            }
            Asker::View(asker, name) => {
                let Some(at) = self
                    .applications
                    .statuses
                    .iter()
                    .position(|status| status.asker == asker)
                else {
                    return;
                };
                let status = &mut self.applications.statuses[at];
                status.waiting = status.waiting.saturating_sub(1);
                if let Ok(view) = result {
                    status.views.push((name, view));
                }
                if status.waiting == 0 {
                    self.finish_status(at);
                }
            }
        }
    }

    /// Answers with the status once the routers have answered.
    pub(in crate::master) fn begin_status(&mut self, asker: u64) {
        let mut waiting = 0;
        for app_pool in self.applications.routers.values_mut() {
            let name = app_pool.template.name.clone();
            waiting += usize::from(app_pool.ask(AdminRequest::View, Asker::View(asker, name)));
        }
        self.applications.statuses.retain(|status| status.asker != asker);
        self.applications.statuses.push(PendingStatus {
            asker,
            until: clock::now() + STATUS_TIMEOUT,
            waiting,
            views: Vec::new(),
        });
        if waiting == 0 {
            self.finish_status(self.applications.statuses.len() - 1);
        }
    }

    fn finish_status(&mut self, at: usize) {
        let PendingStatus { asker, views, .. } = self.applications.statuses.remove(at);
        let mut status = self.status(&views);
        if let Rights::Own(uid) = self.control.rights(asker) {
            self.applications.leave_own(&mut status, uid);
        }
        self.answer(asker, &Answer::Status(Box::new(status)));
    }

    pub(in crate::master::executor) fn applications_status(
        &self,
        id: PoolId,
        views: &[(String, Value)],
    ) -> Option<protocol::Applications> {
        let app_pool = self.applications.routers.get(&id)?;
        let (router, inspector) = app_pool.pids();
        let now = clock::now();
        let mut looks = 0;
        let starting = app_pool.registry.iter().filter_map(|(number, instance)| {
            let known = app_pool.applications.get(&instance.application);
            let mut since = instance.since;
            let mut pid = None;
            let step = match instance.at {
                At::Looking => "looked at",
                At::Ordered => {
                    looks += 1;
                    let is_read = looks <= MOST_READ;
                    let start = known.and_then(|it| self.helpers.spawner.progress(it.generation, is_read));
                    match start {
                        Some((start, process)) => {
                            (since, pid) = (start.since.max(since), process);
                            start.step.name()
                        }
                        None => "ordered",
                    }
                }
                At::Made(worker) => {
                    pid = self.pools.workers.get(&worker).and_then(|worker| worker.pid);
                    "made"
                }
                At::Up(..) => return None,
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
        Some(protocol::Applications {
            router,
            inspector,
            max: app_pool.max,
            starting: starting.collect(),
            errors: app_pool.last_errors.iter().map(StartError::from).collect(),
            view: views
                .iter()
                .find(|(name, _)| *name == app_pool.template.name)
                .map(|(_, view)| self.with_facts(app_pool, view.clone())),
        })
    }

    /// Adds the program processes of instances, and the reason why an instance loads its application.
    fn with_facts(&self, app_pool: &AppPool, mut view: Value) -> Value {
        let applications = view.get_mut("applications").and_then(Value::as_array_mut);
        for application in applications
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            let name = application.get("name").and_then(Value::as_str);
            let known = name.and_then(|name| app_pool.applications.get(Path::new(name)));
            let programs = known
                .map(|known| self.pools.programs_of(&self.helpers, known.pool))
                .unwrap_or_default();
            if let (false, Ok(programs)) = (programs.is_empty(), serde_json::to_value(programs)) {
                application.insert("programs".to_owned(), programs);
            }
            let generation = known.and_then(|known| self.pools.generations.get(&known.generation));
            if let Some(servers) = generation.and_then(|generation| generation.make.connected_to.as_ref()) {
                application.insert("connected_to".to_owned(), servers.as_str().into());
            }
        }
        view
    }

    pub(in crate::master::executor) fn poll_asked(&mut self, now: Tick) {
        while let Some(at) = self
            .applications
            .statuses
            .iter()
            .position(|status| status.until <= now)
        {
            self.finish_status(at);
        }
    }

    pub(in crate::master) fn instance_with_pid(&self, pid: i32) -> Option<(PoolId, PathBuf)> {
        let super::super::Who::Worker(worker) = self.processes.by_pid.get(&pid)? else {
            return None;
        };
        let id = self.applications.instances.get(worker)?;
        let app_pool = self.applications.routers.get(&id.router)?;
        let instance = app_pool.registry.get(id.instance)?;
        Some((id.router, instance.application.clone()))
    }

    pub(in crate::master) fn knows_application(&self, id: PoolId, root: &Path) -> bool {
        let app_pool = self.applications.routers.get(&id);
        app_pool.is_some_and(|app_pool| app_pool.applications.contains_key(root))
    }

    /// Whether a client may change an application.
    pub(in crate::master) fn may_touch(&self, asker: u64, id: PoolId, root: &Path) -> Result<(), String> {
        let Rights::Own(uid) = self.control.rights(asker) else {
            return Ok(());
        };
        let app_pool = self.applications.routers.get(&id);
        let application = app_pool.and_then(|app_pool| app_pool.applications.get(root));
        if application.is_some_and(|application| application.is_owned_by(uid)) {
            return Ok(());
        }
        Err("permission denied: it is no application of yours that runs".to_owned())
    }

    /// Lends an instance to a conversation until it ends or returns it.
    pub(in crate::master) fn lend(&mut self, id: PoolId, asker: u64, what: AdminRequest) {
        self.ask_router(id, asker, what, Asker::Lease(asker, id));
    }

    fn ask_router(&mut self, id: PoolId, asker: u64, what: AdminRequest, asked: Asker) {
        let app_pool = self.applications.routers.get_mut(&id);
        if !app_pool.is_some_and(|app_pool| app_pool.ask(what, asked)) {
            self.refuse_for_now(asker);
        }
    }

    pub(in crate::master) fn give_back(&mut self, asker: u64, lease: u64, ok: bool) -> Result<(), String> {
        let mut routers = self.applications.routers.values_mut();
        let held = routers.find(|app_pool| app_pool.leases.contains_key(&lease));
        let app_pool = held.ok_or_else(|| format!("there is no lease {lease}"))?;
        app_pool.leases.remove(&lease);
        if !app_pool.ask(AdminRequest::Return { lease, ok }, Asker::Session(asker)) {
            self.refuse_for_now(asker);
        }
        Ok(())
    }

    fn refuse_for_now(&mut self, asker: u64) {
        self.answer(asker, &Answer::refusal(NO_ROUTER.to_owned()));
    }

    pub(in crate::master) fn pass_restart_on(
        &mut self,
        pools: &[PoolId],
        asker: u64,
        what: &AdminRequest,
        is_strict: bool,
    ) {
        let mut restart = PendingRestart {
            asker,
            waiting: 0,
            done: None,
            refused: None,
            is_strict,
        };
        for id in pools {
            let app_pool = self.applications.routers.get_mut(id);
            match app_pool.is_some_and(|app_pool| app_pool.ask(what.clone(), Asker::Restart(asker))) {
                true => restart.waiting += 1,
                false => restart.refused = Some(NO_ROUTER.to_owned()),
            }
        }
        if restart.waiting == 0 {
            return self.refuse_for_now(asker);
        }
        self.applications.restarts.retain(|other| other.asker != asker);
        self.applications.restarts.push(restart);
    }

    /// Passes a request on to a pool's router. The client gets the router's answer, or an error at once.
    pub(in crate::master) fn pass_on(&mut self, id: PoolId, asker: u64, what: AdminRequest) {
        self.ask_router(id, asker, what, Asker::Session(asker));
    }
}

impl Applications {
    pub(in crate::master::executor) fn asking_deadline(&self) -> Option<Tick> {
        self.statuses.iter().map(|status| status.until).min()
    }

    /// Reduces a status to a user's own applications.
    fn leave_own(&self, status: &mut Status, uid: u32) {
        status.config.clear();
        status.skipped.clear();
        status.last_reload = None;
        (status.log, status.replaced) = (None, false);
        status.pools.retain(|pool| pool.applications.is_some());
        for pool in &mut status.pools {
            pool.generations.clear();
            pool.logs.clear();
            // Totals of all owners are not shown to one.
            (pool.busy, pool.idle, pool.starting) = (0, 0, 0);
            pool.counts = PoolCounters::default();
            (pool.cpu_ms, pool.orphans) = (0, 0);
            let app_pool = self
                .routers
                .values()
                .find(|app_pool| app_pool.template.name == pool.name);
            let owns = |root: &str| {
                let application = app_pool.and_then(|app_pool| app_pool.applications.get(Path::new(root)));
                application.is_some_and(|application| application.is_owned_by(uid))
            };
            let Some(applications) = &mut pool.applications else {
                continue;
            };
            applications.starting.retain(|it| owns(&it.application));
            let refused = |id: &str| {
                let errors = app_pool
                    .into_iter()
                    .flat_map(|app_pool| app_pool.last_errors.iter());
                let refusal = errors
                    .filter(|error| error.id == id)
                    .find_map(|error| error.refusal.as_ref());
                refusal.is_some_and(|kept| kept.report.plan.account.uid == uid)
            };
            applications
                .errors
                .retain(|it| owns(&it.application) || refused(&it.id));
            let listed = applications
                .view
                .as_mut()
                .and_then(|view| view.get_mut("applications")?.as_array_mut());
            if let Some(listed) = listed {
                listed.retain(|it| it.get("name").and_then(Value::as_str).is_some_and(owns));
            }
        }
    }

    pub(in crate::master) fn router_named(&self, name: &str) -> Option<PoolId> {
        let mut routers = self.routers.iter();
        routers
            .find(|(_, app_pool)| app_pool.template.name == name)
            .map(|(id, _)| *id)
    }

    pub(in crate::master) fn router_of_group(&self, group: &str) -> Result<Option<PoolId>, String> {
        let has = |app_pool: &AppPool| {
            let applications = app_pool.template.applications.as_ref();
            applications.is_some_and(|applications| applications.groups.contains_key(group))
        };
        let mut found = self.routers.iter().filter(|(_, app_pool)| has(app_pool));
        match (found.next(), found.next()) {
            (Some((_, one)), Some((_, other))) => Err(format!(
                "there is a group {group} in pool {} and in pool {}; rename one",
                one.template.name, other.template.name
            )),
            (found, _) => Ok(found.map(|(id, _)| *id)),
        }
    }

    pub(in crate::master) fn router_for(&self, application: &Path) -> Result<PoolId, String> {
        self.routers_for(application).map(|(first, _)| first)
    }

    /// The pools whose directories contain an application: the first and the others. If none does, the only pool,
    /// because a link may lead to the directory.
    pub(in crate::master) fn routers_for(&self, application: &Path) -> Result<(PoolId, Vec<PoolId>), String> {
        let is_below = |app_pool: &AppPool| {
            let directories = app_pool
                .template
                .applications
                .iter()
                .flat_map(|it| &it.directories);
            directories
                .into_iter()
                .any(|directory| application.starts_with(directory))
        };
        let mut of_path = self
            .routers
            .iter()
            .filter(|(_, app_pool)| is_below(app_pool))
            .map(|(id, _)| *id);
        let (first, others) = (of_path.next(), of_path.collect());
        let only = self
            .routers
            .keys()
            .next()
            .filter(|_| self.routers.len() == 1)
            .copied();
        first.or(only).map(|first| (first, others)).ok_or_else(|| {
            let name = application.display();
            format!("{name} is below no directory of an application pool; name an application by its root")
        })
    }

    pub(in crate::master) fn resize(&mut self, id: PoolId, max: u32) -> Result<(), String> {
        match self.routers.get_mut(&id) {
            Some(app_pool) if max > 0 => app_pool.max = max,
            Some(_) => return Err("there has to be at least 1 instance".to_owned()),
            None => {}
        }
        Ok(())
    }

    /// Ends a conversation's leases. Its instances return as failed, because their state is unknown.
    pub(in crate::master::executor) fn end_leases(&mut self, session: u64) {
        self.statuses.retain(|status| status.asker != session);
        self.restarts.retain(|restart| restart.asker != session);
        for app_pool in self.routers.values_mut() {
            let mut ended = Vec::new();
            app_pool.leases.retain(|lease, holder| {
                if *holder == session {
                    ended.push(*lease);
                }
                *holder != session
            });
            for lease in ended {
                app_pool.ask(AdminRequest::Return { lease, ok: false }, Asker::NoClient);
            }
        }
    }

    pub(in crate::master::executor) fn lease_holders(&self) -> Vec<u64> {
        let leases = self
            .routers
            .values()
            .flat_map(|app_pool| app_pool.leases.values());
        leases.copied().collect()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
