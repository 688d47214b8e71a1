//! The program's listening socket. It has no name, so other processes can't connect to it.

use forkyard_sys::file::Held;
use forkyard_sys::socket::{Readiness, accept, wait};
use forkyard_sys::{Error, dir};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

const NAME: &str = "s";
const PREFIX: &str = "forkyard.fastcgi.";
/// Any user may connect to the inode, but no path leads to it.
const MODE: u32 = 0o666;

/// A listening socket without a name.
///
/// The socket file is already unlinked. A descriptor for the inode (`O_PATH`) still allows connections, and nothing is
/// left behind when the worker exits.
#[derive(Debug)]
pub(super) struct ProgramSocket {
    listener: OwnedFd,
    held: Held,
}

impl ProgramSocket {
    /// Binds the socket in a temporary directory below `parent` and removes both.
    pub(super) fn open(parent: &Path) -> Result<ProgramSocket, Error> {
        let (directory, _) = dir::make_temporary(parent, PREFIX)?;
        let path = directory.join(NAME);
        let made = ProgramSocket::open_at(&path);
        let _ = std::fs::remove_file(&path);
        let _ = std::fs::remove_dir(&directory);
        made
    }

    fn open_at(path: &Path) -> Result<ProgramSocket, Error> {
        let failed = |error: std::io::Error| Error::from_io("bind", path.display().to_string(), &error);
        // Blocking, because most programs expect accept(2) to wait.
        let listener = UnixListener::bind(path).map_err(failed)?;
        let held = Held::open(path)?;
        held.change_mode(MODE)?;
        Ok(ProgramSocket {
            listener: listener.into(),
            held,
        })
    }

    pub(super) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Closes connections that no program has accepted. Their requests were given up, but the next program would still
    /// find them.
    pub(super) fn clear(&self) {
        let now = std::time::Duration::ZERO;
        // The socket blocks, so poll first. While no program runs, no other process accepts.
        while wait(self.listener.as_fd(), Readiness::Readable, now).unwrap_or(false) {
            if !matches!(accept(self.listener.as_fd()), Ok(Some(_))) {
                return;
            }
        }
    }

    /// Opens a non-blocking connection, whether or not the program accepts it.
    ///
    /// # Errors
    /// EAGAIN: the backlog is full. ENOENT: /proc is missing, as in a chroot.
    pub(super) fn connect(&self) -> Result<OwnedFd, Error> {
        let failed = |errno| Error::new("connect", "the program's socket", errno);
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let connection = socket(AddressFamily::Unix, SockType::Stream, flags, None).map_err(failed)?;
        let address = UnixAddr::new(&self.held.path()).map_err(failed)?;
        connect(connection.as_raw_fd(), &address).map_err(failed)?;
        Ok(connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_sys::fd::unread_by_peer;
    use forkyard_sys::socket::{Progress, receive, send};

    #[test]
    fn the_socket_leaves_no_trace_and_can_be_gone_through() {
        let parent = tempfile::tempdir().unwrap();
        let socket = ProgramSocket::open(parent.path()).unwrap();
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
        let connection = socket.connect().unwrap();
        assert_eq!(send(connection.as_fd(), b"words"), Ok(Progress::Done(5)));
        assert_ne!(unread_by_peer(connection.as_fd()), Some(0));
        let other = accept(socket.listener()).unwrap().unwrap();
        let mut bytes = [0; 8];
        assert_eq!(receive(other.as_fd(), &mut bytes), Ok(Progress::Done(5)));
        assert_eq!(unread_by_peer(connection.as_fd()), Some(0));
        let given_up = socket.connect().unwrap();
        socket.clear();
        assert_eq!(receive(given_up.as_fd(), &mut bytes), Ok(Progress::Done(0)));
    }
}
