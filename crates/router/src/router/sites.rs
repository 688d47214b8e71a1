//! Chooses releases for requests, by the link that identifies the application.

use forkyard_base::spread;
use forkyard_base::tick::Tick;
use forkyard_protocol::router::Served;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const MOST: usize = 32_768;

#[derive(Debug)]
struct Site {
    release: Arc<str>,
    /// The release of a deployment, and its part of the requests in percent.
    coming: Option<(Arc<str>, u8)>,
    used: Tick,
}

impl Site {
    fn serves(&self, release: &str) -> bool {
        *self.release == *release
            || self
                .coming
                .as_ref()
                .is_some_and(|(coming, _)| **coming == *release)
    }
}

#[derive(Debug, Default)]
pub(super) struct Sites {
    by_link: HashMap<Arc<str>, Site>,
    /// Requests to applications with two releases.
    shared: u64,
}

/// The release of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub release: Arc<str>,
    /// The application was unknown, and gets the release that the link names.
    pub is_new: bool,
}

impl Sites {
    /// Chooses the release of a request. `named`: the link's target, used only if [`Sites::kept`] returns `None`.
    pub(super) fn choose(
        &mut self,
        link: &Arc<str>,
        named: &Arc<str>,
        times: (Tick, Duration),
        has_instances: impl Fn(&str) -> bool,
    ) -> Choice {
        if let Some(release) = self.kept(link, times, has_instances) {
            return Choice {
                release,
                is_new: false,
            };
        }
        self.serve(link, named, times.0);
        Choice {
            release: Arc::clone(named),
            is_new: true,
        }
    }

    /// Returns the release of a request, regardless of the link's target. `None`: the application is unknown, or it has no
    /// instances and got no request for `forget_after`.
    pub(super) fn kept(
        &mut self,
        link: &str,
        (now, forget_after): (Tick, Duration),
        has_instances: impl Fn(&str) -> bool,
    ) -> Option<Arc<str>> {
        let is_current = |site: &Site| {
            site.coming.is_some() || now.since(site.used) < forget_after || has_instances(&site.release)
        };
        let site = self.by_link.get_mut(link).filter(|site| is_current(site))?;
        site.used = now;
        let release = match &site.coming {
            Some((coming, percent)) => {
                self.shared += 1;
                let is_coming = spread::within(self.shared, 99) < u64::from(*percent);
                if is_coming { coming } else { &site.release }
            }
            None => &site.release,
        };
        Some(Arc::clone(release))
    }

    /// Gives a release all requests of an application.
    pub(super) fn serve(&mut self, link: &Arc<str>, release: &Arc<str>, now: Tick) {
        if self.by_link.len() >= MOST && !self.by_link.contains_key(link) {
            self.forget_oldest();
        }
        let site = Site {
            release: Arc::clone(release),
            coming: None,
            used: now,
        };
        self.by_link.insert(Arc::clone(link), site);
    }

    /// Applies the master's decision. Returns the releases that get no more requests.
    pub(super) fn set(&mut self, served: &Served, now: Tick) -> Vec<Arc<str>> {
        let text = |path: &Path| path.to_str().map(Arc::<str>::from);
        let (Some(link), Some(release)) = (text(&served.link), text(&served.release)) else {
            return Vec::new();
        };
        let before = self.by_link.remove(&link);
        self.serve(&link, &release, now);
        let coming = served.coming.as_ref();
        if let (Some(site), Some((coming, percent))) = (self.by_link.get_mut(&link), coming) {
            site.coming = text(coming).map(|coming| (coming, *percent));
        }
        let before = before.into_iter();
        let mut ended: Vec<Arc<str>> = before
            .flat_map(|site| {
                site.coming
                    .map(|(coming, _)| coming)
                    .into_iter()
                    .chain([site.release])
            })
            .collect();
        ended.retain(|release| !self.is_served(&link, release));
        ended
    }

    /// Whether requests of an application may get this release.
    pub(super) fn is_served(&self, link: &str, release: &str) -> bool {
        self.by_link.get(link).is_some_and(|site| site.serves(release))
    }

    /// Whether a deployment of the application is under way.
    pub(super) fn is_shared(&self, link: &str) -> bool {
        self.by_link.get(link).is_some_and(|site| site.coming.is_some())
    }

    /// Returns the release in service of an application.
    pub(super) fn release(&self, link: &str) -> Option<&Arc<str>> {
        self.by_link.get(link).map(|site| &site.release)
    }

