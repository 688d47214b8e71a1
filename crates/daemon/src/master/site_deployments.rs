//! Deployments of applications in application pools. The router starts the new release, and gives it part of the requests.

use super::event_loop::Master;
use super::executor::Executor;
use super::pool_requests::Handled;
use crate::applications::Looked;
use crate::applications::SiteRequest;
use crate::context::apply_error::ReleaseFault;
use crate::context::rights::Rights;
use crate::context::sites::Site;
use crate::context::sites::SiteId;
use crate::releases::deployments::PoolDeployments;
use crate::releases::deployments::Target;
use crate::releases::release::check_entry;
use forkyard_core::master::event::GenerationId;
use forkyard_core::release::steps::{self, DeploymentId};
use forkyard_protocol::control::Answer;
use forkyard_protocol::reason::Reason;
use forkyard_protocol::release::{Deployment, PoolReleases};
use forkyard_sys::clock;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

impl Master {
    /// Asks the inspector about an application's link, or about one of its releases. The answer follows. `otherwise`: the
    /// answer if no pool has such applications.
    pub(super) fn look_at_site(
        &mut self,
        asker: u64,
        path: &str,
        request: SiteRequest,
        otherwise: Answer,
    ) -> Handled {
        let path = Path::new(path);
        let Executor {
            context,
            applications,
            ..
        } = &mut self.executor;
        let link = (path.is_absolute()).then(|| applications.link_at(context, path));
        let Some((router, link)) = link.flatten() else {
            return Err(otherwise);
        };
        let request = match request {
            SiteRequest::Deploy { release, gradual, .. } => SiteRequest::Deploy {
                release,
                gradual,
                reads_link: context.pools.sites.at(&link).is_none(),
            },
            SiteRequest::Releases => SiteRequest::Releases,
        };
        match applications.look_for((router, &link), asker, request) {
            true => Ok(None),
            false => Err(too_many()),
        }
    }

    /// Returns the application at a path if this client may change it. `otherwise`: the answer if no application is there.
    pub(super) fn own_site(&self, asker: u64, path: &str, otherwise: Answer) -> Result<SiteId, Answer> {
        let sites = &self.executor.context.pools.sites;
        let found = sites
            .at(Path::new(path))
            .and_then(|id| Some((id, sites.get(id)?)));
        let (id, site) = found.ok_or(otherwise)?;
        match may_change(self.executor.control.rights(asker), site.owner) {
            true => Ok(id),
            false => Err(not_yours()),
        }
    }

    /// Handles the results of inspectors and routers.
    pub(super) fn hear_of_sites(&mut self) {
        while let Some(looked) = self.executor.applications.deployed.next_looked() {
            let asker = looked.asker;
            if let Err(answer) | Ok(Some(answer)) = self.looked_at(looked) {
                self.executor.answer(asker, &answer);
            }
        }
        while let Some((site, deployment, result)) = self.executor.applications.deployed.next_trial() {
            let target = Target::Site(site);
            let release = self.job(target, deployment).map(|job| job.release.clone());
            let Executor {
                context,
                applications,
                ..
            } = &self.executor;
            let site = context.pools.sites.get(site).zip(release.as_deref());
            let generation = site.and_then(|(site, release)| applications.generation_of(site, release));
            let failure = site.and_then(|(site, release)| applications.failure_of(site, release));
            if let Some(job) = self.job(target, deployment) {
                job.generation = generation;
            }
            match result {
                Ok(()) => self.step(target, deployment, steps::Event::TrialPassed, None),
                Err(Reason(why)) => {
                    let why = Some(failure.unwrap_or(why));
                    self.step(target, deployment, steps::Event::TrialFailed, why);
                }
            }
        }
    }

