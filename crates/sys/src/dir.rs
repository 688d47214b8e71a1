//! Files below a directory that another user may write to. Lookups follow no symbolic links and, with openat2(2), cross
//! no mounts: a user's mount could block its readers.

use super::error::{Error, Named, Result};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchownat, mkfifo, unlinkat};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Creates and opens a directory with an unused name, mode 0700.
///
/// # Errors
/// mkdtemp(3) or open(2).
pub fn make_temporary(parent: &Path, prefix: &str) -> Result<(PathBuf, OwnedFd)> {
    let template = parent.join(format!("{prefix}XXXXXX"));
    let path = nix::unistd::mkdtemp(&template).named("mkdtemp", &template.display().to_string())?;
    let directory = open(&path)?;
    Ok((path, directory))
}

/// Like [`make_temporary`], as a limited tmpfs if possible. Needs [`unmount`] before removal.
///
/// # Errors
/// As for [`make_temporary`].
pub fn make_temporary_bounded(
    parent: &Path,
    prefix: &str,
    bytes: u64,
    files: u32,
) -> Result<(PathBuf, OwnedFd)> {
    let (path, plain) = make_temporary(parent, prefix)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let options = format!("size={bytes},nr_inodes={files},mode=0700");
    match mount(
        Some("forkyard"),
        &path,
        Some("tmpfs"),
        flags,
        Some(options.as_str()),
    ) {
        Ok(()) => {}
        Err(errno) => {
            log::debug!("{} has no bound: mount: {}", path.display(), errno.desc());
            return Ok((path, plain));
        }
    }
    let opened = open(&path);
    if opened.is_err() {
        unmount(&path);
        let _ = std::fs::remove_dir(&path);
    }
    opened.map(|bounded| (path, bounded))
}

/// Unmounts a directory without blocking or following links. Others must not be able to write to its parent.
pub fn unmount(path: &Path) {
    let _ = umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW);
}

/// Creates a directory with mode 0711, or checks that only this user can write to it.
///
/// # Errors
/// mkdir(2), open(2) or fchmod(2); EPERM for another directory.
pub fn make_own(path: &Path) -> Result<()> {
    let shown = path.display().to_string();
    match nix::unistd::mkdir(path, Mode::S_IRWXU) {
        Ok(()) => return let_pass(open(path)?.as_fd()),
        Err(Errno::EEXIST) => {}
        Err(errno) => return Err(Error::new("mkdir", shown, errno)),
    }
    let directory = open(path)?;
    let stat = fstat(&directory).named("fstat", &shown)?;
    if stat.st_uid != nix::unistd::geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
        return Err(Error::new("open", shown, Errno::EPERM));
    }
    Ok(())
}

/// Creates a user's directory with mode 0700, or checks that no other user can enter it.
///
/// # Errors
/// mkdir(2), open(2), fchown(2) or fstat(2); EPERM for another directory.
pub fn make_private(path: &Path, uid: u32, gid: u32) -> Result<()> {
    let shown = path.display().to_string();
    let is_new = match nix::unistd::mkdir(path, Mode::S_IRWXU) {
        Ok(()) => true,
        Err(Errno::EEXIST) => false,
        Err(errno) => return Err(Error::new("mkdir", shown, errno)),
    };
    let directory = open(path)?;
    if is_new {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        nix::unistd::fchown(&directory, uid, gid).named("fchown", &shown)?;
    }
    let stat = fstat(&directory).named("fstat", &shown)?;
    if stat.st_uid != uid || stat.st_mode & 0o077 != 0 {
        return Err(Error::new("open", shown, Errno::EPERM));
    }
    Ok(())
}

/// Sets a directory's mode to 0711.
///
/// # Errors
/// fchmod(2).
pub fn let_pass(directory: BorrowedFd<'_>) -> Result<()> {
    fchmod(directory, Mode::from_bits_truncate(0o711)).named("fchmod", "")
}

