//! Which changes of a configuration what runs already can go on with.

use super::applications::Applications;
use super::model::{Listen, Pool};

impl Pool {
    /// Whether the pool's workers serve as well by the settings that are wanted. What only concerns an open socket is set
    /// without them.
    pub fn has_workers_for(&self, wanted: &Pool) -> bool {
        let wanted = Pool {
            listen: wanted.listen.with_attributes_of(&self.listen),
            drain_timeout: self.drain_timeout,
            ..wanted.clone()
        };
        *self == wanted
    }

    /// Whether instances of one application are as good as of the other. How many there may be does not matter to them.
    pub fn has_instances_for(&self, wanted: &Pool) -> bool {
        let wanted = Pool {
            pm: self.pm,
            ..wanted.clone()
        };
        *self == wanted
    }
}

impl Listen {
    /// The same address, with what an open socket can be given later as another one has it.
    fn with_attributes_of(&self, other: &Listen) -> Listen {
        Listen {
            backlog: other.backlog,
            owner: other.owner.clone(),
            group: other.group.clone(),
            mode: other.mode,
            acl_users: other.acl_users.clone(),
            acl_groups: other.acl_groups.clone(),
            address: self.address.clone(),
            allowed_clients: self.allowed_clients.clone(),
            wrong_clients: self.wrong_clients.clone(),
        }
    }
}

impl Applications {
    /// Whether the process that inspects applications' directories inspects them as well by the settings that are wanted.
    pub fn has_inspector_for(&self, wanted: &Applications) -> bool {
        self.directories == wanted.directories
            && self.restart_dir == wanted.restart_dir
            && self.user_switching == wanted.user_switching
            && self.user_mounts == wanted.user_mounts
    }
}