    fn looked_at(&mut self, looked: Looked) -> Handled {
        let Looked {
            asker,
            router,
            link: named,
            request,
            found,
        } = looked;
        let rights = self.executor.control.rights(asker);
        if let SiteRequest::Deploy {
            release,
            gradual,
            reads_link: true,
        } = request
        {
            // The inspector has read the link. If it names no release, the new one has nothing to be compared with.
            let serving = found.ok().filter(|found| may_change(rights, Some(found.owner.0)));
            if let Some((link, root)) = serving.and_then(|found| Some((found.link?, found.root))) {
                self.executor.context.pools.sites.with_link(router, &link, &root);
            }
            let request = SiteRequest::Deploy {
                release,
                gradual,
                reads_link: false,
            };
            let applications = &mut self.executor.applications;
            return match applications.look_for((router, &named), asker, request) {
                true => Ok(None),
                false => Err(too_many()),
            };
        }
        let found = found.map_err(|why| match rights {
            Rights::All if request == SiteRequest::Releases => Answer::refusal(format!(
                "nothing was changed: {why}; {} leads to no release; make it a link to the one in service",
                named.display()
            )),
            Rights::All => Answer::refusal(format!("nothing was changed: {why}")),
            // An owner gets no reason: it could reveal another user's files.
            Rights::Own(_) => not_yours(),
        })?;
        if !may_change(rights, Some(found.owner.0)) {
            return Err(not_yours());
        }
        let no_link = || {
            let root = found.root.display();
            Answer::refusal(format!(
                "{root} has no link to its release in service; ln -s releases/1 current"
            ))
        };
        let link = found.link.as_ref().ok_or_else(no_link)?;
        // The command would have to move the link after the deployment.
        if self.executor.control.has_left(asker) {
            return Err(Answer::refusal("the command has ended".to_owned()));
        }
        let full = || Answer::refusal("there are too many applications with releases".to_owned());
        let sites = &mut self.executor.context.pools.sites;
        match request {
            SiteRequest::Releases => {
                // An application that never ran serves the release that its link names.
                let id = sites.with_link(router, link, &found.root).ok_or_else(full)?;
                let site = self.site(id).into_iter();
                let releases = site.map(|site| self.releases_of_site(id, site, found.owner.0));
                Ok(Some(Answer::Releases {
                    releases: releases.collect(),
                }))
            }
            SiteRequest::Deploy { release, .. } if release.as_os_str().as_bytes().contains(&b':') => {
                Err(unusable(&ReleaseFault::Colon(release)))
            }
            SiteRequest::Deploy { release, gradual, .. } => {
                if let Some(user) = self.executor.applications.user_of(router, &found) {
                    check_entry(&found.root, user.as_ref()).map_err(|fault| unusable(&fault))?;
                }
                let id = sites.with_link(router, link, &release).ok_or_else(full)?;
                let mut gradual = gradual;
                if let Some(site) = sites.get_mut(id) {
                    site.owner = Some(found.owner.0);
                    // The release is in service already.
                    if site.served.release == found.root {
                        gradual = Some(false);
                    }
                }
                let plan = super::deployments::plan(self.executor.applications.releases_of(router), gradual);
                self.begin_deployment(Target::Site(id), Some(asker), &found.root, plan);
                Ok(None)
            }
        }
    }

    /// Returns the releases of the applications that this client may change.
    pub(super) fn sites_of(&self, rights: Rights) -> Vec<PoolReleases> {
        let sites = self.executor.context.pools.sites.iter();
        let own = sites.filter(|(_, site)| may_change(rights, site.owner));
        own.map(|(id, site)| self.releases_of_site(id, site, site.owner.unwrap_or_default()))
            .collect()
    }

    fn releases_of_site(&self, id: SiteId, site: &Site, uid: u32) -> PoolReleases {
        let Executor {
            context,
            applications,
            deployments,
            ..
        } = &self.executor;
        let deployed = deployments.pools.get(&Target::Site(id));
        let pools = applications.pools_of(site).into_iter();
        PoolReleases {
            pool: site.name(),
            link: site.served.link.clone(),
            release: Some(site.served.release.clone()),
            uid,
            under_way: deployed.and_then(PoolDeployments::under_way),
            last: site.last_deployment.as_deref().cloned(),
            outside: pools.fold(0, |sum, pool| sum.saturating_add(context.pools.outside(pool))),
            workers: applications.release_workers(&context.pools, site),
        }
    }

    fn site(&self, id: SiteId) -> Option<&Site> {
        self.executor.context.pools.sites.get(id)
    }

    pub(super) fn target_name(&self, target: Target) -> String {
        match target {
            Target::Pool(pool) => self.executor.context.pools.pool_name(pool).to_owned(),
            Target::Site(site) => self.site(site).map(Site::name).unwrap_or_default(),
        }
    }

