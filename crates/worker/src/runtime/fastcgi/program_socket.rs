//! The socket on which a program listens. It has no name, so that no other process can connect to it.

use crate::sys::file::Held;
use crate::sys::socket::{Readiness, accept, wait};
use crate::sys::{Error, dir};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Name of the socket in a directory that is there only while it is made.
const NAME: &str = "s";
/// What its directory's name begins with.
const PREFIX: &str = "forkyard.fastcgi.";
/// Any user may connect to the socket's inode, but it can't be found by a path.
const MODE: u32 = 0o666;

/// A listening socket and the way to it.
///
/// The file that it was bound to is gone; it is held by a descriptor that stands for nothing but the file's inode (`O_PATH`),
/// through which it can still be connected to. So nothing is left behind, however the worker ends.
#[derive(Debug)]
pub(super) struct ProgramSocket {
    listener: OwnedFd,
    held: Held,
}

impl ProgramSocket {
    /// A new socket, made in `parent`, where no trace of it stays.
    pub(super) fn open(parent: &Path) -> Result<ProgramSocket, Error> {
        let (directory, _) = dir::make_temporary(parent, PREFIX)?;
        let path = directory.join(NAME);
        let made = ProgramSocket::open_at(&path);
        // Only this process knows the name, so there is nothing else in the directory.
        let _ = std::fs::remove_file(&path);
        let _ = std::fs::remove_dir(&directory);
        made
    }

    fn open_at(path: &Path) -> Result<ProgramSocket, Error> {
        let failed = |error: std::io::Error| Error::from_io("bind", path.display().to_string(), &error);
        // Blocking: most programs expect accept(2) to wait.
        let listener = UnixListener::bind(path).map_err(failed)?;
        let held = Held::open(path)?;
        held.change_mode(MODE)?;
        Ok(ProgramSocket {
            listener: listener.into(),
            held,
        })
    }

    /// The socket, for the program.
    pub(super) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Closes the connections that no program has accepted. They are of requests and questions that were given up, and
    /// the next program would still find them.
    pub(super) fn clear(&self) {
        let now = std::time::Duration::ZERO;
        // The socket blocks, so it is polled first; no other process accepts while there is no program.
        while wait(self.listener.as_fd(), Readiness::Readable, now).unwrap_or(false) {
            if !matches!(accept(self.listener.as_fd()), Ok(Some(_))) {
                return;
            }
        }
    }

    /// A connection, non-blocking. It is there at once, whether or not the program accepts it.
    ///
    /// # Errors
    /// EAGAIN: too many wait to be accepted. ENOENT: /proc is not there, as in a root directory of the pool's own.
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
    use crate::sys::fd::unread_by_peer;
    use crate::sys::socket::{Progress, receive, send};

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
