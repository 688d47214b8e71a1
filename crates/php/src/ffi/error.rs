//! Errors of loading PHP, with remedies.

use crate::shims;
use forkyard_config::php::is_before;
use std::error::Error as StdError;
use std::fmt;
use std::path::PathBuf;

#[derive(Debug)]
pub(crate) enum Error {
    NotBuilt(String),
    NoLibrary(String),
    Load(String),
    Version(PathBuf, String, String),
    MemoryFile(std::io::Error),
    Shim(PathBuf, String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotBuilt(version) => {
                write!(
                    f,
                    "forkyard-php was built without PHP {version}'s headers (php{version}-dev)"
                )
            }
            Error::NoLibrary(version) => {
                write!(f, "no libphp{version}.so found")
            }
            Error::Load(reason) => f.write_str(reason),
            Error::Version(path, found, wanted) => {
                write!(f, "{} is PHP {found}, not {wanted}", path.display())
            }
            Error::MemoryFile(_) => f.write_str("memory file for the PHP shim"),
            Error::Shim(path, _) => write!(f, "{} belongs to another version of forkyard", path.display()),
        }
    }
}

impl Error {
    pub(crate) fn solution(&self) -> String {
        match self {
            Error::NotBuilt(version) => {
                let built: Vec<String> = shims::all().into_iter().map(|shim| shim.version).collect();
                let built = match built.as_slice() {
                    [] => "there is none yet".to_owned(),
                    some => some.join(", "),
                };
                let build = match is_before(version, "8.2") {
                    true => String::new(),
                    false => format!(
                        ", install the package forkyard-php{version}, or build it where php{version}-dev is installed"
                    ),
                };
                format!("Write a version that forkyard-php was built for ({built}){build}.")
            }
            Error::NoLibrary(version) => format!(
                "Install PHP's library for embedding (Debian: libphp{version}-embed), or name the one that is there in \
                 application.library."
            ),
            Error::Load(_) | Error::Version(..) => {
                "Name libphp of the pool's version in application.library, not thread-safe and without debugging, or \
                 leave that out to use the one that is installed."
                    .to_owned()
            }
            Error::Shim(_, version) => {
                format!("Install the package forkyard-php{version} of the same version as forkyard.")
            }
            Error::MemoryFile(_) => {
                "Check that the machine has memory and descriptors to spare, and the service's limits.".to_owned()
            }
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Error::MemoryFile(error) => Some(error),
            _ => None,
        }
    }
}
