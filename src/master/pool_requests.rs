//! What operators ask for application pools, and for pools that come and go while the daemon runs.

use super::event::{Event, PoolId};
use super::executor::{ApplyError, Rights};
use super::reload_diff::ReloadScope;
use super::run::Master;
use crate::config::{self, Config, Pool, Severity};
use crate::control::protocol::{Answer, Complaint, Request};
use crate::router::messages::{AdminRequest, Unstarted};
use crate::sys::clock;
use crate::tick::Tick;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Pools that an operator has removed and that have until then.
#[derive(Debug, Default)]
pub(super) struct Expulsions(Vec<(Tick, Vec<PoolId>)>);

impl Expulsions {
    /// When the first is due.
    pub(super) fn deadline(&self) -> Option<Tick> {
        self.0.iter().map(|(until, _)| *until).min()
    }
}

impl Master {
    /// Carries out a request that is about applications or single pools. `None`: it is answered later, or was already.
    pub(super) fn pool_request(&mut self, asker: u64, request: &Request) -> Option<Answer> {
        match request {
            Request::Restart {
                application,
                rolling,
                start,
            } => {
                let id = match self.executor.applications.router_for(application) {
                    Ok(id) => id,
                    Err(message) => return Some(Answer::refusal(message)),
                };
                // The router learns whose application it is, if it does not run.
                let unstarted = match (start, self.executor.control.rights(asker)) {
                    (false, _) => Unstarted::Stays,
                    (true, Rights::All) => Unstarted::Starts,
                    (true, Rights::Own(uid)) => Unstarted::StartsFor(uid),
                };
                let is_known = self.executor.knows_application(id, application);
                if is_known || !start {
                    if let Err(message) = self.executor.may_touch(asker, id, application) {
                        return Some(Answer::refusal(message));
                    }
                }
                let order = AdminRequest::Restart {
                    application: application.clone(),
                    rolling: *rolling,
                    unstarted,
                };
                self.executor.pass_on(id, asker, order);
            }
            Request::RestartPool { pool, wait } => return self.restart_pool(asker, pool, *wait),
            Request::Detach { pid } => {
                return self.about_instance(asker, *pid, AdminRequest::Detach { pid: *pid });
            }
            Request::Disable { pid } => {
                let order = AdminRequest::Disable {
                    pid: *pid,
                    enable: false,
                };
                return self.about_instance(asker, *pid, order);
            }
            Request::Enable { pid } => {
                let order = AdminRequest::Disable {
                    pid: *pid,
                    enable: true,
                };
                return self.about_instance(asker, *pid, order);
            }
            Request::Resize { pool, max } => {
                let Some(id) = self.executor.applications.router_named(pool) else {
                    return Some(no_pool(pool));
                };
                if let Err(message) = self.executor.applications.resize(id, *max) {
                    return Some(Answer::refusal(message));
                }
                self.executor
                    .pass_on(id, asker, AdminRequest::SetMax { max: *max });
            }
            Request::Take { of, wait_ms } => {
                let of_group = self.executor.applications.router_of_group(of).transpose();
                let id =
                    match of_group.unwrap_or_else(|| self.executor.applications.router_for(Path::new(of))) {
                        Ok(id) => id,
                        Err(message) => return Some(Answer::refusal(message)),
                    };
                let wait = wait_ms.map(Duration::from_millis);
                let order = AdminRequest::Take { of: of.clone(), wait };
                self.executor.lend(id, asker, order);
            }
            Request::Return { lease, failed } => {
                return self
                    .executor
                    .give_back(asker, *lease, !failed)
                    .err()
                    .map(Answer::refusal);
            }
            Request::PoolAdd { file } => return self.add_pools(asker, file).err(),
            Request::PoolRemove {
                name,
                immediate,
                deadline_ms,
            } => {
                let limit = match (immediate, deadline_ms) {
                    (true, _) => Some(Duration::ZERO),
                    (false, limit) => limit.map(Duration::from_millis),
                };
                return self.remove_pool(asker, name, limit).err();
            }
            Request::Ping {}
            | Request::Status {}
            | Request::Error { .. }
            | Request::Drain { .. }
            | Request::ReopenLogs {}
            | Request::Upgrade {}
            | Request::Reload { .. } => {}
        }
        None
    }

    /// Gives a pool of one application new processes. `None`: it is answered when they serve, or have failed to.
    fn restart_pool(&mut self, asker: u64, name: &str, waits: bool) -> Option<Answer> {
        let (rights, config) = (self.executor.control.rights(asker), self.executor.reload.config());
        let found = self.executor.pools.pool_to_restart(config, rights, name);
        let id = match found {
            Ok(id) => id,
            Err(message) => return Some(Answer::refusal(message)),
        };
        if self.lifecycle.stopping().is_some() {
            return Some(Answer::refusal("the daemon is ending".to_owned()));
        }
        match self.begin_restart(id, Some(asker).filter(|_| waits)) {
            Ok(()) => (!waits).then_some(Answer::Done { value: Value::Null }),
            Err(error) => Some(Answer::refusal(format!("nothing was changed: {error}"))),
        }
    }