/// Whether this user owns an open file or directory.
pub fn is_own(file: BorrowedFd<'_>) -> bool {
    fstat(file).is_ok_and(|stat| stat.st_uid == nix::unistd::geteuid().as_raw())
}

/// Opens a directory, not through a final link.
///
/// # Errors
/// open(2); ELOOP or ENOTDIR for a link.
pub fn open(path: &Path) -> Result<OwnedFd> {
    nix::fcntl::open(path, directory_flags(), Mode::empty()).named("open", &path.display().to_string())
}

/// Opens a subdirectory.
///
/// # Errors
/// openat(2).
pub fn open_in(parent: BorrowedFd<'_>, name: &str) -> Result<OwnedFd> {
    open_below(parent, name, directory_flags()).named("openat", name)
}

fn open_below<P: ?Sized + nix::NixPath>(
    directory: BorrowedFd<'_>,
    name: &P,
    flags: OFlag,
) -> nix::Result<OwnedFd> {
    match openat2(
        directory,
        name,
        OpenHow::new().flags(flags).resolve(beneath_only()),
    ) {
        Err(Errno::ENOSYS | Errno::EPERM) => {
            openat(directory, name, flags | OFlag::O_NOFOLLOW, Mode::empty())
        }
        opened => opened,
    }
}

fn beneath_only() -> ResolveFlag {
    ResolveFlag::RESOLVE_BENEATH
        | ResolveFlag::RESOLVE_NO_XDEV
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_NO_MAGICLINKS
}

fn directory_flags() -> OFlag {
    OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDONLY
}

/// Creates and opens a subdirectory, mode 0700.
///
/// # Errors
/// mkdirat(2), openat(2) or fchmod(2).
pub fn make_in(parent: BorrowedFd<'_>, name: &str) -> Result<OwnedFd> {
    mkdirat(parent, name, Mode::S_IRWXU).named("mkdirat", name)?;
    let made = open_in(parent, name)?;
    fchmod(&made, Mode::S_IRWXU).named("fchmod", name)?;
    Ok(made)
}

/// Creates a FIFO, mode 0600, and opens it for non-blocking reads. Others must not be able to write to the directory.
///
/// # Errors
/// mkfifo(3) or open(2).
pub fn make_fifo(directory: &Path, name: &str) -> Result<OwnedFd> {
    let path = directory.join(name);
    mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).named("mkfifo", name)?;
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    nix::fcntl::open(&path, flags, Mode::empty()).named("open", name)
}

/// The start of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// The first bytes.
    pub bytes: Vec<u8>,
    /// Whether the file is longer.
    pub more: bool,
}

/// Reads at most `most` bytes of a regular file with one link; `None` for anything else.
///
/// # Errors
/// A system call failed, or the file is longer.
pub fn read(directory: BorrowedFd<'_>, name: &str, most: usize) -> Result<Option<Content>> {
    // Opening a FIFO without O_NONBLOCK would block.
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
    let file = match open_below(directory, name, flags) {
        Ok(file) => file,
        Err(Errno::ENOENT | Errno::ELOOP | Errno::EXDEV | Errno::ENXIO | Errno::ENOTDIR | Errno::EACCES) => {
            return Ok(None);
        }
        Err(errno) => return Err(Error::new("openat", name, errno)),
    };
    content(&file, name, most)
}

/// Like [`read`], by a path without links or mounts, so that it can't block. `None` on errors and before Linux 5.6.
pub fn read_beneath(directory: BorrowedFd<'_>, path: &str, most: usize) -> Option<Content> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
    let how = OpenHow::new().flags(flags).resolve(beneath_only());
    let file = openat2(directory, path, how).ok()?;
    content(&file, path, most).ok().flatten()
}

fn content(file: &OwnedFd, name: &str, most: usize) -> Result<Option<Content>> {
    let stat = fstat(file).named("fstat", name)?;
    // A second link may name a file that the link's creator can't read.
    if kind(&stat) != SFlag::S_IFREG || stat.st_nlink != 1 {
        return Ok(None);
    }
    let (bytes, more) = first_bytes(file.as_fd(), most).named("read", name)?;
    Ok(Some(Content { bytes, more }))
}

