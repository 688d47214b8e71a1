//! Files that root opens, makes or changes in directories that others may be able to write to.

use super::error::{Error, Named, Result};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::{Gid, Uid, fchownat};
use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Opens a log to append to, and makes it if it is not there, readable by its owner alone. A
/// named pipe is not waited for.
///
/// In a directory that only root and this process' user can write to, a symbolic link is followed, as `/dev/stderr` is
/// one. Anywhere else someone might have put it there to have another file written to: then links are refused, symbolic
/// ones and hard ones.
///
/// # Errors
/// open(2)'s; `InvalidInput` with a text for a link that is refused.
pub fn open_log(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600);
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    options.custom_flags(flags);
    if is_guarded(path) {
        return options.open(path);
    }
    let file = options
        .custom_flags(flags | libc::O_NOFOLLOW)
        .open(path)
        .map_err(|error| {
            if error.raw_os_error() == Some(libc::ELOOP) {
                refused("a symbolic link")
            } else {
                error
            }
        })?;
    if file.metadata()?.is_file() && file.metadata()?.nlink() > 1 {
        return Err(refused("a file with several names"));
    }
    Ok(file)
}

fn refused(what: &str) -> io::Error {
    let text = format!("{what} in a directory that others can write to is not followed");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Whether only root and this process' user can put names into a file's directory.
fn is_guarded(path: &Path) -> bool {
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return true,
    };
    let own = Uid::effective().as_raw();
    std::fs::metadata(parent)
        .is_ok_and(|data| (data.uid() == 0 || data.uid() == own) && data.mode() & 0o022 == 0)
}

/// A name in the file system, held fast: whatever the name leads to later, this is still the same file. Opened for
/// nothing else (`O_PATH`); a symbolic link is not followed.
#[derive(Debug)]
pub struct Held {
    file: OwnedFd,
    subject: String,
}

impl Held {
    /// Takes hold of what is at `path`.
    ///
    /// # Errors
    /// `open`, with the path.
    pub fn open(path: &Path) -> Result<Held> {
        let subject = path.display().to_string();
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = open(path, flags, Mode::empty()).named("open", &subject)?;
        Ok(Held { file, subject })
    }

    /// Device and inode of a socket; `None` for anything else.
    pub fn socket_identity(&self) -> Option<(u64, u64)> {
        self.identity(SFlag::S_IFSOCK)
    }

    /// Whether it is a directory and no link to one.
    pub fn is_directory(&self) -> bool {
        self.identity(SFlag::S_IFDIR).is_some()
    }

    fn identity(&self, kind: SFlag) -> Option<(u64, u64)> {
        let data = fstat(&self.file).ok()?;
        let is_kind = data.st_mode & SFlag::S_IFMT.bits() == kind.bits();
        is_kind.then_some((data.st_dev, data.st_ino))
    }

    /// Changes owner and group, where given.
    ///
    /// # Errors
    /// `chown`, with the path.
    pub fn change_owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        fchownat(&self.file, c"" as &CStr, uid, gid, AtFlags::AT_EMPTY_PATH).named("chown", &self.subject)
    }

    /// Changes the permission bits.
    ///
    /// # Errors
    /// `chmod`, with the path.
    pub fn change_mode(&self, mode: u32) -> Result<()> {
        // fchmod(2) refuses what was opened with O_PATH; the name below leads to the very file.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(self.path(), mode).map_err(|e| Error::from_io("chmod", &self.subject, &e))
    }

    /// A name that leads to this very file as long as this is held.
    pub fn path(&self) -> std::path::PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }

    /// What it was found as.
    pub fn subject(&self) -> &str {
        &self.subject
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Opens a file below an open directory, to read or to write.
pub fn open_at(directory: &File, name: &str, write: bool) -> Result<File> {
    let access = if write { OFlag::O_WRONLY } else { OFlag::O_RDONLY };
    let flags = access | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    nix::fcntl::openat(directory, name, flags, Mode::empty())
        .named("openat", name)
        .map(File::from)
}

/// Whether an error says that the kernel or the file system lacks something.
pub fn is_missing_support(errno: Errno) -> bool {
    matches!(errno, Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::ENODEV)
}

#[cfg(test)]
mod tests {
    use super::{Held, open_log};
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn directory(mode: u32) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
        dir
    }

    #[test]
    fn in_a_directory_of_others_no_link_is_followed() {
        let dir = directory(0o777);
        let target = dir.path().join("target");
        fs::write(&target, "precious").unwrap();
        symlink(&target, dir.path().join("soft")).unwrap();
        fs::hard_link(&target, dir.path().join("hard")).unwrap();
        for name in ["soft", "hard"] {
            let error = open_log(&dir.path().join(name)).unwrap_err();
            assert!(error.to_string().contains("not followed"), "{name}: {error}");
        }
        // Where the link leads nowhere nothing is made at its end.
        symlink(dir.path().join("nowhere"), dir.path().join("dangling")).unwrap();
        assert!(open_log(&dir.path().join("dangling")).is_err());
        assert!(!dir.path().join("nowhere").exists());
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
        open_log(&dir.path().join("fresh"))
            .unwrap()
            .write_all(b"x")
            .unwrap();
        let mode = fs::metadata(dir.path().join("fresh"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn in_a_guarded_directory_a_link_is_what_its_owner_wants() {
        let dir = directory(0o755);
        symlink(dir.path().join("real"), dir.path().join("link")).unwrap();
        open_log(&dir.path().join("link"))
            .unwrap()
            .write_all(b"x")
            .unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("real")).unwrap(), "x");
        open_log(std::path::Path::new("/dev/stderr")).unwrap();
    }

    #[test]
    fn what_is_held_is_changed_and_not_what_took_its_name() {
        let dir = directory(0o755);
        let (path, other) = (dir.path().join("file"), dir.path().join("other"));
        fs::write(&path, "").unwrap();
        fs::write(&other, "").unwrap();
        let held = Held::open(&path).unwrap();
        fs::rename(&path, dir.path().join("moved")).unwrap();
        symlink(&other, &path).unwrap();
        held.change_mode(0o604).unwrap();
        held.change_owner(None, None).unwrap();
        let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("moved"), 0o604);
        assert_ne!(mode("other"), 0o604);
        assert!(Held::open(&path).unwrap().socket_identity().is_none());
    }
}
