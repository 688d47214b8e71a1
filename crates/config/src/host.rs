//! Implements [`World`] for the real machine. No other file here accesses it.

use super::resolve::node::{Files, NoCommand, start_command};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::NonZero;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use forkyard_sys::accounts::{self, Account};
use forkyard_sys::entry::HeldEntry;
use forkyard_sys::process::{self, Finding};
use nix::fcntl::OFlag;
use nix::sys::stat::{Mode, SFlag};
use nix::unistd::geteuid;

use super::error::{Diagnostic, Errors, Kind, Location};
use super::machine::{self, Resources};
use super::{Loaded, UserIds, World, WorldError, glob, memory, overrides, resolve};

const MAX_FILE_BYTES: u64 = 16 << 20;
const MAX_APPLICATION_FILE_BYTES: u64 = 1 << 20;
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Reads and resolves a configuration file.
///
/// # Errors
/// Every error in the file, with place and fix.
pub fn load(path: &Path) -> Result<Loaded, Errors> {
    with_bytes(path, resolve::parse_bytes)
}

/// Returns what the machine or the container has now.
pub fn resources() -> Resources {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let texts = ["/proc/self/cgroup", "/proc/meminfo", "/proc/pressure/memory"].map(read);
    let parallel = std::thread::available_parallelism().map_or(1, NonZero::get);
    let file = |name: &str| fs::read_to_string(format!("{CONTROL_GROUPS}/{name}")).ok();
    machine::resources(texts.each_ref().map(String::as_str), parallel, &file)
}

/// Renders the effective configuration as TOML with sources.
///
/// # Errors
/// As for [`load`].
pub fn effective(path: &Path) -> Result<String, Errors> {
    with_bytes(path, resolve::effective)
}

/// Whether a configuration contains pools. Assumes so if the file is invalid, so that the start reports the errors.
pub fn has_pools(path: &Path) -> bool {
    let is_missing = |diagnostic: &Diagnostic| {
        diagnostic.key.as_deref() == Some("pool") && matches!(diagnostic.kind, Kind::Missing { .. })
    };
    load(path).map_or_else(|errors| !errors.errors().any(is_missing), |_| true)
}

fn with_bytes<T>(path: &Path, read: fn(&[u8], &Path, &dyn World) -> Result<T, Errors>) -> Result<T, Errors> {
    let failure = |reason| Errors {
        diagnostics: vec![Diagnostic::error(
            Location::of_file(path),
            Kind::Unreadable { reason },
        )],
    };
    let host = Host::default();
    let named = |reason: WorldError| {
        format!("{reason}; name the configuration with -c FILE, and let this user read it")
    };
    let bytes = host.read(path).map_err(named).map_err(failure)?;
    read(&bytes, path, &host)
}

/// The control socket of a possibly invalid configuration. Reads only `global.control` in the main file. Returns `None`
/// if the file is unreadable, isn't TOML, or has no control socket.
pub fn control_socket(path: &Path) -> Option<PathBuf> {
    let host = Host::default();
    resolve::control_socket(&host.read(path).ok()?, path, &host)
}

/// The jobs' socket of a main file that may be invalid, configured or by default.
pub fn jobs_socket(path: &Path) -> Option<PathBuf> {
    let host = Host::default();
    resolve::jobs_socket(&host.read(path).ok()?, path, &host)
}

/// The places that a configuration is written in: the main file, the included files, and the existing directories of
/// those, which change if a file is removed. The files may be invalid.
pub fn written_places(path: &Path) -> Vec<PathBuf> {
    let host = Host::default();
    // Not logged: the file was read before.
    let file = open_at_once(path).ok();
    let bytes = file
        .and_then(|file| read_at_most(MAX_FILE_BYTES, file).ok())
        .unwrap_or_default();
    let patterns = resolve::include_patterns(&bytes, path, &host).unwrap_or_default();
    let files = patterns.iter();
    let files: Vec<PathBuf> = files
        .flat_map(|pattern| host.files(pattern).unwrap_or_default())
        .collect();
    let directories = files.iter().chain(&patterns).filter_map(|file| file.parent());
    let directories = directories
        .filter(|directory| directory.is_dir())
        .map(Path::to_owned);
    let mut places: Vec<PathBuf> = directories.chain([path.to_owned()]).collect();
    places.extend(files);
    places.sort();
    places.dedup();
    places
}