pub(super) fn first_bytes(file: BorrowedFd<'_>, most: usize) -> nix::Result<(Vec<u8>, bool)> {
    let mut bytes = vec![0; most + 1];
    let mut length = 0;
    while length < bytes.len() {
        match nix::unistd::read(file, &mut bytes[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    let more = length > most;
    bytes.truncate(length.min(most));
    Ok((bytes, more))
}

/// Writes a file, mode 0600. Replaces only a regular file with one link.
///
/// # Errors
/// EEXIST for another kind of file.
pub fn write(directory: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> Result<()> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let file = openat(directory, name, flags, Mode::S_IRUSR | Mode::S_IWUSR).named("openat", name)?;
    let stat = fstat(&file).named("fstat", name)?;
    if kind(&stat) != SFlag::S_IFREG || stat.st_nlink != 1 {
        return Err(Error::new("openat", name, Errno::EEXIST));
    }
    nix::unistd::ftruncate(&file, 0).named("ftruncate", name)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        match nix::unistd::write(&file, rest) {
            Ok(count) => rest = &rest[count..],
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::new("write", name, errno)),
        }
    }
    Ok(())
}

/// Writes to a FIFO without blocking.
///
/// # Errors
/// ENXIO without a reader; EEXIST for another kind of file.
pub fn write_fifo(directory: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> Result<()> {
    let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let fifo = open_below(directory, name, flags).named("openat", name)?;
    if kind(&fstat(&fifo).named("fstat", name)?) != SFlag::S_IFIFO {
        return Err(Error::new("openat", name, Errno::EEXIST));
    }
    nix::unistd::write(&fifo, bytes).named("write", name)?;
    Ok(())
}

/// Returns at most `most` names of a directory.
///
/// # Errors
/// opendir(3).
pub fn names(directory: BorrowedFd<'_>, most: usize) -> Result<Vec<OsString>> {
    let mut stream =
        nix::dir::Dir::openat(directory, ".", directory_flags(), Mode::empty()).named("opendir", "")?;
    let names = stream
        .iter()
        .map_while(std::result::Result::ok)
        .map(|entry| entry.file_name().to_bytes().to_vec())
        .filter(|name| name != b"." && name != b"..")
        .take(most);
    Ok(names.map(OsString::from_vec).collect())
}

/// Owner and kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    /// Whether it is a unix socket.
    pub is_socket: bool,
}

/// Returns a file's owner; does not follow links.
///
/// # Errors
/// lstat(2).
pub fn owner(path: &Path) -> Result<Owner> {
    let stat = nix::sys::stat::lstat(path).named("lstat", &path.display().to_string())?;
    Ok(owner_of(&stat))
}

/// Removes a unix socket of this user.
///
/// # Errors
/// A system call failed.
pub fn remove_socket(directory: &Path, name: &str, uid: u32) -> Result<()> {
    let parent = open(directory)?;
    let stat = fstatat(&parent, name, AtFlags::AT_SYMLINK_NOFOLLOW).named("fstatat", name)?;
    let owner = owner_of(&stat);
    if owner.is_socket && owner.uid == uid {
        unlinkat(&parent, name, UnlinkatFlags::NoRemoveDir).named("unlinkat", name)?;
    }
    Ok(())
}

/// Identity of a file; the birth time detects a reused inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Birth time, nanoseconds since 1970.
    pub made: i64,
}

/// Returns the identity of a user's unix socket.
pub fn socket_mark(path: &Path, uid: u32) -> Option<Mark> {
    let stat = nix::sys::stat::lstat(path).ok()?;
    (owner_of(&stat) == Owner { uid, is_socket: true }).then(|| mark_of(&stat))
}

