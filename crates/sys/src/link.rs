//! Symbolic links in a directory that another user may write to.

use super::beneath::{FileForm, entry_in, entry_of};
use super::error::{Error, Named, Result};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchownat, symlinkat, unlinkat};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// Returns a link's target in its written form.
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
    let given = owner.map_or(Ok(()), |owner| give(directory, &new, owner));
    let put =
        given.and_then(|()| renameat(directory, new.as_os_str(), directory, name).named("rename", &subject));
    if put.is_err() {
        let _ = unlinkat(directory, new.as_os_str(), UnlinkatFlags::NoRemoveDir);
    }
    put
}

/// Gives a link to a user and group. The directory's owner can put another file in its place: the opened file is checked.
fn give(directory: BorrowedFd<'_>, name: &OsStr, (uid, gid): (u32, u32)) -> Result<()> {
    let subject = name.to_string_lossy();
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let link = openat(directory, name, flags, Mode::empty()).named("openat", &subject)?;
    let entry = entry_of(link.as_fd())?;
    if entry.form != FileForm::Link || entry.names != 1 {
        return Err(Error::new("lchown", subject, Errno::EPERM));
    }
    let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    fchownat(link.as_fd(), "", uid, gid, AtFlags::AT_EMPTY_PATH).named("lchown", &subject)
}

/// Removes a link.
///
/// # Errors
/// EINVAL if it is no link; unlinkat(2).
pub fn remove(directory: BorrowedFd<'_>, name: &OsStr) -> Result<()> {
    read(directory, name)?;
    unlinkat(directory, name, UnlinkatFlags::NoRemoveDir).named("unlink", &name.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beneath::open_exactly;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn a_link_gets_its_owner_and_a_file_in_its_place_does_not() {
        let place = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(place.path()).unwrap();
        fs::write(base.join("file"), "").unwrap();
        symlink("x", base.join("one")).unwrap();
        fs::hard_link(base.join("one"), base.join("two")).unwrap();
        let directory = open_exactly(&base).unwrap();
        let directory = directory.as_fd();
        let own = fs::metadata(&base).unwrap();
        // Only root can give files away.
        let owner = match own.uid() {
            0 => (33, 33),
            uid => (uid, own.gid()),
        };
        for name in ["file", "one", "two"].map(OsStr::new) {
            assert_eq!(give(directory, name, owner).unwrap_err().errno, Errno::EPERM);
        }
        put(directory, OsStr::new("link"), Path::new("file"), Some(owner)).unwrap();
        let made = fs::symlink_metadata(base.join("link")).unwrap();
        assert_eq!((made.uid(), made.gid()), owner);
        assert_eq!(fs::metadata(base.join("file")).unwrap().uid(), own.uid());
    }
}
