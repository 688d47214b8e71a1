//! Deployments: a pool gets another release.

use super::event_loop::Master;
use super::executor::Executor;
use super::pool_requests::{Handled, no_pool};
use crate::applications::SiteRequest;
use crate::context::apply_error::ApplyError;
use crate::context::rights::Rights;
use crate::releases::deployments::DeployFact;
use crate::releases::deployments::Job;
use crate::releases::deployments::Target;
use crate::releases::release::ChosenBy;
use forkyard_config::release::{DEFAULT_STEP_TIME, DEFAULT_STEPS, Release};
use forkyard_core::master::event::{Event, GenerationId, PoolId};
use forkyard_core::master::reload_diff::ReloadScope;
use forkyard_core::release::compare::Verdict;
use forkyard_core::release::steps::{self, Action, Cause, DeploymentId, End, Plan};
use forkyard_protocol::control::Answer;
use forkyard_protocol::past_event::{EventKind, Happening};
use forkyard_protocol::reason::Reason;
use forkyard_protocol::release::Outcome;
use forkyard_sys::clock;
use serde_json::Value;
use std::path::{Path, PathBuf};

impl Master {
    /// Begins a deployment. The answer comes later: when the pool serves the release, or stays with the old one.
    pub(super) fn deploy(
        &mut self,
        asker: u64,
        pool: &str,
        release: &Path,
        gradual: Option<bool>,
    ) -> Handled {
        self.refuse_when_ending()?;
        let id = match self.deployed_pool(asker, pool) {
            Err(answer) => {
                let release = release.to_owned();
                let request = SiteRequest::Deploy {
                    release,
                    gradual,
                    reads_link: false,
                };
                return self.look_at_site(asker, pool, request, answer);
            }
            Ok(id) => id,
        };
        // The command would have to move the link after the deployment.
        if self.executor.control.has_left(asker) {
            return Err(Answer::refusal("the command has ended".to_owned()));
        }
        let by = match self.executor.control.rights(asker) {
            Rights::All => ChosenBy::Root,
            Rights::Own(_) => ChosenBy::Owner,
        };
        let checked = self.executor.context.check_release(id, release, by);
        checked.map_err(|fault| Answer::refusal(format!("nothing was changed: release: {fault}")))?;
        let context = &self.executor.context;
        let pool = context.in_force.pool(context.pools.pool_name(id));
        let plan = plan(pool.and_then(|pool| pool.release.as_deref()), gradual);
        self.begin_deployment(Target::Pool(id), Some(asker), release, plan);
        Ok(None)
    }

    pub(super) fn begin_deployment(&mut self, id: Target, asker: Option<u64>, release: &Path, plan: Plan) {
        let job = Job::new(self.target_name(id), release.to_owned(), asker);
        let deployments = &mut self.executor.deployments;
        let deployment = deployments.next_id();
        let all = deployments.pools.entry(id).or_default();
        all.jobs.insert(deployment, job);
        let mut actions = Vec::new();
        all.steps.deploy(deployment, plan, &mut actions);
        self.carry_out(id, actions);
    }

