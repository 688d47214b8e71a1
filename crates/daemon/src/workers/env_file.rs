//! Reads an application's secrets (`env_file`) at each start.
//!
//! The daemon often reads it as root from a directory that the application's user can change at any moment. The file is
//! opened once, without following a link in its place, and is read only if that user could read it, or if the operator
//! names it, root owns it and no link is on its path.

use crate::context::generation::Generation;
use forkyard_config::{EnvFile, Pool, dotenv};
use forkyard_sys::beneath::{self, Content};
use forkyard_sys::identity::{self, Identity};
use forkyard_sys::mounts;
use forkyard_sys::process::{self, Finding};
use forkyard_worker::Settings;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// The beginning of each [`EnvFileError`].
const KEY: &str = "env_file: ";
/// The largest file, in bytes.
const MOST_BYTES: usize = 64 * 1024;
/// The permissions that others must not have.
const OTHERS: u32 = 0o077;

/// What is wrong with a file of secrets.
#[derive(Debug, Error, Serialize, Deserialize)]
pub(crate) enum EnvFileError {
    #[error("env_file: {}: {}", .0.display(), .1)]
    Fault(PathBuf, FileFault),
    #[error("env_file: {}:{line}: {why}", .path.display())]
    Line { path: PathBuf, line: usize, why: String },
}

#[derive(Debug, Error, Serialize, Deserialize)]
pub(crate) enum FileFault {
    #[error("it can't be read in time; a file system on its path does not answer")]
    Late,
    #[error("it is no path of a file")]
    NoFile,
    #[error("{0}")]
    System(String),
    #[error("it is on a file system that a user has mounted; move it")]
    Mounted,
    #[error("it is no regular file; a link is not followed: copy the file here")]
    NotRegular,
    #[error("it is not UTF-8")]
    NotUtf8,
    #[error("it is longer than {MOST_BYTES} bytes; shorten it")]
    Long,
    #[error("others than its owner may use it (mode {0:04o}); chmod 600 it")]
    Open(u32),
    #[error("it has {0} names, and may be another user's file; copy it")]
    Names(u64),
    #[error("it is root's, and the application itself names it; give it to user {0}, or name it in the pool")]
    Roots(u32),
    #[error("it is root's, and a link is on the way to it; name the way without links")]
    Linked,
    #[error(
        "it belongs to user {owner}, and the application runs as user {uid}; give it to that user, or to root"
    )]
    Foreign { owner: u32, uid: u32 },
}

/// Returns what would keep a pool's application from starting with its file, for a check. Application pools are skipped.
pub fn fault(pool: &Pool) -> Option<String> {
    let file = pool.environment.env_file.as_ref();
    let file = file.filter(|_| pool.applications.is_none())?;
    let user = pool.account.user.as_deref().filter(|_| identity::is_root());
    let uid = match user {
        Some(user) => Identity::look_up(user, pool.account.group.as_deref()).ok()?.uid,
        None => identity::own_user(),
    };
    let error = read(file, uid).err()?.to_string();
    Some(error.strip_prefix(KEY).unwrap_or(&error).to_owned())
}

impl Generation {
    /// Reads the variables for a start.
    ///
    /// # Errors
    /// The file's fault: path, line, and the right form.
    pub(crate) fn read_env_file(&mut self) -> Result<(), EnvFileError> {
        // Each application of an application pool has its own file.
        let file = self.settings.pool.environment.env_file.as_ref();
        let Some(file) = file.filter(|_| !self.has_applications()) else {
            return Ok(());
        };
        let uid = self.settings.identity.as_ref().map(|it| it.uid);
        let variables = read(file, uid.unwrap_or_else(identity::own_user))?;
        self.secrets = variables.into_iter().collect();
        Ok(())
    }