/// Removes a user's unix socket with this identity.
///
/// # Errors
/// A system call failed.
pub fn remove_same_socket(path: &Path, uid: u32, mark: Mark) -> Result<()> {
    let shown = path.display().to_string();
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::new("unlinkat", shown, Errno::EINVAL));
    };
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let parent = nix::fcntl::open(directory, flags, Mode::empty()).named("open", &shown)?;
    let stat = fstatat(&parent, name, AtFlags::AT_SYMLINK_NOFOLLOW).named("fstatat", &shown)?;
    if owner_of(&stat) == (Owner { uid, is_socket: true }) && mark_of(&stat) == mark {
        unlinkat(&parent, name, UnlinkatFlags::NoRemoveDir).named("unlinkat", &shown)?;
    }
    Ok(())
}

fn mark_of(stat: &FileStat) -> Mark {
    Mark {
        device: stat.st_dev,
        inode: stat.st_ino,
        made: stat
            .st_mtime
            .saturating_mul(1_000_000_000)
            .saturating_add(stat.st_mtime_nsec),
    }
}

fn owner_of(stat: &FileStat) -> Owner {
    Owner {
        uid: stat.st_uid,
        is_socket: kind(stat) == SFlag::S_IFSOCK,
    }
}

pub(super) fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits())
}

const MOST_ENTRIES: usize = 4096;

/// Changes the owner of a directory tree, the root last. Others must not be able to write to it.
///
/// # Errors
/// A system call failed.
pub fn give_away(directory: BorrowedFd<'_>, uid: u32, gid: u32) -> Result<()> {
    let (user, group) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    for name in names(directory, MOST_ENTRIES)? {
        let shown = name.to_string_lossy().into_owned();
        let stat =
            fstatat(directory, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW).named("fstatat", &shown)?;
        if kind(&stat) == SFlag::S_IFDIR {
            let below = openat(directory, name.as_os_str(), directory_flags(), Mode::empty())
                .named("openat", &shown)?;
            give_away(below.as_fd(), uid, gid)?;
        } else {
            fchownat(
                directory,
                name.as_os_str(),
                user,
                group,
                AtFlags::AT_SYMLINK_NOFOLLOW,
            )
            .named("fchownat", &shown)?;
        }
    }
    nix::unistd::fchown(directory, user, group).named("fchown", "")
}

/// Removes a directory's content, up to a limit; returns whether it is empty.
///
/// # Errors
/// A system call failed.
pub fn clear(directory: BorrowedFd<'_>) -> Result<bool> {
    let mut budget = MOST_ENTRIES;
    clear_within(directory, &mut budget, 0)
}

/// Removes the files in a directory, but no subdirectories.
///
/// # Errors
/// The directory can't be read.
pub fn remove_files(directory: BorrowedFd<'_>) -> Result<()> {
    for name in names(directory, MOST_ENTRIES)? {
        let _ = unlinkat(directory, name.as_os_str(), UnlinkatFlags::NoRemoveDir);
    }
    Ok(())
}

const DEEPEST: u32 = 64;