    /// Takes back the deployment under way, or with `release` the deployment of that release.
    pub(super) fn roll_back(&mut self, asker: u64, pool: &str, release: Option<&Path>) -> Handled {
        let id = match self.deployed_pool(asker, pool) {
            Ok(id) => Target::Pool(id),
            Err(answer) => Target::Site(self.own_site(asker, pool, answer)?),
        };
        let all = self.executor.deployments.pools.get(&id);
        let Some(deployment) = all.and_then(|all| all.meant_by(release)) else {
            let of = release.map_or(String::new(), |release| format!(" to {}", release.display()));
            let message = format!("no deployment of pool {pool}{of} is under way");
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
            .releases(context, &self.executor.deployments, rights, pool);
        let mut releases = match (releases, pool) {
            (Ok(releases), _) => releases,
            (Err(refused), Some(pool)) => {
                return self.look_at_site(asker, pool, SiteRequest::Releases, refused.into());
            }
            (Err(refused), None) => return Err(refused.into()),
        };
        if pool.is_none() {
            releases.extend(self.sites_of(rights));
        }
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

    /// Continues deployments after the starts, failures and exits of their processes.
    pub(super) fn deploy_on(&mut self) {
        self.executor
            .deployments
            .forget_sites(&self.executor.context.pools.sites);
        self.hear_of_sites();
        while let Some(job) = self.executor.deployments.next_removed() {
            self.end_removed(job);
        }
        while let Some((generation, fact)) = self.executor.deployments.next_fact() {
            let Some((pool, deployment)) = self.executor.deployments.of(generation) else {
                continue;
            };
            match fact {
                // An application's release passes its trial when the router reports that (`hear_of_sites`).
                DeployFact::Shares | DeployFact::Serves if matches!(pool, Target::Site(_)) => {}
                DeployFact::Shares => self.step(pool, deployment, steps::Event::TrialPassed, None),
                DeployFact::Serves => {
                    if let Some(job) = self.job(pool, deployment) {
                        job.end_comparison();
                        job.serves_since.get_or_insert_with(clock::now);
                    }
                    self.step(pool, deployment, steps::Event::TrialPassed, None);
                }
                DeployFact::Fails(why) => {
                    if let Some(comparison) = self.job(pool, deployment).and_then(|it| it.comparison.as_mut())
                    {
                        comparison.failed(generation);
                    }
                    if self
                        .job(pool, deployment)
                        .is_some_and(|it| it.serves_since.is_none())
                    {
                        self.step(pool, deployment, steps::Event::TrialFailed, Some(why));
                    }
                }
                // A restart replaces the generation of an application, and the deployment goes on.
                DeployFact::Dropped if matches!(pool, Target::Site(_)) => {}
                DeployFact::Dropped => {
                    if self
                        .job(pool, deployment)
                        .is_some_and(|it| it.serves_since.is_none())
                    {
                        let why = || {
                            Some("a restart or another configuration of the pool took its place".to_owned())
                        };
                        self.step(pool, deployment, steps::Event::RollBack, why());
                        self.step(pool, deployment, steps::Event::TrialFailed, why());
                    }
                }
            }
        }
        while let Some((pool, deployment)) = self.executor.deployments.next_left() {
            self.step(pool, deployment, steps::Event::Left, None);
        }
        for (pool, deployment) in self.executor.deployments.due(clock::now()) {
            self.look_at(pool, deployment);
        }
        for (pool, deployment) in self.executor.deployments.whole(&self.executor.context.pools) {
            self.report(pool, deployment, Outcome::Deployed);
            self.step(pool, deployment, steps::Event::Serves, None);
        }
        let Executor {
            context,
            deployments,
            applications,
            ..
        } = &mut self.executor;
        for (pool, deployment) in deployments.ended(&context.pools, applications) {
            self.step(pool, deployment, steps::Event::Gone, None);
        }
    }

    /// Answers the command that deployed a release in a pool since removed.
    fn end_removed(&mut self, mut job: Job) {
        let Some(asker) = job.asker.filter(|_| !job.is_reported) else {
            return;
        };
        job.why = Some("the pool was removed".to_owned());
        let of = job.of.clone();
        let result = job.result(&of, Outcome::RolledBack);
        log::warn!(
            "[pool {of}] the deployment of {} ends: the pool was removed",
            job.release.display()
        );
        self.executor.answer(asker, &Answer::Deployed(Box::new(result)));
    }

    /// Compares both releases. The deployment then goes on, is rolled back, or stays at its step.
    fn look_at(&mut self, pool: Target, id: DeploymentId) {
        let both = self.generations(pool, id);
        let Executor {
            context, deployments, ..
        } = &mut self.executor;
        let percent = deployments.pools.get(&pool).map_or(0, |all| all.steps.percent());
        let Some(job) = deployments.job(pool, id) else {
            return;
        };
        job.compare(&context.pools, both, percent);
        let Some(comparison) = &mut job.comparison else {
            let time = steps::Event::Time {
                compared: 0,
                is_suspicious: false,
            };
            return self.step(pool, id, time, None);
        };
        let verdict = comparison.second(&context.pools);
        let time = steps::Event::Time {
            compared: comparison.compared(),
            is_suspicious: comparison.is_suspicious(),
        };
        let (old, new, percent) = comparison.shown();
        let needs_workers = comparison.needs_workers();
        match verdict {
            Verdict::GoOn => {
                context.correct_shares(old, new, percent);
                let wanted = deployments.pools.get(&pool).map(|all| all.steps.percent());
                let wanted = wanted.filter(|percent| needs_workers && *percent < 100);
                if let (Target::Pool(pool), Some(percent)) = (pool, wanted) {
                    // Sending the share again lets the new generation grow with the pool.
                    self.tell(Event::Share { pool, percent });
                }
                self.step(pool, id, time, None);
            }
            Verdict::RollBack { .. } => self.step(pool, id, steps::Event::Worse, Some(verdict.to_string())),
        }
    }

    /// Gives the new generation `percent` of the requests.
    fn give(&mut self, target: Target, id: DeploymentId, percent: u8) {
        let both = self.generations(target, id);
        let Executor {
            context, deployments, ..
        } = &mut self.executor;
        if let Some(job) = deployments.job(target, id) {
            match &mut job.comparison {
                Some(comparison) => comparison.step(percent),
                None => job.compare(&context.pools, both, percent),
            }
        }
        match target {
            Target::Pool(pool) => self.tell(Event::Share { pool, percent }),
            Target::Site(site) => self.share_site(site, id, percent),
        }
    }

    pub(super) fn step(&mut self, pool: Target, id: DeploymentId, event: steps::Event, why: Option<String>) {
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

    fn carry_out(&mut self, pool: Target, actions: Vec<Action>) {
        for action in actions {
            let name = self.target_name(pool);
            match action {
                Action::Try(id) => {
                    if let Err(Reason(why)) = self.try_release(pool, id) {
                        self.step(pool, id, steps::Event::TrialFailed, Some(why));
                    }
                }
                Action::Serve(id) => {
                    if self.job(pool, id).is_some_and(|job| job.serves_since.is_none()) {
                        match pool {
                            Target::Pool(pool) => self.tell(Event::Share { pool, percent: 100 }),
                            Target::Site(site) => self.serve_site(site, id),
                        }
                    }
                }
                Action::Return { id, cause } => {
                    if let Some(job) = self.job(pool, id) {
                        job.end_comparison();
                    }
                    self.go_back(pool, id);
                    let outcome = match cause {
                        Cause::TrialFailed => Outcome::Failed,
                        Cause::Worse | Cause::Asked | Cause::Left => Outcome::RolledBack,
                    };
                    if let Some(job) = self.job(pool, id) {
                        job.why.get_or_insert_with(|| cause.to_string());
                    }
                    self.report(pool, id, outcome);
                }
                Action::Undo(id) => {
                    log::warn!("[pool {name}] deployment: {action}");
                    if let Some(before) = self.job(pool, id).and_then(|job| job.before.clone()) {
                        self.begin_deployment(pool, None, &before, plan(None, Some(false)));
                    }
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
                Action::Share { id, percent } => {
                    log::info!("[pool {name}] deployment: {action}");
                    self.give(pool, id, percent);
                }
                Action::NotCompared { id, .. } | Action::Doubted { id, .. } => {
                    log::info!("[pool {name}] deployment: {action}");
                    if let Some(job) = self.job(pool, id) {
                        job.remarks.push(action.to_string());
                    }
                }
            }
        }
    }

    pub(super) fn job(&mut self, pool: Target, id: DeploymentId) -> Option<&mut Job> {
        self.executor.deployments.job(pool, id)
    }

    /// Starts a generation with the release.
    fn try_release(&mut self, target: Target, id: DeploymentId) -> Result<(), Reason> {
        let pool = match target {
            Target::Pool(pool) => pool,
            Target::Site(site) => return self.try_site(site, id),
        };
        let context = &self.executor.context;
        let serving = context.pools.serving_release(pool);
        let name = context.pools.pool_name(pool).to_owned();
        let plan = self
            .executor
            .deployments
            .pools
            .get(&target)
            .and_then(|all| all.steps.plan());
        let share = plan.and_then(|plan| plan.percents.first().copied());
        let Some(job) = self.job(target, id) else {
            return Ok(());
        };
        job.before = serving;
        let release = job.release.clone();
        self.executor.context.drop_compiled(pool, &release);
        log::info!("[pool {name}] deployment of {}", release.display());
        let generation = self
            .apply_release(pool, Some(release), share, ReloadScope::One(pool))
            .map_err(|error| Reason(error.to_string()))?;
        if let Some(job) = self.job(target, id) {
            job.generation = generation;
        }
        Ok(())
    }

    /// Gives the old release all requests again.
    fn go_back(&mut self, target: Target, id: DeploymentId) {
        let Some(before) = self.job(target, id).map(|job| job.before.clone()) else {
            return;
        };
        let pool = match target {
            Target::Pool(pool) => pool,
            Target::Site(site) => return self.serve_alone(site, before),
        };
        if let Err(why) = self.apply_release(pool, before, None, ReloadScope::Settings) {
            let name = self.executor.context.pools.pool_name(pool);
            log::error!("[pool {name}] can't go back to the release before: {why}");
        }
    }

    /// Applies the configuration in force with another release in one pool. Returns the pool's new generation, if any.
    fn apply_release(
        &mut self,
        pool: PoolId,
        release: Option<PathBuf>,
        share: Option<u8>,
        scope: ReloadScope,
    ) -> Result<Option<GenerationId>, ApplyError> {
        let config = self.executor.context.in_force.config.clone();
        self.executor.releases.want(pool, release, share);
        let prepared = self.executor.prepare(config, scope);
        self.executor.releases.want_nothing();
        let (wanted, changes) = prepared?;
        let mut replaced = changes.replaced.iter();
        let generation = replaced.find(|(id, ..)| *id == pool).map(|(_, id, ..)| *id);
        self.tell(Event::Apply(wanted));
        Ok(generation)
    }

    /// Reports the result of a deployment.
    fn report(&mut self, pool: Target, id: DeploymentId, outcome: Outcome) {
        let (name, user) = (self.target_name(pool), self.target_user(pool));
        let pools = &self.executor.context.pools;
        let jobs = self.executor.deployments.pools.get(&pool).map(|all| &all.jobs);
        let generation = jobs.and_then(|jobs| jobs.get(&id)?.generation);
        let foreign = generation.and_then(|id| pools.foreign_file(id));
        let Some(job) = self.job(pool, id).filter(|job| !job.is_reported) else {
            return;
        };
        job.is_reported = true;
        let asker = job.asker;
        job.remarks.extend(foreign.map(|file| {
            format!("a request included {file}, which is not in the new release: write __DIR__ in place of the link")
        }));
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
            && matches!(pool, Target::Pool(_))
            && let Some(before) = &result.before
        {
            self.executor.releases.note_former(&name, before);
        }
        if let Some(asker) = asker {
            self.executor
                .answer(asker, &Answer::Deployed(Box::new(result.clone())));
        }
        self.keep_result(pool, result);
    }
}

/// Returns the steps of the settings, unless the command's `gradual` overrides them.
pub(super) fn plan(written: Option<&Release>, gradual: Option<bool>) -> Plan {
    let (steps, time) = written.map_or((&[][..], DEFAULT_STEP_TIME), |it| (&it.gradual[..], it.step_time));
    match gradual {
        Some(false) => Plan::new(&[], time),
        Some(true) if steps.is_empty() => Plan::new(&DEFAULT_STEPS, time),
        Some(true) | None => Plan::new(steps, time),
    }
}

fn no_release(pool: &str) -> Answer {
    Answer::refusal(format!(
        "pool {pool} has no key release; write release = \"/srv/shop/current\" for a link to the release in service"
    ))
}
