//! A daemon's base directory, which contains its work directories. A killed daemon leaves it behind with an unlocked
//! lock file, so the next daemon recognizes and removes it.

use forkyard_sys::dir::{self, names};
use forkyard_sys::{self as sys, lock, process};
use nix::errno::Errno;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

const RUN: &str = "/run/forkyard";
pub(super) const WORK: &str = "forkyard.spawn.";
const PREFIX: &str = "forkyard.work.";
const LOCK: &str = "lock";
const MOST_NAMES: usize = 65_536;
const MOMENT: Duration = Duration::from_secs(1);
/// Attempts to create a directory. Another daemon's sweep may remove one that is not locked yet.
const TRIES: usize = 8;

#[derive(Debug)]
pub(crate) struct Base {
    path: PathBuf,
    lock: OwnedFd,
}

/// The parent of base directories: `TMPDIR`, or for root `/run/forkyard`, or else `/tmp`.
pub fn parent() -> PathBuf {
    if std::env::var_os("TMPDIR").is_none() && sys::identity::is_root() {
        match dir::make_own(Path::new(RUN)) {
            Ok(()) => return PathBuf::from(RUN),
            Err(error) => log::warn!("work directories are made in /tmp: {error}"),
        }
    }
    std::env::temp_dir()
}

/// Creates a directory for a user. In `/run`, a mount limits its bytes and files. Temporary directories need no limit:
/// users can write there anyway.
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

pub(crate) fn unmount_given(path: &Path) {
    if path.starts_with(RUN) {
        dir::unmount(path);
    }
}

pub(crate) fn remove_given(path: &Path) {
    unmount_given(path);
    let _ = fs::remove_dir_all(path);
}

fn remove_whole(path: &Path) {
    let found = dir::open(path).and_then(|top| names(top.as_fd(), MOST_NAMES));
    for name in found.unwrap_or_default() {
        if name.as_encoded_bytes().starts_with(WORK.as_bytes()) {
            unmount_given(&path.join(name));
        }
    }
    let _ = fs::remove_dir_all(path);
}

impl Base {
    /// Creates a base directory that any user can traverse but not list.
    pub(crate) fn make(parent: &Path) -> sys::Result<Base> {
        for _ in 0..TRIES {
            let made = dir::make_temporary(parent, PREFIX)
                .and_then(|(path, top)| Ok((path, lock::create(top.as_fd(), LOCK)?, top)));
            let (path, file, top) = match made {
                Ok(made) => made,
                // A sweep removed it before it was locked.
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

    pub(crate) fn mark(&self) -> Option<&str> {
        self.path.file_name()?.to_str()?.strip_prefix(PREFIX)
    }

    pub(crate) fn marked(parent: &Path, mark: &str) -> PathBuf {
        parent.join(format!("{PREFIX}{mark}"))
    }

    /// Held until the removal, so that no other daemon removes it too.
    pub(crate) fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    pub(crate) fn remove(&self) {
        remove_whole(&self.path);
    }
}

/// Removes base directories of this user's dead daemons, each in a separate process, because removal may block.
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
            // Hold the lock until the removal, so that no other daemon removes it too.
            Ok(file) => {
                if lock::take(file.as_fd()) == Ok(true) {
                    one_by_one(&[file.as_fd()], || remove_whole(&path));
                }
            }
            // Still being created, or abandoned by its creator. It is empty in both cases.
            Err(_) => drop(fs::remove_dir(&path)),
        }
    }
}

/// Runs `work` in a separate process and waits briefly, so that a blocked removal doesn't delay others for long.
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
        // A directory is empty until its creator locks it.
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