/// The control socket from the environment, which overrides the file.
pub fn control_variable() -> Option<PathBuf> {
    let host = Host::default();
    let name = format!("{}CONTROL", overrides::GLOBAL);
    host.variables().iter().find(|(variable, _)| *variable == name)?;
    resolve::control_socket(b"", Path::new(&name), &host)
}

/// This machine. Users and groups are read once.
#[derive(Debug)]
pub struct Host {
    _accounts: accounts::Hold,
    may_hang: bool,
}

impl Default for Host {
    fn default() -> Self {
        Host {
            _accounts: accounts::hold(),
            may_hang: geteuid().is_root() && has_fuse(),
        }
    }
}

fn has_fuse() -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let kinds = ["fuse ", "fuse.", "fuseblk "].map(|kind| format!(" - {kind}"));
    kinds.iter().any(|kind| mounts.contains(kind))
}

impl Host {
    /// Checks a path. Assumes success after a timeout.
    fn ask(&self, is_so: impl FnOnce() -> bool) -> bool {
        if !self.may_hang {
            return is_so();
        }
        let found = process::within_a_moment("paths", || Finding::from(vec![u8::from(is_so())]));
        found.is_none_or(|found| found.bytes != [0])
    }
}

impl World for Host {
    fn is_root(&self) -> bool {
        geteuid().is_root()
    }

    fn is_dir(&self, path: &Path) -> bool {
        self.ask(|| path.is_dir())
    }

    fn answers(&self, path: &Path) -> bool {
        !self.may_hang
            || process::within_a_moment("paths", || Finding::from(vec![u8::from(path.exists())])).is_some()
    }

    fn exists(&self, path: &Path) -> bool {
        self.ask(|| path.exists())
    }

    fn without_links(&self, directory: &Path) -> PathBuf {
        let real = || directory.canonicalize().unwrap_or(directory.to_owned());
        if !self.may_hang {
            return real();
        }
        let found = process::within_a_moment("paths", || Finding::from(real().into_os_string().into_vec()));
        found.map_or(directory.to_owned(), |found| {
            OsString::from_vec(found.bytes).into()
        })
    }

    fn user(&self, name: &str) -> Option<UserIds> {
        accounts::named(name).ok().flatten().map(ids)
    }

    fn user_by_id(&self, uid: u32) -> Option<UserIds> {
        accounts::numbered(uid).ok().flatten().map(ids)
    }

    fn group(&self, name: &str) -> Option<u32> {
        accounts::group(name).ok().flatten()
    }

    fn env(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn variables(&self) -> Vec<(String, String)> {
        let all = std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"FORKYARD_"));
        all.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    fn memory(&self) -> Option<u64> {
        let read = |path: &str| fs::read_to_string(path).ok();
        let own = read("/proc/self/cgroup").unwrap_or_default();
        let limit = memory::limit(&own, &|file| read(&format!("{CONTROL_GROUPS}/{file}")));
        let total = read("/proc/meminfo").and_then(|text| memory::total(&text));
        [limit, total].into_iter().flatten().min()
    }

    fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, WorldError> {
        let found = (host, port).to_socket_addrs();
        found.map(Iterator::collect).map_err(|error| {
            let text = error.to_string();
            // std puts its own words before getaddrinfo(3)'s message.
            let reason = text.rsplit_once(": ").map_or(text.as_str(), |(_, reason)| reason);
            WorldError::Message(reason.to_owned())
        })
    }

