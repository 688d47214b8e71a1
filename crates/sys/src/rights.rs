//! Gives up a process's privileges, all or in part.

use super::error::{Error, Named, Result};
use super::identity::{self, Identity};
use caps::{CapSet, Capability, CapsHashSet};
use nix::errno::Errno;

/// Switches from root to another user permanently; keeps only the capability to read all files (`CAP_DAC_READ_SEARCH`).
/// Returns `false` without it, as in some containers.
///
/// # Errors
/// The failed step; the process must not continue.
pub fn become_reader(identity: &Identity) -> Result<bool> {
    let wanted = CapsHashSet::from([Capability::CAP_DAC_READ_SEARCH]);
    let had = caps::read(None, CapSet::Permitted).map_err(|error| refused("the permitted set", &error))?;
    let kept: CapsHashSet = wanted.intersection(&had).copied().collect();
    // Without CAP_SETPCAP no_new_privs has to suffice.
    if had.contains(&Capability::CAP_SETPCAP) {
        caps::clear(None, CapSet::Bounding).map_err(|error| refused("the bounding set", &error))?;
    }
    nix::sys::prctl::set_keepcaps(true).named("prctl", "PR_SET_KEEPCAPS")?;
    identity::become_user(identity)?;
    for set in [CapSet::Permitted, CapSet::Effective] {
        caps::set(None, set, &kept).map_err(|error| refused("CAP_DAC_READ_SEARCH", &error))?;
    }
    caps::clear(None, CapSet::Inheritable).map_err(|error| refused("the inheritable set", &error))?;
    nix::sys::prctl::set_keepcaps(false).named("prctl", "PR_SET_KEEPCAPS")?;
    Ok(!kept.is_empty())
}

/// User of the process that forks workers. No other process may have this id (systemd's UIDS-GIDS.md): it could send
/// signals.
pub const SOURCE_OF_CHILDREN: u32 = 65_533;

/// For changing user, groups and root directory, and setting priority and limits.
const FOR_CHILDREN: [Capability; 6] = [
    Capability::CAP_SETUID,
    Capability::CAP_SETGID,
    Capability::CAP_SYS_CHROOT,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_SYS_NICE,
    Capability::CAP_SYS_RESOURCE,
];

/// Switches from root to an unprivileged user; keeps what [`raise_in_child`] needs, not effective.
///
/// # Errors
/// The failed step; the process must not continue. EPERM if it may not change users.
pub fn become_source_of_children(uid: u32) -> Result<()> {
    let had = caps::read(None, CapSet::Permitted).map_err(|error| refused("the permitted set", &error))?;
    let mut wanted = CapsHashSet::from(FOR_CHILDREN);
    // Root in a container has CAP_DAC_OVERRIDE instead.
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

/// Makes the kept capabilities effective in a child. Call [`give_up`] afterwards.
///
/// # Errors
/// capget(2) or capset(2).
pub fn raise_in_child() -> Result<()> {
    let kept = caps::read(None, CapSet::Permitted).map_err(|error| refused("the permitted set", &error))?;
    caps::set(None, CapSet::Effective, &kept).map_err(|error| refused("the effective set", &error))
}

/// Drops all capabilities unless the user is root, and verifies that.
///
/// # Errors
/// capset(2); EPERM if some are left or the process can become root again.
pub fn give_up() -> Result<()> {
    // The caps crate makes a call per capability. That is too slow here.
    raw::clear_ambient();
    raw::set(&[raw::Half::default(); 2])
        .map_err(|errno| Error::new("capset", "the sets of a worker", errno))?;
    let left = raw::get().map_err(|errno| Error::new("capget", "", errno))?;
    // Ambient capabilities are also permitted ones (capabilities(7)).
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

mod raw {
    use nix::Result;
    use nix::errno::Errno;

    /// `_LINUX_CAPABILITY_VERSION_3`: each set has two halves.
    const VERSION: u32 = 0x2008_0522;

    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }

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

    /// Fails before Linux 4.3.
    pub(super) fn clear_ambient() {
        // SAFETY: the call takes only numbers.
        unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) };
    }
}