    pub(crate) fn settings_with_secrets(&self) -> Settings {
        let mut settings = self.settings_in_use();
        // The application's own settings take precedence.
        let own = &settings.pool.environment.own_env;
        let is_new = |name: &str| own.iter().all(|(known, _)| known != name);
        let more = self.secrets.iter().filter(|(name, _)| is_new(name));
        let more: Vec<(String, String)> = more.map(|(name, value)| (name.clone(), value.clone())).collect();
        if !more.is_empty() {
            Arc::make_mut(&mut settings.pool).environment.own_env.extend(more);
        }
        settings
    }

    /// The values that reports must hide, by variable.
    pub(crate) fn secrets(&self) -> BTreeMap<String, String> {
        self.secrets.clone()
    }
}

/// As root, a child reads it with a short deadline, because a file system on the path may hang.
fn read(file: &EnvFile, uid: u32) -> Result<Vec<(String, String)>, EnvFileError> {
    if !identity::is_root() {
        return read_now(file, uid);
    }
    let read = process::within_a_moment(&format!("user {uid}"), || {
        Finding::from(serde_json::to_vec(&read_now(file, uid)).unwrap_or_default())
    });
    let late = |_| EnvFileError::Fault(file.path.clone(), FileFault::Late);
    let bytes = read.map(|finding| finding.bytes).unwrap_or_default();
    serde_json::from_slice(&bytes).map_err(late)?
}

fn read_now(file: &EnvFile, uid: u32) -> Result<Vec<(String, String)>, EnvFileError> {
    let wrong = |fault: FileFault| EnvFileError::Fault(file.path.clone(), fault);
    let failed = |errno: Errno| wrong(FileFault::System(errno.desc().to_owned()));
    let (Some(parent), Some(name)) = (file.path.parent(), file.path.file_name()) else {
        return Err(wrong(FileFault::NoFile));
    };
    let directory = match open_directory(parent) {
        Ok(directory) => directory,
        Err(Errno::ENOENT) if file.is_optional => return Ok(Vec::new()),
        Err(errno) => return Err(failed(errno)),
    };
    // A user's file system could hang.
    if identity::is_root() && mounts::is_users_own(directory.as_fd()) != Ok(false) {
        return Err(wrong(FileFault::Mounted));
    }
    let content = match beneath::read_in(directory.as_fd(), name, MOST_BYTES) {
        Ok(content) => content,
        Err(error) if error.errno == Errno::ENOENT && file.is_optional => return Ok(Vec::new()),
        Err(error) if error.errno == Errno::EINVAL => return Err(wrong(FileFault::NotRegular)),
        Err(error) => return Err(failed(error.errno)),
    };
    check(&content, parent, &directory, file, uid).map_err(wrong)?;
    let text = String::from_utf8(content.bytes).map_err(|_| wrong(FileFault::NotUtf8))?;
    dotenv::parse(&text).map_err(|error| EnvFileError::Line {
        path: file.path.clone(),
        line: error.line,
        why: error.why.to_string(),
    })
}

fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open(path, flags, Mode::empty())
}

/// Whether the application's user may read it, and no other user.
fn check(
    content: &Content,
    parent: &Path,
    directory: &OwnedFd,
    file: &EnvFile,
    uid: u32,
) -> Result<(), FileFault> {
    let entry = &content.entry;
    if content.more {
        return Err(FileFault::Long);
    }
    if entry.mode & OTHERS != 0 {
        return Err(FileFault::Open(entry.mode));
    }
    if entry.names != 1 {
        return Err(FileFault::Names(entry.names));
    }
    match entry.uid {
        owner if owner == uid => Ok(()),
        0 if file.is_owners => Err(FileFault::Roots(uid)),
        0 if is_exactly(parent, directory) => Ok(()),
        0 => Err(FileFault::Linked),
        owner => Err(FileFault::Foreign { owner, uid }),
    }
}

fn is_exactly(path: &Path, directory: &OwnedFd) -> bool {
    let exactly = beneath::open_exactly(path);
    let entries = exactly.and_then(|exactly| {
        Ok((
            beneath::entry_of(exactly.as_fd())?,
            beneath::entry_of(directory.as_fd())?,
        ))
    });
    entries.is_ok_and(|(one, other)| (one.device, one.inode) == (other.device, other.inode))
}
