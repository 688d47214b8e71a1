//! Detects file systems with file ownership under a user's control: FUSE, and media that mount(8) or udisks mounted for a
//! user.

use super::error::{Error, Named, Result};
use nix::sys::statfs::{FUSE_SUPER_MAGIC, FsType, fstatfs};
use nix::sys::statvfs::FsFlags;
use std::ffi::OsString;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Whether a user controls file ownership on the directory's file system.
///
/// # Errors
/// fstatfs(2), statx(2), or `/proc/self/mountinfo`.
pub fn is_users_own(directory: BorrowedFd<'_>) -> Result<bool> {
    let about = fstatfs(directory).named("fstatfs", "")?;
    if is_fuse(about.filesystem_type()) {
        return Ok(true);
    }
    // Mounts by users are always nosuid.
    if !about.flags().contains(FsFlags::ST_NOSUID) {
        return Ok(false);
    }
    // libmount's own records.
    let Ok(notes) = std::fs::read("/run/mount/utab") else {
        return Ok(false);
    };
    let id = mount_id(directory)?;
    let read =
        |path: &str| std::fs::read(path).map_err(|error| Error::from_io("read", path.to_owned(), &error));
    let mounts = read("/proc/self/mountinfo")?;
    Ok(mount_point(&mounts, id).is_some_and(|point| is_noted(&notes, &point)))
}

fn is_fuse(kind: FsType) -> bool {
    kind == FUSE_SUPER_MAGIC
}

fn mount_id(directory: BorrowedFd<'_>) -> Result<u64> {
    // SAFETY: a struct of integers. Zeroes are valid for it.
    let mut about: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: an open descriptor, a C string, and the struct that the kernel fills.
    let result = unsafe {
        libc::statx(
            directory.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_MNT_ID,
            &raw mut about,
        )
    };
    if result < 0 {
        return Err(Error::last("statx", ""));
    }
    Ok(about.stx_mnt_id)
}

fn mount_point(mounts: &[u8], id: u64) -> Option<PathBuf> {
    let id = id.to_string();
    let mut lines = mounts.split(|byte| *byte == b'\n');
    let fields = lines.find_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        (fields.next() == Some(id.as_bytes())).then_some(fields)
    });
    fields?.nth(3).map(unescaped)
}

/// For example `TARGET=/mnt OPTS=user=ann,uhelper=udisks2`.
fn is_noted(notes: &[u8], point: &Path) -> bool {
    notes.split(|byte| *byte == b'\n').any(|line| {
        let value = |key: &[u8]| {
            let mut fields = line.split(|byte| *byte == b' ');
            fields.find_map(|field| field.strip_prefix(key))
        };
        let is_here = value(b"TARGET=").is_some_and(|target| unescaped(target) == point);
        let is_wish = |option: &[u8]| {
            let name = option.split(|byte| *byte == b'=').next();
            name.is_some_and(|name| matches!(name, b"user" | b"users" | b"owner" | b"group" | b"uhelper"))
        };
        is_here && value(b"OPTS=").is_some_and(|options| options.split(|byte| *byte == b',').any(is_wish))
    })
}

fn unescaped(text: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let digits = after
            .get(..3)
            .filter(|digits| *first == b'\\' && digits.iter().all(|d| (b'0'..b'8').contains(d)));
        match digits {
            Some(digits) => {
                let value = digits
                    .iter()
                    .fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
                path.push(value as u8);
                rest = &after[3..];
            }
            None => {
                path.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_its_number() {
        let mounts =
            b"27 1 0:24 / / rw - ext4 /dev/a rw\n168 27 0:47 / /media/a\\040b rw,nosuid - vfat none rw\n";
        assert_eq!(mount_point(mounts, 168), Some(PathBuf::from("/media/a b")));
        assert_eq!(mount_point(mounts, 27), Some(PathBuf::from("/")));
        assert_eq!(mount_point(mounts, 16), None);
        assert_eq!(mount_point(b"7", 7), None);
    }

    #[test]
    fn a_user_s_wish_is_told_from_an_operator_s() {
        let notes =
            b"SRC=a TARGET=/srv ROOT=/ OPTS=x-initrd\nSRC=none TARGET=/media/a\\040b ROOT=/ OPTS=user=ann\n\
            ID=3 SRC=b TARGET=/media/c OPTS=helper=x,uhelper=udisks2\nTARGET=/media/d OPTS=userx=1\n";
        let is_wish = |point: &str| is_noted(notes, Path::new(point));
        assert!(is_wish("/media/a b") && is_wish("/media/c"));
        assert!(!is_wish("/srv") && !is_wish("/media") && !is_wish("/media/d"));
    }

    #[test]
    fn this_machine_s_own_file_systems_are_not_a_user_s() {
        let root = std::fs::File::open("/proc").unwrap();
        assert_eq!(is_users_own(std::os::fd::AsFd::as_fd(&root)), Ok(false));
    }
}
