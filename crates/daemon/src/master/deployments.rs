//! Deployments: a pool gets another release.

use super::event_loop::Master;
use super::executor::{ChosenBy, DeployFact, Job, Rights};
use super::pool_requests::{Handled, no_pool};
use forkyard_core::master::event::{Event, GenerationId, PoolId};
use forkyard_core::master::reload_diff::ReloadScope;
use forkyard_core::release::steps::{self, Action, Cause, DeploymentId, End, Plan};
use forkyard_protocol::control::Answer;
use forkyard_protocol::past_event::{EventKind, Happening};
use forkyard_protocol::release::Outcome;
use forkyard_sys::clock;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

impl Master {
    /// Begins a deployment. The answer follows when the pool serves the release, or stays with the one before.
    pub(super) fn deploy(&mut self, asker: u64, pool: &str, release: &Path) -> Handled {
        let id = self.deployed_pool(asker, pool)?;
        self.refuse_when_ending()?;
        let by = match self.executor.control.rights(asker) {
            Rights::All => ChosenBy::Root,
            Rights::Own(_) => ChosenBy::Owner,
        };
        let checked = self.executor.context.check_release(id, release, by);
        checked.map_err(|fault| Answer::refusal(format!("nothing was changed: release: {fault}")))?;
        let deployments = &mut self.executor.deployments;
        let deployment = deployments.next_id();
        let all = deployments.pools.entry(id).or_default();
        let job = Job {
            asker: Some(asker),
            release: release.to_owned(),
            before: None,
            begun: clock::now(),
            generation: None,
            remarks: Vec::new(),
            why: None,
            serves_since: None,
        };
        all.jobs.insert(deployment, job);
        let mut actions = Vec::new();
        let plan = Plan::new(&[], Duration::ZERO);
        all.steps.deploy(deployment, plan, &mut actions);
        self.carry_out(id, actions);
        Ok(None)
    }

    /// Takes back the deployment that is under way.
    pub(super) fn roll_back(&mut self, asker: u64, pool: &str) -> Handled {
        let id = self.deployed_pool(asker, pool)?;
        let all = self.executor.deployments.pools.get_mut(&id);
        let present = all.and_then(|all| all.steps.present());
        let Some((deployment, _)) = present else {
            let message = format!("no deployment of pool {pool} is under way");
            return Err(Answer::refusal(message));
        };
        self.step(id, deployment, steps::Event::RollBack, None);
        Ok(Some(Answer::Done { value: Value::Null }))
    }

    pub(super) fn releases(&mut self, asker: u64, pool: Option<&str>) -> Handled {
        let rights = self.executor.control.rights(asker);
        let context = &self.executor.context;
        let releases = context
            .pools
            .releases(context, &self.executor.deployments, rights, pool)?;
        match pool.filter(|_| releases.is_empty()) {
            Some(pool) => Err(no_release(pool)),
            None => Ok(Some(Answer::Releases { releases })),
        }
    }

    fn deployed_pool(&self, asker: u64, pool: &str) -> Result<PoolId, Answer> {
        let rights = self.executor.control.rights(asker);
        let context = &self.executor.context;
        let id = context
            .pools
            .pool_meant_by(&context.in_force.config, rights, pool)?;
        let written = context.in_force.pool(context.pools.pool_name(id));
        let written = written.ok_or_else(|| no_pool(pool))?;
        match written.release {
            Some(_) => Ok(id),
            None => Err(no_release(&written.name)),
        }
    }

    /// Carries on the deployments whose processes have started, failed or gone.
    pub(super) fn deploy_on(&mut self) {
        while let Some((generation, fact)) = self.executor.deployments.next_fact() {
            let Some((pool, deployment)) = self.executor.deployments.of(generation) else {
                continue;
            };
            match fact {
                DeployFact::Serves => self.step(pool, deployment, steps::Event::TrialPassed, None),
                DeployFact::Fails(why) => self.step(pool, deployment, steps::Event::TrialFailed, Some(why)),
                DeployFact::Dropped => {
                    let why = "another configuration of the pool took its place".to_owned();
                    self.step(pool, deployment, steps::Event::TrialFailed, Some(why));
                }
            }
        }
        for (pool, deployment) in self.executor.deployments.whole(&self.executor.context.pools) {
            self.report(pool, deployment, Outcome::Deployed);
        }
        for (pool, deployment) in self.executor.deployments.ended(&self.executor.context.pools) {
            self.step(pool, deployment, steps::Event::Gone, None);
        }
    }

    fn step(&mut self, pool: PoolId, id: DeploymentId, event: steps::Event, why: Option<String>) {
        let mut actions = Vec::new();
        let Some(all) = self.executor.deployments.pools.get_mut(&pool) else {
            return;
        };
        all.steps.event(id, event, clock::now(), &mut actions);
        if let Some(job) = all.jobs.get_mut(&id).filter(|_| !actions.is_empty()) {
            job.why = job.why.take().or(why);
        }
        self.carry_out(pool, actions);
    }

