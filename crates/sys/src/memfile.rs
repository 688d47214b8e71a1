//! Files in memory that are written and read as files: what one process leaves to the next.

use super::error::{Error, Named, Result};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// Makes an empty file, close-on-exec.
///
/// # Errors
/// memfd_create(2).
pub fn create(name: &str) -> Result<OwnedFd> {
    memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).named("memfd_create", name)
}

/// Writes from the file's beginning; what was there beyond that stays.
///
/// # Errors
/// pwrite(2).
pub fn write(file: BorrowedFd<'_>, bytes: &[u8]) -> Result<()> {
    with(file, |file| file.write_all_at(bytes, 0)).map_err(|e| Error::from_io("pwrite", "", &e))
}

/// Makes a file of these bytes, sealed against any change.
///
/// # Errors
/// memfd_create(2), pwrite(2) or fcntl(2).
pub fn sealed(name: &str, bytes: &[u8]) -> Result<OwnedFd> {
    let file = create(name)?;
    write(file.as_fd(), bytes)?;
    let seals =
        SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).named("fcntl F_ADD_SEALS", name)?;
    Ok(file)
}

/// Reads a whole file of at most `most` bytes.
///
/// # Errors
/// fstat(2) or pread(2); EFBIG for a longer file.
pub fn read(file: BorrowedFd<'_>, most: usize) -> Result<Vec<u8>> {
    let failed = |e: std::io::Error| Error::from_io("pread", "", &e);
    with(file, |file| {
        let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        if bytes > most {
            return Err(std::io::Error::from_raw_os_error(libc::EFBIG));
        }
        let mut buffer = vec![0; bytes];
        file.read_exact_at(&mut buffer, 0)?;
        Ok(buffer)
    })
    .map_err(failed)
}

/// Lends a descriptor as a file, for calls that do not move its position.
fn with<R>(fd: BorrowedFd<'_>, act: impl FnOnce(&File) -> std::io::Result<R>) -> std::io::Result<R> {
    let file = File::from(fd.try_clone_to_owned()?);
    act(&file)
}

/// Gives memory that was freed back to the kernel. free(3) keeps most of it for the next time.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: a call without arguments that matter.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_file_can_be_read_and_not_written() {
        let file = sealed("test", b"what is left").unwrap();
        assert_eq!(read(file.as_fd(), 100).unwrap(), b"what is left");
        assert!(read(file.as_fd(), 5).is_err());
        assert!(write(file.as_fd(), b"other").is_err());
    }
}
