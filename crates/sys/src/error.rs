//! System call errors: the call, its subject and the error number.

use nix::errno::Errno;
use std::fmt;

/// A failed system call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The call, as in its man page: `bind`, `memfd_create`.
    pub call: &'static str,
    /// Path, address or pid; may be empty.
    pub subject: String,
    /// The error number.
    pub errno: Errno,
}

/// The result of a system call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Creates an error about `subject`.
    pub fn new(call: &'static str, subject: impl Into<String>, errno: Errno) -> Error {
        Error {
            call,
            subject: subject.into(),
            errno,
        }
    }

    /// Creates an error from the current `errno`.
    pub fn last(call: &'static str, subject: impl Into<String>) -> Error {
        Error::new(call, subject, Errno::last())
    }

    /// Converts a standard library error.
    pub fn from_io(call: &'static str, subject: impl Into<String>, error: &std::io::Error) -> Error {
        let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
        Error::new(call, subject, errno)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = std::io::Error::from_raw_os_error(self.errno as i32);
        // strerror(3) without the standard library's "(os error N)".
        let reason = reason.to_string();
        let reason = reason.split(" (os error").next().unwrap_or_default();
        let gap = if self.subject.is_empty() { "" } else { " " };
        write!(
            f,
            "{}{gap}{}: {} ({})",
            self.call, self.subject, reason, self.errno as i32
        )
    }
}

impl std::error::Error for Error {}

/// Adds call and subject to a nix result.
pub trait Named<T> {
    /// Converts a bare error number into an [`Error`].
    ///
    /// # Errors
    /// The error number with call and subject.
    fn named(self, call: &'static str, subject: &str) -> Result<T>;
}

impl<T> Named<T> for nix::Result<T> {
    fn named(self, call: &'static str, subject: &str) -> Result<T> {
        self.map_err(|errno| Error::new(call, subject, errno))
    }
}