    fn carry_out(&mut self, pool: PoolId, actions: Vec<Action>) {
        for action in actions {
            let name = self.executor.context.pools.pool_name(pool).to_owned();
            match action {
                Action::Try(id) => {
                    if let Err(why) = self.try_release(pool, id) {
                        self.step(pool, id, steps::Event::TrialFailed, Some(why));
                    }
                }
                Action::Serve(id) => {
                    if let Some(job) = self.job(pool, id) {
                        job.serves_since = Some(clock::now());
                    }
                }
                Action::Return { id, cause } => {
                    self.go_back(pool, id);
                    let outcome = match cause {
                        Cause::TrialFailed => Outcome::Failed,
                        Cause::Worse | Cause::Asked => Outcome::RolledBack,
                    };
                    if let Some(job) = self.job(pool, id) {
                        job.why.get_or_insert_with(|| cause.to_string());
                    }
                    self.report(pool, id, outcome);
                }
                Action::End { id, end } => {
                    match end {
                        End::Replaced => self.report(pool, id, Outcome::Replaced),
                        End::RolledBack(_) => self.report(pool, id, Outcome::RolledBack),
                        End::Done => self.report(pool, id, Outcome::Deployed),
                    }
                    if let Some(all) = self.executor.deployments.pools.get_mut(&pool) {
                        all.jobs.remove(&id);
                    }
                }
                Action::Waits(id) => {
                    if let Some(job) = self.job(pool, id) {
                        job.remarks.push(action.to_string());
                    }
                    log::info!("[pool {name}] deployment: {action}");
                }
                Action::Share { .. } | Action::NotCompared { .. } => {}
            }
        }
    }

    fn job(&mut self, pool: PoolId, id: DeploymentId) -> Option<&mut Job> {
        self.executor.deployments.pools.get_mut(&pool)?.jobs.get_mut(&id)
    }

    /// Starts a generation with the release.
    fn try_release(&mut self, pool: PoolId, id: DeploymentId) -> Result<(), String> {
        let context = &self.executor.context;
        let serving = context.pools.serving_release(pool);
        let name = context.pools.pool_name(pool).to_owned();
        let Some(job) = self.job(pool, id) else {
            return Ok(());
        };
        job.before = serving;
        let release = job.release.clone();
        log::info!("[pool {name}] deployment of {}", release.display());
        let generation = self.apply_release(pool, Some(release), ReloadScope::One(pool))?;
        if let Some(job) = self.job(pool, id) {
            job.generation = generation;
        }
        Ok(())
    }

    /// Lets the generation before serve alone.
    fn go_back(&mut self, pool: PoolId, id: DeploymentId) {
        let Some(before) = self.job(pool, id).map(|job| job.before.clone()) else {
            return;
        };
        if let Err(why) = self.apply_release(pool, before, ReloadScope::Settings) {
            let name = self.executor.context.pools.pool_name(pool);
            log::error!("[pool {name}] can't go back to the release before: {why}");
        }
    }

    /// Applies the configuration in force with another release of a pool. Returns its new generation, if it has one.
    fn apply_release(
        &mut self,
        pool: PoolId,
        release: Option<PathBuf>,
        scope: ReloadScope,
    ) -> Result<Option<GenerationId>, String> {
        let config = self.executor.context.in_force.config.clone();
        self.executor.context.releases.want(pool, release);
        let prepared = self.executor.prepare(config, scope);
        self.executor.context.releases.want_nothing();
        let (wanted, changes) = prepared.map_err(|error| error.to_string())?;
        let mut replaced = changes.replaced.iter();
        let generation = replaced.find(|(id, ..)| *id == pool).map(|(_, id, ..)| *id);
        self.tell(Event::Apply(wanted));
        Ok(generation)
    }

    /// Reports the result of a deployment.
    fn report(&mut self, pool: PoolId, id: DeploymentId, outcome: Outcome) {
        let name = self.executor.context.pools.pool_name(pool).to_owned();
        let user = self.executor.context.pools.user_of_pool(pool);
        let Some(job) = self.job(pool, id) else {
            return;
        };
        let Some(asker) = job.asker.take() else {
            return;
        };
        let result = job.result(&name, outcome);
        let why = result
            .why
            .as_ref()
            .map_or(String::new(), |why| format!(": {why}"));
        let release = result.release.display();
        let text = match outcome {
            Outcome::Deployed => format!("{release} is in service"),
            Outcome::Failed => format!("{release} did not start{why}"),
            Outcome::RolledBack => format!("{release} was taken back{why}"),
            Outcome::Replaced => format!("{release} was replaced by a newer deployment"),
        };
        match outcome {
            Outcome::Deployed => log::info!("[pool {name}] {text}"),
            Outcome::Failed | Outcome::RolledBack | Outcome::Replaced => log::warn!("[pool {name}] {text}"),
        }
        let what = Happening::of_pool(EventKind::Deployment, &name, user, text).lasting(result.took_ms);
        self.executor.context.services.record(what);
        if outcome == Outcome::Deployed
            && let Some(before) = &result.before
        {
            self.executor.context.releases.note_former(&name, before);
        }
        self.executor
            .answer(asker, &Answer::Deployed(Box::new(result.clone())));
        if let Some(all) = self.executor.deployments.pools.get_mut(&pool) {
            all.last = Some(result);
        }
    }
}

fn no_release(pool: &str) -> Answer {
    Answer::refusal(format!(
        "pool {pool} has no key release; write release = \"/srv/shop/current\" for a link to the release in service"
    ))
}
