//! The machine, as php-fpm's configuration sees it, beyond [`World`].

use super::constants;
use super::ini::Name;
use forkyard_config::World;
use forkyard_config::php::is_before;
use std::fmt;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsFailure {
    /// strerror(3)'s text or our own.
    pub text: String,
    /// errno, if a system call failed.
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

pub trait Machine: World {
    /// Reads a file.
    ///
    /// # Errors
    /// The system's error.
    fn read_file(&self, path: &Path) -> Result<Vec<u8>, OsFailure>;
    /// The installed release of a PHP version: `8.2.35` for `8.2`.
    fn php_version(&self, version: &str) -> Option<String>;
    /// Creates a log file if needed and checks that it is writable.
    ///
    /// # Errors
    /// The system's error.
    fn touch(&self, path: &Path) -> Result<(), OsFailure>;
    /// Matching files in order, including directories.
    ///
    /// # Errors
    /// glob(3)'s error number.
    fn glob(&self, pattern: &str) -> Result<Vec<PathBuf>, i32>;
}
