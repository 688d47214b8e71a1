//! Files that root opens, creates or changes in directories that others may write to.

use super::entry::HeldEntry;
use super::error::{Error, Named, Result};
use super::process::{self, Finding};
use super::{dir, identity, mounts};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::{Gid, Uid, fchown, fchownat};
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Device, inode and modification time (nanoseconds since 1970), links followed.
pub fn stamp(path: &Path) -> Option<(u64, u64, i64)> {
    let stat = nix::sys::stat::stat(path).ok()?;
    let seconds = stat.st_mtime.saturating_mul(1_000_000_000);
    Some((
        stat.st_dev,
        stat.st_ino,
        seconds.saturating_add(stat.st_mtime_nsec),
    ))
}

/// Identity, size and time of a file; links are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileState {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl FileState {
    /// The state of the file at this path; `None` if it can't be read.
    pub fn of(path: &Path) -> Option<FileState> {
        let file = std::fs::metadata(path).ok()?;
        Some(FileState {
            device: file.dev(),
            inode: file.ino(),
            bytes: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
        })
    }
}

/// Returns the path without links; `None` if something on it is missing or not to be searched.
pub fn resolved(path: &Path) -> Option<std::path::PathBuf> {
    path.canonicalize().ok()
}

/// Returns the path of a file without links. If the path is none, its longest existing part counts; `None`: that is a directory.
pub fn existing_file(path: &Path) -> Option<std::path::PathBuf> {
    let is_missing = |error: &io::Error| {
        matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
        )
    };
    path.ancestors().find_map(|part| match part.canonicalize() {
        Ok(real) => Some((!real.is_dir()).then_some(real)),
        Err(error) if is_missing(&error) => None,
        Err(_) => Some(None),
    })?
}

/// A standard stream used as a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnStream {
    Output,
    Error,
}

impl OwnStream {
    /// Returns the stream that a log's path names, directly or through any link: such a link can't redirect writes to
    /// another file.
    pub fn of_log(path: &Path) -> Option<OwnStream> {
        match path.to_str() {
            Some("/dev/fd/1") => Some(OwnStream::Output),
            Some("/dev/fd/2") => Some(OwnStream::Error),
            _ => OwnStream::named(path.as_os_str()).or_else(|| {
                let entry = HeldEntry::locate(path).ok()?;
                OwnStream::named(&entry.link_text()?)
            }),
        }
    }

    fn named(text: &OsStr) -> Option<OwnStream> {
        match text.to_str()? {
            "/dev/stdout" | "/proc/self/fd/1" => Some(OwnStream::Output),
            "/dev/stderr" | "/proc/self/fd/2" => Some(OwnStream::Error),
            _ => None,
        }
    }

    /// Opening the stream by name would start at offset 0 of a file, and fails for sockets and other users' pipes.
    fn copy(self) -> io::Result<File> {
        let copied = match self {
            OwnStream::Output => io::stdout().as_fd().try_clone_to_owned(),
            OwnStream::Error => io::stderr().as_fd().try_clone_to_owned(),
        };
        copied.map(File::from)
    }
}

