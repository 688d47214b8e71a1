//! The state of all deployments. [`steps`](forkyard_core::release::steps) decides the next step, and the master carries it
//! out (`crates/daemon/src/master/deployments.rs`).

use super::comparison::Comparison;
use crate::applications::Applications;
use crate::context::Context;
use crate::context::generation::Generation;
use crate::context::pools::{Pools, RunningPool};
use crate::context::refused::Refused;
use crate::context::rights::Rights;
use crate::context::sites::{SiteId, Sites};
use crate::workers::last_connection::{LAST_CONNECTION, takes_up};
use forkyard_base::tick::Tick;
use forkyard_core::master::action::Fact;
use forkyard_core::master::event::{GenerationId, PoolId};
use forkyard_core::release::steps::{DeploymentId, Deployments as Steps, State};
use forkyard_protocol::control::millis;
use forkyard_protocol::release::{Deployment, Outcome, PoolReleases, ReleaseWorkers, UnderWay};
use forkyard_sys::{clock, identity};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the releases of a deployment are compared.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A pool or an application that gets a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    Pool(PoolId),
    /// An application of an application pool.
    Site(SiteId),
}

#[derive(Debug, Default)]
pub(crate) struct Deployments {
    pub(crate) pools: BTreeMap<Target, PoolDeployments>,
    last: u64,
    /// Facts for the master, oldest first.
    facts: Vec<(GenerationId, DeployFact)>,
    /// Deployments that lost their command before the result.
    left: Vec<(Target, DeploymentId)>,
    /// A worker has exited since the last call of `ended`.
    is_somebody_gone: bool,
    /// Deployments of removed pools. Their commands still wait for an answer.
    removed: Vec<Job>,
}

/// The deployments of one pool or application.
#[derive(Debug, Default)]
pub(crate) struct PoolDeployments {
    pub(crate) steps: Steps,
    pub(crate) jobs: BTreeMap<DeploymentId, Job>,
}

/// An event of a deployment's generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeployFact {
    /// Its first worker runs, and it gets its part of the requests.
    Shares,
    Serves,
    /// No worker came up, for this reason.
    Fails(String),
    Dropped,
}

/// A deployment, until the workers of the leaving release have exited.
#[derive(Debug)]
pub(crate) struct Job {
    /// The name of the pool, or of the application.
    pub(crate) of: String,
    /// The command that waits for the result, or `None` if the daemon began the deployment.
    pub(crate) asker: Option<u64>,
    pub(crate) is_reported: bool,
    pub(crate) release: PathBuf,
    pub(crate) before: Option<PathBuf>,
    pub(crate) begun: Tick,
    pub(crate) generation: Option<GenerationId>,
    pub(crate) remarks: Vec<String>,
    pub(crate) why: Option<String>,
    /// Set while both releases get requests and have generations.
    pub(crate) comparison: Option<Comparison>,
    /// The time of the next comparison, set while both releases get requests.
    next_look: Option<Tick>,
    /// Since this time the new release serves alone.
    pub(crate) serves_since: Option<Tick>,
}

impl Job {
    pub(crate) fn new(of: String, release: PathBuf, asker: Option<u64>) -> Job {
        Job {
            of,
            asker,
            is_reported: false,
            release,
            before: None,
            begun: clock::now(),
            generation: None,
            remarks: Vec::new(),
            why: None,
            comparison: None,
            next_look: None,
            serves_since: None,
        }
    }

    /// Schedules the next comparison. Begins again with other generations.
    pub(crate) fn compare(&mut self, pools: &Pools, both: Option<(GenerationId, GenerationId)>, percent: u8) {
        self.next_look = Some(clock::now() + LOOK_INTERVAL);
        if self.comparison.as_ref().map(Comparison::of) != both {
            self.comparison = both.map(|both| Comparison::begin(pools, both, percent));
            self.generation = both.map(|(_, new)| new).or(self.generation);
        }
    }

    pub(crate) fn end_comparison(&mut self) {
        (self.comparison, self.next_look) = (None, None);
    }

    /// Whether the report is due once old workers take up no more requests.
    fn is_awaited(&self) -> bool {
        !self.is_reported && self.serves_since.is_some()
    }

    pub(crate) fn result(&self, pool: &str, outcome: Outcome) -> Deployment {
        Deployment {
            pool: pool.to_owned(),
            release: self.release.clone(),
            before: self.before.clone(),
            outcome,
            why: self.why.clone(),
            remarks: self.remarks.clone(),
            took_ms: millis(clock::now().since(self.begun)),
            time: clock::epoch_seconds(),
        }
    }
}

