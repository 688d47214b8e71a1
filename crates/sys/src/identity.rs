//! A worker's user, groups, limits, root and working directory.

use super::accounts::{self, Account};
use super::error::{Error, Named, Result};
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::unistd::{Gid, Group, Uid, User, chdir, chroot, setgid, setgroups, setuid};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A user with its groups; the master looks it up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups, including `gid`.
    pub groups: Vec<u32>,
    /// Name, if the user has one.
    pub name: Option<String>,
    /// Home directory, if known.
    pub home: Option<PathBuf>,
    /// Login shell, if known.
    #[serde(default)]
    pub shell: Option<PathBuf>,
}

impl Identity {
    /// Looks up a user and a group (default: the primary group) by name or number.
    ///
    /// # Errors
    /// `getpwnam` or `getgrnam` with the unknown name.
    pub fn look_up(user: &str, group: Option<&str>) -> Result<Identity> {
        let entry = find_user(user)?;
        let uid = match (&entry, user.parse::<u32>()) {
            (Some(entry), _) => entry.uid,
            (None, Ok(uid)) => uid,
            (None, Err(_)) => return Err(Error::new("getpwnam", user, nix::errno::Errno::ENOENT)),
        };
        let gid = match group {
            Some(group) => find_group(group)?,
            None => entry.as_ref().map_or(uid, |entry| entry.gid),
        };
        let groups = match &entry {
            Some(entry) => accounts::groups_of(&entry.name, gid)?,
            None => vec![gid],
        };
        Ok(Identity::of(uid, gid, groups, entry))
    }

    /// The user of this process.
    pub fn current() -> Identity {
        let uid = Uid::effective();
        let entry = User::from_uid(uid).ok().flatten().map(Account::from);
        let gid = Gid::effective().as_raw();
        Identity::of(uid.as_raw(), gid, vec![gid], entry)
    }

    fn of(uid: u32, gid: u32, groups: Vec<u32>, entry: Option<Account>) -> Identity {
        let (name, home, shell) = match entry {
            Some(entry) => (Some(entry.name), Some(entry.home), Some(entry.shell)),
            None => (None, None, None),
        };
        Identity {
            uid,
            gid,
            groups,
            name,
            home,
            shell: shell.filter(|shell| !shell.as_os_str().is_empty()),
        }
    }
}

/// The effective user id of this process.
pub fn own_user() -> u32 {
    Uid::effective().as_raw()
}

/// The effective group of this process.
pub fn own_group() -> u32 {
    Gid::effective().as_raw()
}

fn find_user(user: &str) -> Result<Option<Account>> {
    match user.parse::<u32>() {
        Ok(uid) => accounts::numbered(uid),
        Err(_) => accounts::named(user),
    }
}

/// Returns a group's id, by name or number.
///
/// # Errors
/// getgrnam(3); ENOENT for an unknown name.
pub fn find_group(group: &str) -> Result<u32> {
    if let Ok(gid) = group.parse::<u32>() {
        return Ok(gid);
    }
    accounts::group(group)?.ok_or_else(|| Error::new("getgrnam", group, nix::errno::Errno::ENOENT))
}

/// Returns a user's id and primary group, by name or number.
///
/// # Errors
/// getpwnam(3); ENOENT for an unknown name.
pub fn find_owner(user: &str) -> Result<(u32, Option<u32>)> {
    match (find_user(user)?, user.parse::<u32>()) {
        (Some(entry), _) => Ok((entry.uid, Some(entry.gid))),
        (None, Ok(uid)) => Ok((uid, None)),
        (None, Err(_)) => Err(Error::new("getpwnam", user, nix::errno::Errno::ENOENT)),
    }
}

/// Returns the user's login shell and the group's name, if known.
pub fn shell_and_group(uid: u32, gid: u32) -> (Option<PathBuf>, Option<String>) {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
    (user.map(|user| user.shell), group.map(|group| group.name))
}

/// Whether this process is root.
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// Returns the soft limit on descriptors.
///
/// # Errors
/// getrlimit(2).
pub fn most_descriptors() -> Result<u64> {
    use nix::sys::resource::{Resource, getrlimit};
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).named("getrlimit", "RLIMIT_NOFILE")?;
    Ok(soft)
}

/// Sets the limits on open descriptors.
///
/// # Errors
/// setrlimit(2).
pub fn limit_descriptors(soft: u64, hard: u64) -> Result<()> {
    setrlimit(Resource::RLIMIT_NOFILE, soft as rlim_t, hard as rlim_t).named("setrlimit", "RLIMIT_NOFILE")
}

/// Sets the limit on core files; `None` means unlimited.
///
/// # Errors
/// setrlimit(2).
pub fn limit_core(bytes: Option<u64>) -> Result<()> {
    let limit = bytes.map_or(nix::sys::resource::RLIM_INFINITY, |bytes| bytes as rlim_t);
    setrlimit(Resource::RLIMIT_CORE, limit, limit).named("setrlimit", "RLIMIT_CORE")
}