/// Opens a log for appending; creates it with mode 0600. Doesn't block on a FIFO. May return a standard stream
/// ([`OwnStream::of_log`]).
///
/// Rejects symbolic and hard links if other users can write to a directory on the way.
///
/// # Errors
/// open(2); `InvalidInput` with a message for a rejected link.
pub fn open_log(path: &Path) -> io::Result<File> {
    if let Some(stream) = OwnStream::of_log(path) {
        return stream.copy();
    }
    let entry = HeldEntry::resolve(path)?;
    let file = File::from(entry.open(append() | OFlag::O_CREAT, OWNER)?);
    let data = file.metadata()?;
    if !entry.is_guarded() && data.is_file() && data.nlink() > 1 {
        let text = "a file with several names in a directory that others can write to is not written to";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(file)
}

/// Opens a tenant's log; as root in a child with a deadline.
///
/// # Errors
/// As `open`; `TimedOut` after the deadline.
pub fn open_in_time(whose: &str, open: impl FnOnce() -> io::Result<File>) -> io::Result<File> {
    if !identity::is_root() {
        return open();
    }
    let refused = "it is on a file system that a user has mounted; move it";
    let finding = process::within_a_moment(whose, || match open() {
        // Writes to a user's file system could block forever.
        Ok(file) if mounts::is_users_own(file.as_fd()) == Ok(true) => {
            Finding::from(refused.as_bytes().to_vec())
        }
        Ok(file) => Finding {
            bytes: Vec::new(),
            descriptors: vec![file.into()],
        },
        Err(error) => match error.raw_os_error() {
            Some(errno) => Finding::from(errno.to_string().into_bytes()),
            None => Finding::from(error.to_string().into_bytes()),
        },
    });
    let late = || {
        io::Error::new(
            io::ErrorKind::TimedOut,
            "it can't be opened in time: a file system on its path does not answer",
        )
    };
    let mut finding = finding.ok_or_else(late)?;
    if let Some(file) = finding.descriptors.pop() {
        return Ok(file.into());
    }
    let text = String::from_utf8_lossy(&finding.bytes).into_owned();
    Err(match text.parse() {
        Ok(errno) => io::Error::from_raw_os_error(errno),
        Err(_) => io::Error::new(io::ErrorKind::InvalidInput, text),
    })
}

/// Like [`open_log`]; sets owner and group of a new log.
///
/// # Errors
/// As [`open_log`].
pub fn open_log_for(path: &Path, uid: u32, gid: u32) -> io::Result<File> {
    if OwnStream::of_log(path).is_none() {
        let entry = HeldEntry::resolve(path)?;
        if let Ok(file) = entry.open(append() | OFlag::O_CREAT | OFlag::O_EXCL, OWNER) {
            return give(file, uid, gid);
        }
    }
    open_log(path)
}

/// Opens a log for appending in a directory that its owner controls. Accepts and creates only the owner's files, so
/// root writes nothing that the owner could not.
///
/// # Errors
/// open(2); `InvalidInput` with a message for another owner.
pub fn open_owned_log(path: &Path, uid: u32, gid: u32) -> io::Result<File> {
    let refused = |text: &str| io::Error::new(io::ErrorKind::InvalidInput, text);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(refused("it is no path of a file"));
    };
    let way = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let directory = open(parent, way | OFlag::O_DIRECTORY, Mode::empty())?;
    let found = match openat(&directory, name, way | OFlag::O_NOFOLLOW, Mode::empty()) {
        Ok(found) => found,
        Err(Errno::ENOENT) => {
            if fstat(&directory)?.st_uid != uid {
                return Err(refused("the directory is not the application user's"));
            }
            let flags = append() | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
            return give(openat(&directory, name, flags, OWNER)?, uid, gid);
        }
        Err(errno) => return Err(errno.into()),
    };
    let data = fstat(&found)?;
    if dir::kind(&data) != SFlag::S_IFREG || data.st_uid != uid || data.st_nlink != 1 {
        return Err(refused(
            "it is no plain file of the application's user, with one name",
        ));
    }
    let held = format!("/proc/self/fd/{}", found.as_raw_fd());
    Ok(File::from(open(
        held.as_str(),
        append() | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?))
}

fn append() -> OFlag {
    OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_NONBLOCK | OFlag::O_NOCTTY
}

const OWNER: Mode = Mode::S_IRUSR.union(Mode::S_IWUSR);

fn give(file: OwnedFd, uid: u32, gid: u32) -> io::Result<File> {
    if Uid::effective().is_root() {
        fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    Ok(File::from(file))
}

/// Replaces a file or link, with mode 0644.
///
/// # Errors
/// open(2) and write(2).
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let entry = HeldEntry::locate(path)?;
    match entry.remove() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
    let mut file = File::from(entry.open(flags, Mode::from_bits_truncate(0o644))?);
    file.write_all(bytes)
}

/// Removes a name; follows trusted links only.
///
/// # Errors
/// unlink(2).
pub fn remove(path: &Path) -> io::Result<()> {
    HeldEntry::locate(path)?.remove()
}

/// A pinned file (`O_PATH`), whatever its name leads to later. Doesn't follow symbolic links.
#[derive(Debug)]
pub struct Held {
    file: OwnedFd,
    subject: String,
}

impl Held {
    /// Pins the file at `path`.
    ///
    /// # Errors
    /// `open`, with the path.
    pub fn open(path: &Path) -> Result<Held> {
        let entry = HeldEntry::locate(path)
            .map_err(|error| Error::from_io("open", path.display().to_string(), &error))?;
        Held::of(&entry, path)
    }

    /// Pins the file of an entry.
    ///
    /// # Errors
    /// `open`, with the path.
    pub fn of(entry: &HeldEntry, path: &Path) -> Result<Held> {
        let subject = path.display().to_string();
        let opened = entry.open(OFlag::O_PATH | OFlag::O_NOFOLLOW, Mode::empty());
        let file = opened.map_err(|error| Error::from_io("open", &subject, &error))?;
        Ok(Held { file, subject })
    }

    /// Device and inode of a socket; `None` for any other file.
    pub fn socket_identity(&self) -> Option<(u64, u64)> {
        self.identity(SFlag::S_IFSOCK)
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.identity(SFlag::S_IFDIR).is_some()
    }

    fn identity(&self, kind: SFlag) -> Option<(u64, u64)> {
        let data = fstat(&self.file).ok()?;
        (dir::kind(&data) == kind).then_some((data.st_dev, data.st_ino))
    }

    /// Changes owner and group, if given.
    ///
    /// # Errors
    /// `chown`, with the path.
    pub fn change_owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        fchownat(&self.file, c"" as &CStr, uid, gid, AtFlags::AT_EMPTY_PATH).named("chown", &self.subject)
    }

    /// Changes the permission bits through /proc: fchmod(2) rejects `O_PATH`.
    ///
    /// # Errors
    /// `chmod`, with the path.
    pub fn change_mode(&self, mode: u32) -> Result<()> {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(self.path(), mode).map_err(|e| Error::from_io("chmod", &self.subject, &e))
    }

    /// A path to the pinned file, valid while this value lives.
    pub fn path(&self) -> std::path::PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }

    /// The path it was opened with.
    pub fn subject(&self) -> &str {
        &self.subject
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Opens a file in a directory for reading or writing.
///
/// # Errors
/// openat(2).
pub fn open_at(directory: &File, name: &str, write: bool) -> Result<File> {
    let access = if write { OFlag::O_WRONLY } else { OFlag::O_RDONLY };
    let flags = access | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    nix::fcntl::openat(directory, name, flags, Mode::empty())
        .named("openat", name)
        .map(File::from)
}

/// Whether the kernel or the file system lacks a feature.
pub fn is_missing_support(errno: Errno) -> bool {
    matches!(errno, Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::ENODEV)
}

#[cfg(test)]
mod tests {
    use super::{Held, open_log, open_owned_log};
    use nix::unistd::Uid;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

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
            assert!(
                error.to_string().contains("others can write to"),
                "{name}: {error}"
            );
        }
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
    fn a_link_to_a_standard_stream_is_that_stream_in_any_directory() {
        let dir = directory(0o777);
        let own = |fd: i32| fs::metadata(format!("/proc/self/fd/{fd}")).unwrap();
        let identity = |data: fs::Metadata| (data.dev(), data.ino());
        for (number, (text, fd)) in [
            ("/dev/stdout", 1),
            ("/dev/stderr", 2),
            ("/proc/self/fd/1", 1),
            ("/proc/self/fd/2", 2),
        ]
        .into_iter()
        .enumerate()
        {
            let link = dir.path().join(number.to_string());
            symlink(text, &link).unwrap();
            for path in [link.as_path(), std::path::Path::new(text)] {
                let opened = open_log(path).unwrap().metadata().unwrap();
                assert_eq!(identity(opened), identity(own(fd)), "{}", path.display());
            }
        }
        for text in [
            "/dev/./stderr",
            "/dev/stderr/",
            "../dev/stderr",
            "/proc/1/fd/2",
            "/dev/null",
        ] {
            let link = dir.path().join("other");
            let _ = fs::remove_file(&link);
            symlink(text, &link).unwrap();
            let error = open_log(&link).unwrap_err();
            assert!(
                error.to_string().contains("others can write to"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn an_owner_s_log_is_a_plain_file_of_the_owner_s() {
        let dir = directory(0o777);
        let (uid, gid) = (Uid::effective().as_raw(), nix::unistd::Gid::effective().as_raw());
        let path = |name: &str| dir.path().join(name);
        for text in ["one ", "two"] {
            let mut file = open_owned_log(&path("log"), uid, gid).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(path("log")).unwrap(), "one two");
        symlink(path("log"), path("soft")).unwrap();
        nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for name in ["soft", "fifo", "."] {
            assert!(open_owned_log(&path(name), uid, gid).is_err(), "{name}");
        }
        for name in ["log", "new"] {
            assert!(open_owned_log(&path(name), uid + 1, gid).is_err(), "{name}");
        }
        assert!(!path("new").exists());
        fs::hard_link(path("log"), path("hard")).unwrap();
        assert!(open_owned_log(&path("hard"), uid, gid).is_err());
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
