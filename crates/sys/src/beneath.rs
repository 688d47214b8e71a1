//! Files below a directory that another user may write to. The directory is opened component by component without
//! following links, and every lookup starts from it.

use super::dir::first_bytes;
use super::error::{Error, Named, Result};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileForm {
    File,
    Directory,
    Link,
    /// FIFO, socket or device.
    Other,
}

/// A directory entry; symbolic links are not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub form: FileForm,
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
    /// Number of hard links.
    pub names: u64,
    /// Modification time in nanoseconds since 1970.
    pub modified: i128,
    pub inode: u64,
    /// Device number of the file system.
    pub device: u64,
}

/// The start of a regular file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Attributes of the opened file.
    pub entry: Entry,
    /// The first bytes.
    pub bytes: Vec<u8>,
    /// Whether the file is longer.
    pub more: bool,
}

const TRIES: usize = 4;

fn path_flags() -> OFlag {
    OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC
}

/// Opens a directory by an absolute path without links.
///
/// # Errors
/// ENOTDIR or ELOOP for a component that is not a directory; EINVAL for a relative path or `..`.
pub fn open_exactly(path: &Path) -> Result<OwnedFd> {
    let subject = path.display().to_string();
    let mut at = open("/", path_flags(), Mode::empty()).named("open", "/")?;
    let mut components = path.components();
    if components.next() != Some(Component::RootDir) {
        return Err(Error::new("open", subject, Errno::EINVAL));
    }
    for component in components {
        let Component::Normal(name) = component else {
            return Err(Error::new("open", subject, Errno::EINVAL));
        };
        at = openat(&at, name, path_flags(), Mode::empty()).named("openat", &subject)?;
    }
    Ok(at)
}

/// Opens a subdirectory; `None` if it is missing or a link.
pub fn directory_in(directory: BorrowedFd<'_>, name: &OsStr) -> Option<OwnedFd> {
    openat(directory, name, path_flags(), Mode::empty()).ok()
}

/// Returns the attributes of an open file.
///
/// # Errors
/// fstat(2).
pub fn entry_of(file: BorrowedFd<'_>) -> Result<Entry> {
    fstat(file).map(|stat| entry(&stat)).named("fstat", "")
}

/// Opens the working directory.
///
/// # Errors
/// open(2).
pub fn open_current() -> Result<OwnedFd> {
    open(".", path_flags(), Mode::empty()).named("open", ".")
}

/// Returns the entry at a path, `None` if lstat(2) fails.
pub fn entry_at(path: &Path) -> Option<Entry> {
    nix::sys::stat::lstat(path).ok().map(|stat| entry(&stat))
}

/// Returns the entry with this name, `None` if fstatat(2) fails.
pub fn entry_in(directory: BorrowedFd<'_>, name: &OsStr) -> Option<Entry> {
    let look = || fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok();
    // 0 links: replaced during the lookup.
    let stat = (0..TRIES).find_map(|_| look().filter(|stat| stat.st_nlink > 0));
    Some(entry(&stat.or_else(look)?))
}

/// Reads at most `most` bytes of a regular file; never blocks.
///
/// # Errors
/// EINVAL for another kind of file; openat(2), read(2).
pub fn read_in(directory: BorrowedFd<'_>, name: &OsStr, most: usize) -> Result<Content> {
    let subject = name.to_string_lossy().into_owned();
    let no_file = || Error::new("openat", subject.clone(), Errno::EINVAL);
    let before = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).named("fstatat", &subject)?;
    if entry(&before).form != FileForm::File {
        return Err(no_file());
    }
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
    let file = match openat(directory, name, flags, Mode::empty()) {
        Err(Errno::ELOOP) => return Err(no_file()),
        opened => opened.named("openat", &subject)?,
    };
    let entry = entry_of(file.as_fd())?;
    if entry.form != FileForm::File {
        return Err(no_file());
    }
    let (bytes, more) = first_bytes(file.as_fd(), most).named("read", &subject)?;
    Ok(Content { entry, bytes, more })
}

fn entry(stat: &FileStat) -> Entry {
    let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
    Entry {
        form: match kind {
            SFlag::S_IFREG => FileForm::File,
            SFlag::S_IFDIR => FileForm::Directory,
            SFlag::S_IFLNK => FileForm::Link,
            _ => FileForm::Other,
        },
        uid: stat.st_uid,
        gid: stat.st_gid,
        mode: stat.st_mode & 0o7777,
        #[allow(clippy::useless_conversion, reason = "not as wide on every architecture")]
        names: stat.st_nlink.into(),
        modified: i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec),
        inode: stat.st_ino,
        device: stat.st_dev,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_path_with_a_link_in_it_is_not_that_path() {
        let directory = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(directory.path()).unwrap();
        std::fs::create_dir_all(base.join("a/b")).unwrap();
        symlink(base.join("a"), base.join("link")).unwrap();
        symlink("loop", base.join("loop")).unwrap();
        std::fs::write(base.join("file"), "").unwrap();
        let inode = |fd: &OwnedFd| entry_of(fd.as_fd()).unwrap().inode;
        let right = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(base.join("a/b")).unwrap());
        assert_eq!(inode(&open_exactly(&base.join("a/b")).unwrap()), right);
        for wrong in ["link", "link/b", "loop", "file", "missing", "a/../a"] {
            assert!(open_exactly(&base.join(wrong)).is_err(), "{wrong}");
        }
        assert!(open_exactly(Path::new("tmp")).is_err());
    }

    #[test]
    fn nothing_but_a_regular_file_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let base = std::fs::canonicalize(directory.path()).unwrap();
        std::fs::write(base.join("file"), "abcdef").unwrap();
        symlink("file", base.join("link")).unwrap();
        nix::unistd::mkfifo(&base.join("fifo"), Mode::S_IRWXU).unwrap();
        let directory = open_exactly(&base).unwrap();
        let read = |name: &str, most| read_in(directory.as_fd(), OsStr::new(name), most);
        let whole = read("file", 6).unwrap();
        assert_eq!((whole.bytes.as_slice(), whole.more), (&b"abcdef"[..], false));
        let part = read("file", 3).unwrap();
        assert_eq!((part.bytes.as_slice(), part.more), (&b"abc"[..], true));
        for wrong in ["link", "fifo", "."] {
            assert_eq!(read(wrong, 3).unwrap_err().errno, Errno::EINVAL, "{wrong}");
        }
        assert_eq!(read("missing", 3).unwrap_err().errno, Errno::ENOENT);
        let form = |name: &str| entry_in(directory.as_fd(), OsStr::new(name)).map(|entry| entry.form);
        assert_eq!(
            [
                form("file"),
                form("link"),
                form("fifo"),
                form("."),
                form("missing")
            ],
            [
                Some(FileForm::File),
                Some(FileForm::Link),
                Some(FileForm::Other),
                Some(FileForm::Directory),
                None
            ]
        );
    }
}
