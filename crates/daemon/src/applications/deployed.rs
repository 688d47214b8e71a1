//! Releases of applications: the inspector checks one that an operator names, and the router starts it on trial.

use super::instances::resolve;
use super::{Applications, Asker, RunningApplication};
use crate::context::Context;
use crate::context::generation::Generation;
use crate::context::pools::Pools;
use crate::context::sites::{Site, SiteId};
use forkyard_core::master::event::{GenerationId, PoolId};
use forkyard_core::release::steps::DeploymentId;
use forkyard_protocol::reason::Reason;
use forkyard_protocol::release::ReleaseWorkers;
use forkyard_protocol::router::{AdminRequest, ToRouter, Unstarted};
use forkyard_router::inspector::protocol::FoundApplication;
use forkyard_sys::identity::Identity;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

/// Operators' questions to the inspector have numbers from here on; the numbers of instances are lower.
const LOOKS: u64 = 1 << 63;
const MOST_LOOKS: usize = 1_000;

/// An operator's request that waits for a look at a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SiteRequest {
    Releases,
    Deploy {
        release: PathBuf,
        gradual: Option<bool>,
        /// The application is not known: the inspector first reads what its link names.
        reads_link: bool,
    },
}

/// What the inspector has found for a request.
#[derive(Debug)]
pub(crate) struct Looked {
    pub(crate) asker: u64,
    pub(crate) router: PoolId,
    pub(crate) link: PathBuf,
    pub(crate) request: SiteRequest,
    pub(crate) found: Result<FoundApplication, Reason>,
}

type Trial = (SiteId, DeploymentId, Result<(), Reason>);

#[derive(Debug)]
struct PendingLook {
    asker: u64,
    router: PoolId,
    link: PathBuf,
    request: SiteRequest,
}

#[derive(Debug, Default)]
pub(crate) struct Deployed {
    looks: BTreeMap<u64, PendingLook>,
    last: u64,
    looked: VecDeque<Looked>,
    pub(super) trials: VecDeque<Trial>,
}

impl Deployed {
    /// Takes an answer to such a look. Returns `false` if it is another one's.
    pub(super) fn answered(
        &mut self,
        number: u64,
        found: &Result<FoundApplication, Reason>,
        router: PoolId,
    ) -> bool {
        if let Some(look) = self.looks.remove(&number) {
            self.looked.push_back(Looked {
                asker: look.asker,
                router,
                link: look.link,
                request: look.request,
                found: found.clone(),
            });
        }
        number >= LOOKS
    }

    pub(crate) fn next_looked(&mut self) -> Option<Looked> {
        self.looked.pop_front()
    }

    /// Returns the next start of a release that has succeeded or failed.
    pub(crate) fn next_trial(&mut self) -> Option<Trial> {
        self.trials.pop_front()
    }
}

impl Applications {
    /// Returns the application pool that an absolute path belongs to, and the path of the link there, if the pool has
    /// releases.
    pub(crate) fn link_at(&self, context: &Context, path: &Path) -> Option<(PoolId, PathBuf)> {
        if let Some(site) = context
            .pools
            .sites
            .at(path)
            .and_then(|id| context.pools.sites.get(id))
        {
            return Some((site.router, site.served.link.clone()));
        }
        let (id, _) = self.routers_for(path).ok()?;
        let applications = self.routers.get(&id)?.template.applications.as_ref()?;
        let name = &applications.releases.as_ref()?.link;
        Some(match path.file_name() == Some(name.as_os_str()) {
            true => (id, path.to_owned()),
            false => (id, path.join(name)),
        })
    }

    /// Has the inspector look at a link, or at a release of it. Returns `false` if too many wait.
    pub(crate) fn look_for(
        &mut self,
        (router, link): (PoolId, &Path),
        asker: u64,
        request: SiteRequest,
    ) -> bool {
        if self.deployed.looks.len() >= MOST_LOOKS || !self.routers.contains_key(&router) {
            return false;
        }
        self.deployed.last += 1;
        let number = LOOKS + self.deployed.last;
        let look = PendingLook {
            asker,
            router,
            link: link.to_owned(),
            request,
        };
        self.deployed.looks.insert(number, look);
        self.ask_inspector(number);
        true
    }

    /// Repeats the questions that an inspector has not answered to its successor.
    pub(super) fn look_again(&self, router: PoolId) {
        let looks = self.deployed.looks.iter();
        let own = looks.filter(|(_, look)| look.router == router);
        own.for_each(|(number, _)| self.ask_inspector(*number));
    }

    fn ask_inspector(&self, number: u64) {
        let Some(look) = self.deployed.looks.get(&number) else {
            return;
        };
        let Some(app_pool) = self.routers.get(&look.router) else {
            return;
        };
        match &look.request {
            SiteRequest::Releases | SiteRequest::Deploy { reads_link: true, .. } => {
                app_pool.look_at(number, &look.link, None)
            }
            SiteRequest::Deploy { release, .. } => app_pool.look_at(number, release, Some(&look.link)),
        }
    }

