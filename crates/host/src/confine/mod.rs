//! Confines a pool's processes beyond their user's permissions.
//!
//! Each step runs once: in the preloader before any PHP code (in a chroot: after PHP has loaded its files), or in the
//! worker of a pool without preloader. The worker's `settle` calls:
//!
//! * [`begin`], as root, before the root directory changes: control group, private /tmp;
//! * [`look_around`], just before the root directory changes: opens files that a chroot would hide;
//! * [`finish`], after the change of user: AppArmor hat, paths, system calls. The order matters, because each could
//!   block the previous one.
//!
//! The master calls [`check`] at start and reload. It rejects a configuration that the kernel doesn't support.

mod calls;
mod error;
mod group;
mod group_parent;
mod hat;
mod helpers;
mod paths;
mod tmp;

pub use error::ConfineError;
use forkyard_config::Workers;
pub use group::{Group, enter as enter_group, entrance, remove as remove_group};
pub use group_parent::{GroupParent, find as find_group_parent, leave as leave_group_parent};
pub use helpers::{Helper, keep_to};

use forkyard_config::{Confine, Pool};
use std::fs::File;

/// Returns the pool's control group, if any.
pub fn group(pool: &Pool) -> Option<Group> {
    let cgroup = pool.confine.cgroup.as_ref()?;
    Some(group::path(cgroup, &pool.name))
}

/// Checks that the kernel supports a pool's settings. Creates the control group with its limits.
///
/// # Errors
/// The unsupported setting.
pub fn check(pool: &Pool) -> Result<Option<Group>, ConfineError> {
    supported(pool)?;
    let cgroup = pool.confine.cgroup.as_ref();
    cgroup.map(|cgroup| group::make(cgroup, &pool.name)).transpose()
}

/// Checks the settings that need no control group, and changes nothing.
///
/// # Errors
/// The unsupported setting.
pub fn supported(pool: &Pool) -> Result<(), ConfineError> {
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
        tmp::check(pool.application.traits().workers == Workers::Forked)?;
    }
    Ok(())
}

/// Prepares what takes long, before forking pools' processes.
pub fn prepare() {
    calls::prepare();
}

/// Blocks writing and unneeded system calls for a process that only reads files. Returns the blocks that the kernel doesn't
/// support.
pub fn only_look() -> Vec<ConfineError> {
    [paths::close_writing(), keep_to(Helper::Inspector)]
        .into_iter()
        .filter_map(Result::err)
        .collect()
}

/// Joins the control group and mounts a private /tmp. The process must have one thread.
///
/// # Errors
/// The kernel or its configuration doesn't allow it.
pub fn begin(pool: &Pool, is_in_group: bool) -> Result<(), ConfineError> {
    if let Some(cgroup) = pool.confine.cgroup.as_ref().filter(|_| !is_in_group) {
        group::join(cgroup, &pool.name)?;
    }
    if pool.confine.private_tmp {
        tmp::make_private(pool.setup.chroot.as_deref())?;
    }
    Ok(())
}

/// What [`finish`] needs from outside the chroot.
#[derive(Debug)]
pub struct Outlook {
    attributes: Option<File>,
}

/// Opens what [`finish`] needs.
///
/// # Errors
/// The kernel or its configuration doesn't allow it.
pub fn look_around(confine: &Confine) -> Result<Outlook, ConfineError> {
    let attributes = confine
        .apparmor_hat
        .as_ref()
        .map(|_| hat::attributes())
        .transpose()?;
    Ok(Outlook { attributes })
}

/// Takes the last steps. All other setup must be done.
///
/// # Errors
/// The kernel or its configuration doesn't allow it.
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
