//! What this part asks of the machine, beyond [`World`].

use crate::config::World;
use std::fmt;
use std::path::{Path, PathBuf};

/// Why the machine did not do something: its words and errno.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsFailure {
    /// What strerror(3) says.
    pub text: String,
    /// errno.
    pub code: i32,
}

impl fmt::Display for OsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text, self.code)
    }
}

/// The machine, as a php-fpm configuration sees it.
pub trait Machine: World {
    /// Reads a file.
    fn read_file(&self, path: &Path) -> Result<Vec<u8>, OsFailure>;
    /// Sees to it that a log is there and can be written to.
    fn touch(&self, path: &Path) -> Result<(), OsFailure>;
    /// The files that match a pattern, in order, and a directory that is one; an error is glob(3)'s number.
    fn glob(&self, pattern: &str) -> Result<Vec<PathBuf>, i32>;
}
