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

/// The user of a process that makes others' processes of itself, where it may choose: of the numbers that no part of a system
/// uses (systemd's UIDS-GIDS.md). No other process may have it: it could signal that one.
pub const SOURCE_OF_CHILDREN: u32 = 65_533;

/// What a process may do that makes others' processes of itself, without being root: change user and groups, enter a root
/// directory and directories on the way to it, and set priority and limits as root can.
const FOR_CHILDREN: [Capability; 6] = [
    Capability::CAP_SETUID,
    Capability::CAP_SETGID,
    Capability::CAP_SYS_CHROOT,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_SYS_NICE,
    Capability::CAP_SYS_RESOURCE,
];

/// Becomes a user without rights and groups, and keeps what [`raise_in_child`] needs. None of it is in effect until
/// then: code in this process can do what that user can. For root.
///
/// # Errors
/// The step that failed; the process must not go on then. EPERM where it has no right to change users.
pub fn become_source_of_children(uid: u32) -> Result<()> {
    let had = caps::read(None, CapSet::Permitted).map_err(|error| refused("the permitted set", &error))?;
    let mut wanted = CapsHashSet::from(FOR_CHILDREN);
    // Root in a container has this one in place of the smaller.
    if !had.contains(&Capability::CAP_DAC_READ_SEARCH) {
        wanted.insert(Capability::CAP_DAC_OVERRIDE);
    }
    let kept: CapsHashSet = wanted.intersection(&had).copied().collect();
    if !kept.contains(&Capability::CAP_SETUID) || !kept.contains(&Capability::CAP_SETGID) {
        return Err(Error::new("capset", "CAP_SETUID, CAP_SETGID", Errno::EPERM));
    }
    nix::sys::prctl::set_keepcaps(true).named("prctl", "PR_SET_KEEPCAPS")?;
    identity::become_user(&Identity {
        uid,
        gid: uid,
        groups: Vec::new(),
        name: None,
        home: None,
        shell: None,
    })?;
    let set = |set, wanted: &CapsHashSet| {
        caps::set(None, set, wanted).map_err(|error| refused("the sets of a source of children", &error))
    };
    set(CapSet::Effective, &CapsHashSet::new())?;
    set(CapSet::Permitted, &kept)?;
    set(CapSet::Inheritable, &CapsHashSet::new())?;
    nix::sys::prctl::set_keepcaps(false).named("prctl", "PR_SET_KEEPCAPS")
}

/// In a child of such a process: puts into effect what was kept. [`give_up`] is to follow.
///
/// # Errors
/// capget(2) or capset(2).
pub fn raise_in_child() -> Result<()> {
    let kept = caps::read(None, CapSet::Permitted).map_err(|error| refused("the permitted set", &error))?;
    caps::set(None, CapSet::Effective, &kept).map_err(|error| refused("the effective set", &error))
}

/// Gives up all rights beyond those of the user, for this process and what it starts, as far as the user is not root; and
/// looks whether they are gone. A change of user does that by itself for root alone.
///
/// # Errors
/// capset(2); EPERM if some are left, or the process can become root again.
pub fn give_up() -> Result<()> {
    // One by one, the library asks for every right there is: a worker is made for each, while a client waits.
    raw::clear_ambient();
    raw::set(&[raw::Half::default(); 2])
        .map_err(|errno| Error::new("capset", "the sets of a worker", errno))?;
    let left = raw::get().map_err(|errno| Error::new("capget", "", errno))?;
    // What is ambient is permitted and inheritable (capabilities(7)).
    if left != [raw::Half::default(); 2] {
        return Err(Error::new("capset", "rights are left", Errno::EPERM));
    }
    match nix::unistd::setuid(nix::unistd::Uid::from_raw(0)) {
        Err(Errno::EPERM) => Ok(()),
        _ => Err(Error::new("setuid", "0 is possible", Errno::EPERM)),
    }
}

fn refused(subject: &str, error: &caps::errors::CapsError) -> Error {
    log::debug!("{subject}: {error}");
    Error::new("capset", subject, Errno::EPERM)
}

/// The sets of this process as the kernel takes and gives them (capget(2)).
mod raw {
    use nix::Result;
    use nix::errno::Errno;

    /// `_LINUX_CAPABILITY_VERSION_3`: two halves of each set.
    const VERSION: u32 = 0x2008_0522;

    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }

    /// 32 rights of each set.
    #[repr(C)]
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub(super) struct Half {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }

    const OWN: Header = Header {
        version: VERSION,
        pid: 0,
    };

    pub(super) fn set(sets: &[Half; 2]) -> Result<()> {
        let mut header = OWN;
        // SAFETY: the kernel reads both, and may write the version into the header.
        let done = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) };
        Errno::result(done).map(drop)
    }

    pub(super) fn get() -> Result<[Half; 2]> {
        let (mut header, mut sets) = (OWN, [Half::default(); 2]);
        // SAFETY: the kernel writes two halves, and may write the version into the header.
        let done = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) };
        Errno::result(done).map(|_| sets)
    }

    /// Kernels before 4.3 have no such set.
    pub(super) fn clear_ambient() {
        // SAFETY: takes numbers.
        unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) };
    }
}