    /// Gives a pool new processes; the old ones go on until these serve. `asker` is answered then.
    fn begin_restart(&mut self, id: PoolId, asker: Option<u64>) -> Result<(), ApplyError> {
        let config = self.executor.reload.config().clone();
        let (wanted, mut changes) = self.executor.prepare(config, ReloadScope::One(id))?;
        changes.kept.clear();
        changes.skipped.clear();
        self.executor.begin_reload(changes, Vec::new(), asker);
        self.tell(Event::Apply(wanted));
        Ok(())
    }

    /// Gives a pool of one application new processes, if a worker has found a reason.
    pub(super) fn restart_if_asked(&mut self) {
        let is_ending = self.lifecycle.stopping().is_some();
        let Some(id) = self.executor.pool_to_restart(is_ending) else {
            return;
        };
        if let Err(error) = self.begin_restart(id, None) {
            log::error!("the old processes stay: {error}");
        }
    }

    fn about_instance(&mut self, asker: u64, pid: i32, order: AdminRequest) -> Option<Answer> {
        let Some((id, application)) = self.executor.instance_with_pid(pid) else {
            let message = format!("process {pid} is no instance of an application");
            return Some(Answer::refusal(message));
        };
        if let Err(message) = self.executor.may_touch(asker, id, &application) {
            return Some(Answer::refusal(message));
        }
        self.executor.pass_on(id, asker, order);
        None
    }

    /// Adds the pools of a file to those that run. They last until the daemon reads its own file again.
    fn add_pools(&mut self, asker: u64, file: &Path) -> Result<(), Answer> {
        let loaded = config::load(file).map_err(|errors| Answer::Error {
            message: "nothing was added".to_owned(),
            errors: errors.complaints(),
        })?;
        if !loaded.config.skipped.is_empty() {
            let wrong = loaded.warnings.iter().filter(|it| it.severity == Severity::Error);
            return Err(Answer::Error {
                message: "nothing was added".to_owned(),
                errors: wrong.map(Complaint::from).collect(),
            });
        }
        let present = self.executor.reload.config();
        let known = |pool: &&Arc<Pool>| present.pools.iter().any(|other| other.name == pool.name);
        if let Some(pool) = loaded.config.pools.iter().find(known) {
            let message = format!("there is a pool {} already; nothing was added", pool.name);
            return Err(Answer::refusal(message));
        }
        super::frontend::log_diagnostics(&loaded.warnings);
        let mut config = present.clone();
        for pool in loaded.config.pools {
            config.forget_skipped(&pool.name);
            config.pools.push(pool);
        }
        self.apply_other(config, asker)
    }

    fn remove_pool(&mut self, asker: u64, name: &str, limit: Option<Duration>) -> Result<(), Answer> {
        let mut config = self.executor.reload.config().clone();
        let before = config.pools.len();
        config.pools.retain(|pool| pool.name != name);
        if config.pools.len() == before {
            return Err(no_pool(name));
        }
        config.forget_skipped(name);
        let going = self.executor.pools.pools_named(name);
        self.apply_other(config, asker)?;
        if let Some(limit) = limit {
            self.expulsions.0.push((clock::now() + limit, going));
            self.expel();
        }
        Ok(())
    }

    /// Applies a configuration that differs from the one in force in some pools.
    fn apply_other(&mut self, config: Config, asker: u64) -> Result<(), Answer> {
        if self.lifecycle.stopping().is_some() {
            return Err(Answer::refusal("the daemon is ending".to_owned()));
        }
        let before = self.executor.reload.config().skipped.clone();
        match self.executor.prepare(config, ReloadScope::Settings) {
            Ok((wanted, mut changes)) => {
                changes.skipped.retain(|one| !before.contains(one));
                super::frontend::say_skipped(&changes.skipped);
                self.executor.begin_reload(changes, Vec::new(), Some(asker));
                self.tell(Event::Apply(wanted));
                Ok(())
            }
            Err(error) => Err(Answer::refusal(format!("nothing was changed: {error}"))),
        }
    }

    /// Ends what is left of pools whose time is over.
    pub(super) fn expel(&mut self) {
        let now = clock::now();
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.expulsions.0)
            .into_iter()
            .partition(|(until, _)| *until <= now);
        self.expulsions.0 = later;
        for pool in due.into_iter().flat_map(|(_, pools)| pools) {
            for one in self.executor.expel(pool) {
                self.tell(Event::Expel(one));
            }
        }
    }

    /// Whether a user with these rights may make the request. Owners of applications may not make every one.
    pub(super) fn is_for_owners(request: &Request, rights: Rights) -> bool {
        match request {
            Request::Ping {}
            | Request::Status {}
            | Request::Restart { .. }
            | Request::RestartPool { .. }
            // Of their own pools and applications.
            | Request::Error { .. }
            | Request::Detach { .. } => true,
            Request::Upgrade {}
            | Request::Reload { .. }
            | Request::Drain { .. }
            | Request::ReopenLogs {}
            | Request::Disable { .. }
            | Request::Enable { .. }
            | Request::Resize { .. }
            | Request::Take { .. }
            | Request::Return { .. }
            | Request::PoolAdd { .. }
            | Request::PoolRemove { .. } => rights == Rights::All,
        }
    }
}

fn no_pool(name: &str) -> Answer {
    Answer::refusal(format!("there is no pool {name}"))
}
