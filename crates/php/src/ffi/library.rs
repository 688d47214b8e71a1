//! Opens libraries, and reads their build information first.

use super::Error;
use std::ffi::{CStr, CString, c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;

pub(super) struct Library(NonNull<c_void>);

impl Library {
    pub(super) fn open(path: &Path, flags: c_int) -> Result<Library, Error> {
        let name = CString::new(path.as_os_str().as_encoded_bytes())
            .map_err(|_| Error::Load(format!("{}: zero byte in path", path.display())))?;
        // SAFETY: a C string and valid flags; the library has only the initialisers of libphp and of our shim.
        let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
        NonNull::new(handle).map(Library).ok_or_else(load_error)
    }

    /// Finds a function.
    ///
    /// # Safety
    /// `F` is the type of a pointer to this function.
    pub(super) unsafe fn function<F: Copy>(&self, name: &CStr) -> Result<F, Error> {
        const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>()) };
        // SAFETY: the handle is open, the name a C string.
        let address = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        let address = NonNull::new(address).ok_or_else(load_error)?;
        // SAFETY: the caller's promise; the sizes are equal.
        Ok(unsafe { std::mem::transmute_copy(&address) })
    }
}

fn load_error() -> Error {
    // SAFETY: dlerror(3) gives NULL or a C string that is valid until the next dl call of this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return Error::Load("dlopen failed".to_owned());
    }
    // SAFETY: not NULL, see above.
    Error::Load(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

pub(super) struct Build {
    pub(super) version: String,
    pub(super) id: String,
}

/// Reads the build from the file. PHP's own functions work only after module start-up or in newer versions.
pub(super) fn build_of(path: &Path) -> Result<Build, Error> {
    let unreadable = |error| Error::Load(format!("{}: {error}", path.display()));
    let bytes = std::fs::read(path).map_err(unreadable)?;
    let text_after = |mark: &CStr| -> Option<String> {
        let rest = &bytes[position(&bytes, mark.to_bytes())? + mark.to_bytes().len()..];
        let end = rest.iter().position(|byte| *byte == 0)?;
        String::from_utf8(rest[..end].to_vec()).ok()
    };
    match (text_after(c"X-Powered-By: PHP/"), text_after(c"API20")) {
        (Some(version), Some(id)) => Ok(Build {
            version,
            id: format!("API20{id}"),
        }),
        _ => Err(Error::Load(format!("{} is not libphp", path.display()))),
    }
}

fn position(bytes: &[u8], part: &[u8]) -> Option<usize> {
    // SAFETY: two readable areas with their lengths.
    let found = unsafe {
        libc::memmem(
            bytes.as_ptr().cast(),
            bytes.len(),
            part.as_ptr().cast(),
            part.len(),
        )
    };
    (!found.is_null()).then(|| found as usize - bytes.as_ptr() as usize)
}

pub(super) fn memory_file(bytes: &[u8]) -> std::io::Result<OwnedFd> {
    // Since Linux 6.3; unknown to older kernels.
    const MFD_EXEC: libc::c_uint = 0x10;
    let create = |flags| {
        // SAFETY: a C string and flags; the result is a new descriptor or negative.
        unsafe {
            let fd = libc::memfd_create(c"forkyard-php-shim".as_ptr(), flags);
            (fd >= 0)
                .then(|| OwnedFd::from_raw_fd(fd))
                .ok_or_else(std::io::Error::last_os_error)
        }
    };
    let fd = create(libc::MFD_CLOEXEC | MFD_EXEC).or_else(|_| create(libc::MFD_CLOEXEC))?;
    std::io::Write::write_all(&mut std::fs::File::from(fd.try_clone()?), bytes)?;
    Ok(fd)
}