fn clear_within(directory: BorrowedFd<'_>, budget: &mut usize, depth: u32) -> Result<bool> {
    let found = names(directory, *budget + 1)?;
    for name in found {
        if *budget == 0 || depth > DEEPEST {
            return Ok(false);
        }
        *budget -= 1;
        let shown = name.to_string_lossy().into_owned();
        match unlinkat(directory, name.as_os_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => continue,
            Err(Errno::EISDIR | Errno::EPERM) => {}
            Err(errno) => return Err(Error::new("unlinkat", shown, errno)),
        }
        let below = match open_below(directory, name.as_os_str(), directory_flags()) {
            Ok(below) => below,
            Err(Errno::EACCES) => {
                let mode = Mode::S_IRWXU;
                let flag = nix::sys::stat::FchmodatFlags::FollowSymlink;
                nix::sys::stat::fchmodat(directory, name.as_os_str(), mode, flag)
                    .named("fchmodat", &shown)?;
                open_below(directory, name.as_os_str(), directory_flags()).named("openat", &shown)?
            }
            Err(errno) => return Err(Error::new("openat", shown, errno)),
        };
        if !clear_within(below.as_fd(), budget, depth + 1)? {
            return Ok(false);
        }
        match unlinkat(directory, name.as_os_str(), UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(Errno::ENOTEMPTY) => return Ok(false),
            Err(errno) => return Err(Error::new("unlinkat", shown, errno)),
        }
    }
    Ok(names(directory, 1)?.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch() -> (tempfile::TempDir, OwnedFd) {
        let directory = tempfile::tempdir().unwrap();
        let fd = open(directory.path()).unwrap();
        (directory, fd)
    }

    #[test]
    fn links_and_fifos_are_not_read_and_long_files_are_cut() {
        let (directory, fd) = scratch();
        std::fs::write(directory.path().join("long"), "abcdef").unwrap();
        std::os::unix::fs::symlink("long", directory.path().join("link")).unwrap();
        drop(make_fifo(directory.path(), "fifo").unwrap());
        std::fs::write(directory.path().join("twice"), "x").unwrap();
        std::fs::hard_link(directory.path().join("twice"), directory.path().join("again")).unwrap();
        let long = read(fd.as_fd(), "long", 3).unwrap().unwrap();
        assert_eq!((long.bytes.as_slice(), long.more), (b"abc".as_slice(), true));
        for name in ["link", "fifo", "missing", "twice"] {
            assert_eq!(read(fd.as_fd(), name, 3), Ok(None), "{name}");
        }
        assert!(write(fd.as_fd(), "link", b"x").is_err());
        assert_eq!(std::fs::read(directory.path().join("long")).unwrap(), b"abcdef");
    }

    #[test]
    fn what_is_read_beneath_is_in_the_directory_and_on_its_file_system() {
        let (directory, fd) = scratch();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("inner")).unwrap();
        std::fs::write(at("inner/file"), "abcdef").unwrap();
        std::os::unix::fs::symlink("inner", at("link")).unwrap();
        std::os::unix::fs::symlink("file", at("inner/link")).unwrap();
        drop(make_fifo(directory.path(), "fifo").unwrap());
        let read = |path: &str| read_beneath(fd.as_fd(), path, 3).map(|content| content.bytes);
        assert_eq!(read("inner/file"), Some(b"abc".to_vec()));
        for path in [
            "link/file",
            "inner/link",
            "fifo",
            "missing",
            "../x",
            "/etc/passwd",
            "inner",
        ] {
            assert_eq!(read(path), None, "{path}");
        }
        let root = open(Path::new("/")).unwrap();
        assert!(std::fs::read("/proc/version").is_ok(), "another file system");
        assert_eq!(read_beneath(root.as_fd(), "proc/version", 3), None);
        let error = open_in(root.as_fd(), "proc").unwrap_err();
        assert_eq!(error.errno, Errno::EXDEV);
    }

    #[test]
    fn everything_below_is_removed_and_nothing_else() {
        let (directory, fd) = scratch();
        let (outside, _) = scratch();
        std::fs::write(outside.path().join("kept"), "x").unwrap();
        std::fs::create_dir_all(directory.path().join("a/b/c")).unwrap();
        std::fs::write(directory.path().join("a/b/file"), "x").unwrap();
        std::os::unix::fs::symlink(outside.path(), directory.path().join("a/link")).unwrap();
        assert_eq!(clear(fd.as_fd()), Ok(true));
        assert!(outside.path().join("kept").exists());
    }

    #[test]
    fn only_a_socket_of_the_user_is_removed() {
        let (directory, _fd) = scratch();
        let uid = nix::unistd::geteuid().as_raw();
        std::fs::write(directory.path().join("file"), "x").unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(directory.path().join("socket")).unwrap();
        remove_socket(directory.path(), "file", uid).unwrap();
        remove_socket(directory.path(), "socket", uid + 1).unwrap();
        assert!(directory.path().join("file").exists() && directory.path().join("socket").exists());
        remove_socket(directory.path(), "socket", uid).unwrap();
        assert!(!directory.path().join("socket").exists());
    }
}
