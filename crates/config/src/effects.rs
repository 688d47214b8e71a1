//! The configuration's view of the real machine; the only file here that touches it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use nix::unistd::{Gid, Group, Uid, User, geteuid};

use super::error::{Errors, Finding, Kind, Place, Severity};
use super::{Loaded, UserIds, World, glob, resolve};

/// A longer file is not a configuration.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Reads and resolves a configuration file.
///
/// # Errors
/// The file can't be read, or has mistakes: all of them, each with its place and what would be right.
pub fn load(path: &Path) -> Result<Loaded, Errors> {
    let failure = |reason: String| {
        let place = Place {
            file: Arc::from(path),
            line: 0,
            column: 0,
            order: 0,
        };
        let kind = Kind::Unreadable { reason };
        Errors {
            findings: vec![Finding {
                severity: Severity::Error,
                place,
                pool: None,
                key: None,
                kind,
            }],
        }
    };
    let host = Host::default();
    let named = |reason| format!("{reason}; name the configuration with -c FILE, and let this user read it");
    let bytes = host.read(path).map_err(named).map_err(failure)?;
    resolve::parse_bytes(&bytes, path, &host)
}

/// The control socket that a configuration names, also if the configuration can't be used: only the main file is read,
/// and only `global.control` has to be right. `None` if the file can't be read, is not TOML or names none.
pub fn control_socket(path: &Path) -> Option<PathBuf> {
    let host = Host::default();
    resolve::control_socket(&host.read(path).ok()?, path, &host)
}

/// The machine this process runs on. A user is looked up once: it takes opening dozens of files, and a thousand pools
/// may have the same.
#[derive(Debug, Default)]
pub struct Host {
    users: RefCell<HashMap<String, Option<UserIds>>>,
}

impl World for Host {
    fn is_root(&self) -> bool {
        geteuid().is_root()
    }

    fn is_dir(&self, path: &Path) -> bool {
        path.is_dir()
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn user(&self, name: &str) -> Option<UserIds> {
        let mut users = self.users.borrow_mut();
        *users
            .entry(name.to_owned())
            .or_insert_with(|| User::from_name(name).ok().flatten().map(ids))
    }

    fn user_by_id(&self, uid: u32) -> Option<UserIds> {
        User::from_uid(Uid::from_raw(uid)).ok().flatten().map(ids)
    }

    fn group(&self, name: &str) -> Option<u32> {
        Group::from_name(name)
            .ok()
            .flatten()
            .map(|group| Gid::as_raw(group.gid))
    }

    fn env(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
        let found = (host, port).to_socket_addrs();
        found.map(Iterator::collect).map_err(|error| {
            let text = error.to_string();
            // std puts a sentence of its own before what getaddrinfo(3) says.
            text.rsplit_once(": ")
                .map_or(text.clone(), |(_, reason)| reason.to_owned())
        })
    }

    fn files(&self, pattern: &Path) -> Result<Vec<PathBuf>, String> {
        let mut found = vec![PathBuf::new()];
        for component in pattern.components() {
            let part = match component {
                Component::Normal(part) => part.to_str().ok_or("the pattern is not UTF-8")?,
                other => {
                    found.iter_mut().for_each(|path| path.push(other));
                    continue;
                }
            };
            if !glob::is_pattern(part) {
                found.iter_mut().for_each(|path| path.push(part));
                continue;
            }
            let mut next = Vec::new();
            for directory in &found {
                next.extend(matching(directory, part)?);
            }
            found = next;
        }
        found.retain(|path| path.exists() && !path.is_dir());
        found.sort();
        found.dedup();
        Ok(found)
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
        log::debug!(target: "forkyard::config", "reading {}", path.display());
        let file = fs::File::open(path).map_err(|error| error.to_string())?;
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| error.to_string())?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(format!("it is longer than {MAX_FILE_BYTES} bytes"));
        }
        Ok(bytes)
    }
}

fn ids(user: User) -> UserIds {
    UserIds {
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
    }
}

/// The entries of a directory that match; none if there is no such directory.
fn matching(directory: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let opened = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    let entries = match fs::read_dir(opened) {
        Ok(entries) => entries,
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(Vec::new());
        }
        Err(error) => return Err(format!("{}: {error}", opened.display())),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| format!("{}: {error}", opened.display()))?;
        if entry
            .file_name()
            .to_str()
            .is_some_and(|name| glob::matches(pattern, name))
        {
            found.push(directory.join(entry.file_name()));
        }
    }
    Ok(found)
}