impl Deployments {
    pub(crate) fn next_id(&mut self) -> DeploymentId {
        self.last += 1;
        DeploymentId(self.last)
    }

    fn jobs(&self) -> impl Iterator<Item = (Target, DeploymentId, &Job)> {
        let all = self.pools.iter();
        all.flat_map(|(pool, all)| all.jobs.iter().map(move |(id, job)| (*pool, *id, job)))
    }

    pub(crate) fn job(&mut self, pool: Target, id: DeploymentId) -> Option<&mut Job> {
        self.pools.get_mut(&pool)?.jobs.get_mut(&id)
    }

    /// Keeps a fact for the master.
    pub(crate) fn note(&mut self, context: &Context, fact: Fact) {
        let why = |id| match context.pools.last_report(id) {
            Some(report) => format!(
                "no new worker came up: {} (error {})",
                crate::workers::start_report::summary(report),
                report.id
            ),
            None => format!("no new worker came up{}", context.processes.last_lines(id)),
        };
        match fact {
            Fact::Gone(_) => self.is_somebody_gone = true,
            Fact::Shares(id) if self.has(id) => self.facts.push((id, DeployFact::Shares)),
            Fact::Serves(id) if self.has(id) => self.facts.push((id, DeployFact::Serves)),
            Fact::Fails(id) if self.has(id) => {
                self.facts.push((id, DeployFact::Fails(why(id))));
            }
            Fact::Shares(_) | Fact::Serves(_) | Fact::Fails(_) | Fact::Up(_) | Fact::Waits(_) => {}
        }
    }

    pub(crate) fn dropped(&mut self, id: GenerationId) {
        if self.has(id) {
            self.facts.push((id, DeployFact::Dropped));
        }
        self.is_somebody_gone = true;
    }

    /// Notes the deployments of a command that has ended.
    pub(crate) fn session_ended(&mut self, session: u64) {
        let jobs = self.jobs();
        let own = jobs.filter(|(.., job)| job.asker == Some(session) && !job.is_reported);
        let own: Vec<_> = own.map(|(pool, id, _)| (pool, id)).collect();
        self.left.extend(own);
    }

    pub(crate) fn next_left(&mut self) -> Option<(Target, DeploymentId)> {
        self.left.pop()
    }

    pub(crate) fn closed(&mut self, pool: PoolId) {
        let removed = self.pools.remove(&Target::Pool(pool));
        self.removed
            .extend(removed.into_iter().flat_map(|all| all.jobs.into_values()));
    }

    /// Returns the next deployment of a removed pool.
    pub(crate) fn next_removed(&mut self) -> Option<Job> {
        self.removed.pop()
    }

    /// Makes the next call of `ended` check all deployments.
    pub(crate) fn look_for_ends(&mut self) {
        self.is_somebody_gone = true;
    }

    /// Forgets the deployments of applications in removed pools.
    pub(crate) fn forget_sites(&mut self, sites: &Sites) {
        let is_gone = |target: &Target| match target {
            Target::Site(id) => sites.get(*id).is_none(),
            Target::Pool(_) => false,
        };
        let gone: Vec<Target> = self.pools.keys().copied().filter(is_gone).collect();
        for target in gone {
            let removed = self.pools.remove(&target);
            self.removed
                .extend(removed.into_iter().flat_map(|all| all.jobs.into_values()));
        }
    }

    fn has(&self, id: GenerationId) -> bool {
        self.of(id).is_some()
    }

    /// Returns the deployment of a generation, and its pool.
    pub(crate) fn of(&self, id: GenerationId) -> Option<(Target, DeploymentId)> {
        self.pools.iter().find_map(|(pool, all)| {
            let found = all.jobs.iter().find(|(_, job)| job.generation == Some(id))?;
            Some((*pool, *found.0))
        })
    }

    pub(crate) fn next_fact(&mut self) -> Option<(GenerationId, DeployFact)> {
        (!self.facts.is_empty()).then(|| self.facts.remove(0))
    }

    /// Returns the deployments to report now: their new release gets every request.
    pub(crate) fn whole(&self, pools: &Pools) -> Vec<(Target, DeploymentId)> {
        let is_whole = |target: Target, job: &Job| {
            let Target::Pool(pool) = target else {
                return job.is_awaited();
            };
            let own = job.generation.filter(|_| job.is_awaited());
            own.is_some_and(|own| {
                let mut before = pools.generations.of(&pool).filter(|(other, _)| *other < own);
                !before.any(|(_, generation)| takes_up(pools, generation))
            })
        };
        let whole = self.jobs().filter(|(pool, _, job)| is_whole(*pool, job));
        whole.map(|(pool, id, _)| (pool, id)).collect()
    }

