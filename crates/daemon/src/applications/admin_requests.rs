//! Operators' requests to an application pool, passed on to its router and back.

use super::{AppPool, Applications, Asker, PendingRestart, RunningApplication};
use crate::context::Context;
use crate::context::effect::StatusAsker;
use crate::context::helper_id::HelperId;
use crate::context::helpers::Helpers;
use crate::context::processes::{Processes, Who};
use crate::context::refused::Refused;
use crate::context::rights::Rights;
use crate::context::services::Services;
use forkyard_core::master::event::{PoolId, SpawnRequestId, WorkerId};
use forkyard_protocol::control::Answer;
use forkyard_protocol::reason::Reason;
use forkyard_protocol::router::{AdminRequest, ToRouter};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const MOST_ASKED: usize = 1000;

const NO_ROUTER: &str = "the pool's router does not run right now; ask again";
impl PendingRestart {
    fn take(&mut self, result: Result<Value, Reason>) {
        self.waiting = self.waiting.saturating_sub(1);
        match (result, self.done.take()) {
            (Ok(value), None) => self.done = Some(value),
            (Ok(value), Some(before)) => self.done = Some(both(before, value)),
            (Err(Reason(message)), before) => {
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
        (false, false) => {
            let applications = [named(&one), named(&other)].concat();
            let is_rolling = is(&one, "rolling") && is(&other, "rolling");
            json!({ "rolling": is_rolling, "applications": applications })
        }
    }
}

/// The directories that a router has restarted.
fn named(value: &Value) -> Vec<Value> {
    let named = value.get("applications").and_then(Value::as_array);
    named.cloned().unwrap_or_default()
}

impl AppPool {
    pub(super) fn ask(&mut self, helpers: &Helpers, what: AdminRequest, asked: Asker) -> bool {
        if self.asked.len() >= MOST_ASKED || helpers.pid(HelperId::Router(self.id)).is_none() {
            return false;
        }
        self.last_asked += 1;
        let admin_request = self.last_asked;
        self.asked.insert(admin_request, asked);
        let request = ToRouter::AdminRequest { admin_request, what };
        self.say(helpers, &request, Vec::new());
        true
    }

    fn end_lease(&mut self, helpers: &Helpers, lease: u64) {
        // Its state is unknown.
        let back = AdminRequest::Return { lease, ok: false };
        self.ask(helpers, back, Asker::NoClient);
    }
}

impl Applications {
    pub(super) fn answered(
        &mut self,
        context: &mut Context,
        id: PoolId,
        asked: Asker,
        result: Result<Value, Reason>,
    ) {
        match asked {
            Asker::NoClient => {}
            Asker::Session(asker) => {
                let answer = match result {
                    Ok(value) => Answer::Done { value },
                    Err(Reason(message)) => Answer::refusal(message),
                };
                context.services.answer(asker, answer);
            }
            Asker::Lease(asker) => {
                let lease = result.as_ref().ok().and_then(|it| it.get("lease")?.as_u64());
                match (asker, lease, self.routers.get_mut(&id)) {
                    (Some(asker), Some(lease), Some(app_pool)) => {
                        app_pool.leases.insert(lease, asker);
                    }
                    (None, Some(lease), Some(app_pool)) => app_pool.end_lease(&context.helpers, lease),
                    (_, _, _) => {}
                }
                let asked = asker.map_or(Asker::NoClient, Asker::Session);
                self.answered(context, id, asked, result);
            }
            Asker::Restart(asker) => {
                let Some(at) = self.restarts.iter().position(|it| it.asker == asker) else {
                    return;
                };
                self.restarts[at].take(result);
                if self.restarts[at].waiting == 0 {
                    let answer = self.restarts.remove(at).answer();
                    context.services.answer(asker, answer);
                }
            }
            Asker::Trial(site, deployment) => {
                let result = result.map(|_| ());
                self.deployed.trials.push_back((site, deployment, result));
            }
            Asker::View(asker) => self.take_view(&mut context.services, asker, id, result.ok()),
        }
    }

    /// Whether a worker is an instance of an application.
    pub(crate) fn has_instance(&self, worker: WorkerId) -> bool {
        self.instances.contains_key(&worker)
    }

    pub(crate) fn instance_with_pid(&self, processes: &Processes, pid: i32) -> Option<(PoolId, PathBuf)> {
        let Who::Worker(worker) = processes.by_pid.get(&pid)? else {
            return None;
        };
        let SpawnRequestId(id, number) = self.instances.get(worker)?;
        let instance = self.routers.get(id)?.registry.get(*number)?;
        Some((*id, instance.application.clone()))
    }

    pub(crate) fn knows(&self, context: &Context, id: PoolId, root: &Path) -> bool {
        self.running(context, id, root).is_some()
    }

    /// Returns a running application by any of its names.
    fn running(&self, context: &Context, id: PoolId, root: &Path) -> Option<&RunningApplication> {
        let applications = &self.routers.get(&id)?.applications;
        let served = context.pools.sites.served_at(id, root);
        applications.get(root).or_else(|| applications.get(served))
    }

    /// Whether a client with these rights may change an application.
    pub(crate) fn may_touch(
        &self,
        context: &Context,
        rights: Rights,
        id: PoolId,
        root: &Path,
    ) -> Result<(), Refused> {
        let Rights::Own(uid) = rights else {
            return Ok(());
        };
        let application = self.running(context, id, root);
        if application.is_some_and(|application| application.is_owned_by(uid)) {
            return Ok(());
        }
        Err(Refused::NotYourApplication)
    }

    /// Passes a request on to a pool's router. The client gets the router's answer, or an error at once.
    pub(crate) fn pass_on(&mut self, context: &mut Context, id: PoolId, asker: u64, what: AdminRequest) {
        // A taken instance is lent to the conversation until it ends or returns it.
        let asked = match what {
            AdminRequest::Take { .. } => Asker::Lease(Some(asker)),
            _ => Asker::Session(asker),
        };
        let app_pool = self.routers.get_mut(&id);
        if !app_pool.is_some_and(|app_pool| app_pool.ask(&context.helpers, what, asked)) {
            refuse_for_now(&mut context.services, asker);
        }
    }

    pub(crate) fn give_back(
        &mut self,
        context: &mut Context,
        asker: u64,
        lease: u64,
        ok: bool,
    ) -> Result<(), Refused> {
        let mut routers = self.routers.values_mut();
        let id = routers.find_map(|app_pool| app_pool.leases.remove(&lease).map(|_| app_pool.id));
        let id = id.ok_or(Refused::NoLease(lease))?;
        self.pass_on(context, id, asker, AdminRequest::Return { lease, ok });
        Ok(())
    }

    pub(crate) fn pass_restart_on(
        &mut self,
        context: &mut Context,
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
            let (app_pool, asked) = (self.routers.get_mut(id), Asker::Restart(asker));
            match app_pool.is_some_and(|it| it.ask(&context.helpers, what.clone(), asked)) {
                true => restart.waiting += 1,
                false => restart.refused = Some(NO_ROUTER.to_owned()),
            }
        }
        if restart.waiting == 0 {
            return refuse_for_now(&mut context.services, asker);
        }
        self.restarts.retain(|other| other.asker != asker);
        self.restarts.push(restart);
    }

    pub(crate) fn router_named(&self, name: &str) -> Option<PoolId> {
        let mut routers = self.routers.iter();
        routers
            .find(|(_, app_pool)| app_pool.template.name == name)
            .map(|(id, _)| *id)
    }

    pub(crate) fn router_of_group(&self, group: &str) -> Result<Option<PoolId>, Refused> {
        let has = |app_pool: &AppPool| {
            let applications = app_pool.template.applications.as_ref();
            applications.is_some_and(|applications| applications.groups.contains_key(group))
        };
        let mut found = self.routers.iter().filter(|(_, app_pool)| has(app_pool));
        match (found.next(), found.next()) {
            (Some((_, one)), Some((_, other))) => Err(Refused::TwoGroups {
                group: group.to_owned(),
                one: one.template.name.clone(),
                other: other.template.name.clone(),
            }),
            (found, _) => Ok(found.map(|(id, _)| *id)),
        }
    }

    /// Returns the pools with an application in their directories: the first and the others. If there is none, returns the
    /// only pool, because a link may lead to the directory.
    pub(crate) fn routers_for(&self, application: &Path) -> Result<(PoolId, Vec<PoolId>), Refused> {
        let is_below = |app_pool: &AppPool| {
            let applications = app_pool.template.applications.iter();
            let mut directories = applications.flat_map(|it| &it.directories);
            directories.any(|directory| application.starts_with(directory))
        };
        let of_path = self.routers.iter().filter(|(_, app_pool)| is_below(app_pool));
        let mut of_path = of_path.map(|(id, _)| *id);
        let (first, others) = (of_path.next(), of_path.collect());
        let only = self.routers.keys().next().filter(|_| self.routers.len() == 1);
        let first = first.or(only.copied());
        let first = first.ok_or_else(|| Refused::NoDirectory(application.to_owned()))?;
        Ok((first, others))
    }

    pub(crate) fn resize(&mut self, id: PoolId, max: u32) -> Result<(), Refused> {
        match self.routers.get_mut(&id) {
            Some(app_pool) if max > 0 => app_pool.max = max,
            Some(_) => return Err(Refused::NoInstance),
            None => {}
        }
        Ok(())
    }

    /// Ends a conversation's leases.
    pub(crate) fn end_leases(&mut self, helpers: &Helpers, session: u64) {
        self.statuses
            .retain(|status| status.asker != StatusAsker::Session(session));
        self.restarts.retain(|restart| restart.asker != session);
        self.forget_looks(|asker, _| asker == session);
        for app_pool in self.routers.values_mut() {
            for asked in app_pool.asked.values_mut() {
                if *asked == Asker::Lease(Some(session)) {
                    *asked = Asker::Lease(None);
                }
            }
            let held = app_pool.leases.iter().filter(|(_, holder)| **holder == session);
            for lease in held.map(|(lease, _)| *lease).collect::<Vec<_>>() {
                app_pool.leases.remove(&lease);
                app_pool.end_lease(helpers, lease);
            }
        }
    }

    pub(crate) fn lease_holders(&self) -> Vec<u64> {
        let leases = self
            .routers
            .values()
            .flat_map(|app_pool| app_pool.leases.values());
        leases.copied().collect()
    }
}

fn refuse_for_now(services: &mut Services, asker: u64) {
    services.answer(asker, Answer::refusal(NO_ROUTER.to_owned()));
}
