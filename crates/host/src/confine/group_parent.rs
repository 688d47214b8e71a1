//! Where the groups of pools are made that name none: in the daemon's own control group, if that is delegated to it.
//!
//! A group whose controllers are passed on may hold no process itself. So the daemon moves into a group `daemon` in it, and
//! the pools' are in `pools` beside that. With systemd that is what `Delegate=yes` and `DelegateSubgroup=daemon` are for. A
//! systemd that does not know the latter starts the daemon in the group itself: also the next one, after a kill, while workers
//! of the one before still hold `pools`. The kernel refuses that, so there are no groups then.

use crate::sys::process;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The daemon's own, in its group.
const DAEMON: &str = "daemon";
/// What holds the pools'.
const POOLS: &str = "pools";
/// What weights and limits are made of.
const CONTROLLERS: [&str; 2] = ["cpu", "memory"];

/// Where groups can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupParent {
    /// In this group.
    Group(PathBuf),
    /// Nowhere, and why.
    Nowhere(String),
}

/// Finds it, and gets it ready. The daemon may be in another group afterwards, below the one that it was in. `is_followed`: a
/// keeper or a service manager starts another master after a kill.
pub fn find(is_followed: bool) -> GroupParent {
    prepare(is_followed).unwrap_or_else(GroupParent::Nowhere)
}

/// Removes what [`find`] has made and is empty.
pub fn leave(parent: &GroupParent) {
    if let GroupParent::Group(pools) = parent {
        let _ = fs::remove_dir(pools);
    }
}

fn prepare(is_followed: bool) -> Result<GroupParent, String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let own = own_group(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?)?;
    let is_apart = own.file_name().is_some_and(|name| name == DAEMON);
    let base = if is_apart {
        own.parent().unwrap_or(&own)
    } else {
        &own
    };
    let said = |path: PathBuf| move |error: std::io::Error| format!("{}: {error}", path.display());
    let file = base.join("cgroup.controllers");
    let there = fs::read_to_string(&file).map_err(said(file))?;
    let missing = CONTROLLERS
        .iter()
        .find(|wanted| there.split_whitespace().all(|it| it != **wanted));
    if let Some(missing) = missing {
        return Err(format!("{} has no controller {missing}", base.display()));
    }
    // The root of all groups may hold processes, and has no type.
    if !is_apart && base.join("cgroup.type").exists() {
        if is_followed && !is_keeper(std::os::unix::process::parent_id()) {
            return Err(format!(
                "the service manager could start no other master in {}; set DelegateSubgroup=daemon (systemd 254)",
                base.display()
            ));
        }
        move_apart(base)?;
    }
    let pools = base.join(POOLS);
    match fs::create_dir(&pools) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(said(pools)(error)),
        _ => {}
    }
    for group in [base, &pools] {
        let file = group.join("cgroup.subtree_control");
        let all = CONTROLLERS.map(|name| format!("+{name}")).join(" ");
        fs::write(&file, all).map_err(said(file))?;
    }
    Ok(GroupParent::Group(pools))
}

/// Moves the daemon's processes into a group of their own. Others' are left alone: then nothing is done.
fn move_apart(base: &Path) -> Result<(), String> {
    let said = |path: &Path| {
        let path = path.to_owned();
        move |error: std::io::Error| format!("{}: {error}", path.display())
    };
    let file = base.join("cgroup.procs");
    let members = fs::read_to_string(&file).map_err(said(&file))?;
    let members: Vec<u32> = members.lines().filter_map(|pid| pid.parse().ok()).collect();
    let (own, keeper) = (std::process::id(), std::os::unix::process::parent_id());
    let is_ours = |pid: u32| [own, keeper].contains(&pid) || [own, keeper].map(Some).contains(&parent(pid));
    let keeps = |pid: u32| pid == own || parent(pid) == Some(own) || is_keeper(pid);
    if !members.iter().all(|pid| is_ours(*pid) && keeps(*pid)) {
        let base = base.display();
        return Err(format!(
            "{base} has processes of other programs; give the daemon its own group"
        ));
    }
    let daemon = base.join(DAEMON);
    match fs::create_dir(&daemon) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(said(&daemon)(error)),
        _ => {}
    }
    let entrance = daemon.join("cgroup.procs");
    for pid in members {
        match fs::write(&entrance, pid.to_string()) {
            // It has ended.
            Err(error) if error.raw_os_error() != Some(nix::errno::Errno::ESRCH as i32) => {
                return Err(said(&entrance)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether a process is the keeper above this one: it runs the same program.
fn is_keeper(pid: u32) -> bool {
    let program = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    program(pid).is_some_and(|other| Some(other) == program(std::process::id()))
}

fn parent(pid: u32) -> Option<u32> {
    u32::try_from(process::parent(i32::try_from(pid).ok()?)?).ok()
}

/// The directory of this process's group, by /proc/self/cgroup and /proc/self/mountinfo.
fn own_group(groups: &str, mounts: &str) -> Result<PathBuf, String> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let path = path.ok_or("the kernel has no control groups of version 2")?;
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
    Err("control groups of version 2 are not mounted".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_below_its_mount() {
        let mounts = "25 1 0:22 / /sys rw - sysfs sysfs rw\n\
                      31 25 0:27 /user /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n\
                      32 25 0:27 / /sys/fs/all rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        let of = |path: &str| own_group(&format!("9:pids:/x\n0::{path}\n"), mounts);
        assert_eq!(of("/user/a"), Ok("/sys/fs/cgroup/a".into()));
        assert_eq!(of("/user"), Ok("/sys/fs/cgroup".into()));
        assert_eq!(of("/system/b"), Ok("/sys/fs/all/system/b".into()));
        assert!(
            own_group("9:pids:/x\n", mounts)
                .unwrap_err()
                .contains("version 2")
        );
        assert!(own_group("0::/x\n", "").unwrap_err().contains("not mounted"));
    }
}