    fn comparisons(&mut self) -> impl Iterator<Item = &mut Comparison> {
        let jobs = self.pools.values_mut().flat_map(|all| all.jobs.values_mut());
        jobs.filter_map(|job| job.comparison.as_mut())
    }

    /// Counts a worker, or a process of a program, that died.
    pub(crate) fn died(&mut self, id: GenerationId) {
        self.comparisons().for_each(|it| it.died(id));
    }

    /// Counts a program that did not stay up.
    pub(crate) fn start_failed(&mut self, id: GenerationId) {
        self.comparisons().for_each(|it| it.failed(id));
    }

    /// Notes the percentage that workers read from now on.
    pub(crate) fn shows(&mut self, new: GenerationId, percent: u8) {
        let jobs = self.pools.values_mut().flat_map(|all| all.jobs.values_mut());
        let own = jobs.filter(|job| job.generation == Some(new));
        own.filter_map(|job| job.comparison.as_mut())
            .for_each(|it| it.shows(percent));
    }

    /// Returns the deployments with a comparison due.
    pub(crate) fn due(&self, now: Tick) -> Vec<(Target, DeploymentId)> {
        let is_due = |job: &Job| job.next_look.is_some_and(|next| next <= now);
        let due = self.jobs().filter(|(.., job)| is_due(job));
        due.map(|(pool, id, _)| (pool, id)).collect()
    }

    pub(crate) fn deadline(&self) -> Option<Tick> {
        let jobs = || self.pools.values().flat_map(|all| all.jobs.values());
        let looks = jobs().filter_map(|job| job.next_look);
        let jobs = jobs();
        let since = jobs
            .filter(|job| job.is_awaited())
            .filter_map(|job| job.serves_since);
        since.map(|since| since + LAST_CONNECTION).chain(looks).min()
    }

    /// Returns the deployments without workers in the leaving release. Looks only if a worker has exited since the last call.
    pub(crate) fn ended(
        &mut self,
        pools: &Pools,
        applications: &Applications,
    ) -> Vec<(Target, DeploymentId)> {
        if !std::mem::take(&mut self.is_somebody_gone) {
            return Vec::new();
        }
        let is_over = |(target, all): (&Target, &PoolDeployments)| {
            let (id, state) = all.steps.present()?;
            let job = all.jobs.get(&id)?;
            let has_workers = match (target, state) {
                (_, State::Trying | State::Sharing { .. }) => true,
                (Target::Pool(pool), state) => old_workers(pools, *pool, job.generation?, state),
                (Target::Site(site), state) => {
                    let site = pools.sites.get(*site)?;
                    let leaving = match state {
                        State::Whole | State::Served => job.before.as_ref(),
                        _ => Some(&job.release),
                    };
                    let is_same = job.before.as_ref() == Some(&job.release);
                    leaving
                        .filter(|_| !is_same)
                        .is_some_and(|leaving| applications.has_workers(pools, site, leaving))
                }
            };
            (!has_workers).then_some((*target, id))
        };
        self.pools.iter().filter_map(is_over).collect()
    }
}

/// Whether the generations that a deployment replaces, or its own after a rollback, still have workers.
fn old_workers(pools: &Pools, pool: PoolId, own: GenerationId, state: State) -> bool {
    let has_workers = |generation: &Generation| !generation.slots.is_empty();
    match state {
        State::Back(_) => pools.generations.get(&own).is_some_and(has_workers),
        // All earlier generations leave, and a later one may already serve.
        _ => {
            let mut before = pools.generations.of(&pool).filter(|(other, _)| *other < own);
            before.any(|(_, generation)| has_workers(generation))
        }
    }
}

impl Context {
    /// Keeps the result of a deployment, and counts it.
    pub(crate) fn deployed(&mut self, id: PoolId, result: Deployment) {
        let outcome = result.outcome;
        if let Some(pool) = self.pools.by_id.get_mut(&id) {
            pool.last_deployment = Some(Box::new(result));
        }
        self.pools
            .count_pool(id, |counters| counters.count_deployment(outcome));
        self.handover.pool_changed(id);
    }
}

