//! What this part asks of the machine, beyond [`World`].

use super::constants;
use super::ini::Name;
use crate::World;
use crate::php::is_before;
use std::fmt;
use std::path::{Path, PathBuf};

/// Why the machine did not do something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsFailure {
    /// strerror(3)'s text, or a reason of this program's own.
    pub text: String,
    /// errno; `None`: no system call failed.
    pub code: Option<i32>,
}

impl fmt::Display for OsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => write!(f, "{} ({code})", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// The value of a name that stands in a file in PHP's INI language.
pub(super) fn value_of(name: Name<'_>, version: &str, machine: &dyn Machine) -> Option<String> {
    match name {
        Name::Variable(name) if !is_before(version, "8.3") => match name.split_once(":-") {
            Some((name, fallback)) => machine.env(name).or_else(|| Some(fallback.to_owned())),
            None => machine.env(name),
        },
        Name::Variable(name) => machine.env(name),
        Name::Constant(name @ ("E_ALL" | "PHP_MAJOR_VERSION" | "PHP_MINOR_VERSION")) => {
            constants::of_version(name, version)
        }
        Name::Constant(name) if name.starts_with("PHP_") => {
            constants::of_version(name, &machine.php_version(version)?)
        }
        Name::Constant(_) => None,
    }
}

/// The machine, as a php-fpm configuration sees it.
pub trait Machine: World {
    /// Reads a file.
    ///
    /// # Errors
    /// What the system says.
    fn read_file(&self, path: &Path) -> Result<Vec<u8>, OsFailure>;
    /// The release of a version of PHP that is installed: `8.2.35` of `8.2`.
    fn php_version(&self, version: &str) -> Option<String>;
    /// Sees to it that a log is there and can be written to.
    ///
    /// # Errors
    /// What the system says.
    fn touch(&self, path: &Path) -> Result<(), OsFailure>;
    /// The files that match a pattern, in order, and a directory that is one; an error is glob(3)'s number.
    ///
    /// # Errors
    /// glob(3)'s own number.
    fn glob(&self, pattern: &str) -> Result<Vec<PathBuf>, i32>;
}