/// Named as in setrlimit(2), lower case, without prefix.
const LIMITS: [(&str, Resource); 13] = [
    ("as", Resource::RLIMIT_AS),
    ("core", Resource::RLIMIT_CORE),
    ("cpu", Resource::RLIMIT_CPU),
    ("data", Resource::RLIMIT_DATA),
    ("fsize", Resource::RLIMIT_FSIZE),
    ("locks", Resource::RLIMIT_LOCKS),
    ("memlock", Resource::RLIMIT_MEMLOCK),
    ("msgqueue", Resource::RLIMIT_MSGQUEUE),
    ("nice", Resource::RLIMIT_NICE),
    ("nofile", Resource::RLIMIT_NOFILE),
    ("nproc", Resource::RLIMIT_NPROC),
    ("rss", Resource::RLIMIT_RSS),
    ("stack", Resource::RLIMIT_STACK),
];

/// Sets a limit by name; `None` means unlimited.
///
/// # Errors
/// EINVAL for an unknown name.
pub fn limit(name: &str, soft: Option<u64>, hard: Option<u64>) -> Result<()> {
    let found = LIMITS.iter().find(|(known, _)| *known == name);
    let Some((_, resource)) = found else {
        return Err(Error::new("setrlimit", name, nix::errno::Errno::EINVAL));
    };
    let value = |limit: Option<u64>| limit.map_or(nix::sys::resource::RLIM_INFINITY, |limit| limit as rlim_t);
    setrlimit(*resource, value(soft), value(hard)).named("setrlimit", name)
}

/// Makes the kernel send SIGTERM when the parent exits. Survives exec, but not a change of user; children don't inherit
/// it.
///
/// # Errors
/// prctl(2).
pub fn die_with_parent() -> Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM).named("prctl PR_SET_PDEATHSIG", "")
}

/// Sets the file mode creation mask.
pub fn set_umask(mask: u32) {
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(mask));
}

/// Sets the nice(2) value of this process.
///
/// # Errors
/// setpriority(2).
pub fn set_priority(nice: i32) -> Result<()> {
    // SAFETY: the call takes only numbers.
    let done = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
    if done == 0 {
        Ok(())
    } else {
        Err(Error::last("setpriority", nice.to_string()))
    }
}

/// Returns the nice value of this process.
pub fn priority() -> i32 {
    // SAFETY: the call takes only numbers. Without an error there is no other -1 than the value.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

/// Whether this process may set this nice value from a higher one (RLIMIT_NICE, getrlimit(2)).
pub fn may_set_priority(nice: i32) -> bool {
    let limit = getrlimit(Resource::RLIMIT_NICE).map_or(0, |(soft, _)| soft);
    let has_right = caps::has_cap(None, caps::CapSet::Effective, caps::Capability::CAP_SYS_NICE);
    i64::try_from(limit).unwrap_or(i64::MAX) >= i64::from(20 - nice) || has_right.unwrap_or(false)
}

/// Lets this process and its children raise their priority up to this nice value, also as another user.
///
/// # Errors
/// setrlimit(2).
pub fn allow_priority(nice: i32) -> Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NICE).named("getrlimit", "nice")?;
    let wanted = u64::try_from(20 - nice).unwrap_or(20);
    if soft >= wanted {
        return Ok(());
    }
    setrlimit(Resource::RLIMIT_NICE, wanted, hard.max(wanted)).named("setrlimit", "nice")
}

/// Whether this process leads its session.
pub fn leads_session() -> bool {
    nix::unistd::getsid(None).is_ok_and(|session| session == nix::unistd::getpid())
}

/// Changes the root and the working directory.
///
/// # Errors
/// chroot(2) or chdir(2).
pub fn change_root(root: &Path) -> Result<()> {
    let subject = root.display().to_string();
    chroot(root).named("chroot", &subject)?;
    chdir("/").named("chdir", "/")
}

/// Changes the working directory.
///
/// # Errors
/// chdir(2).
pub fn change_directory(directory: &Path) -> Result<()> {
    chdir(directory).named("chdir", &directory.display().to_string())
}

/// Switches to another user permanently: group, supplementary groups, user. A process that isn't root but has
/// CAP_SETUID keeps it ([`crate::rights::give_up`]).
///
/// # Errors
/// setgid(2), setgroups(2) or setuid(2); EPERM without the privilege.
pub fn become_user(identity: &Identity) -> Result<()> {
    let subject = identity.uid.to_string();
    setgid(Gid::from_raw(identity.gid)).named("setgid", &identity.gid.to_string())?;
    let groups: Vec<Gid> = identity.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    setgroups(&groups).named("setgroups", &subject)?;
    setuid(Uid::from_raw(identity.uid)).named("setuid", &subject)
}

/// Prevents privileges gained by exec (prctl(2), PR_SET_NO_NEW_PRIVS).
///
/// # Errors
/// prctl(2).
pub fn give_up_new_privileges() -> Result<()> {
    nix::sys::prctl::set_no_new_privs().named("prctl", "PR_SET_NO_NEW_PRIVS")
}

/// Permits debuggers of the same user and core dumps after a change of user.
///
/// # Errors
/// prctl(2).
pub fn allow_dumps() -> Result<()> {
    nix::sys::prctl::set_dumpable(true).named("prctl", "PR_SET_DUMPABLE")
}

/// Forbids debuggers of the same user and core dumps, as a change of user does.
///
/// # Errors
/// prctl(2).
pub fn forbid_dumps() -> Result<()> {
    nix::sys::prctl::set_dumpable(false).named("prctl", "PR_SET_DUMPABLE")
}
