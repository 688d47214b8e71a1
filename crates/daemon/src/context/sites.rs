//! Applications in application pools with a link to their release in service.

use crate::context::Context;
use forkyard_core::master::event::PoolId;
use forkyard_protocol::release::Deployment;
use forkyard_protocol::router::Served;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The most applications that the routers may name.
const MOST: usize = 65_536;
const LONGEST: usize = 4_096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SiteId(u32);

/// An application that a link names.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    pub(crate) router: PoolId,
    /// The release in service and the release under deployment.
    pub(crate) served: Served,
    /// `None` until an inspector reports it to this master.
    pub(crate) owner: Option<u32>,
    pub(crate) last_deployment: Option<Box<Deployment>>,
}

impl Site {
    fn has_link_at(&self, path: &Path) -> bool {
        self.served.link == path || self.served.link.parent() == Some(path)
    }

    /// Returns the directory of the link, which is the application's name.
    pub(crate) fn name(&self) -> String {
        let link = &self.served.link;
        link.parent().unwrap_or(link).display().to_string()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Sites {
    all: BTreeMap<SiteId, Site>,
    last: u32,
}

impl Sites {
    pub(crate) fn get(&self, id: SiteId) -> Option<&Site> {
        self.all.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: SiteId) -> Option<&mut Site> {
        self.all.get_mut(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SiteId, &Site)> {
        self.all.iter().map(|(id, site)| (*id, site))
    }

    pub(crate) fn of_router(&self, router: PoolId) -> impl Iterator<Item = &Site> {
        self.all.values().filter(move |site| site.router == router)
    }

    /// Returns the site with this link, added if it is unknown.
    pub(crate) fn with_link(&mut self, router: PoolId, link: &Path, release: &Path) -> Option<SiteId> {
        let known = self
            .iter()
            .find(|(_, site)| site.router == router && site.served.link == link);
        if let Some((id, _)) = known {
            return Some(id);
        }
        let is_possible = |path: &Path| path.is_absolute() && path.as_os_str().len() <= LONGEST;
        if self.all.len() >= MOST || !is_possible(link) || !is_possible(release) {
            return None;
        }
        self.last += 1;
        let id = SiteId(self.last);
        let served = Served {
            link: link.to_owned(),
            release: release.to_owned(),
            coming: None,
        };
        let site = Site {
            router,
            served,
            owner: None,
            last_deployment: None,
        };
        self.all.insert(id, site);
        Some(id)
    }

    /// Returns the application that a path names: by its link, the link's directory, or its release in service.
    pub(crate) fn at(&self, path: &Path) -> Option<SiteId> {
        let by_link = self.iter().find(|(_, site)| site.has_link_at(path));
        let by_release = || self.iter().find(|(_, site)| site.served.release == path);
        by_link.or_else(by_release).map(|(id, _)| id)
    }

    /// Returns the link of the application that a path names in one of these pools, or the path if it names none.
    pub(crate) fn link_at<'a>(&'a self, routers: &[PoolId], path: &'a Path) -> &'a Path {
        let of_routers = || self.all.values().filter(|site| routers.contains(&site.router));
        let by_link = of_routers().find(|site| site.has_link_at(path));
        let site = by_link.or_else(|| of_routers().find(|site| site.served.release == path));
        site.map_or(path, |site| &site.served.link)
    }

    /// Returns what serves the application that a path names, in one pool: the release in service, or the path itself.
    pub(crate) fn served_at<'a>(&'a self, router: PoolId, path: &'a Path) -> &'a Path {
        let link = self.link_at(&[router], path);
        let site = self.of_router(router).find(|site| site.served.link == link);
        site.map_or(path, |site| &site.served.release)
    }

    /// Returns the link and the releases of the application that serves or deploys this release.
    pub(crate) fn link_to(&self, router: PoolId, release: &Path) -> Option<&Served> {
        let serves = |served: &&Served| {
            served.release == release
                || served
                    .coming
                    .as_ref()
                    .is_some_and(|(coming, _)| coming == release)
        };
        self.of_router(router).map(|site| &site.served).find(serves)
    }

    pub(crate) fn end_router(&mut self, router: PoolId) {
        self.all.retain(|_, site| site.router != router);
    }

    /// Returns the release of each link, for the next master.
    pub(crate) fn left(&self, router: PoolId) -> BTreeMap<PathBuf, PathBuf> {
        let served = self.of_router(router).map(|site| &site.served);
        served
            .map(|served| (served.link.clone(), served.release.clone()))
            .collect()
    }
}

impl Context {
    /// Keeps the result of an application's deployment, and counts it in its pool.
    pub(crate) fn site_deployed(&mut self, id: SiteId, result: Deployment) {
        let outcome = result.outcome;
        if let Some(site) = self.pools.sites.get_mut(id) {
            site.last_deployment = Some(Box::new(result));
            let router = site.router;
            self.pools
                .count_pool(router, |counters| counters.count_deployment(outcome));
        }
    }

    /// Notes the release that a router has read from a link, unless a deployment is under way.
    pub(crate) fn router_serves(&mut self, router: PoolId, link: &Path, release: &Path) {
        let sites = &mut self.pools.sites;
        let id = sites.with_link(router, link, release);
        if let Some(site) = id.and_then(|id| sites.get_mut(id))
            && site.served.coming.is_none()
        {
            release.clone_into(&mut site.served.release);
            self.handover.pool_changed(router);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_one_application_in_each_pool() {
        let mut sites = Sites::default();
        let (one, other) = (PoolId(1), PoolId(2));
        let (link, release) = (Path::new("/srv/shop/current"), Path::new("/srv/shop/releases/1"));
        let id = sites.with_link(one, link, release).expect("a site");
        assert_eq!(sites.with_link(one, link, Path::new("/x")), Some(id));
        assert_ne!(sites.with_link(other, link, Path::new("/x")), Some(id));
        for path in ["/srv/shop", "/srv/shop/current", "/srv/shop/releases/1"] {
            let path = Path::new(path);
            assert_eq!(sites.at(path), Some(id));
            assert_eq!(sites.link_at(&[other, one], path), link);
            assert_eq!(sites.link_at(&[PoolId(3)], path), path);
            assert_eq!(sites.served_at(one, path), release);
            assert_eq!(sites.served_at(PoolId(3), path), path);
        }
        assert_eq!(sites.served_at(other, link), Path::new("/x"));
        assert_eq!(sites.served_at(other, release), release);
        for path in ["/srv/shop/releases/2", "/srv", "/srv/shop/releases", "shop"] {
            let path = Path::new(path);
            assert_eq!(sites.at(path), None);
            assert_eq!(sites.link_at(&[one, other], path), path);
            assert_eq!(sites.served_at(one, path), path);
        }
        assert_eq!(
            sites.link_to(one, release).map(|it| it.link.as_path()),
            Some(link)
        );
        assert_eq!(
            sites.left(one),
            BTreeMap::from([(link.to_owned(), release.to_owned())])
        );
        sites.end_router(one);
        assert!(sites.get(id).is_none() && sites.left(other).len() == 1);
        for wrong in ["relative", ""] {
            assert_eq!(sites.with_link(one, Path::new(wrong), release), None);
        }
    }
}
