//! Operators' requests for application pools, and for pools that are added and removed at run time.

use super::event_loop::Master;
use super::executor::Executor;
use crate::context::apply_error::ApplyError;
use crate::context::rights::Rights;
use forkyard_config::{self as config, Config, Pool, Severity};
use forkyard_core::master::event::{Event, PoolId};
use forkyard_core::master::reload_diff::ReloadScope;
use forkyard_protocol::accept_notify::RestartReason;
use forkyard_protocol::control::{Answer, Complaint, Request};
use forkyard_protocol::router::{AdminRequest, Unstarted};
use forkyard_sys::clock;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The answer, or `None` if it comes later or was sent; an error: a refusal.
pub(super) type Handled = Result<Option<Answer>, Answer>;

impl Master {
    /// Restarts an application in the routers of all pools that have it. `starts`: also start it if it does not run.
    pub(super) fn restart_application(
        &mut self,
        asker: u64,
        application: &Path,
        rolling: Option<bool>,
        starts: bool,
    ) -> Handled {
        let (first, others) = self.executor.applications.routers_for(application)?;
        // The router needs the owner if the application does not run.
        let rights = self.executor.control.rights(asker);
        let unstarted = match (starts, rights) {
            (false, _) => Unstarted::Stays,
            (true, Rights::All) => Unstarted::Starts,
            (true, Rights::Own(uid)) => Unstarted::StartsFor(uid),
        };
        let Executor {
            context,
            applications,
            ..
        } = &self.executor;
        let all: Vec<PoolId> = std::iter::once(first).chain(others).collect();
        // With the release that its link names now.
        let application = context.pools.sites.link_at(&all, application);
        let mut chosen: Vec<PoolId> = all
            .into_iter()
            .filter(|id| applications.knows(context, *id, application))
            .collect();
        let is_known = !chosen.is_empty();
        if !is_known {
            chosen.push(first);
        }
        if is_known || !starts {
            let mut chosen = chosen.iter();
            chosen.try_for_each(|id| applications.may_touch(context, rights, *id, application))?;
        }
        let request = AdminRequest::Restart {
            application: application.to_owned(),
            rolling,
            unstarted,
        };
        self.executor.applications.pass_restart_on(
            &mut self.executor.context,
            &chosen,
            asker,
            &request,
            starts,
        );
        Ok(None)
    }

    /// Changes how many instances an application pool may have.
    pub(super) fn resize(&mut self, asker: u64, pool: &str, max: u32) -> Handled {
        let id = self.executor.applications.router_named(pool);
        let is_known = !self.executor.context.pools.pools_named(pool).is_empty();
        let id = id.ok_or_else(|| match is_known {
            true => Answer::refusal(format!(
                "pool {pool} is no application pool: its key max_children is the number of its workers"
            )),
            false => no_pool(pool),
        })?;
        self.executor.applications.resize(id, max)?;
        self.pass_on(id, asker, AdminRequest::SetMax { max });
        Ok(None)
    }

    pub(super) fn lend(&mut self, asker: u64, of: &str, wait: Option<Duration>) -> Handled {
        let applications = &self.executor.applications;
        let id = match applications.router_of_group(of)? {
            Some(id) => id,
            None => applications.routers_for(Path::new(of))?.0,
        };
        let served = self.executor.context.pools.sites.served_at(id, Path::new(of));
        let of = served.to_str().unwrap_or(of).to_owned();
        self.pass_on(id, asker, AdminRequest::Take { of, wait });
        Ok(None)
    }

    /// Restarts a pool of one application.
    pub(super) fn restart_pool(&mut self, asker: u64, name: &str, waits: bool) -> Handled {
        let (rights, config) = (
            self.executor.control.rights(asker),
            &self.executor.context.in_force.config,
        );
        let id = self.executor.context.pools.pool_meant_by(config, rights, name)?;
        self.refuse_when_ending()?;
        let begun = self.begin_restart(id, Some(asker).filter(|_| waits));
        begun.map_err(unchanged)?;
        Ok((!waits).then_some(Answer::Done { value: Value::Null }))
    }

    pub(super) fn refuse_when_ending(&self) -> Result<(), Answer> {
        match self.lifecycle.stopping() {
            Some(_) => Err(Answer::refusal("the daemon is ending".to_owned())),
            None => Ok(()),
        }
    }

    /// Replaces a pool's processes; the old ones serve until the new ones do. Then `asker` gets its answer.
    fn begin_restart(&mut self, id: PoolId, asker: Option<u64>) -> Result<(), ApplyError> {
        let config = self.executor.context.in_force.config.clone();
        let (wanted, mut changes) = self.executor.prepare(config, ReloadScope::One(id))?;
        changes.kept.clear();
        changes.skipped.clear();
        self.apply((wanted, changes), Vec::new(), asker, None);
        Ok(())
    }

