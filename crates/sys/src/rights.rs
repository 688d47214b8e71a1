//! What a process may do beyond its user's rights, and giving that up.

use super::error::{Error, Named, Result};
use super::identity::{self, Identity};
use caps::{CapSet, Capability, CapsHashSet};
use nix::errno::Errno;

/// Becomes another user for good, but keeps the right to read every file and to look into every directory
/// (`CAP_DAC_READ_SEARCH`, capabilities(7)), and no other. Not even a program that it starts could have another.
/// For root.
///
/// Says whether it has that right: in a container even root may have been without.
///
/// # Errors
/// The step that failed; the process must not go on then.
pub fn become_reader(identity: &Identity) -> Result<bool> {
    let wanted = CapsHashSet::from([Capability::CAP_DAC_READ_SEARCH]);
    let had = caps::read(None, CapSet::Permitted).map_err(|error| refused("the permitted set", &error))?;
    let kept: CapsHashSet = wanted.intersection(&had).copied().collect();
    // While there still is the right to do so. Where there is none, no_new_privs has to do.
    if had.contains(&Capability::CAP_SETPCAP) {
        caps::clear(None, CapSet::Bounding).map_err(|error| refused("the bounding set", &error))?;
    }
    nix::sys::prctl::set_keepcaps(true).named("prctl", "PR_SET_KEEPCAPS")?;
    identity::become_user(identity)?;
    // The change of user has emptied the effective and the ambient set.
    for set in [CapSet::Permitted, CapSet::Effective] {
        caps::set(None, set, &kept).map_err(|error| refused("CAP_DAC_READ_SEARCH", &error))?;
    }
    caps::clear(None, CapSet::Inheritable).map_err(|error| refused("the inheritable set", &error))?;
    nix::sys::prctl::set_keepcaps(false).named("prctl", "PR_SET_KEEPCAPS")?;
    Ok(!kept.is_empty())
}

fn refused(subject: &str, error: &caps::errors::CapsError) -> Error {
    log::debug!("{subject}: {error}");
    Error::new("capset", subject, Errno::EPERM)
}
