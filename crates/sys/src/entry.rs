//! A directory entry, reached component by component.
//!
//! Another user with write access to a directory on the way could plant a symbolic link and redirect root's logs, pid files
//! and sockets. A link is therefore followed only if no other user can write to the directories so far.

use super::dir::kind;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::{Uid, UnlinkatFlags, unlinkat};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// As in the kernel.
const MOST_LINKS: usize = 40;

/// An open directory and a name in it.
#[derive(Debug)]
pub struct HeldEntry {
    directory: OwnedFd,
    name: OsString,
    is_guarded: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Own,
    /// Users can't replace each other's entries (sticky bit).
    Sticky,
    Others,
}

impl HeldEntry {
    /// Walks to the last component's directory through trusted links only.
    ///
    /// # Errors
    /// openat(2); `InvalidInput` with a message for a rejected link.
    pub fn locate(path: &Path) -> io::Result<HeldEntry> {
        HeldEntry::walk(path, false)
    }

    /// Like [`HeldEntry::locate`], but also follows a trusted final link.
    ///
    /// # Errors
    /// As [`HeldEntry::locate`].
    pub fn resolve(path: &Path) -> io::Result<HeldEntry> {
        HeldEntry::walk(path, true)
    }

    fn walk(path: &Path, follows_last: bool) -> io::Result<HeldEntry> {
        let mut walk = Walk::begin(path)?;
        let mut links = 0;
        while let Some(name) = walk.rest.pop_front() {
            let is_last = walk.rest.is_empty();
            if is_last && !follows_last {
                return Ok(walk.end(name));
            }
            let Some(stat) = stat_at(walk.directory.as_fd(), &name, is_last)? else {
                return Ok(walk.end(name));
            };
            match kind(&stat) {
                SFlag::S_IFLNK if walk.is_in_proc() => {
                    if is_last {
                        return Ok(walk.end(name));
                    }
                    walk.enter(&name, OFlag::empty())?;
                }
                SFlag::S_IFLNK if walk.access == Access::Own => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(Errno::ELOOP.into());
                    }
                    walk.follow(&name)?;
                }
                SFlag::S_IFLNK => return Err(refused(&walk.subject(&name))),
                _ if is_last => return Ok(walk.end(name)),
                _ => walk.enter(&name, OFlag::O_NOFOLLOW)?,
            }
        }
        Err(Errno::EISDIR.into())
    }

    /// Whether only root and this user can write to all directories on the way.
    pub fn is_guarded(&self) -> bool {
        self.is_guarded
    }

    /// Removes the name.
    ///
    /// # Errors
    /// unlinkat(2).
    pub fn remove(&self) -> io::Result<()> {
        unlinkat(&self.directory, self.name.as_os_str(), UnlinkatFlags::NoRemoveDir)?;
        Ok(())
    }

    /// Returns a symbolic link's target, `None` for other files.
    pub fn link_text(&self) -> Option<OsString> {
        readlinkat(&self.directory, self.name.as_os_str()).ok()
    }

    /// Returns the file's status; does not follow links.
    ///
    /// # Errors
    /// fstatat(2).
    pub fn stat(&self) -> io::Result<FileStat> {
        Ok(fstatat(
            &self.directory,
            self.name.as_os_str(),
            AtFlags::AT_SYMLINK_NOFOLLOW,
        )?)
    }

    /// Opens or creates the file. Rejects a link in another user's directory.
    ///
    /// # Errors
    /// openat(2); `InvalidInput` with a message for a rejected link.
    pub fn open(&self, flags: OFlag, mode: Mode) -> io::Result<OwnedFd> {
        // Only in /proc the final link is not resolved yet: only the kernel can.
        let is_magic = self.is_guarded && is_in_proc(self.directory.as_fd());
        let nofollow = if is_magic {
            OFlag::empty()
        } else {
            OFlag::O_NOFOLLOW
        };
        openat(
            &self.directory,
            self.name.as_os_str(),
            flags | nofollow | OFlag::O_CLOEXEC,
            mode,
        )
        .map_err(|errno| match errno {
            Errno::ELOOP => refused(&self.subject()),
            errno => errno.into(),
        })
    }

    fn subject(&self) -> PathBuf {
        subject(&self.directory, &self.name)
    }
}

struct Walk {
    directory: OwnedFd,
    access: Access,
    rest: VecDeque<OsString>,
}

impl Walk {
    fn begin(path: &Path) -> io::Result<Walk> {
        let start = if path.is_absolute() { "/" } else { "." };
        let directory = openat(nix::fcntl::AT_FDCWD, start, directory_flags(), Mode::empty())?;
        Ok(Walk {
            access: access(&fstat(&directory)?),
            directory,
            rest: components(path),
        })
    }

    fn end(self, name: OsString) -> HeldEntry {
        HeldEntry {
            is_guarded: self.access == Access::Own,
            directory: self.directory,
            name,
        }
    }

    fn enter(&mut self, name: &OsStr, nofollow: OFlag) -> io::Result<()> {
        let next = openat(&self.directory, name, directory_flags() | nofollow, Mode::empty())?;
        let stat = fstat(&next)?;
        self.access = match (self.access, access(&stat)) {
            (Access::Others, _) => Access::Others,
            // The sticky bit protects entries of root and this user.
            (Access::Sticky, _) if !is_own(&stat) => Access::Others,
            (_, next) => next,
        };
        self.directory = next;
        Ok(())
    }