    /// Returns the link of the application at a path: the link itself, its directory, or a release that gets requests.
    pub(super) fn link_of(&self, path: &Path) -> Option<Arc<str>> {
        let path = path.to_str()?;
        if let Some((link, _)) = self.by_link.get_key_value(path) {
            return Some(Arc::clone(link));
        }
        let is_meant = |(link, site): &(&Arc<str>, &Site)| {
            Path::new(&***link).parent() == Some(Path::new(path)) || site.serves(path)
        };
        self.by_link
            .iter()
            .find(is_meant)
            .map(|(link, _)| Arc::clone(link))
    }

    /// Forgets a deleted release.
    pub(super) fn forget(&mut self, link: &str, gone: &str) {
        match self.by_link.get_mut(link) {
            Some(site) if *site.release == *gone => drop(self.by_link.remove(link)),
            Some(site) => site.coming = None,
            None => {}
        }
    }

    fn forget_oldest(&mut self) {
        let quarter = self.by_link.len() / 4;
        let mut used: Vec<Tick> = self.by_link.values().map(|site| site.used).collect();
        let (_, limit, _) = used.select_nth_unstable(quarter);
        let limit = *limit;
        self.by_link
            .retain(|_, site| site.coming.is_some() || site.used > limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(seconds: u64) -> Tick {
        Tick::ZERO + Duration::from_secs(seconds)
    }

    fn text(path: &str) -> Arc<str> {
        Arc::from(path)
    }

    fn served(release: &str, coming: Option<(&str, u8)>) -> Served {
        Served {
            link: "/srv/shop/current".into(),
            release: release.into(),
            coming: coming.map(|(coming, percent)| (coming.into(), percent)),
        }
    }

    fn choose(sites: &mut Sites, named: &str, now: Tick) -> (String, bool) {
        let choice = sites.choose(&text("/srv/shop/current"), &text(named), (now, HOUR), |release| {
            release == "/srv/shop/releases/9"
        });
        (choice.release.to_string(), choice.is_new)
    }

    #[test]
    fn a_moved_link_counts_when_the_application_was_forgotten() {
        let mut sites = Sites::default();
        let first = || "/srv/shop/releases/1".to_owned();
        assert_eq!(choose(&mut sites, "/srv/shop/releases/1", at(0)), (first(), true));
        assert_eq!(
            choose(&mut sites, "/srv/shop/releases/2", at(10)),
            (first(), false)
        );
        let second = "/srv/shop/releases/2".to_owned();
        assert_eq!(
            choose(&mut sites, "/srv/shop/releases/2", at(3700)),
            (second, true)
        );
        sites.set(&served("/srv/shop/releases/9", None), at(3700));
        let live = "/srv/shop/releases/9".to_owned();
        assert_eq!(
            choose(&mut sites, "/srv/shop/releases/2", at(9000)),
            (live, false),
            "it has instances"
        );
    }

    #[test]
    fn a_deployment_gets_its_part_of_the_requests() {
        let mut sites = Sites::default();
        choose(&mut sites, "/r/1", at(0));
        for percent in [0, 1, 10, 50, 100] {
            assert!(
                sites
                    .set(&served("/r/1", Some(("/r/2", percent))), at(0))
                    .is_empty()
            );
            let chosen = (0..10_000).filter(|_| choose(&mut sites, "/r/1", at(1)).0 == "/r/2");
            let (chosen, wanted) = (chosen.count(), usize::from(percent) * 100);
            assert!(
                chosen.abs_diff(wanted) <= wanted / 5 + 30,
                "{percent} %: {chosen}"
            );
        }
        assert!(sites.is_served("/srv/shop/current", "/r/2"));
        assert_eq!(sites.set(&served("/r/2", None), at(1)), [text("/r/1")]);
        assert_eq!(choose(&mut sites, "/r/1", at(2)), ("/r/2".to_owned(), false));
        sites.set(&served("/r/2", Some(("/r/3", 1))), at(2));
        assert_eq!(
            sites.set(&served("/r/2", None), at(2)),
            [text("/r/3")],
            "taken back"
        );
    }

    #[test]
    fn an_application_is_named_by_link_directory_or_release() {
        let mut sites = Sites::default();
        choose(&mut sites, "/srv/shop/releases/1", at(0));
        for path in ["/srv/shop", "/srv/shop/current", "/srv/shop/releases/1"] {
            assert_eq!(
                sites.link_of(Path::new(path)),
                Some(text("/srv/shop/current")),
                "{path}"
            );
        }
        assert_eq!(sites.link_of(Path::new("/srv/shop/releases/2")), None);
    }

    #[test]
    fn there_is_an_end_to_what_is_known() {
        let mut sites = Sites::default();
        for number in 0..MOST + 10 {
            let link = text(&format!("/srv/{number}/current"));
            sites.serve(&link, &text("/r"), at(number as u64));
        }
        assert!(sites.by_link.len() <= MOST);
        assert!(sites.release(&format!("/srv/{}/current", MOST + 9)).is_some());
    }
}
