//! What the configuration's rules ask about the machine.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserIds {
    /// The user's id.
    pub uid: u32,
    /// The id of the user's primary group.
    pub gid: u32,
}

/// The machine, as far as a configuration depends on it. Reading may fail; everything else is yes or no.
pub trait World {
    /// Does this process run as root, so that it can change user?
    fn is_root(&self) -> bool;
    /// Is this an existing directory?
    fn is_dir(&self, path: &Path) -> bool;
    /// Whether what is on the way to a path answers.
    fn answers(&self, _path: &Path) -> bool {
        true
    }
    /// Is there a file of any kind?
    fn exists(&self, path: &Path) -> bool;
    /// The user of this name.
    fn user(&self, name: &str) -> Option<UserIds>;
    /// The user with this id.
    fn user_by_id(&self, uid: u32) -> Option<UserIds>;
    /// The id of the group of this name.
    fn group(&self, name: &str) -> Option<u32>;
    /// A variable of this process's environment.
    fn env(&self, name: &str) -> Option<String>;
    /// The variables that stand over what the files say; others may be among them.
    fn variables(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    /// The memory that the daemon and its workers may have, bytes; `None`: it is not known.
    fn memory(&self) -> Option<u64> {
        None
    }
    /// The addresses of a host; or why there are none, in getaddrinfo(3)'s words.
    ///
    /// # Errors
    /// getaddrinfo(3)'s words.
    fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, String>;
    /// The files, not directories, that a pattern matches, sorted.
    ///
    /// # Errors
    /// The pattern is none, or a directory can't be read.
    fn files(&self, pattern: &Path) -> Result<Vec<PathBuf>, String>;
    /// A file's content.
    ///
    /// # Errors
    /// The system's words.
    fn read(&self, path: &Path) -> Result<Vec<u8>, String>;
    /// The content of a file that an application's owner may change. Whatever he puts there, this process does not wait for it, and
    /// follows no link of his.
    ///
    /// # Errors
    /// The system's words, or what is wrong with the file.
    fn read_of_application(&self, path: &Path) -> Result<Vec<u8>, String> {
        self.read(path)
    }
}
