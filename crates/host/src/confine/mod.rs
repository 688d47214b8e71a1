//! Closes to a pool's processes what its settings close, beyond the rights of their user.
//!
//! Each of the steps is taken once, in the preloader before any PHP code runs (in a chroot: after PHP has loaded its
//! files), or in the worker of a pool without one; what the preloader forks has inherited it. They come in three places of
//! `settle` of the worker:
//!
//! * [`begin`], as root, before the root directory changes: control group, private /tmp;
//! * [`look_around`], just before the root directory changes: keeps open what is out of reach later;
//! * [`finish`], after the change of user: AppArmor hat, paths, system calls, in this order, since each could keep the
//!   one before it from being set.
//!
//! [`check`] is the master's part. When the daemon starts or reloads, it names the setting for which the kernel lacks
//! something, and the configuration is not applied. Nothing is ever left out silently.

mod calls;
mod error;
mod group;
mod group_parent;
mod hat;
mod helpers;
mod paths;
mod tmp;

pub use error::ConfineError;
pub use group::{Group, enter as enter_group, entrance, remove as remove_group};
pub use group_parent::{GroupParent, find as find_group_parent, leave as leave_group_parent};
pub use helpers::{Helper, keep_to};

use crate::config::{Application, Confine, Pool};
use std::fs::File;

/// The control group that a pool's processes enter, if any.
pub fn group(pool: &Pool) -> Option<Group> {
    let cgroup = pool.confine.cgroup.as_ref()?;
    Some(group::path(cgroup, &pool.name))
}

/// Whether the kernel can do all that a pool asks for. Makes the pool's control group, with its limits.
///
/// # Errors
/// What is missing, by the setting's name.
pub fn check(pool: &Pool) -> Result<Option<Group>, ConfineError> {
    let confine = &pool.confine;
    if let Some(hat) = &confine.apparmor_hat {
        hat::check(hat)?;
    }
    if confine.paths.is_some() {
        paths::check()?;
    }
    if confine.deny_system_calls {
        calls::check()?;
    }
    if confine.private_tmp {
        tmp::check(matches!(
            pool.application,
            Application::Php(_) | Application::Wrapped(_)
        ))?;
    }
    confine
        .cgroup
        .as_ref()
        .map(|cgroup| group::make(cgroup, &pool.name))
        .transpose()
}

/// Has ready what takes long, for processes of pools that this one forks.
pub fn prepare() {
    calls::prepare();
}

/// Closes to this process, and to all that it starts, what one that only looks at files does not need: changing anything
/// below any directory, and every system call that it does not need. Says what the kernel lacks for that.
pub fn only_look() -> Vec<ConfineError> {
    [paths::close_writing(), keep_to(Helper::Inspector)]
        .into_iter()
        .filter_map(Result::err)
        .collect()
}

/// Joins the control group, unless it is in it already, and gets a /tmp of its own. In a process with one thread.
///
/// # Errors
/// The kernel or its configuration does not allow it.
pub fn begin(pool: &Pool, is_in_group: bool) -> Result<(), ConfineError> {
    if let Some(cgroup) = pool.confine.cgroup.as_ref().filter(|_| !is_in_group) {
        group::join(cgroup, &pool.name)?;
    }
    if pool.confine.private_tmp {
        tmp::make_private(pool.chroot.as_deref())?;
    }
    Ok(())
}

/// What [`finish`] needs of what a new root directory hides.
#[derive(Debug)]
pub struct Outlook {
    attributes: Option<File>,
}

/// Keeps open what [`finish`] needs.
///
/// # Errors
/// The kernel or its configuration does not allow it.
pub fn look_around(confine: &Confine) -> Result<Outlook, ConfineError> {
    let attributes = confine
        .apparmor_hat
        .as_ref()
        .map(|_| hat::attributes())
        .transpose()?;
    Ok(Outlook { attributes })
}

/// Takes the last steps; after them the process has nothing more to set up.
///
/// # Errors
/// The kernel or its configuration does not allow it.
pub fn finish(pool: &Pool, outlook: &Outlook) -> Result<(), ConfineError> {
    let confine = &pool.confine;
    if let (Some(hat), Some(attributes)) = (&confine.apparmor_hat, &outlook.attributes) {
        hat::change(attributes, hat)?;
    }
    if let Some(wanted) = &confine.paths {
        paths::restrict(wanted, &pool.application)?;
    }
    if confine.deny_system_calls {
        calls::deny()?;
    }
    Ok(())
}