    pub(super) fn restart_if_asked(&mut self) {
        let is_ending = self.lifecycle.stopping().is_some();
        let Some((id, why)) = self
            .executor
            .reload
            .pool_to_restart(&self.executor.context.pools, is_ending)
        else {
            return;
        };
        // Otherwise only a command reads the link to the release again.
        if why != RestartReason::ReleaseGone {
            let release = self.executor.context.pools.serving_release(id);
            self.executor.releases.want(id, release, None);
        }
        let begun = self.begin_restart(id, None);
        self.executor.releases.want_nothing();
        if let Err(error) = begun {
            log::error!("the old processes stay: {error}");
        }
    }

    pub(super) fn end_request(&mut self, asker: u64, pid: i32) -> Handled {
        let event = {
            let rights = self.executor.control.rights(asker);
            let applications = &self.executor.applications;
            self.executor.context.end_request(applications, rights, pid)?
        };
        event.into_iter().for_each(|event| self.tell(event));
        Ok(Some(Answer::Done { value: Value::Null }))
    }

    /// Passes a request on to the router of an instance.
    pub(super) fn about_instance(&mut self, asker: u64, pid: i32, request: AdminRequest) -> Handled {
        let executor = &self.executor;
        let found = executor
            .applications
            .instance_with_pid(&executor.context.processes, pid);
        let none = || format!("process {pid} is no instance of an application");
        let (id, application) = found.ok_or_else(none)?;
        let rights = executor.control.rights(asker);
        executor
            .applications
            .may_touch(&executor.context, rights, id, &application)?;
        self.pass_on(id, asker, request);
        Ok(None)
    }

    fn pass_on(&mut self, id: PoolId, asker: u64, request: AdminRequest) {
        let executor = &mut self.executor;
        executor
            .applications
            .pass_on(&mut executor.context, id, asker, request);
    }

    /// Adds the pools of a file until the daemon reads its own file again.
    pub(super) fn add_pools(&mut self, asker: u64, file: &Path) -> Handled {
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
        let present = &self.executor.context.in_force.config;
        let known = |pool: &&Arc<Pool>| present.pools.iter().any(|other| other.name == pool.name);
        if let Some(pool) = loaded.config.pools.iter().find(known) {
            let message = format!("there is a pool {} already; nothing was added", pool.name);
            return Err(message.into());
        }
        super::frontend::log_diagnostics(&loaded.warnings);
        let mut config = present.clone();
        for pool in loaded.config.pools {
            config.forget_skipped(&pool.name);
            config.pools.push(pool);
        }
        self.apply_other(config, asker)
    }

    /// Removes a pool. `limit`: the time for its workers to finish.
    pub(super) fn remove_pool(&mut self, asker: u64, name: &str, limit: Option<Duration>) -> Handled {
        let mut config = self.executor.context.in_force.config.clone();
        let before = config.pools.len();
        config.pools.retain(|pool| pool.name != name);
        if config.pools.len() == before {
            return Err(no_pool(name));
        }
        config.forget_skipped(name);
        let going = self.executor.context.pools.pools_named(name);
        self.apply_other(config, asker)?;
        if let Some(limit) = limit {
            self.expulsions.push((clock::now() + limit, going));
            self.expel();
        }
        Ok(None)
    }

    fn apply_other(&mut self, config: Config, asker: u64) -> Handled {
        self.refuse_when_ending()?;
        let before = self.executor.context.in_force.config.skipped.clone();
        let prepared = self.executor.prepare(config, ReloadScope::Settings);
        let (wanted, mut changes) = prepared.map_err(unchanged)?;
        changes.skipped.retain(|one| !before.contains(one));
        super::frontend::say_skipped(&changes.skipped);
        self.apply((wanted, changes), Vec::new(), Some(asker), None);
        Ok(None)
    }

    pub(super) fn expel(&mut self) {
        let now = clock::now();
        let all = std::mem::take(&mut self.expulsions).into_iter();
        let (due, later): (Vec<_>, Vec<_>) = all.partition(|(until, _)| *until <= now);
        self.expulsions = later;
        for pool in due.into_iter().flat_map(|(_, pools)| pools) {
            let executor = &mut self.executor;
            for one in executor.applications.expel(&mut executor.context, pool) {
                self.tell(Event::Expel(one));
            }
        }
    }

    /// Whether a user with these rights may make the request.
    pub(super) fn is_for_owners(request: &Request, rights: Rights) -> bool {
        match request {
            Request::Ping {}
            | Request::Status { .. }
            | Request::Events {}
            | Request::Opcache { .. }
            | Request::Restart { .. }
            | Request::RestartPool { .. }
            | Request::Deploy { .. }
            | Request::Rollback { .. }
            | Request::Releases { .. }
            // Only for their own pools and applications.
            | Request::Error { .. }
            | Request::Crashes { .. }
            | Request::Routes { .. }
            | Request::Terminate { .. }
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
            | Request::Periods { .. }
            | Request::PoolAdd { .. }
            | Request::PoolRemove { .. } => rights == Rights::All,
        }
    }
}

pub(super) fn no_pool(name: &str) -> Answer {
    Answer::refusal(format!("there is no pool {name}"))
}

fn unchanged(error: ApplyError) -> Answer {
    Answer::refusal(format!("nothing was changed: {error}"))
}
