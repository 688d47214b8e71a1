//! The machine, as configuration rules see it.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserIds {
    pub uid: u32,
    pub gid: u32,
}

/// Why the machine gives no answer.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    #[error(transparent)]
    System(#[from] io::Error),
    #[error("{}: {error}", directory.display())]
    Directory { directory: PathBuf, error: io::Error },
    #[error("the pattern is not UTF-8")]
    Pattern,
    #[error("it is longer than {0} bytes")]
    TooLong(u64),
    #[error("it is no regular file")]
    NotRegular,
    #[error("it has several names; copy it")]
    SeveralNames,
    #[error("it can't be read in time: a file system on its path does not answer")]
    Hangs,
    #[error("it can't be read")]
    Unreadable,
    /// The message of getaddrinfo(3) or of another process.
    #[error("{0}")]
    Message(String),
}

/// A user's or group's number. The largest means "no id" in the kernel.
pub(crate) fn id_number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id != u32::MAX)
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
    /// A directory's path without links and `..`, or the given path if there is no such directory.
    fn without_links(&self, directory: &Path) -> PathBuf {
        directory.to_owned()
    }
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
        id_number(user).or_else(|| self.user(user).map(|ids| ids.uid))
    }
    /// The id of a group, likewise.
    fn gid(&self, group: &str) -> Option<u32> {
        id_number(group).or_else(|| self.group(group))
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
    fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, WorldError>;
    /// Excludes directories. Sorted.
    ///
    /// # Errors
    /// The pattern is invalid or a directory unreadable.
    fn files(&self, pattern: &Path) -> Result<Vec<PathBuf>, WorldError>;
    /// Reads a file.
    ///
    /// # Errors
    /// The system's message.
    fn read(&self, path: &Path) -> Result<Vec<u8>, WorldError>;
    /// Reads a file that an application's owner controls, without blocking on it or following untrusted links.
    ///
    /// # Errors
    /// The system's message, or the problem with the file.
    fn read_of_application(&self, path: &Path) -> Result<Vec<u8>, WorldError> {
        self.read(path)
    }
}
