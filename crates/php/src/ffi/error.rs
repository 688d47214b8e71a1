//! Errors of loading PHP, with remedies.

use crate::shims;
use forkyard_config::php::is_before;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("forkyard-php was built without PHP {0}'s headers (php{0}-dev)")]
    NotBuilt(String),
    #[error("no libphp{0}.so found")]
    NoLibrary(String),
    #[error("{0}")]
    Load(String),
    #[error("{0} is PHP {1}, not {2}")]
    Version(PathBuf, String, String),
    #[error("memory file for the PHP shim: {0}")]
    MemoryFile(std::io::Error),
    #[error("{0} belongs to another version of forkyard")]
    Shim(PathBuf, String),
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
