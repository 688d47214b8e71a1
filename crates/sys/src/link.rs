//! Symbolic links in a directory that another user may write to.

use super::beneath::{FileForm, entry_in};
use super::error::{Error, Named, Result};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, readlinkat, renameat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchownat, symlinkat, unlinkat};
use std::ffi::{OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// Returns what a link names, as it is written there.
///
/// # Errors
/// ENOENT if it is missing, EINVAL if it is no link; readlinkat(2).
pub fn read(directory: BorrowedFd<'_>, name: &OsStr) -> Result<PathBuf> {
    readlinkat(directory, name)
        .map(PathBuf::from)
        .named("readlink", &name.to_string_lossy())
}

/// Makes a link, in place of another one, at once. `owner`: user and group that it belongs to.
///
/// # Errors
/// EEXIST if something other than a link has the name; symlinkat(2), fchownat(2), renameat(2).
pub fn put(directory: BorrowedFd<'_>, name: &OsStr, target: &Path, owner: Option<(u32, u32)>) -> Result<()> {
    let subject = name.to_string_lossy();
    if entry_in(directory, name).is_some_and(|entry| entry.form != FileForm::Link) {
        return Err(Error::new("symlink", subject.into_owned(), Errno::EEXIST));
    }
    let mut new = OsString::from(".");
    new.push(name);
    new.push(format!(".{}", std::process::id()));
    let _ = unlinkat(directory, new.as_os_str(), UnlinkatFlags::NoRemoveDir);
    symlinkat(target, directory, new.as_os_str()).named("symlink", &subject)?;
    let given = match owner {
        Some((uid, gid)) => fchownat(
            directory,
            new.as_os_str(),
            Some(Uid::from_raw(uid)),
            Some(Gid::from_raw(gid)),
            AtFlags::AT_SYMLINK_NOFOLLOW,
        )
        .named("lchown", &subject),
        None => Ok(()),
    };
    let put =
        given.and_then(|()| renameat(directory, new.as_os_str(), directory, name).named("rename", &subject));
    if put.is_err() {
        let _ = unlinkat(directory, new.as_os_str(), UnlinkatFlags::NoRemoveDir);
    }
    put
}

/// Removes a link.
///
/// # Errors
/// EINVAL if it is no link; unlinkat(2).
pub fn remove(directory: BorrowedFd<'_>, name: &OsStr) -> Result<()> {
    read(directory, name)?;
    unlinkat(directory, name, UnlinkatFlags::NoRemoveDir).named("unlink", &name.to_string_lossy())
}
