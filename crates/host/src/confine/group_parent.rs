//! Finds the parent of the pools' control groups: the daemon's own group, if it is delegated.
//!
//! A group that enables controllers for its children can't contain processes. The daemon therefore moves to a child
//! group `daemon`, and the pools' groups go to its sibling `pools`. In systemd that takes `Delegate=yes` and
//! `DelegateSubgroup=daemon`. A systemd without the latter starts each master in the group itself, which fails after a
//! kill, while workers still occupy `pools`. In that case no groups are used.

use forkyard_sys::process;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

const DAEMON: &str = "daemon";
const POOLS: &str = "pools";
const CONTROLLERS: [&str; 2] = ["cpu", "memory"];

/// Where groups can be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupParent {
    /// Below this group.
    Group(PathBuf),
    /// Nowhere, with the reason.
    Nowhere(String),
}

#[derive(Debug, thiserror::Error)]
enum NoParent {
    #[error("{path}: {1}", path = .0.display())]
    File(PathBuf, io::Error),
    #[error("{path} has no controller {1}", path = .0.display())]
    NoController(PathBuf, &'static str),
    #[error("the service manager could start no other master in {}; set DelegateSubgroup=daemon (systemd 254)", .0.display())]
    NoSubgroup(PathBuf),
    #[error("{} has processes of other programs; give the daemon its own group", .0.display())]
    Others(PathBuf),
    #[error("the kernel has no control groups of version 2")]
    NoGroups,
    #[error("control groups of version 2 are not mounted")]
    NotMounted,
}

/// Adds the file's name to an error.
fn of(path: &Path) -> impl FnOnce(io::Error) -> NoParent {
    |error| NoParent::File(path.to_owned(), error)
}

/// Finds and prepares the parent; may move the daemon to a child group. `is_followed`: a keeper or service manager
/// restarts the master.
pub fn find(is_followed: bool) -> GroupParent {
    prepare(is_followed).unwrap_or_else(|why| GroupParent::Nowhere(why.to_string()))
}

/// Removes the empty groups that [`find`] created.
pub fn leave(parent: &GroupParent) {
    if let GroupParent::Group(pools) = parent {
        let _ = fs::remove_dir(pools);
    }
}

fn prepare(is_followed: bool) -> Result<GroupParent, NoParent> {
    let read = |path: &Path| fs::read_to_string(path).map_err(of(path));
    let own = own_group(
        &read(Path::new("/proc/self/cgroup"))?,
        &read(Path::new("/proc/self/mountinfo"))?,
    )?;
    let is_apart = own.file_name().is_some_and(|name| name == DAEMON);
    let base = if is_apart {
        own.parent().unwrap_or(&own)
    } else {
        &own
    };
    let there = read(&base.join("cgroup.controllers"))?;
    let missing = CONTROLLERS
        .iter()
        .find(|wanted| there.split_whitespace().all(|it| it != **wanted));
    if let Some(missing) = missing {
        return Err(NoParent::NoController(base.to_owned(), missing));
    }
    // The root group may contain processes and has no type.
    if !is_apart && base.join("cgroup.type").exists() {
        if is_followed && !is_keeper(std::os::unix::process::parent_id()) {
            return Err(NoParent::NoSubgroup(base.to_owned()));
        }
        move_apart(base)?;
    }
    let pools = base.join(POOLS);
    create(&pools)?;
    for group in [base, &pools] {
        let file = group.join("cgroup.subtree_control");
        let all = CONTROLLERS.map(|name| format!("+{name}")).join(" ");
        fs::write(&file, all).map_err(of(&file))?;
    }
    Ok(GroupParent::Group(pools))
}

fn create(group: &Path) -> Result<(), NoParent> {
    match fs::create_dir(group) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(of(group)(error)),
        _ => Ok(()),
    }
}

/// Does nothing if the group has other processes.
fn move_apart(base: &Path) -> Result<(), NoParent> {
    let file = base.join("cgroup.procs");
    let members = fs::read_to_string(&file).map_err(of(&file))?;
    let members: Vec<u32> = members.lines().filter_map(|pid| pid.parse().ok()).collect();
    let (own, keeper) = (std::process::id(), std::os::unix::process::parent_id());
    let is_ours = |pid: u32| [own, keeper].contains(&pid) || [own, keeper].map(Some).contains(&parent(pid));
    let keeps = |pid: u32| pid == own || parent(pid) == Some(own) || is_keeper(pid);
    if !members.iter().all(|pid| is_ours(*pid) && keeps(*pid)) {
        return Err(NoParent::Others(base.to_owned()));
    }
    let daemon = base.join(DAEMON);
    create(&daemon)?;
    let entrance = daemon.join("cgroup.procs");
    for pid in members {
        match fs::write(&entrance, pid.to_string()) {
            // The process has exited.
            Err(error) if error.raw_os_error() != Some(nix::errno::Errno::ESRCH as i32) => {
                return Err(of(&entrance)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn is_keeper(pid: u32) -> bool {
    let program = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    program(pid).is_some_and(|other| Some(other) == program(std::process::id()))
}

fn parent(pid: u32) -> Option<u32> {
    u32::try_from(process::parent(i32::try_from(pid).ok()?)?).ok()
}

fn own_group(groups: &str, mounts: &str) -> Result<PathBuf, NoParent> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let path = path.ok_or(NoParent::NoGroups)?;
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let kind = fields
            .iter()
            .position(|field| *field == "-")
            .and_then(|at| fields.get(at + 1));
        let (Some(&"cgroup2"), Some(root), Some(mount)) = (kind, fields.get(3), fields.get(4)) else {
            continue;
        };
        if let Ok(rest) = Path::new(path).strip_prefix(root) {
            let mount = Path::new(mount);
            return Ok(if rest.as_os_str().is_empty() {
                mount.to_owned()
            } else {
                mount.join(rest)
            });
        }
    }
    Err(NoParent::NotMounted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_below_its_mount() {
        let mounts = "25 1 0:22 / /sys rw - sysfs sysfs rw\n\
                      31 25 0:27 /user /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n\
                      32 25 0:27 / /sys/fs/all rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        for (path, group) in [
            ("/user/a", "/sys/fs/cgroup/a"),
            ("/user", "/sys/fs/cgroup"),
            ("/system/b", "/sys/fs/all/system/b"),
        ] {
            let found = own_group(&format!("9:pids:/x\n0::{path}\n"), mounts);
            assert_eq!(found.unwrap(), Path::new(group));
        }
        let without = own_group("9:pids:/x\n", mounts);
        assert!(matches!(without, Err(NoParent::NoGroups)));
        assert!(matches!(own_group("0::/x\n", ""), Err(NoParent::NotMounted)));
    }
}
