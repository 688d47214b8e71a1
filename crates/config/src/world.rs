//! The machine, as configuration rules see it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserIds {
    pub uid: u32,
    pub gid: u32,
}

/// Queries about the machine. Only reading can fail.
pub trait World {
    fn is_root(&self) -> bool;
    fn is_dir(&self, path: &Path) -> bool;
    /// Whether the path's file system responds.
    fn answers(&self, _path: &Path) -> bool {
        true
    }
    fn exists(&self, path: &Path) -> bool;
    fn user(&self, name: &str) -> Option<UserIds>;
    fn user_by_id(&self, uid: u32) -> Option<UserIds>;
    fn group(&self, name: &str) -> Option<u32>;
    /// The entry of a user, by name or number.
    fn entry(&self, user: &str) -> Option<UserIds> {
        match user.parse() {
            Ok(uid) => self.user_by_id(uid),
            Err(_) => self.user(user),
        }
    }
    /// The id of a user, by name or number. A number needs no entry.
    fn uid(&self, user: &str) -> Option<u32> {
        user.parse().ok().or_else(|| self.user(user).map(|ids| ids.uid))
    }
    /// The id of a group, likewise.
    fn gid(&self, group: &str) -> Option<u32> {
        group.parse().ok().or_else(|| self.group(group))
    }
    fn env(&self, name: &str) -> Option<String>;
    /// Candidates for environment variables that override the files.
    fn variables(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    /// The memory for the daemon and its workers, in bytes, or `None` if unknown.
    fn memory(&self) -> Option<u64> {
        None
    }
    /// A host's addresses.
    ///
    /// # Errors
    /// getaddrinfo(3)'s message.
    fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, String>;
    /// Excludes directories. Sorted.
    ///
    /// # Errors
    /// The pattern is invalid or a directory unreadable.
    fn files(&self, pattern: &Path) -> Result<Vec<PathBuf>, String>;
    /// Reads a file.
    ///
    /// # Errors
    /// The system's message.
    fn read(&self, path: &Path) -> Result<Vec<u8>, String>;
    /// Reads a file that an application's owner controls, without blocking on it or following untrusted links.
    ///
    /// # Errors
    /// The system's message, or the problem with the file.
    fn read_of_application(&self, path: &Path) -> Result<Vec<u8>, String> {
        self.read(path)
    }
}