    pub(super) fn target_user(&self, target: Target) -> Option<u32> {
        match target {
            Target::Pool(pool) => self.executor.context.pools.user_of_pool(pool),
            Target::Site(site) => self.site(site)?.owner,
        }
    }

    /// Keeps the result of a deployment, and counts it.
    pub(super) fn keep_result(&mut self, target: Target, result: Deployment) {
        let context = &mut self.executor.context;
        match target {
            Target::Pool(pool) => context.deployed(pool, result),
            Target::Site(site) => context.site_deployed(site, result),
        }
    }

    /// Returns the old and the new generation of a deployment. They can change: each restart gives an application another
    /// generation. An application without instances has no generation.
    pub(super) fn generations(
        &self,
        target: Target,
        id: DeploymentId,
    ) -> Option<(GenerationId, GenerationId)> {
        let Executor {
            context,
            applications,
            deployments,
            ..
        } = &self.executor;
        let job = deployments.pools.get(&target)?.jobs.get(&id)?;
        match target {
            Target::Pool(pool) => Some((context.pools.serving_generation(pool)?, job.generation?)),
            Target::Site(site) => {
                let site = self.site(site)?;
                let of = |release: &Path| applications.generation_of(site, release);
                Some((of(&site.served.release)?, of(&job.release)?))
            }
        }
    }

    /// Starts a release of an application.
    pub(super) fn try_site(&mut self, id: SiteId, deployment: DeploymentId) -> Result<(), Reason> {
        let before = self.site(id).map(|site| site.served.release.clone());
        let Some(job) = self.job(Target::Site(id), deployment) else {
            return Ok(());
        };
        job.before.clone_from(&before);
        let release = job.release.clone();
        if before.as_ref() != Some(&release) {
            self.set_coming(id, Some((release.clone(), 0)));
        }
        log::info!(
            "[{}] deployment of {}",
            self.target_name(Target::Site(id)),
            release.display()
        );
        let Executor {
            context,
            applications,
            ..
        } = &mut self.executor;
        applications.try_release(context, id, deployment, &release)
    }

    fn set_coming(&mut self, id: SiteId, coming: Option<(PathBuf, u8)>) {
        if let Some(site) = self.executor.context.pools.sites.get_mut(id) {
            site.served.coming = coming;
        }
    }

    /// Gives the release of a deployment `percent` of an application's requests.
    pub(super) fn share_site(&mut self, id: SiteId, deployment: DeploymentId, percent: u8) {
        let Some(job) = self.job(Target::Site(id), deployment) else {
            return;
        };
        let (release, before) = (job.release.clone(), job.before.clone());
        if before.as_ref() != Some(&release) {
            self.set_coming(id, Some((release, percent)));
            self.say_site(id);
        }
    }

    /// Gives the release of a deployment all requests.
    pub(super) fn serve_site(&mut self, id: SiteId, deployment: DeploymentId) {
        let Some(job) = self.job(Target::Site(id), deployment) else {
            return;
        };
        job.serves_since = Some(clock::now());
        job.end_comparison();
        let release = Some(job.release.clone());
        self.serve_alone(id, release);
    }

    /// Gives one release all requests.
    pub(super) fn serve_alone(&mut self, id: SiteId, release: Option<PathBuf>) {
        if let (Some(site), Some(release)) = (self.executor.context.pools.sites.get_mut(id), release) {
            (site.served.release, site.served.coming) = (release, None);
        }
        self.executor.deployments.look_for_ends();
        self.say_site(id);
    }

    fn say_site(&mut self, id: SiteId) {
        let Executor {
            context,
            applications,
            ..
        } = &mut self.executor;
        applications.say_release(context, id);
    }
}

fn may_change(rights: Rights, owner: Option<u32>) -> bool {
    match rights {
        Rights::All => true,
        Rights::Own(uid) => uid != 0 && owner == Some(uid),
    }
}

fn unusable(fault: &ReleaseFault) -> Answer {
    Answer::refusal(format!("nothing was changed: release: {fault}"))
}

fn too_many() -> Answer {
    Answer::refusal("too many deployments wait; try again".to_owned())
}

fn not_yours() -> Answer {
    Answer::refusal("permission denied: it is no application of yours with releases".to_owned())
}