    fn follow(&mut self, name: &OsStr) -> io::Result<()> {
        let target = PathBuf::from(readlinkat(&self.directory, name)?);
        if target.is_absolute() {
            let start = Walk::begin(Path::new("/"))?;
            (self.directory, self.access) = (start.directory, start.access);
        }
        for component in components(&target).into_iter().rev() {
            self.rest.push_front(component);
        }
        Ok(())
    }

    fn is_in_proc(&self) -> bool {
        self.access == Access::Own && is_in_proc(self.directory.as_fd())
    }

    fn subject(&self, name: &OsStr) -> PathBuf {
        subject(&self.directory, name)
    }
}

fn components(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        })
        .collect()
}

fn directory_flags() -> OFlag {
    OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC
}

/// `None` if it is missing and `may_miss`.
fn stat_at(directory: BorrowedFd<'_>, name: &OsStr, may_miss: bool) -> io::Result<Option<FileStat>> {
    match fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::ENOENT) if may_miss => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn is_own(stat: &FileStat) -> bool {
    stat.st_uid == 0 || stat.st_uid == Uid::effective().as_raw()
}

fn access(stat: &FileStat) -> Access {
    match (
        is_own(stat),
        stat.st_mode & 0o022 == 0,
        stat.st_mode & libc::S_ISVTX != 0,
    ) {
        (true, true, _) => Access::Own,
        (true, false, true) => Access::Sticky,
        _ => Access::Others,
    }
}

fn is_in_proc(directory: BorrowedFd<'_>) -> bool {
    fstatfs(directory).is_ok_and(|system| system.filesystem_type() == PROC_SUPER_MAGIC)
}

fn subject(directory: &OwnedFd, name: &OsStr) -> PathBuf {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    path.unwrap_or_default().join(name)
}

fn refused(path: &Path) -> io::Error {
    let text = format!(
        "{} is a symbolic link in a directory that others can write to: it is not followed",
        path.display()
    );
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use super::HeldEntry;
    use nix::fcntl::OFlag;
    use nix::sys::stat::Mode;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    fn directory(path: &Path, mode: u32) {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn make(path: &Path) -> std::io::Result<()> {
        let entry = HeldEntry::resolve(path)?;
        entry
            .open(OFlag::O_WRONLY | OFlag::O_CREAT, Mode::S_IRUSR)
            .map(drop)
    }

    #[test]
    fn a_link_counts_only_where_every_directory_so_far_is_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        directory(&base.join("target"), 0o755);
        directory(&base.join("open"), 0o777);
        directory(&base.join("open/inner"), 0o755);
        directory(&base.join("closed"), 0o755);
        // (directory of the link, path, whether it is followed)
        let cases = [
            ("closed/logs", "closed/logs/a", true),
            ("open/logs", "open/logs/b", false),
            ("open/inner/logs", "open/inner/logs/c", false),
        ];
        for (link, path, is_followed) in cases {
            symlink(base.join("target"), base.join(link)).unwrap();
            let made = make(&base.join(path));
            assert_eq!(made.is_ok(), is_followed, "{path}: {made:?}");
            let name = Path::new(path).file_name().unwrap();
            assert_eq!(base.join("target").join(name).exists(), is_followed, "{path}");
        }
    }

    #[test]
    fn a_link_that_is_followed_leads_to_a_walk_with_the_same_rules() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        directory(&base.join("target"), 0o755);
        directory(&base.join("open"), 0o777);
        symlink("../target", base.join("open/relative")).unwrap();
        symlink("open/relative", base.join("over")).unwrap();
        assert!(make(&base.join("over/file")).is_err());
        symlink("target/../target", base.join("dots")).unwrap();
        make(&base.join("dots/file")).unwrap();
        symlink("target/later", base.join("last")).unwrap();
        make(&base.join("last")).unwrap();
        assert!(base.join("target/later").exists());
    }

    #[test]
    fn circles_and_what_is_missing_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        symlink("circle", dir.path().join("circle")).unwrap();
        for path in ["circle", "circle/a", "missing/a"] {
            assert!(make(&dir.path().join(path)).is_err(), "{path}");
        }
        assert!(HeldEntry::locate(Path::new("/")).is_err());
    }

    #[test]
    fn a_link_at_the_end_is_removed_and_not_its_target() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("target"), "").unwrap();
        symlink("target", dir.path().join("link")).unwrap();
        HeldEntry::locate(&dir.path().join("link"))
            .unwrap()
            .remove()
            .unwrap();
        assert!(dir.path().join("target").exists());
        assert!(fs::symlink_metadata(dir.path().join("link")).is_err());
    }

    #[test]
    fn links_of_proc_lead_to_open_files() {
        let entry = HeldEntry::resolve(Path::new("/dev/stderr")).unwrap();
        assert!(entry.is_guarded());
        entry.open(OFlag::O_WRONLY, Mode::empty()).unwrap();
    }

    #[test]
    fn a_directory_in_a_sticky_one_is_its_owners() {
        let dir = tempfile::tempdir().unwrap();
        directory(&dir.path().join("sticky"), 0o1777);
        let inner = dir.path().join("sticky/inner");
        directory(&inner, 0o755);
        assert!(HeldEntry::locate(&inner.join("file")).unwrap().is_guarded());
        assert!(
            !HeldEntry::locate(&dir.path().join("sticky/file"))
                .unwrap()
                .is_guarded()
        );
    }
}
