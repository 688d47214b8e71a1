//! POSIX access control lists (acl(5)) in the kernel's format (linux/posix_acl_xattr.h).

use super::error::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd};

/// POSIX_ACL_XATTR_VERSION.
const VERSION: u32 = 2;
/// ACL_UNDEFINED_ID: an entry that needs no id.
const NO_ID: u32 = u32::MAX;
/// What connect(2) requires and php-fpm grants.
const READ_WRITE: u16 = 6;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// Adds read and write permission for users and groups.
pub fn encode(mode: u32, users: &[u32], groups: &[u32]) -> Vec<u8> {
    let bits = |shift: u32| (mode >> shift & 7) as u16;
    let named = |ids: &[u32], tag: u16| {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().map(move |id| (tag, READ_WRITE, id))
    };
    // The kernel requires this order. The mask limits all entries but owner and others.
    let mut entries = vec![(USER_OBJ, bits(6), NO_ID)];
    entries.extend(named(users, USER));
    entries.push((GROUP_OBJ, bits(3), NO_ID));
    entries.extend(named(groups, GROUP));
    entries.push((MASK, bits(3) | READ_WRITE, NO_ID));
    entries.push((OTHER, bits(0), NO_ID));
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for (tag, permission, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permission.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// Sets a file's list; `O_PATH` suffices.
///
/// # Errors
/// EOPNOTSUPP without support in the file system.
pub fn set(file: BorrowedFd<'_>, list: &[u8], subject: &str) -> Result<()> {
    let path = std::ffi::CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default();
    // SAFETY: two C strings and a buffer with its length. They outlive the call.
    let done = unsafe {
        libc::setxattr(
            path.as_ptr(),
            c"system.posix_acl_access".as_ptr(),
            list.as_ptr().cast(),
            list.len(),
            0,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(Error::last("setxattr system.posix_acl_access", subject))
    }
}

/// Removes a file's list, if any.
///
/// # Errors
/// removexattr(2).
pub fn remove(file: BorrowedFd<'_>, subject: &str) -> Result<()> {
    let path = std::ffi::CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default();
    // SAFETY: two C strings that outlive the call.
    let done = unsafe { libc::removexattr(path.as_ptr(), c"system.posix_acl_access".as_ptr()) };
    let errno = nix::errno::Errno::last();
    if done == 0 || matches!(errno, nix::errno::Errno::ENODATA | nix::errno::Errno::EOPNOTSUPP) {
        Ok(())
    } else {
        Err(Error::new("removexattr system.posix_acl_access", subject, errno))
    }
}

#[cfg(test)]
mod tests {
    use super::encode;

    #[test]
    fn entries_are_sorted_and_masked() {
        let list = encode(0o660, &[33, 7, 33], &[5]);
        let entries: Vec<(u16, u16, u32)> = list[4..]
            .chunks_exact(8)
            .map(|e| {
                let half = |at: usize| u16::from_le_bytes([e[at], e[at + 1]]);
                (half(0), half(2), u32::from_le_bytes([e[4], e[5], e[6], e[7]]))
            })
            .collect();
        let none = u32::MAX;
        let wanted = [
            (1, 6, none),
            (2, 6, 7),
            (2, 6, 33),
            (4, 6, none),
            (8, 6, 5),
            (16, 6, none),
            (32, 0, none),
        ];
        assert_eq!(entries, wanted);
        assert_eq!(list[..4], [2, 0, 0, 0]);
    }

    #[test]
    fn what_the_bits_refuse_the_list_gives() {
        let list = encode(0o600, &[33], &[]);
        assert_eq!(list.len(), 4 + 5 * 8);
        assert_eq!(list[4 + 16 + 2..4 + 16 + 4], [0, 0]);
        assert_eq!(list[4 + 24 + 2..4 + 24 + 4], [6, 0]);
    }
}
