//! Decides what a configuration change must restart.

use super::applications::Applications;
use super::model::{Listen, Pool};
use super::release::Release;

impl Pool {
    /// Whether the pool's workers can keep running under the new settings. Ignores attributes that can be set on an
    /// open socket.
    pub fn has_workers_for(&self, wanted: &Pool) -> bool {
        let mut wanted = wanted.clone();
        wanted.listen = wanted.listen.with_attributes_of(&self.listen);
        wanted.replacement.drain_timeout = self.replacement.drain_timeout;
        if let (Some(release), Some(own)) = (&mut wanted.release, &self.release) {
            release.gradual.clone_from(&own.gradual);
            release.step_time = own.step_time;
        }
        *self == wanted
    }

    /// Whether an application's instances can keep running. Ignores their number.
    pub fn has_instances_for(&self, wanted: &Pool) -> bool {
        let wanted = Pool {
            pm: self.pm,
            ..wanted.clone()
        };
        *self == wanted
    }
}

impl Listen {
    /// This address, with attributes of `other` that an open socket can change.
    fn with_attributes_of(&self, other: &Listen) -> Listen {
        Listen {
            backlog: other.backlog,
            owner: other.owner.clone(),
            group: other.group.clone(),
            mode: other.mode,
            acl_users: other.acl_users.clone(),
            acl_groups: other.acl_groups.clone(),
            ..self.clone()
        }
    }
}

impl Applications {
    /// Whether the inspector can keep running.
    pub fn has_inspector_for(&self, wanted: &Applications) -> bool {
        let name = |releases: &Option<Box<Release>>| releases.as_ref().map(|it| it.link.clone());
        self.directories == wanted.directories
            && self.restart_dir == wanted.restart_dir
            && self.user_switching == wanted.user_switching
            && self.user_mounts == wanted.user_mounts
            && name(&self.releases) == name(&wanted.releases)
    }
}