    fn files(&self, pattern: &Path) -> Result<Vec<PathBuf>, WorldError> {
        let mut found = vec![PathBuf::new()];
        for component in pattern.components() {
            let part = match component {
                Component::Normal(part) => part.to_str().ok_or(WorldError::Pattern)?,
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

    fn read(&self, path: &Path) -> Result<Vec<u8>, WorldError> {
        log::debug!(target: "forkyard::config", "reading {}", path.display());
        read_at_most(MAX_FILE_BYTES, open_at_once(path)?)
    }

    fn read_of_application(&self, path: &Path) -> Result<Vec<u8>, WorldError> {
        if !geteuid().is_root() {
            return read_regular(path);
        }
        let whose = path.display().to_string();
        let found = process::within_a_moment(&whose, || {
            let (is_right, bytes) = match read_regular(path) {
                Ok(bytes) => (1, bytes),
                Err(problem) => (0, problem.to_string().into_bytes()),
            };
            Finding::from([&[is_right][..], &bytes].concat())
        });
        match found.ok_or(WorldError::Hangs)?.bytes.split_first() {
            Some((1, bytes)) => Ok(bytes.to_vec()),
            Some((_, problem)) => Err(WorldError::Message(String::from_utf8_lossy(problem).into_owned())),
            None => Err(WorldError::Unreadable),
        }
    }
}

/// The files that this process may read.
struct Disk;

impl Files for Disk {
    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, WorldError> {
        read_regular(path)
    }
}

/// Returns the command that starts a Node.js application in `root`. Reads its files with the rights of this process.
///
/// # Errors
/// package.json is invalid, or nothing can be started.
pub fn node_command(root: &Path) -> Result<String, NoCommand> {
    start_command(root, &Disk)
}

/// Opens a file of the configuration. Refuses FIFOs, sockets and devices, which would block the daemon, except in `/dev`
/// and `/proc`, where a shell names its descriptors.
///
/// # Errors
/// open(2), or [`WorldError::NotRegular`].
pub fn open_at_once(path: &Path) -> Result<fs::File, WorldError> {
    if path.starts_with("/dev") || path.starts_with("/proc") {
        return Ok(fs::File::open(path)?);
    }
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(path)?;
    let kind = file.metadata()?.file_type();
    // Reading a directory fails by itself.
    match kind.is_file() || kind.is_dir() {
        true => Ok(file),
        false => Err(WorldError::NotRegular),
    }
}

/// Reads a regular file. Follows links only if other users can't change the directories above.
fn read_regular(path: &Path) -> Result<Vec<u8>, WorldError> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
    let entry = HeldEntry::resolve(path)?;
    let kind = |mode| SFlag::from_bits_truncate(mode) & SFlag::S_IFMT;
    // Opening a device could have side effects.
    if kind(entry.stat()?.st_mode) != SFlag::S_IFREG {
        return Err(WorldError::NotRegular);
    }
    let file = fs::File::from(entry.open(flags, Mode::empty())?);
    let opened = file.metadata()?;
    if !opened.is_file() {
        return Err(WorldError::NotRegular);
    }
    // Another link may belong to another user.
    if opened.nlink() > 1 && !entry.is_guarded() {
        return Err(WorldError::SeveralNames);
    }
    read_at_most(MAX_APPLICATION_FILE_BYTES, file)
}

fn read_at_most(most: u64, file: fs::File) -> Result<Vec<u8>, WorldError> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(WorldError::TooLong(most));
    }
    Ok(bytes)
}

fn ids(user: Account) -> UserIds {
    UserIds {
        uid: user.uid,
        gid: user.gid,
    }
}

fn matching(directory: &Path, pattern: &str) -> Result<Vec<PathBuf>, WorldError> {
    let opened = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    let failed = |error| WorldError::Directory {
        directory: opened.to_owned(),
        error,
    };
    let entries = match fs::read_dir(opened) {
        Ok(entries) => entries,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(Vec::new());
        }
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
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