    /// Forgets the questions about a pool that is gone, and of commands that have ended.
    pub(crate) fn forget_looks(&mut self, is_over: impl Fn(u64, PoolId) -> bool) {
        self.deployed
            .looks
            .retain(|_, look| !is_over(look.asker, look.router));
    }

    /// Returns the user that runs an application. `Some(None)`: the daemon's; `None`: it can't be run, as the trial reports.
    pub(crate) fn user_of(&self, router: PoolId, found: &FoundApplication) -> Option<Option<Identity>> {
        let app_pool = self.routers.get(&router)?;
        let account = resolve(&app_pool.template, app_pool.max, found).ok()?.account;
        let user = account.user.as_deref();
        let user = user.map(|user| Identity::look_up(user, account.group.as_deref()));
        user.transpose().ok()
    }

    /// Starts a release, and answers with the trial.
    pub(crate) fn try_release(
        &mut self,
        context: &mut Context,
        site: SiteId,
        deployment: DeploymentId,
        release: &Path,
    ) -> Result<(), Reason> {
        self.say_release(context, site);
        let router = context.pools.sites.get(site).map(|site| site.router);
        let app_pool = router.and_then(|router| self.routers.get_mut(&router));
        let start = AdminRequest::Restart {
            application: release.to_owned(),
            rolling: Some(true),
            unstarted: Unstarted::Starts,
        };
        let asked = app_pool
            .is_some_and(|app_pool| app_pool.ask(&context.helpers, start, Asker::Trial(site, deployment)));
        match asked {
            true => Ok(()),
            false => Err(Reason("the pool's router does not run right now".to_owned())),
        }
    }

    /// Tells the router which releases get requests.
    pub(crate) fn say_release(&mut self, context: &mut Context, id: SiteId) {
        let Some(site) = context.pools.sites.get(id) else {
            return;
        };
        context.handover.pool_changed(site.router);
        if let Some(app_pool) = self.routers.get_mut(&site.router) {
            app_pool.say(
                &context.helpers,
                &ToRouter::Release(site.served.clone()),
                Vec::new(),
            );
        }
    }

    fn application(&self, site: &Site, release: &Path) -> Option<&RunningApplication> {
        self.routers.get(&site.router)?.applications.get(release)
    }

    /// Returns the generation that serves a release of an application.
    pub(crate) fn generation_of(&self, site: &Site, release: &Path) -> Option<GenerationId> {
        Some(self.application(site, release)?.generation)
    }

    /// Returns why the last start of a release failed.
    pub(crate) fn failure_of(&self, site: &Site, release: &Path) -> Option<String> {
        let failure = self.application(site, release)?.failure.as_ref()?;
        Some(failure.why.clone())
    }

    /// Whether a release has instances.
    pub(crate) fn has_workers(&self, pools: &Pools, site: &Site, release: &Path) -> bool {
        let application = self.application(site, release);
        application.is_some_and(|it| workers(pools, it.pool) > 0)
    }

    /// Returns the releases of an application that have instances.
    pub(crate) fn release_workers(&self, pools: &Pools, site: &Site) -> Vec<ReleaseWorkers> {
        let applications = self.routers.get(&site.router).into_iter();
        let applications = applications.flat_map(|it| &it.applications);
        let mut found: Vec<ReleaseWorkers> = applications
            .filter(|(_, it)| it.found.link.as_ref() == Some(&site.served.link))
            .map(|(release, it)| ReleaseWorkers {
                release: release.clone(),
                workers: workers(pools, it.pool),
            })
            .filter(|it| it.workers > 0)
            .collect();
        found.sort_by(|one, other| one.release.cmp(&other.release));
        found
    }

    /// Returns the pools of an application's releases.
    pub(crate) fn pools_of(&self, site: &Site) -> Vec<PoolId> {
        let applications = self.routers.get(&site.router).into_iter();
        let applications = applications.flat_map(|it| it.applications.values());
        applications
            .filter(|it| it.found.link.as_ref() == Some(&site.served.link))
            .map(|it| it.pool)
            .collect()
    }

    /// Returns the settings of deployments in an application pool.
    pub(crate) fn releases_of(&self, router: PoolId) -> Option<&forkyard_config::release::Release> {
        let applications = self.routers.get(&router)?.template.applications.as_ref()?;
        applications.releases.as_deref()
    }
}

fn workers(pools: &Pools, pool: PoolId) -> u32 {
    let generations = pools.generations.of(&pool);
    let workers = generations.map(|(_, generation): (_, &Generation)| generation.slots.len());
    u32::try_from(workers.sum::<usize>()).unwrap_or(u32::MAX)
}
