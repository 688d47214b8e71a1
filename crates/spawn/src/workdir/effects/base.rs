//! The directory of a daemon in which its work directories are made. A daemon that is killed leaves it behind, with whatever
//! applications have put there; the next daemon tells by a lock that its owner is gone, and removes it.

use crate::sys::dir::{self, names};
use crate::sys::{self, lock, process};
use nix::errno::Errno;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where root's daemons have theirs.
const RUN: &str = "/run/forkyard";
/// What the names of work directories begin with.
pub(super) const WORK: &str = "forkyard.spawn.";
/// What the names begin with.
const PREFIX: &str = "forkyard.work.";
/// The file that the owner has locked.
const LOCK: &str = "lock";
/// Most names that are looked at: a directory for temporary files is everybody's.
const MOST_NAMES: usize = 65_536;
/// How long the removal of one is waited for before the next.
const MOMENT: Duration = Duration::from_secs(1);
/// Tries to make one. Another daemon that sweeps at the same moment may take one that is not locked yet.
const TRIES: usize = 8;

/// The directory of this daemon.
#[derive(Debug)]
pub(crate) struct Base {
    path: PathBuf,
    /// Ends with the process, however that ends, and is inherited by none.
    lock: OwnedFd,
}

/// Where daemons of this user have their directories: where `TMPDIR` says, or root's in `/run/forkyard`, or in `/tmp`.
pub fn parent() -> PathBuf {
    if std::env::var_os("TMPDIR").is_none() && sys::identity::is_root() {
        match dir::make_own(Path::new(RUN)) {
            Ok(()) => return PathBuf::from(RUN),
            Err(error) => log::warn!("work directories are made in /tmp: {error}"),
        }
    }
    std::env::temp_dir()
}

/// Makes a directory that a user is given. In `/run`, which is the system's, no more than so many bytes and files fit into it; in
/// a directory for temporary files users can write anyway.
pub(crate) fn make_given(
    parent: &Path,
    prefix: &str,
    bytes: u64,
    files: u32,
) -> sys::Result<(PathBuf, OwnedFd)> {
    if parent.starts_with(RUN) {
        dir::make_temporary_bounded(parent, prefix, bytes, files)
    } else {
        dir::make_temporary(parent, prefix)
    }
}

/// Takes away what bounds one, with all that is in it.
pub(crate) fn unmount_given(path: &Path) {
    // Elsewhere users have mounts of their own.
    if path.starts_with(RUN) {
        dir::unmount(path);
    }
}

/// Removes one, whatever is in it. May wait.
pub(crate) fn remove_given(path: &Path) {
    unmount_given(path);
    let _ = fs::remove_dir_all(path);
}

/// Removes the directory of a daemon with its work directories. May wait.
fn remove_whole(path: &Path) {
    let found = dir::open(path).and_then(|top| names(top.as_fd(), MOST_NAMES));
    for name in found.unwrap_or_default() {
        if name.as_encoded_bytes().starts_with(WORK.as_bytes()) {
            unmount_given(&path.join(name));
        }
    }
    // What can't be removed the next daemon finds.
    let _ = fs::remove_dir_all(path);
}

impl Base {
    /// Makes one. Applications of all users can pass through it; no other user can list it.
    pub(crate) fn make(parent: &Path) -> sys::Result<Base> {
        for _ in 0..TRIES {
            let made = dir::make_temporary(parent, PREFIX)
                .and_then(|(path, top)| Ok((path, lock::create(top.as_fd(), LOCK)?, top)));
            let (path, file, top) = match made {
                Ok(made) => made,
                // Swept before it was opened or locked.
                Err(error) if error.errno == Errno::ENOENT && parent.exists() => continue,
                Err(error) => return Err(error),
            };
            if lock::take(file.as_fd())? {
                dir::let_pass(top.as_fd())?;
                return Ok(Base { path, lock: file });
            }
        }
        Err(sys::Error::new(
            "mkdtemp",
            parent.display().to_string(),
            Errno::EAGAIN,
        ))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What tells it from those of other daemons.
    pub(crate) fn mark(&self) -> Option<&str> {
        self.path.file_name()?.to_str()?.strip_prefix(PREFIX)
    }

    /// The one that has this mark, there or not.
    pub(crate) fn marked(parent: &Path, mark: &str) -> PathBuf {
        parent.join(format!("{PREFIX}{mark}"))
    }

    /// What is held until it is removed, so that no other daemon does the same.
    pub(crate) fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    /// Removes it, at the end of the daemon. May wait.
    pub(crate) fn remove(&self) {
        remove_whole(&self.path);
    }
}

/// Removes what daemons of this user that are gone have left. Each is removed by a process of its own, since that may wait.
pub(crate) fn sweep(parent: &Path) {
    let Ok(directory) = dir::open(parent) else {
        return;
    };
    let found = names(directory.as_fd(), MOST_NAMES).unwrap_or_default();
    for name in found.iter().filter_map(|name| name.to_str()) {
        if !name.starts_with(PREFIX) {
            continue;
        }
        let Ok(top) = dir::open_in(directory.as_fd(), name) else {
            continue;
        };
        if !dir::is_own(top.as_fd()) {
            continue;
        }
        let path = parent.join(OsStr::new(name));
        match lock::open(top.as_fd(), LOCK) {
            // Held until its directory is removed, so that no other daemon does the same.
            Ok(file) => {
                if lock::take(file.as_fd()) == Ok(true) {
                    one_by_one(&[file.as_fd()], || remove_whole(&path));
                }
            }
            // It is being made at this moment, or its maker did not come further: it is empty then.
            Err(_) => drop(fs::remove_dir(&path)),
        }
    }
}

/// Has another process do this, and waits a moment for it: one that hangs holds the others up no longer.
pub(crate) fn one_by_one(keep: &[BorrowedFd<'_>], work: impl FnOnce()) {
    if let Ok(pid) = process::leave_apart(keep, work) {
        process::reap_within(pid, MOMENT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_process_has_locked_is_removed_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        for name in ["forkyard.work.dead", "other.dead"] {
            fs::create_dir_all(at(name).join("forkyard.spawn.x/response")).unwrap();
            fs::write(at(name).join(LOCK), "").unwrap();
        }
        // As long as it is not locked by its maker it is empty.
        fs::create_dir(at("forkyard.work.young")).unwrap();
        fs::create_dir_all(at("forkyard.work.odd/x")).unwrap();
        sweep(parent.path());
        let mut left: Vec<_> = fs::read_dir(parent.path())
            .unwrap()
            .map(|it| it.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["forkyard.work.odd", "other.dead"]);
    }
}
