//! Groups of applications, from which a client can lease any instance.
//!
//! Groups are configured as lists of roots. The inspector examines each root when the configuration applies, and before
//! a lease if `stat_throttle_rate` has passed. The client waits for that.

use super::admin_requests::AdminError;
use super::app_index::{Known, Lookup};
use super::event_loop::Router;
use super::sessions::Who;
use forkyard_core::applications::action::Refusal;
use forkyard_core::applications::event::{Event, Get, Target, Wait};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The inspection client id for members. No connection has it.
pub(super) const MEMBER: u64 = u64::MAX;

#[derive(Debug, Default)]
pub(super) struct Groups {
    members: BTreeMap<PathBuf, Arc<str>>,
    joined: BTreeMap<PathBuf, Arc<str>>,
    waiting: Vec<WaitingAdminRequest>,
}

#[derive(Debug)]
struct WaitingAdminRequest {
    admin_request: u64,
    group: String,
    wait: Option<Duration>,
}

impl Groups {
    /// Sets the members, and returns the roots that have left.
    fn set(&mut self, groups: &BTreeMap<String, Vec<PathBuf>>) -> Vec<PathBuf> {
        let members = groups.iter().flat_map(|(name, roots)| {
            let name: Arc<str> = Arc::from(name.as_str());
            roots.iter().map(move |root| (root.clone(), Arc::clone(&name)))
        });
        self.members = members.collect();
        let joined = self.joined.keys();
        let gone = joined.filter(|root| !self.members.contains_key(*root));
        gone.cloned().collect()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.joined.values()
    }

    fn has(&self, group: &str) -> bool {
        self.members.values().any(|known| **known == *group)
    }

    fn roots_of(&self, group: &str) -> Vec<PathBuf> {
        let own = self.members.iter().filter(|(_, known)| ***known == *group);
        own.map(|(root, _)| root.clone()).collect()
    }

    fn group_of(&self, name: &str) -> Option<&Arc<str>> {
        let root = self.joined.iter().find(|(_, known)| ***known == *name);
        root.and_then(|(root, _)| self.members.get(root))
    }
}

impl Router {
    pub(super) fn regroup(&mut self) {
        for root in self.groups.set(&self.settings.applications.groups) {
            self.leaves_group(&root);
        }
        let roots: Vec<PathBuf> = self.groups.members.keys().cloned().collect();
        for root in roots {
            self.look_at_member(&root);
        }
        self.take_looked_at();
    }

    /// Inspects a member unless its result is still valid. Returns whether an inspection is in progress.
    fn look_at_member(&mut self, root: &Path) -> bool {
        let rate = self.settings.applications.stat_throttle_rate;
        let bytes = root.as_os_str().as_bytes();
        match self.inspections.ask(bytes, MEMBER, rate, self.now) {
            Lookup::Known(known) => self.joins_group(root, &known),
            Lookup::Refused(_) => self.leaves_group(root),
            Lookup::Wait(_) => return true,
            Lookup::Busy => {}
        }
        false
    }

    pub(super) fn member_seen(&mut self, root: &Path, known: Option<&Arc<Known>>) {
        if self.groups.members.contains_key(root) {
            match known {
                Some(known) => self.joins_group(root, known),
                None => self.leaves_group(root),
            }
        }
        self.take_looked_at();
    }

    fn joins_group(&mut self, root: &Path, known: &Arc<Known>) {
        if self
            .groups
            .joined
            .get(root)
            .is_some_and(|name| *name != known.name)
        {
            self.leaves_group(root);
        }
        self.groups
            .joined
            .insert(root.to_owned(), Arc::clone(&known.name));
        let Some(group) = self.groups.group_of(&known.name).cloned() else {
            return;
        };
        self.tell(Event::Join {
            name: Arc::clone(&known.name),
            group,
            options: known.options,
        });
    }

    fn leaves_group(&mut self, root: &Path) {
        let Some(name) = self.groups.joined.remove(root) else {
            return;
        };
        if self.groups.group_of(&name).is_none() {
            self.tell(Event::Leave(name));
        }
    }

    pub(super) fn take(&mut self, admin_request: u64, of: &str, wait: Option<Duration>) {
        if self.groups.has(of) {
            let roots = self.groups.roots_of(of);
            let looks = roots.into_iter().filter(|root| self.look_at_member(root)).count();
            if looks > 0 {
                return self.groups.waiting.push(WaitingAdminRequest {
                    admin_request,
                    group: of.to_owned(),
                    wait,
                });
            }
        }
        self.take_now(admin_request, of, wait);
    }

    fn take_now(&mut self, admin_request: u64, of: &str, wait: Option<Duration>) {
        let session = self.sessions.wait(Who::AdminRequest(admin_request));
        let name: Arc<str> = Arc::from(of);
        let target = match self.pool.core.options(&name) {
            Some(_) => Target::Known(name),
            None => Target::Group(name, drawn()),
        };
        let get = Get {
            session,
            target,
            wait: wait.map_or(Wait::None, |time| Wait::Until(self.now + time)),
            restart_files: None,
            alone: true,
        };
        self.tell(Event::Get(get));
    }

    fn take_looked_at(&mut self) {
        let waiting = std::mem::take(&mut self.groups.waiting);
        for one in waiting {
            let roots = self.groups.roots_of(&one.group);
            let is_looked_at =
                |root: &PathBuf| self.inspections.index.is_looked_at(root.as_os_str().as_bytes());
            match roots.iter().any(is_looked_at) {
                true => self.groups.waiting.push(one),
                false => self.take_now(one.admin_request, &one.group, one.wait),
            }
        }
    }

    pub(super) fn refuse_waiting(&mut self) {
        for one in std::mem::take(&mut self.groups.waiting) {
            self.done(one.admin_request, Err(AdminError::Refused(Refusal::ShuttingDown)));
        }
    }

    pub(super) fn forget_applications(&mut self) {
        if self.apps.next_deadline().is_none_or(|due| due > self.now) {
            return;
        }
        let live = self.pool.core.names_with_instances();
        let kept: BTreeSet<Arc<str>> = live.chain(self.groups.names().cloned()).collect();
        for name in self.apps.forget(self.now, |name| kept.contains(name)) {
            self.tell(Event::Remove(name));
        }
    }
}

fn drawn() -> u64 {
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
}
