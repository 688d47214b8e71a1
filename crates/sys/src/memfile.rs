//! Files in memory (memfd_create(2)), passed from one process to the next.

use super::error::{Error, Named, Result};
use super::shm::PAGE_BYTES;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::time::Duration;

/// The kernel waits 0.1 s each time.
const SEAL_TRIES: usize = 50;

/// The longest name of a file that the kernel takes, in bytes.
const LONGEST_NAME: usize = 249;

/// Creates an empty file, close-on-exec. A long name is cut: it is only a label.
///
/// # Errors
/// memfd_create(2).
pub fn create(name: &str) -> Result<OwnedFd> {
    let label = &name.as_bytes()[..name.len().min(LONGEST_NAME)];
    memfd_create(label, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).named("memfd_create", name)
}

/// Writes at the file's start; does not truncate.
///
/// # Errors
/// pwrite(2).
pub fn write(file: BorrowedFd<'_>, bytes: &[u8]) -> Result<()> {
    write_at(file, bytes, 0)
}

/// Writes at an offset; does not truncate.
///
/// # Errors
/// pwrite(2).
pub fn write_at(file: BorrowedFd<'_>, bytes: &[u8], offset: usize) -> Result<()> {
    with(file, |file| file.write_all_at(bytes, offset as u64)).map_err(|e| Error::from_io("pwrite", "", &e))
}

/// Creates a sealed file with these bytes.
///
/// # Errors
/// memfd_create(2), pwrite(2) or fcntl(2).
pub fn sealed(name: &str, bytes: &[u8]) -> Result<OwnedFd> {
    let file = create(name)?;
    write(file.as_fd(), bytes)?;
    seal(&file, SealFlag::F_SEAL_WRITE, name)?;
    Ok(file)
}

/// Seals a file against resizing and more seals, and adds `more`. Retries: the kernel refuses a write seal while it
/// holds a page itself.
///
/// # Errors
/// fcntl(2).
pub fn seal(file: &impl AsFd, more: SealFlag, name: &str) -> Result<()> {
    let seals = SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL | more;
    for _ in 0..SEAL_TRIES {
        match fcntl(file, FcntlArg::F_ADD_SEALS(seals)) {
            Err(Errno::EBUSY) => std::thread::sleep(Duration::from_millis(10)),
            done => return done.named("fcntl F_ADD_SEALS", name).map(drop),
        }
    }
    fcntl(file, FcntlArg::F_ADD_SEALS(seals))
        .named("fcntl F_ADD_SEALS", name)
        .map(drop)
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

fn with<R>(fd: BorrowedFd<'_>, act: impl FnOnce(&File) -> std::io::Result<R>) -> std::io::Result<R> {
    let file = File::from(fd.try_clone_to_owned()?);
    act(&file)
}

/// A value in its own named private mapping, never unmapped.
#[derive(Debug)]
pub struct Placed<T>(NonNull<T>);

impl<T> Placed<T> {
    /// Maps the memory and stores the value.
    ///
    /// # Errors
    /// memfd_create(2), ftruncate(2) or mmap(2).
    pub fn new(name: &str, value: T) -> Result<Placed<T>> {
        const { assert!(align_of::<T>() <= PAGE_BYTES && size_of::<T>() > 0) };
        let file = create(name)?;
        nix::unistd::ftruncate(&file, size_of::<T>() as libc::off_t).named("ftruncate", name)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new private mapping of a file that no other process has.
        let place = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<T>(),
                access,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        let place = NonNull::new(place.cast::<T>()).filter(|_| place != libc::MAP_FAILED);
        let place = place.ok_or_else(|| Error::last("mmap", name))?;
        // SAFETY: mapped writable, large enough and page-aligned.
        unsafe { place.write(value) };
        Ok(Placed(place))
    }

    /// Returns the address, for exclusive use.
    pub fn into_raw(self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T> Deref for Placed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: mapped forever, initialized, and referred to by `self` only.
        unsafe { self.0.as_ref() }
    }
}

impl<T> DerefMut for Placed<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` makes the access exclusive.
        unsafe { self.0.as_mut() }
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

    #[test]
    fn a_file_may_have_a_long_name() {
        for length in [249, 250, 1_000] {
            assert!(sealed(&"ä".repeat(length), b"").is_ok(), "{length}");
        }
    }

    #[test]
    fn a_placed_value_is_where_its_name_says() {
        let mut value = Placed::new("test of a place", [7_u64; 600]).unwrap();
        value[599] += 1;
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps
            .lines()
            .find(|line| line.contains("test of a place"))
            .unwrap();
        assert_eq!((value[0], value[599]), (7, 8));
        let place = value.into_raw();
        assert!(
            line.starts_with(&format!("{:x}-", place as usize)) && line.contains("rw-p"),
            "{line}"
        );
    }

    #[test]
    fn a_file_in_use_is_sealed_when_it_is_no_longer() {
        let file = File::from(create("test").unwrap());
        file.set_len(4096).unwrap();
        // SAFETY: no process changes the file's length.
        let mapping = unsafe { memmap2::MmapMut::map_mut(&file).unwrap() };
        let seals = FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE);
        assert_eq!(fcntl(&file, seals), Err(Errno::EBUSY));
        let (begin, begun) = std::sync::mpsc::channel();
        let user = std::thread::spawn(move || {
            begun.recv().unwrap();
            drop(mapping);
        });
        begin.send(()).unwrap();
        seal(&file, SealFlag::F_SEAL_WRITE, "test").unwrap();
        user.join().unwrap();
    }
}