impl Pools {
    /// Returns the releases of one pool or of all pools that the rights allow.
    pub(crate) fn releases(
        &self,
        context: &Context,
        deployments: &Deployments,
        rights: Rights,
        name: Option<&str>,
    ) -> Result<Vec<PoolReleases>, Refused> {
        let ids: Vec<PoolId> = match name {
            Some(name) => vec![self.pool_meant_by(&context.in_force.config, rights, name)?],
            None => self.by_id.keys().copied().collect(),
        };
        let is_open = |it: &PoolReleases| match rights {
            Rights::All => true,
            Rights::Own(own) => own == it.uid,
        };
        let all = ids
            .into_iter()
            .filter_map(|id| self.pool_releases(context, deployments, id));
        Ok(all.filter(is_open).collect())
    }

    /// Returns the releases of a pool that has the key `release`.
    pub(crate) fn pool_releases(
        &self,
        context: &Context,
        deployments: &Deployments,
        id: PoolId,
    ) -> Option<PoolReleases> {
        let pool = self.by_id.get(&id).filter(|pool| pool.listener.is_some())?;
        let link = &context.in_force.pool(&pool.name)?.release.as_ref()?.link;
        let serving = pool.serving.and_then(|id| self.generations.get(&id));
        let deployed = deployments.pools.get(&Target::Pool(id));
        Some(PoolReleases {
            pool: pool.name.clone(),
            link: link.clone(),
            release: serving.and_then(Generation::release),
            uid: self.uid_of(pool),
            under_way: deployed.and_then(PoolDeployments::under_way),
            last: pool.last_deployment.as_deref().cloned(),
            outside: self.outside(id),
            workers: self.release_workers(id),
        })
    }

    pub(crate) fn outside(&self, id: PoolId) -> u64 {
        let generations = self.generations.of(&id);
        let resources = generations.filter_map(|(_, generation)| generation.resources.as_ref());
        let gates = resources.filter_map(|resources| Some(resources.board.gate()?.outside()));
        gates.fold(0, u64::saturating_add)
    }

    /// Returns a file of another release that a request in this generation has included.
    pub(crate) fn foreign_file(&self, id: GenerationId) -> Option<String> {
        let board = &self.generations.get(&id)?.resources.as_ref()?.board;
        board.gate().filter(|gate| gate.foreign() > 0)?;
        (0..board.slots()).find_map(|slot| board.counters(slot)?.foreign())
    }

    fn uid_of(&self, pool: &RunningPool) -> u32 {
        let serving = pool.serving.and_then(|id| self.generations.get(&id));
        let user = serving.and_then(|generation| generation.settings.identity.as_ref());
        user.map_or_else(identity::own_user, |user| user.uid)
    }

    fn release_workers(&self, id: PoolId) -> Vec<ReleaseWorkers> {
        let mut counts: BTreeMap<PathBuf, u32> = BTreeMap::new();
        for (_, generation) in self.generations.of(&id) {
            let workers = u32::try_from(generation.slots.len()).unwrap_or(u32::MAX);
            if let Some(release) = generation.release().filter(|_| workers > 0) {
                *counts.entry(release).or_default() += workers;
            }
        }
        let counts = counts.into_iter();
        counts
            .map(|(release, workers)| ReleaseWorkers { release, workers })
            .collect()
    }
}

impl PoolDeployments {
    /// Returns the deployment under way. With `release`, returns the deployment of that release, under way or waiting.
    pub(crate) fn meant_by(&self, release: Option<&Path>) -> Option<DeploymentId> {
        let present = self.steps.present().map(|(id, _)| id);
        let Some(release) = release else {
            return present;
        };
        let waiting = self.steps.waiting().map(|(id, _)| id);
        let is_meant = |id: &DeploymentId| self.jobs.get(id).is_some_and(|job| job.release == release);
        present.into_iter().chain(waiting).find(is_meant)
    }

    pub(crate) fn under_way(&self) -> Option<UnderWay> {
        let (id, state) = self.steps.present()?;
        let is_open = match state {
            State::Trying | State::Sharing { .. } => true,
            State::Whole | State::Served | State::Back(_) => false,
        };
        let waiting = self.steps.waiting().and_then(|(id, _)| self.jobs.get(&id));
        let job = self.jobs.get(&id).filter(|_| is_open)?;
        let comparison = job.comparison.as_ref();
        let answered = comparison.map(Comparison::answered).unwrap_or_default();
        let since_ms = clock::epoch_millis().saturating_sub(millis(clock::now().since(job.begun)));
        Some(UnderWay {
            release: job.release.clone(),
            percent: self.steps.percent(),
            compared: comparison.map_or(0, Comparison::compared),
            waiting: waiting.map(|job| job.release.clone()),
            since: since_ms / 1000,
            old: answered.old,
            new: answered.new,
        })
    }
}
