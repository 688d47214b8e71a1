//! Directories for sockets that only the application's user can reach.
//!
//! A directory lives next to the work directories while its process runs. It is removed together with the socket file
//! ([`SocketFile`](super::SocketFile)). Its name contains the daemon's base directory. A later daemon removes it if
//! that base is gone and no process has bound the socket.

use crate::plan::{OwnSocket, Plan};
use crate::workdir::{Base, make_given, one_by_one, parent, unmount_given};
use forkyard_sys::{self as sys, dir};
use nix::errno::Errno;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PREFIX: &str = "forkyard.app.";
const SOCKET: &str = "socket";
const SCRIPT: &str = "listen.js";
const SOCKETS: &str = "/proc/net/unix";
const MOST_BYTES: u64 = 256 << 10;
const MOST_FILES: u32 = 64;
const MOST_NAMES: usize = 65_536;
/// The minimum age for removal if the daemon had no base directory: the socket may not exist yet.
const YOUNG: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug)]
pub(super) struct OwnDirectory {
    path: PathBuf,
    has_script: bool,
}

impl OwnDirectory {
    /// Creates a directory for the application's user. `base`: the daemon's own directory.
    pub(super) fn make(
        parent: &Path,
        base: Option<&Base>,
        plan: &Plan,
        how: OwnSocket,
    ) -> sys::Result<OwnDirectory> {
        let prefix = match base.and_then(Base::mark) {
            Some(mark) => format!("{PREFIX}{mark}."),
            None => PREFIX.to_owned(),
        };
        let (path, top) = make_given(parent, &prefix, MOST_BYTES, MOST_FILES)?;
        let made = OwnDirectory {
            path,
            has_script: matches!(how, OwnSocket::Preloaded(_)),
        };
        let furnish = || {
            if let OwnSocket::Preloaded(script) = how {
                dir::write(top.as_fd(), SCRIPT, script.as_bytes())?;
            }
            if plan.switch_user {
                dir::give_away(top.as_fd(), plan.account.uid, plan.account.gid)?;
            }
            Ok(())
        };
        let done = furnish();
        if done.is_err() {
            remove(&made.path);
        }
        done.map(|()| made)
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.path.join(SOCKET)
    }

    pub(super) fn script(&self) -> Option<PathBuf> {
        self.has_script.then(|| self.path.join(SCRIPT))
    }

    pub(super) fn remove(&self) {
        remove(&self.path);
    }
}

pub(super) fn remove_around(socket: &Path, uid: u32) {
    let Some(directory) = socket.parent() else { return };
    let is_ours = is_named(directory) && directory.parent() == Some(&parent());
    if is_ours && fs::symlink_metadata(directory).is_ok_and(|found| found.is_dir() && found.uid() == uid) {
        remove(directory);
    }
}

/// Removes unused directories of dead daemons, after their base directories. Uses a separate process for each, because
/// access may block.
pub(super) fn sweep(parent: &Path) {
    let found = dir::open(parent).and_then(|top| dir::names(top.as_fd(), MOST_NAMES));
    for name in found.unwrap_or_default() {
        let path = parent.join(name);
        if is_named(&path) {
            one_by_one(&[], || {
                if is_left(&path) {
                    remove(&path);
                }
            });
        }
    }
}

fn is_named(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(PREFIX))
}

fn is_left(directory: &Path) -> bool {
    let socket = directory.join(SOCKET);
    match sys::socket::connect_unix(&socket) {
        Ok(_) => false,
        // A process that has bound the socket may be about to listen.
        Err(error) if error.errno == Errno::ECONNREFUSED => !is_bound(&socket),
        Err(error) if error.errno == Errno::ENOENT => match maker(directory) {
            Some(base) => !base.exists(),
            None => {
                let changed = fs::symlink_metadata(directory).and_then(|found| found.modified());
                changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > YOUNG))
            }
        },
        Err(_) => false,
    }
}

fn maker(directory: &Path) -> Option<PathBuf> {
    let name = directory.file_name()?.to_str()?;
    let (mark, _) = name.strip_prefix(PREFIX)?.split_once('.')?;
    Some(Base::marked(directory.parent()?, mark))
}

/// Returns whether a process in this network namespace has bound the path.
fn is_bound(socket: &Path) -> bool {
    let path = socket.as_os_str().as_bytes();
    let is_of = |line: &[u8]| line.strip_suffix(path).is_some_and(|rest| rest.ends_with(b" "));
    match fs::read(SOCKETS) {
        Ok(all) => all.split(|byte| *byte == b'\n').any(is_of),
        Err(_) => true,
    }
}

/// Removes only files; subdirectories belong to the application and stay.
fn remove(directory: &Path) {
    if let Ok(top) = dir::open(directory) {
        let _ = dir::remove_files(top.as_fd());
        drop(top);
        unmount_given(directory);
        let _ = fs::remove_dir(directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_full_queue_is_one_that_is_listened_at() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(SOCKET);
        let address = UnixAddr::new(&path).unwrap();
        let made = |flags| socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
        let listener = made(SockFlag::SOCK_CLOEXEC);
        bind(listener.as_raw_fd(), &address).unwrap();
        listen(&listener, Backlog::new(0).unwrap()).unwrap();
        let mut held = Vec::new();
        while let Ok(Some(client)) = sys::socket::connect_unix(&path) {
            held.push(client);
        }
        let (tell, heard) = std::sync::mpsc::channel();
        let of = directory.path().to_owned();
        std::thread::spawn(move || tell.send(is_left(&of)));
        let soon = Duration::from_secs(30);
        assert_eq!(heard.recv_timeout(soon), Ok(false), "nobody waits for a place");
    }

    #[test]
    fn what_no_process_listens_in_is_removed_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            let path = directory.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let base = Base::make(directory.path()).unwrap();
        let ours = format!("forkyard.app.{}.x", base.mark().unwrap());
        let [live, bound, dead, young, starting_one, ended, other] = [
            "forkyard.app.live",
            "forkyard.app.bound",
            "forkyard.app.dead",
            "forkyard.app.young",
            &ours,
            "forkyard.app.gone.x",
            "other.dead",
        ]
        .map(at);
        let _live = UnixListener::bind(live.join(SOCKET)).unwrap();
        let starting = socket(
            AddressFamily::Unix,
            SockType::Stream,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .unwrap();
        bind(starting.as_raw_fd(), &UnixAddr::new(&bound.join(SOCKET)).unwrap()).unwrap();
        for path in [&dead, &other] {
            drop(UnixListener::bind(path.join(SOCKET)).unwrap());
            fs::write(path.join(SCRIPT), "").unwrap();
        }
        sweep(directory.path());
        assert!(live.join(SOCKET).exists() && bound.join(SOCKET).exists());
        assert!(starting_one.exists() && !ended.exists());
        assert!(young.exists() && other.join(SCRIPT).exists());
        assert!(!dead.exists());
        drop(starting);
        // A process started by another test may briefly hold a copy.
        let begun = std::time::Instant::now();
        while bound.exists() && begun.elapsed() < Duration::from_secs(30) {
            sweep(directory.path());
        }
        assert!(!bound.exists());
    }
}
