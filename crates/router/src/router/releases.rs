//! Chooses the release of each request to an application: the one in service, or a new one during a deployment.

use super::app_index::Known;
use super::event_loop::Router;
use super::state::ClientState;
use forkyard_core::applications::event::Event;
use forkyard_protocol::router::{Served, ToMaster};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl Router {
    /// Returns the application in the release chosen for a request. `None`: the inspector reads that release first.
    pub(super) fn in_service(&mut self, id: u64, known: Arc<Known>) -> Option<Arc<Known>> {
        let Some(link) = &known.link else {
            return Some(known);
        };
        let client = self.clients.get_mut(id)?;
        let chosen = match client.release.take() {
            Some(chosen) => chosen,
            None => {
                let pool = &self.pool;
                let has_instances = |release: &str| pool.has_instances(Path::new(release));
                let times = (self.now, self.settings.applications.forget_after);
                let choice = self.sites.choose(link, &known.name, times, has_instances);
                if choice.is_new {
                    self.say_release(link, &known.name);
                    self.end_preview(&known.name);
                }
                choice.release
            }
        };
        if chosen == known.name {
            return Some(known);
        }
        if let Some(client) = self.clients.get_mut(id) {
            // The restart files belong to another release.
            client.restart_files = None;
            client.release = Some(Arc::clone(&chosen));
        }
        self.look_up(id, chosen.as_bytes());
        None
    }

    fn say_release(&mut self, link: &str, release: &str) {
        self.master.say(&ToMaster::Serves {
            link: link.into(),
            release: release.into(),
        });
    }

    /// Returns the application in the release in service, if its own release gets no more requests.
    pub(super) fn still_served(&self, known: Arc<Known>) -> Arc<Known> {
        let Some(link) = &known.link else {
            return known;
        };
        if self.sites.is_served(link, &known.name) {
            return known;
        }
        let serving = self.sites.release(link);
        let serving = serving.and_then(|release| self.inspections.index.named(release));
        serving.unwrap_or(known)
    }

    /// Handles the loss of a release's directory. Requests then get the release that the link names.
    pub(super) fn release_gone(&mut self, id: u64, gone: &Arc<str>) {
        let Some(link) = self.sites.link_of(Path::new(&**gone)) else {
            return self.not_found(id, gone.as_bytes(), None);
        };
        log::error!(
            "[pool {}] the release {gone} is in service and is gone; requests get what {link} names",
            self.settings.name()
        );
        self.sites.forget(&link, gone);
        self.look_up(id, link.as_bytes());
    }

    /// Returns the release in service of an application whose link is missing or broken.
    pub(super) fn release_without_link(&mut self, root: &[u8]) -> Option<Arc<str>> {
        let applications = &self.settings.applications;
        let name = &applications.releases.as_ref()?.link;
        let root = Path::new(OsStr::from_bytes(root));
        let times = (self.now, applications.forget_after);
        let pool = &self.pool;
        let has_instances = |release: &str| pool.has_instances(Path::new(release));
        [root.to_owned(), root.join(name)]
            .iter()
            .find_map(|link| self.sites.kept(link.to_str()?, times, has_instances))
    }

    /// Applies the master's decision about which releases get requests.
    pub(super) fn release_changed(&mut self, served: &Served) {
        let coming = served.coming.iter().map(|(coming, _)| coming);
        let named = coming
            .chain([&served.release])
            .filter_map(|release| release.to_str());
        let link = served.link.to_str().unwrap_or_default();
        let new: Vec<Arc<str>> = named
            .filter(|release| !self.sites.is_served(link, release))
            .map(Arc::from)
            .collect();
        for ended in self.sites.set(served, self.now) {
            self.end_release(&ended);
        }
        for release in new {
            self.end_preview(&release);
        }
    }

    /// Ends the instances that a release had before its deployment. They know only paths of the release's own directory.
    fn end_preview(&mut self, release: &Arc<str>) {
        if self.pool.has_instances(Path::new(&**release)) {
            self.end_release(release);
        }
    }

    /// Puts the release that a link names into service.
    pub(super) fn change_release(&mut self, link: &Arc<str>, release: &Arc<str>) {
        let served = Served {
            link: PathBuf::from(&**link),
            release: PathBuf::from(&**release),
            coming: None,
        };
        self.release_changed(&served);
        self.say_release(link, release);
    }

    /// Moves waiting requests to the release in service. The instances finish their requests.
    pub(super) fn end_release(&mut self, release: &Arc<str>) {
        for id in self.clients.ids() {
            let Some(client) = self.clients.get_mut(id) else {
                continue;
            };
            let waits = client.state() == ClientState::Waiting
                && client.known.as_ref().is_some_and(|known| known.name == *release);
            let session = client.session.filter(|_| waits);
            if let Some(session) = session {
                client.session = None;
                self.sessions.remove(session);
                self.pool.add(Event::Cancel(session));
                self.ask(id);
            }
        }
        self.apps.remove(release);
        self.tell(Event::Remove(Arc::clone(release)));
    }
}
